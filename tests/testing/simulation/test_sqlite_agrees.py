"""What the simulated store has answered, SQLite answers, too: call by call, at the same times of day."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.store.commits import Commit
from holdfast.store.environment import SteadyClock
from holdfast.store.errors import MessageTakenError
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.sqlite import statements
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.upkeep import OpenChild, OpenSession
from holdfast.testing.simulation.faults import profile
from holdfast.testing.simulation.run import simulate, without
from holdfast.testing.simulation.scenarios import SCENARIOS
from holdfast.testing.simulation.store import ServerCall


@pytest.mark.parametrize("name", ["strategies", "agents"])
def test_sqlite_answers_every_call_of_a_run_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in range(6):
        # Nobody's death is reported, as SQLite tells that from a lock of the OS process that holds a store. No lease
        # ends before its time either, which is a fault of the simulated server and no call.
        run = simulate(SCENARIOS[name], seed, without(profile(seed), "reports_deaths", "lost_leases"))
        compared += len(run.calls)
        asyncio.run(_compare(run.calls, tmp_path / f"{seed}.db", monkeypatch))
    assert compared > 1_000


async def _compare(calls: list[ServerCall], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day_ns = 0
    # One clock says when leases end and whether they have: time passes as the day does, so none of its steps is a jump.
    clock = SteadyClock(lambda: day_ns, lambda: day_ns)
    monkeypatch.setattr(statements, "_clock", clock)
    numbers: dict[int, int] = {}
    """Those of messages, which are others in another store."""
    async with SqliteStore(str(path)) as store:
        for call in calls:
            day_ns = call.at_ms * 1_000_000
            args = [_renumbered(each, numbers) if isinstance(each, Commit) else each for each in call.args]
            try:
                outcome = await getattr(store, call.name)(*args)
            except HoldfastError as error:
                outcome = error
            if isinstance(outcome, MessageReceipt) and isinstance(call.outcome, MessageReceipt):
                numbers[call.outcome.number] = outcome.number
            assert _shown(outcome, {}) == _shown(call.outcome, numbers), call


def _renumbered(commit: Commit, numbers: dict[int, int]) -> Commit:
    return msgspec.structs.replace(commit, takes=[numbers[number] for number in commit.takes])


def _shown(outcome: Any, numbers: dict[int, int]) -> Any:
    """An outcome without what may differ: stores number sessions and messages as they like, in the same order."""
    match outcome:
        case MessageTakenError():
            return MessageTakenError
        case HoldfastError():
            return (type(outcome), str(outcome))
        case MessageReceipt():
            return msgspec.structs.replace(outcome, number=0)
        case [MailboxItem() | OpenChild(), *_]:
            return [msgspec.structs.replace(item, number=0) for item in outcome]
        case [OpenSession(), *_]:
            return [msgspec.structs.replace(each, number=0, mail=numbers.get(each.mail, each.mail)) for each in outcome]
        case _:
            return outcome
