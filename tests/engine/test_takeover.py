"""Owners that die, or only seem to: how soon their sessions go on elsewhere. Leases are long here: time ends none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast.engine.holdfast import Holdfast
from holdfast.store import open_store
from holdfast.testing.patience import HANG_S, soon, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import attempts_at, quiet, sqlite
from tests.engine.process_child import called, helped
from tests.engine.processes import Process
from tests.store.postgres.helpers import connected, execute

LONG_MS = 600_000
"""Milliseconds that an effect takes which is not to end by itself, and that a lease lasts."""

TRIES = 3
TAKEOVER_S = 2.0
"""Seconds that a takeover takes at most where the machine has nothing else to do: the quickest of some is measured."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite(tmp_path)
    return fresh_database(request.getfixturevalue("server"))


def runs(ledger: Path) -> list[list[str]]:
    """The effects that were begun so far, by whichever process: session, query, attempt, process."""
    return [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []


async def has_run(ledger: Path, session: str, attempt: int, *by: Process) -> bool:
    pids = {str(each.pid) for each in by}
    return any((run[0], run[2]) == (session, str(attempt)) and run[3] in pids for run in runs(ledger))


async def test_the_sessions_of_a_killed_owner_go_on_elsewhere_within_two_seconds(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    took: list[float] = []
    async with contextlib.AsyncExitStack() as processes:
        starts = [processes.enter_async_context(Process.on(url, ledger, lease_ms=LONG_MS)) for _ in range(TRIES + 1)]
        heir, *owners = await asyncio.gather(*starts)
        for process in (heir, *owners):
            await process.do("drive", what="work", recovery="safe", concurrency=TRIES)
        for number, owner in enumerate(owners):
            program = called.name
            await owner.do("start", program=program, id=f"s-{number}", ctx={"ms": LONG_MS}, wait=0)
            await until(lambda number=number, owner=owner: has_run(ledger, f"s-{number}", 1, owner))  # type: ignore[misc]
        for number, owner in enumerate(owners):
            others = [process for process in (heir, *owners) if process.is_alive and process is not owner]
            await owner.kill()
            died = time.monotonic()
            await until(lambda number=number, others=others: has_run(ledger, f"s-{number}", 2, *others))  # type: ignore[misc]
            took.append(time.monotonic() - died)
            await heir.do("cancel", session=f"s-{number}", reason="seen")
    print(f"{url.partition(':')[0]}: taken over after " + ", ".join(f"{each:.2f}" for each in took) + " s")
    assert min(took) <= TAKEOVER_S
    assert {(run[0], run[2]) for run in runs(ledger)} >= {(f"s-{n}", "2") for n in range(TRIES)}


async def test_a_takeover_takes_two_commits_and_reads_the_journal_once(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with Process.on(url, ledger, lease_ms=LONG_MS) as owner:
        await owner.do("drive", what="work", recovery="safe")
        await owner.do("start", program=called.name, id="s", ctx={"ms": LONG_MS}, wait=0)
        await until(lambda: has_run(ledger, "s", 1, owner))
    store = open_store(url)
    calls = Counter[str]()
    for name in ("_append", "_read"):
        setattr(store, name, _counted(getattr(store, name), calls))
    async with holdfast.open(store) as hf:
        hf.drive("work", lambda ms, attempt: f"attempt {attempt.number}", recovery="safe")
        await until(lambda: _has_ended(hf, "s"))
        assert calls == {"_append": 2, "_read": 1}
        assert await hf.result("s") == "attempt 2"


def _counted(method: Callable[..., Awaitable[Any]], calls: Counter[str]) -> Callable[..., Awaitable[Any]]:
    async def counted(*arguments: Any) -> Any:
        calls[method.__name__] += 1
        return await method(*arguments)

    return counted


async def _has_ended(hf: Holdfast, session_id: str) -> bool:
    return (await hf.store.session(session_id)).summary.state.is_terminal


async def test_an_owner_that_is_only_cut_off_for_a_moment_keeps_its_session(server: str, tmp_path: Path) -> None:
    url, ledger = fresh_database(server), tmp_path / "ledger"
    async with (
        Process.on(url, ledger, lease_ms=LONG_MS) as owner,
        Process.on(url, ledger, lease_ms=LONG_MS) as other,
    ):
        for process in (owner, other):
            await process.do("drive", what="work", recovery="safe")
        await owner.do("start", program=called.name, id="s", ctx={"ms": 3_500}, wait=0)
        await until(lambda: has_run(ledger, "s", 1, owner))
        for _ in range(3):
            connection = await asyncpg.connect(url)
            await connection.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            await connection.close()
            await asyncio.sleep(0.7)
        assert await owner.do("result", session="s", timeout=HANG_S) == f"done by {owner.pid}"
    assert [run[2] for run in runs(ledger)] == ["1"], (runs(ledger), owner.pid, other.pid)


CUT_OFF_AT_THE_FIRST_ANSWER = """
create sequence answers;
create function cut_off() returns trigger language plpgsql as $$ begin
    if new.body like '%"type":"answered"%' and nextval('answers') = 1 then
        perform pg_terminate_backend(pg_backend_pid());
    end if;
    return new;
end $$;
create trigger cut_off before insert on holdfast.journal for each row execute function cut_off();
"""


async def test_an_owner_that_is_cut_off_while_it_writes_an_answer_writes_it_again(server: str, tmp_path: Path) -> None:
    url, ledger = fresh_database(server), tmp_path / "ledger"
    async with Process.on(url, ledger, lease_ms=LONG_MS) as owner:
        await owner.do("drive", what="work", recovery="never")
        await execute(url, CUT_OFF_AT_THE_FIRST_ANSWER)
        await owner.do("start", program=called.name, id="s", ctx={"ms": 0}, wait=0)
        assert await owner.do("result", session="s", timeout=HANG_S) == f"done by {owner.pid}"
        async with connected(url) as connection:
            assert await connection.fetchval("select last_value from answers") == 2
    assert [run[2] for run in runs(ledger)] == ["1"]


async def test_a_message_to_an_owner_that_has_died_is_taken_by_its_sender(url: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with quiet(url, lease_ms=LONG_MS) as hf:
        async with Process.on(url, ledger, lease_ms=LONG_MS) as owner:
            await owner.do("drive", what="work", recovery="never")
            await owner.do("start", program=helped.name, id="s", ctx={"ms": LONG_MS}, wait=0)
            await until(lambda: has_run(ledger, "s", 1, owner))
            owner.stop()
            feeding = asyncio.create_task(hf.feed("s", {"q-0": "me"}))
            await until(lambda: hf.store.mailbox("s"))
        await soon(feeding)
        assert await hf.store.mailbox("s") == []
        assert len(await attempts_at(hf.store, "s")) == 1
