"""What the simulated store has answered, SQLite answers, too: call by call, at the same times of day."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.errors import HoldfastError
from holdfast.store.commits import Commit
from holdfast.store.errors import MessageTakenError
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.sqlite import statements
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.simulation.faults import profile
from holdfast.testing.simulation.run import simulate, without
from holdfast.testing.simulation.scenarios import SCENARIOS
from holdfast.testing.simulation.store import ServerCall


@pytest.mark.parametrize("name", ["strategies", "agents"])
def test_sqlite_answers_every_call_of_a_run_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in range(6):
        # Nobody's death is reported: SQLite tells that from a lock of the OS process that holds a store.
        run = simulate(SCENARIOS[name], seed, without(profile(seed), "reports_deaths"))
        compared += len(run.calls)
        asyncio.run(_compare(run.calls, tmp_path / f"{seed}.db", monkeypatch))
    assert compared > 1_000


async def _compare(calls: list[ServerCall], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0
    monkeypatch.setattr(statements, "now_ms", lambda: now_ms)
    numbers: dict[int, int] = {}
    """Those of messages, which are others in another store."""
    async with SqliteStore(str(path)) as store:
        for call in calls:
            now_ms = call.at_ms
            args = [_renumbered(each, numbers) if isinstance(each, Commit) else each for each in call.args]
            try:
                outcome = await getattr(store, call.name)(*args)
            except HoldfastError as error:
                outcome = error
            if isinstance(outcome, MessageReceipt) and isinstance(call.outcome, MessageReceipt):
                numbers[call.outcome.number] = outcome.number
            assert _shown(outcome) == _shown(call.outcome), call


def _renumbered(commit: Commit, numbers: dict[int, int]) -> Commit:
    return msgspec.structs.replace(commit, takes=[numbers[number] for number in commit.takes])


def _shown(outcome: Any) -> Any:
    """An outcome without what may differ."""
    match outcome:
        case MessageTakenError():
            return MessageTakenError
        case HoldfastError():
            return (type(outcome), str(outcome))
        case MessageReceipt():
            return msgspec.structs.replace(outcome, number=0)
        case [MailboxItem(), *_]:
            return [msgspec.structs.replace(item, number=0) for item in outcome]
        case _:
            return outcome
