"""`WorkReport`: what a process that works through inboxes says of its turns."""

from __future__ import annotations

import msgspec


class WorkReport(msgspec.Struct, frozen=True):
    """The turns of a worker."""

    under_way: int
    most: int
    """How many it has at a time at most."""
    is_draining: bool
    """Whether it begins no more: it ends once those under way are over."""
