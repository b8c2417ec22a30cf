"""All sessions of a store compared with their journals: in this process, or if there are many, in several at once.

Each process takes spans of sessions until none are left. What a helper found counts only if it came to its end in good
order: what one that failed had taken is looked at again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from holdfast.cli.doctor.helper import HelperTask
from holdfast.cli.doctor.report import CheckedPart
from holdfast.store import Store
from holdfast.store.sound_sessions import Span, SpannedStore

SPAN_SESSIONS = 1_000
"""Sessions of a span: a twentieth of a second, so that the processes end at about the same time."""

MANY_SPANS = 20
"""Spans from which on helpers are worth it: to start one takes as long as it takes to check a few spans."""

MOST_PROCESSES = 4
"""More would keep each other waiting for the disk, and the machine may have other work."""

HELPER = (sys.executable, "-P", "-m", "holdfast.cli.doctor.helper")
"""How a helper is started; without the working directory among the places that modules are imported from."""

_AHEAD = 2
"""Spans that a helper has at a time: it need not wait for this process, which is at work itself."""

_PATIENCE_S = 5.0
"""Seconds that a helper which failed, or is not needed any more, has to come to its end."""


async def check_sessions(store: Store, task: HelperTask, tell: Callable[[int], None]) -> CheckedPart:
    """What is to be said of all sessions of a store. Says now and then how many were looked at."""
    part, waits, with_mail = CheckedPart(), task.waits(), set(task.with_mail)
    spans = await store.spans(SPAN_SESSIONS) if isinstance(store, SpannedStore) else []
    if isinstance(store, SpannedStore) and len(spans) >= MANY_SPANS and _processors() > 1:
        return await _Shared(store, task, spans, tell).check()
    after: str | None = None
    while True:
        page = await store.checked(after=after)
        part.add_page(page, waits, with_mail)
        tell(part.seen)
        after = page.next
        if after is None:
            return part


def _processors() -> int:
    """Those that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Shared:
    """Spans that this process and its helpers check together."""

    def __init__(self, store: SpannedStore, task: HelperTask, spans: list[Span], tell: Callable[[int], None]) -> None:
        self._store = store
        self._task = task
        self._left = deque(spans)
        self._tell = tell
        self._seen = 0

    async def check(self) -> CheckedPart:
        """What was found in all of them."""
        helpers = min(_processors(), MOST_PROCESSES) - 1
        async with asyncio.TaskGroup() as group:
            helped = [group.create_task(self._helped()) for _ in range(helpers)]
            found = await self._check_here()
        for each in helped:
            found.add_part(each.result())
        found.add_part(await self._check_here())  # what helpers that failed have left
        return found

    def _see(self, sessions: int) -> None:
        self._seen += sessions
        self._tell(self._seen)

    async def _check_here(self) -> CheckedPart:
        part, waits, with_mail = CheckedPart(), self._task.waits(), set(self._task.with_mail)
        while self._left:
            seen = part.seen
            part.add_page(await self._store.checked_span(self._left.popleft()), waits, with_mail)
            self._see(part.seen - seen)
        return part

    async def _helped(self) -> CheckedPart:
        """What a helper found: nothing if it could not be started, or failed."""
        taken: list[Span] = []
        told = 0

        def take() -> bytes:
            if not self._left:
                return b""
            taken.append(self._left.popleft())
            return msgspec.json.encode(taken[-1]) + b"\n"

        try:
            async with _helper_process() as (requests, replies):
                requests.write(msgspec.json.encode(self._task) + b"\n")
                for _ in range(_AHEAD):
                    requests.write(take())
                answered = 0
                while answered < len(taken):
                    seen = int(await replies.readline())
                    self._see(seen)
                    told, answered = told + seen, answered + 1
                    requests.write(take())
                requests.close()
                return msgspec.json.decode(await replies.read(), type=CheckedPart)
        except (OSError, ValueError, msgspec.MsgspecError):
            self._left.extend(taken)
            self._see(-told)
            return CheckedPart()


@contextlib.asynccontextmanager
async def _helper_process() -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.StreamReader]]:
    """A process that checks spans: what it reads, and what it writes."""
    process = await asyncio.create_subprocess_exec(
        *HELPER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # whatever it says, its sessions are looked at again
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()  # then it ends, if it has not
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
