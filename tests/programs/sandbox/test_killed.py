"""Processes are killed at every pause of every bundled strategy, and workers at any moment: nothing is noticed."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.events import PausedEvent
from holdfast.programs.lookup import find_program
from holdfast.programs.sandbox.library import list_strategies
from holdfast.store import open_store
from holdfast.strategies.catalog import find_entry, samples
from tests.programs.sandbox import killed_child
from tests.programs.sandbox.helpers import (
    CTX,
    MAIN,
    SEED,
    answers,
    asked,
    begin,
    code,
    converse,
    engine,
    forget,
    outcome,
    own_workers,
    replays,
    sqlite,
)
from tests.programs.sandbox.killed_child import WAIT_S, answer

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["__main__", "asyncpg", "holdfast.engine.holdfast", "holdfast.testing"])

STRATEGIES = [strategy.name for strategy in list_strategies() if strategy.origin == "bundled"]

Story = dict[str, list[Any]]
"""By strategy: what it asked at each pause, and at last what it came to."""


def context(strategy: str) -> dict[str, Any]:
    meta = find_entry(strategy).meta
    assert meta is not None
    return samples(meta)


async def prepare(folder: Path) -> None:
    async with open_store(sqlite(folder)) as store:
        for strategy in STRATEGIES:
            await begin(store, strategy, find_program(strategy), context(strategy), SEED)


async def undisturbed() -> Story:
    told: Story = {}
    async with engine() as hf:
        for strategy in STRATEGIES:
            await begin(hf.store, strategy, find_program(strategy), context(strategy), SEED)
            told[strategy] = []
            event = await hf.resume(strategy, wait=WAIT_S)
            while isinstance(event, PausedEvent):
                told[strategy].append(asked(event))
                given = {query.id: answer(strategy, query) for query in event.queries}
                event = await hf.feed(strategy, given, wait=WAIT_S)
            told[strategy].append(outcome(event))
    return told


def killed_at_every_pause(folder: Path, *, with_snapshots: bool) -> tuple[Story, dict[str, list[str]]]:
    """What each strategy asks if its process is killed at each of its pauses; and why its program was replayed."""
    ledger = folder / "ledger"
    asyncio.run(prepare(folder))
    told: Story = {strategy: [] for strategy in STRATEGIES}
    waiting, fresh = list(STRATEGIES), True
    while waiting:
        ledger.write_text("")
        child = _forks.Process(target=killed_child.go_on_and_die, args=(sqlite(folder), str(ledger), waiting, fresh))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL, ledger.read_text()
        lines = [json.loads(line) for line in ledger.read_text().splitlines()]
        assert [line["strategy"] for line in lines] == waiting
        for line in lines:
            told[line["strategy"]].append(line["asked"] if "asked" in line else tuple(line["end"]))
        waiting, fresh = [line["strategy"] for line in lines if "asked" in line], False
        if not with_snapshots:
            forget(folder)

    async def noted() -> dict[str, list[str]]:
        async with open_store(sqlite(folder)) as store:
            return {strategy: await replays(store, strategy) for strategy in STRATEGIES}

    return told, asyncio.run(noted())


@pytest.fixture(scope="module")
def alone() -> Story:
    return asyncio.run(undisturbed())


@pytest.fixture(scope="module")
def from_snapshots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, dict[str, list[str]]]:
    return killed_at_every_pause(tmp_path_factory.mktemp("snapshots"), with_snapshots=True)


@pytest.fixture(scope="module")
def from_journals(tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, dict[str, list[str]]]:
    return killed_at_every_pause(tmp_path_factory.mktemp("journals"), with_snapshots=False)


def test_the_whole_library_is_killed(alone: Story) -> None:
    assert len(STRATEGIES) >= 20
    assert {strategy: story[-1][0] for strategy, story in alone.items()} == dict.fromkeys(STRATEGIES, "completed")
    assert min(map(len, alone.values())) >= 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_killed_at_every_pause_goes_on_from_its_snapshots(
    strategy: str, alone: Story, from_snapshots: tuple[Story, dict[str, list[str]]]
) -> None:
    told, why = from_snapshots
    assert told[strategy] == alone[strategy]
    assert why[strategy] == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_killed_at_every_pause_goes_on_without_snapshots(
    strategy: str, alone: Story, from_journals: tuple[Story, dict[str, list[str]]]
) -> None:
    told, why = from_journals
    assert told[strategy] == alone[strategy]
    assert set(why[strategy]) == {"there is no snapshot"}


async def test_workers_killed_at_any_moment_are_not_noticed(tmp_path: Path) -> None:
    rounds = [[f"s{turn}-{number}" for number in range(20)] for turn in range(50)]
    async with engine() as hf:
        await begin(hf.store, "s", code(MAIN), CTX)
        pauses, event = await converse(hf, await hf.resume("s"), answers)
        expected = (pauses, outcome(event))
    chance = random.Random(SEED)
    killed: set[int] = set()

    async def kill() -> None:
        while True:
            await asyncio.sleep(chance.uniform(0.05, 0.15))
            for worker in chance.sample(sorted(own_workers()), k=min(1, len(own_workers()))):
                os.kill(worker, signal.SIGKILL)
                killed.add(worker)

    async with engine(sqlite(tmp_path)) as hf:

        async def one(name: str) -> tuple[list[list[str]], Any]:
            await begin(hf.store, name, code(MAIN), {**CTX, "_ns": name})
            asked_, event = await converse(hf, await hf.resume(name, wait=WAIT_S), answers)
            return asked_, outcome(event)

        killing = asyncio.create_task(kill())
        try:
            for names in rounds:
                assert await asyncio.gather(*map(one, names)) == [expected] * len(names)
                if len(killed) >= 5:
                    break
        finally:
            killing.cancel()
    assert len(killed) >= 5
