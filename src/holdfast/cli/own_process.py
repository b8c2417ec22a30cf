"""How a process that is ours alone, and has much in memory, has Python's garbage collector work.

The collector looks for cycles whenever some hundred objects more are alive, and now and then at all there are. Records,
messages and items are no cycles, but a worker has hundreds of thousands of them: it spent a sixth of its time on looks
that found nothing. A program that Holdfast is a library of decides for itself.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 50_000
"""Objects more after which young ones are looked at: a few turns, or a page of sessions, have more than usual (700)."""


def collect_seldom() -> None:
    """Look for garbage less often from now on."""
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
