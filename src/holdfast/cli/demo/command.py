"""`demo`: a session whose process is killed half-way continues in another, and counts show that nothing was repeated.

Nothing here is canned. A child process runs the session; this one only watches the journal, kills, and starts the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.cli.options import common, settings
from holdfast.cli.output import dim, heading, pretty, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode, HoldfastError, SessionNotFoundError
from holdfast.core.records import AnsweredRecord, CompletedRecord, Entry

if TYPE_CHECKING:
    from holdfast.engine.holdfast import Holdfast

KILL_AFTER = 4
"""Answers after which the process is killed: two of the three questions of the batch are answered by then."""

PATIENCE_S = 60
"""Seconds after which the demo gives up: far more than it needs on a slow machine."""

SESSION_ID = "demo"


class DemoError(HoldfastError):
    """The demo could not be completed."""

    kind = "demo"


class DemoReport(msgspec.Struct):
    """What happened during the demo."""

    session_id: str = SESSION_ID
    first_pid: int = 0
    first_exit: int | None = None
    second_pid: int = 0
    second_exit: int | None = None
    killed_at: int = 0
    """The journal's position when the first process was killed."""
    answered_before: list[str] = []
    asked: dict[str, int] = {}
    """How often each question was put to the host."""
    asked_again: list[str] = []
    """Questions that had an answer when the process died, and were put to the host again."""
    effects: dict[str, int] = {}
    """How often each effect was executed."""
    result: Any = None
    stats: dict[str, Any] = {}
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return (
            self.first_exit == -signal.SIGKILL
            and self.second_exit == 0
            and self.first_pid != self.second_pid
            and self.result is not None
            and len(self.answered_before) >= KILL_AFTER
            and not self.asked_again
            and bool(self.effects)
            and set(self.effects.values()) == {1}
        )


@click.command("demo")
@common()
def demo_command() -> int:
    """See a session survive the death of its process. Needs no keys and no network, and leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        began = time.monotonic()
        report = asyncio.run(_Demo(Path(folder)).play())
        report.seconds = round(time.monotonic() - began, 1)
    if settings().json:
        print_json({"ok": report.ok, **msgspec.to_builtins(report)})
    else:
        _print_report(report)
    return ExitCode.OK if report.ok else ExitCode.ENDED_BADLY


class _Demo:
    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'demo.db'}"
        self._log = folder / "log.jsonl"
        self._report = DemoReport()

    async def play(self) -> DemoReport:
        from holdfast.engine.holdfast import open_holdfast
        from holdfast.engine.upkeep import Upkeep

        report = self._report
        async with asyncio.timeout(PATIENCE_S), open_holdfast(self._url, upkeep=Upkeep(on=False)) as hf:
            async with self._child("start") as child:
                report.first_pid = child.pid
                _say(f"\n{heading('1  A process starts a session.')} {dim(f'pid {child.pid}; a script answers it.')}\n")
                last = await self._until_answered(hf, child, KILL_AFTER)
                child.send_signal(signal.SIGKILL)
                report.first_exit = await child.wait()
            report.answered_before, report.killed_at = await self._answered(hf)
            _say(f"\n{heading('2  kill -9.')} {dim(f'pid {report.first_pid} is gone, in the middle of a batch.')}")
            async with self._child("resume") as child:
                report.second_pid = child.pid
                _say(f"\n{heading('3  Another process continues.')} {dim(f'pid {child.pid}, the same file.')}\n")
                await self._until_ended(hf, child, last)
                report.second_exit = await child.wait()
            await self._count(hf)
        return report

    @contextlib.asynccontextmanager
    async def _child(self, what: str) -> AsyncIterator[asyncio.subprocess.Process]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast.cli.demo.child", what, self._url, SESSION_ID, str(self._log)
        )
        try:
            yield child
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()

    async def _until_answered(self, hf: Holdfast, child: asyncio.subprocess.Process, count: int) -> int:
        """Show entries until so many queries are answered; return the last position shown."""
        answered = 0
        async with contextlib.aclosing(_entries(hf, child, 0)) as entries:
            async for entry in entries:
                _show(entry)
                answered += isinstance(entry.record, AnsweredRecord)
                if answered == count:
                    return entry.position
        raise DemoError("the session ended before its process could be killed")

    async def _until_ended(self, hf: Holdfast, child: asyncio.subprocess.Process, after: int) -> None:
        async with contextlib.aclosing(_entries(hf, child, after)) as entries:
            async for entry in entries:
                _show(entry)

    async def _answered(self, hf: Holdfast) -> tuple[list[str], int]:
        """The queries that have an answer now, and the journal's position."""
        entries = [entry async for entry in hf.store.journal(SESSION_ID)]
        return [e.record.query_id for e in entries if isinstance(e.record, AnsweredRecord)], entries[-1].position

    async def _count(self, hf: Holdfast) -> None:
        report = self._report
        logged = [json.loads(line) for line in self._log.read_text().splitlines()]
        report.asked = dict(Counter(line["asked"] for line in logged if "asked" in line))
        report.effects = dict(Counter(line["effect"] for line in logged if "effect" in line))
        after = {line["asked"] for line in logged if "asked" in line and line["pid"] == report.second_pid}
        report.asked_again = sorted(after & set(report.answered_before))
        async for entry in hf.store.journal(SESSION_ID):
            if isinstance(entry.record, CompletedRecord):
                report.result = entry.record.result
        report.stats = (await hf.status(SESSION_ID))["outcome"]["stats"]


