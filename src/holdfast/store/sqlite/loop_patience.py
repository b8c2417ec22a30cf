"""`LoopPatience`: whether the event loop may wait for a SQLite file itself, or leaves that to a thread for a while."""

from __future__ import annotations

from holdfast.store.limits import IN_PLACE_ALLOWANCE_S, IN_PLACE_MAX_MS, IN_PLACE_REST


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
        """The loop has waited for the file."""
        took = ended - began
        if took * 1000 > IN_PLACE_MAX_MS:
            self.rests_until = max(self.rests_until, ended - IN_PLACE_ALLOWANCE_S) + took * IN_PLACE_REST
