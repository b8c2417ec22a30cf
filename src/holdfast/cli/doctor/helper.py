"""A process that checks sessions for `doctor`: reads what it is asked, a line each, and writes what it found.

The first line is a `HelperTask`, each further one a `Span`. For each span it writes how many sessions it looked at, and
once there are no more, what it found in all of them. It changes nothing in the store.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from holdfast.cli.doctor.report import CheckedPart
from holdfast.cli.own_process import collect_seldom
from holdfast.engine.process_rows import ProcessRow
from holdfast.engine.waits import WaitTable
from holdfast.store import open_store
from holdfast.store.sound_sessions import Span, SpannedStore


class HelperTask(msgspec.Struct, frozen=True):
    """What one has to know to check sessions of a store."""

    url: str
    now: int
    """When the check began (unix ms)."""
    processes: list[ProcessRow]
    """Those that are at work on the store."""
    with_mail: list[str]
    """Ids of sessions that have messages."""

    def waits(self) -> WaitTable:
        """Why its sessions do not move."""
        return WaitTable(self.processes, self.now)


async def _check_spans(task: HelperTask) -> CheckedPart:
    part, waits, with_mail = CheckedPart(), task.waits(), set(task.with_mail)
    async with open_store(task.url) as store:
        assert isinstance(store, SpannedStore)
        for line in sys.stdin.buffer:
            seen = part.seen
            part.add_page(await store.checked_span(msgspec.json.decode(line, type=Span)), waits, with_mail)
            print(part.seen - seen, flush=True)
    part.keep_most_still()
    return part


def main() -> None:
    """Check what the standard input says."""
    collect_seldom()
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=HelperTask)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(_check_spans(task))))


if __name__ == "__main__":
    main()