async def _entries(hf: Holdfast, child: asyncio.subprocess.Process, after: int) -> AsyncGenerator[Entry, None]:
    """The entries of the session as they arrive; an error if its process ends too early."""
    dead = asyncio.create_task(child.wait())
    try:
        while True:
            try:
                await hf.store.position(SESSION_ID)
                break
            except SessionNotFoundError:
                if dead.done():
                    raise DemoError(f"the child process ended with exit code {child.returncode}") from None
                await asyncio.sleep(0.02)
        watched = hf.watch(SESSION_ID, after)
        while True:
            following = asyncio.ensure_future(anext(watched))
            await asyncio.wait({following, dead}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done() and child.returncode != 0:
                following.cancel()
                raise DemoError(f"the child process ended with exit code {child.returncode}")
            try:
                yield await following
            except StopAsyncIteration:
                return
    finally:
        dead.cancel()


def _show(entry: Entry) -> None:
    from holdfast.cli.display.timeline import timeline

    for line in timeline(entry):
        _say("   " + line)


def _say(text: str) -> None:
    if not settings().json:
        click.echo(text)


def _print_report(report: DemoReport) -> None:
    from holdfast.cli.display.events import stats_line

    click.echo(f"\n{heading('4  The result.')} {dim(stats_line(report.stats))}\n")
    click.echo(pretty(report.result))
    click.echo(
        f"\n{heading('5  The count.')} {dim('From a log that the host and the tools kept, outside the store.')}\n"
    )
    rows = [
        [query, f"put to the host {_times(count)}", "before" if query in report.answered_before else "after"]
        for query, count in sorted(report.asked.items(), key=lambda item: int(item[0][2:]))
    ]
    rows += [[effect, f"executed {_times(count)}", ""] for effect, count in report.effects.items()]
    print_table(["WHAT", "HOW OFTEN", "ANSWERED BEFORE THE KILL, OR AFTER"], rows)
    for query in [query for query, count in report.asked.items() if count > 1 and query not in report.asked_again]:
        click.echo(dim(f"\n{query} was with the host when the process died: it had no answer, so it was asked again."))
    if report.ok:
        verdict = "Nothing that had an answer was asked again, and no effect ran twice."
        click.echo(f"\n{click.style('✓', fg='green')} {verdict} {dim(f'({report.seconds} s)')}")
    else:
        click.echo(f"\n{click.style('✗', fg='red')} The check failed: {msgspec.json.encode(report).decode()}")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
