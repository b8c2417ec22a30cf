"""`GroupSize`: how many of those who write to a store are a group before the turn of the event loop ends."""

from __future__ import annotations

from holdfast.store.limits import GROUP_COMMIT_MAX


class GroupSize:
    """Half of all who write: while one half is written the loop makes the other, and neither waits long for it.

    All at once would be written in one turn and wait for one another in the next, and whoever came late would be a
    group alone.
    """

    def __init__(self, least: int) -> None:
        self._least = least
        self._crowds = (0, 0)
        """Writes that were under way when each of the last two groups was begun."""
        self.early = least
        """So many that wait are begun at once, if the store is free to."""

    def begun(self, under_way: int) -> None:
        """A group was begun, and with it so many writes are under way."""
        self._crowds = (self._crowds[1], under_way)
        self.early = min(max(max(self._crowds) // 2, self._least), GROUP_COMMIT_MAX)
