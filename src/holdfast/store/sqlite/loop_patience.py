"""`LoopPatience`: whether the event loop may wait for a SQLite file itself, or leaves that to a thread for a while."""

from __future__ import annotations

from holdfast.store.limits import IN_PLACE_ALLOWANCE_S, IN_PLACE_MAX_MS, IN_PLACE_REST

SLOW_S = IN_PLACE_MAX_MS / 1000
"""Seconds after which a wait of the loop is a long one."""


class LoopPatience:
    """Bounds how long the loop is held up: by a twentieth of the time, and now and then by a moment more.

    A busy machine makes a quick write slow now and then. A thread would be no better off there: it only has to be
    waited for as well. So what is slow must be so for long enough before the loop leaves it alone.
    """

    __slots__ = ("rests_until",)

    def __init__(self) -> None:
        self.rests_until = 0.0
        """By the monotonic clock. The loop may wait for the file after that."""

    def waited(self, began: float, ended: float) -> None:
        """The loop has waited for the file. Need not be told of less than `SLOW_S`."""
        took = ended - began
        if took > SLOW_S:
            self.rests_until = max(self.rests_until, ended - IN_PLACE_ALLOWANCE_S) + took * IN_PLACE_REST
