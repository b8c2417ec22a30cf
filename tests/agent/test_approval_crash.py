"""Approval across processes, and across kills: asked once, answered by anyone, and the tool run once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.core.errors import AnswerConflictError
from holdfast.core.events import PausedEvent
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import soon
from tests.agent.helpers import Home
from tests.paths import REPO

PAID = "It came to paid."


class Till:
    """Processes that pay, on one store and with one ledger."""

    def __init__(self, home: Home, folder: Path, recovery: str = "idempotent") -> None:
        self.url = home.url
        self.recovery = recovery
        self._ledger = folder / "ledger"

    @asynccontextmanager
    async def process(self, what: str, seam: str = "", number: int = 0) -> AsyncIterator[asyncio.subprocess.Process]:
        arguments = (self.url, str(self._ledger), what, self.recovery, seam, str(number))
        command = (sys.executable, "-m", "tests.agent.approval_child", *arguments)
        process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=asyncio.subprocess.PIPE)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def says(self, what: str) -> str:
        """What a process says that does its work to the end."""
        async with self.process(what) as process:
            told = await last_line(process)
            assert await soon(process.wait()) == 0
            return told

    async def dies(self, what: str, seam: str, number: int = 1) -> None:
        """Have a process die at a seam."""
        async with self.process(what, seam, number) as process:
            assert await soon(process.wait()) == -signal.SIGKILL

    async def ask_and_die(self) -> str:
        """Have a process ask, and killed while it waits; the query."""
        async with self.process("ask") as process:
            waits = await line(process)
            process.kill()
        return waits.removeprefix("waits for ")

    @property
    def payments(self) -> list[str]:
        """The keys of the calls that paid."""
        return self._ledger.read_text().split() if self._ledger.exists() else []


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await soon(process.stdout.readline())).decode().strip()


async def last_line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await soon(process.stdout.read())).decode().strip().rpartition("\n")[2]


@asynccontextmanager
async def bystander(home: Home) -> AsyncIterator[Holdfast]:
    """A process that has neither the tool, nor the model, nor the rules: it sees and answers."""
    async with open_holdfast(home.url, upkeep=Upkeep(on=False)) as hf:
        yield hf


async def approvals(hf: Holdfast) -> list[ApprovalQuery]:
    event = await soon(hf.event("s"))
    queries = event.queries if isinstance(event, PausedEvent) else []
    return [query for query in queries if isinstance(query, ApprovalQuery)]


async def test_an_approval_outlives_the_process_that_asked_and_another_one_goes_on(
    shared_home: Home, tmp_path: Path
) -> None:
    till = Till(shared_home, tmp_path)
    query = await till.ask_and_die()
    async with bystander(shared_home) as hf:
        [asked] = await approvals(hf)
        assert (asked.id, asked.approves.arguments) == (query, {"euros": 3})
        [shown] = (await hf.status("s"))["pending"]
        assert (shown["query_id"], shown["approves"]["tool"]) == (query, "pay")
    assert till.payments == []
    assert await till.says("approve") == PAID
    assert len(till.payments) == 1


@pytest.mark.parametrize(
    ("seam", "decision"),
    [("before feed", "approve"), ("after feed", "join"), ("before effect", "join"), ("after effect", "join")],
)
async def test_whenever_the_approving_process_dies_the_call_is_asked_once_and_paid_once(
    shared_home: Home, tmp_path: Path, seam: str, decision: str
) -> None:
    """Before the answer is durable it is still waited for; after, it is not, and the tool is run with the same key."""
    till = Till(shared_home, tmp_path)
    query = await till.ask_and_die()
    await till.dies("approve", seam)
    async with bystander(shared_home) as hf:
        assert [asked.id for asked in await approvals(hf)] == ([query] if decision == "approve" else [])
    assert await till.says(decision) == PAID
    assert len(set(till.payments)) == 1
    assert len(till.payments) == (2 if seam == "after effect" else 1)


@pytest.mark.parametrize(("seam", "payments"), [("after feed", 0), ("after effect", 1)])
async def test_a_tool_that_is_never_run_twice_is_not_though_it_was_approved(
    shared_home: Home, tmp_path: Path, seam: str, payments: int
) -> None:
    till = Till(shared_home, tmp_path, recovery="never")
    await till.ask_and_die()
    await till.dies("approve", seam)
    assert "unknown_outcome" in await till.says("join")
    assert len(till.payments) == payments


async def test_a_denial_outlives_whoever_gave_it(shared_home: Home, tmp_path: Path) -> None:
    till = Till(shared_home, tmp_path)
    await till.ask_and_die()
    await till.dies("deny", "after feed")
    assert "denied" in await till.says("join")
    assert till.payments == []


async def test_a_process_that_has_nothing_of_it_answers_and_the_one_that_asked_goes_on(
    shared_home: Home, tmp_path: Path
) -> None:
    till = Till(shared_home, tmp_path)
    async with till.process("ask") as process, bystander(shared_home) as hf:
        query = (await line(process)).removeprefix("waits for ")
        await soon(hf.feed("s", {query: "approve"}, wait=0))
        assert await line(process) == PAID
    assert len(till.payments) == 1


async def test_of_two_who_decide_at_once_one_is_told_that_it_was_decided(shared_home: Home, tmp_path: Path) -> None:
    till = Till(shared_home, tmp_path)
    query = await till.ask_and_die()
    async with bystander(shared_home) as one, bystander(shared_home) as other:
        answers = (one.feed("s", {query: "approve"}, wait=0), other.feed("s", {query: "deny"}, wait=0))
        told = await asyncio.gather(*answers, return_exceptions=True)
        assert sum(isinstance(each, AnswerConflictError) for each in told) == 1
        is_approved = not isinstance(told[0], BaseException)
    assert (await till.says("join") == PAID) == is_approved
    assert len(till.payments) == is_approved
