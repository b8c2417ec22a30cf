"""What `doctor` found: in a part of the sessions, as each process that looks at some has it, and in all."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec

from holdfast.engine.fleet_limits import LimitReport
from holdfast.engine.process_rows import ProcessRow
from holdfast.engine.waits import Wait, WaitTable
from holdfast.store.sound_sessions import CheckedPage

MOST_STILL = 1_000
"""Sessions that do not move which a report names; the others are counted."""

_STILL_AT_ONCE = 8 * MOST_STILL
"""Those that are collected before the others are left out: to sort them takes long."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with one session."""

    session_id: str
    why: str
    next: str = ""
    """What to do, or an empty text if it was repaired."""


class Still(msgspec.Struct, frozen=True):
    """A session that does not move."""

    session_id: str
    service: str
    wait: Wait


class SandboxState(msgspec.Struct, frozen=True):
    """Whether the workers of sandboxed Python run on this machine."""

    runs: bool
    jailed: bool
    """Whether they are inside bubblewrap."""
    why: str = ""
    """Why they do not run, or are not inside bubblewrap."""


class CheckedPart(msgspec.Struct):
    """What was found in a part of the sessions."""

    sound: int = 0
    doubtful: list[str] = []
    """Ids of those that are to be looked at one by one."""
    with_mail: list[str] = []
    """Ids of those sound ones that may wait for somebody to take their messages."""
    still: list[Still] = []
    """Those that do not move, at least the `MOST_STILL` that come first."""
    still_count: int = 0
    between_turns: int = 0

    @property
    def seen(self) -> int:
        """How many sessions were looked at so far."""
        return self.sound + len(self.doubtful)

    def add_page(self, page: CheckedPage, waits: WaitTable, with_mail: AbstractSet[str]) -> None:
        """Some sessions that were checked. `with_mail` has the ids of those that have messages."""
        self.sound += len(page.sound)
        self.doubtful += page.doubtful
        held, wait_of, add_still = page.held, waits.wait_of, self.add_still
        for session in page.sound:
            started, session_id = session.started, session.id
            if started is None or session.is_terminal or session_id in held:
                continue
            if session_id in with_mail:
                self.with_mail.append(session_id)
            elif (wait := wait_of(session)) is not None:
                add_still(session_id, started.service, wait)

    def add_still(self, session_id: str, service: str, wait: Wait) -> None:
        """A session that does not move."""
        self.still_count += 1
        self.between_turns += wait.is_between_turns
        self.still.append(Still(session_id, service, wait))
        if len(self.still) >= _STILL_AT_ONCE:
            self.keep_most_still()

    def keep_most_still(self) -> None:
        """Those that stand still come first, then those that have waited for the longest."""
        self.still.sort(key=_rank)
        del self.still[MOST_STILL:]

    def add_part(self, other: CheckedPart) -> None:
        """What somebody else found in other sessions."""
        self.sound += other.sound
        self.doubtful += other.doubtful
        self.with_mail += other.with_mail
        self.still += other.still
        self.still_count += other.still_count
        self.between_turns += other.between_turns
        self.keep_most_still()


def _rank(each: Still) -> tuple[bool, int]:
    return not each.wait.is_stuck, each.wait.since


class Report(msgspec.Struct):
    """What the doctor found in a store, and on this machine."""

    sandbox: SandboxState
    sessions: int = 0
    repaired: list[Finding] = []
    damaged: list[Finding] = []
    processes: list[ProcessRow] = []
    """At work on the store, as they have said lately."""
    still: list[Still] = []
    """Sessions that do not move, those first that no process which is here can serve; at most `MOST_STILL`."""
    still_count: int = 0
    """How many there are."""
    between_turns: int = 0
    """Those of them that are conversations which wait for their next input."""
    limits: list[LimitReport] = []
    """The limits of the fleet, and how much of each is in use."""
