"""`UpkeepScope`: which sessions the upkeep of this process looks after, and which it passes over for a while."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from holdfast.core.errors import HoldfastError
from holdfast.store.errors import StoreUnavailableError

log = logging.getLogger("holdfast.engine")


class UpkeepScope:
    """All sessions of the store; or with `only`, one session and its children."""

    def __init__(self, only: str | None) -> None:
        self.only = only
        self._passed_over: dict[str, int | None] = {}
        """Sessions that this process cannot resume: something that they need is missing here, they are damaged, or not
        among `only`. With the position at which that was found, where it is known: a later step may need less."""

    def includes(self, session_id: str) -> bool:
        """Whether a session is among those that this process may resume."""
        return self.only is None or session_id == self.only or session_id.startswith(f"{self.only}.")

    @property
    def passed_over(self) -> int:
        """How many sessions are passed over for now."""
        return len(self._passed_over)

    def forget_passed_over(self) -> None:
        """Try all sessions again."""
        self._passed_over.clear()

    async def attempt(
        self, session_id: str, act: Callable[[str], Awaitable[bool]], position: int | None = None
    ) -> bool:
        """Do something about a session. One that is not served here is passed over for a while, at this position.

        False if the store could not be reached, so that it has to be tried again.
        """
        if self._passed_over.get(session_id, -1) in (None, position):
            return True
        try:
            runs_here = self.includes(session_id) and await act(session_id)
        except StoreUnavailableError:
            return False  # that says nothing about the session
        except Exception as error:
            if not isinstance(error, HoldfastError):  # a fault of ours must not keep the other sessions from their turn
                log.exception("session '%s' cannot be looked after here", session_id)
            runs_here = False
        if not runs_here:
            self._passed_over[session_id] = position
        return True
