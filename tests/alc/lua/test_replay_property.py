"""Any strategy, rebuilt from its journal in any process, asks what it asked and comes to what it came to."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.source import lua_code
from holdfast.core.queries import LlmQuery
from holdfast.core.records import PausedRecord
from holdfast.engine.sync import SyncHoldfast, open_sync
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.errors import DivergenceError
from tests.alc.lua import durable_child, generated
from tests.alc.lua.generated import Writer, scripted
from tests.alc.lua.sessions import Run, install

EXAMPLES = 50

pytestmark = pytest.mark.executes  # addresses and hashes differ between processes

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["__main__", "asyncpg", "holdfast.engine.holdfast", "holdfast.testing"])
_numbers = count()


@dataclass(frozen=True)
class Place:
    """A store on disk, and two engines on it that share nothing else."""

    file: Path
    first: SyncHoldfast
    second: SyncHoldfast


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("replays")
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(folder, monkeypatch, generated.PACKAGES)
        file = folder / "sessions.db"
        with engine(file) as first, engine(file, hot_vms=1) as second:
            yield Place(file, first, second)


@contextmanager
def engine(file: Path, **limits: Any) -> Iterator[SyncHoldfast]:
    with open_sync(f"sqlite:///{file}", upkeep=Upkeep(on=False)) as opened:
        assert opened._inner is not None
        opened._inner.add_kind(LuaKind(**limits))
        yield opened


@dataclass(frozen=True)
class Recorded:
    """A session that has ended: what it asked, and where in its journal."""

    run: Run
    positions: list[int]

    @property
    def outcome(self) -> tuple[Any, str | None]:
        return self.run.event.result, self.run.event.error


def record(hf: SyncHoldfast, code: str) -> Recorded:
    session = f"s{next(_numbers)}"
    run = Run(hf, hf.start(lua_code(code), id=session, ctx={"_ns": session}), scripted)
    pauses = [entry for entry in hf.watch(session) if isinstance(entry.record, PausedRecord)]
    positions = [pause.position for pause in pauses if asks_host(pause.record)]
    assert len(positions) == len(run.pauses)
    return Recorded(run, positions)


def asks_host(record: Any) -> bool:
    return any(isinstance(query, LlmQuery) for query in record.queries)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_a_strategy_rebuilt_in_another_process_asks_the_same_and_comes_to_the_same(
    place: Place, chance: random.Random
) -> None:
    check(place, Writer(chance).strategy())


def check(place: Place, code: str) -> None:
    """Run it in one engine, and again in another one: from its start, from its middle and from its last pause."""
    recorded = record(place.first, code)
    starts = {len(recorded.positions) // 2, len(recorded.positions) - 1} if recorded.positions else set[int]()
    for number in starts:
        forked = place.second.fork(recorded.run.id, recorded.positions[number], id=f"s{next(_numbers)}")
        again = Run(place.second, forked, scripted)
        assert again.pauses == recorded.run.pauses[number:], code
        assert (again.event.result, again.event.error) == recorded.outcome, code
    anew = Run(place.second, place.second.fork(recorded.run.id, 1, id=f"s{next(_numbers)}"), scripted)
    assert anew.pauses == recorded.run.pauses, code
    assert (anew.event.result, anew.event.error) == recorded.outcome, code


def test_strategies_of_a_copied_store_go_on_the_same_in_a_fresh_process(place: Place, tmp_path: Path) -> None:
    replay_in_a_fresh_process(place, tmp_path, programs=10)


def replay_in_a_fresh_process(place: Place, folder: Path, programs: int) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    chance = random.Random(seed)
    recorded = [record(place.first, Writer(chance).strategy()) for _ in range(programs)]
    asked = [each for each in recorded if each.positions]
    starts = [chance.randrange(len(each.positions)) for each in asked]
    for suffix in ("", "-wal", "-shm"):
        if (source := place.file.with_name(place.file.name + suffix)).exists():
            shutil.copy(source, folder / source.name)
    ledger = folder / "ledger"
    work = [(each.run.id, each.positions[start]) for each, start in zip(asked, starts, strict=True)]
    child = _forks.Process(
        target=durable_child.replay_each, args=(f"sqlite:///{folder / place.file.name}", str(ledger), work)
    )
    child.start()
    child.join(120)
    noted = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert child.exitcode == 0, noted[-1]
    for each, start, line in zip(asked, starts, noted, strict=True):
        assert line["asked"] == each.run.pauses[start:], f"HOLDFAST_SEED={seed}"
        assert (line["result"], line["error"]) == each.outcome, f"HOLDFAST_SEED={seed}"


@soak
@pytest.mark.soak
def test_a_thousand_strategies_go_on_the_same_in_fresh_processes(place: Place, tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        replay_in_a_fresh_process(place, folder, programs=50)


def test_the_strategies_made_by_chance_do_all_that_they_should(place: Place) -> None:
    chance = random.Random(7)
    written = [Writer(chance).strategy() for _ in range(40)]
    for part in ("alc.llm_safe", "alc.llm_batch", "alc.fork", "alc.state", "pcall(function", "table.sort", "coroutine"):
        assert sum(part in code for code in written) >= 5, part
    runs = [record(place.first, code) for code in written[:15]]
    assert sum(len(each.run.pauses) for each in runs) >= 60
    assert sum(each.outcome[1] is None for each in runs) >= 12


def test_a_strategy_that_is_not_repeatable_is_caught(place: Place) -> None:
    """The check can fail: object keys have no order that a replay could repeat, so their addresses show."""
    code = """
        local t = {}
        for i = 1, 60 do t[{}] = i end
        local order = {}
        for _, v in pairs(t) do order[#order + 1] = v end
        pcall(alc.llm, table.concat(order, " ")) -- some are answered with a failure
        return (pcall(alc.llm, "second"))
    """
    recorded = record(place.first, code)
    assert len(recorded.positions) == 2, recorded.outcome
    forked = place.second.fork(recorded.run.id, recorded.positions[1], id=f"s{next(_numbers)}")
    with pytest.raises(DivergenceError, match="no longer does what the journal says"):
        Run(place.second, forked, scripted)
