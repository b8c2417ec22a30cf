"""Several processes on one store: mail to an owner, races, owners that stop or die, watchers, timers, commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import (
    AnswerConflictError,
    HoldfastError,
    InvalidValueError,
    QueryIdRequiredError,
    TransitionError,
    UnknownQueryError,
)
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, CancelledRecord, CompletedRecord, type_of
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.native.ctx import Context
from holdfast.programs.native.kind import PROMPT_MS
from holdfast.store import Store
from holdfast.testing.patience import HANG_S, patience, soon, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine.helpers import attempts_at, of_type, ponder, quiet, records, sqlite
from tests.engine.process_child import called, helped, questions, sleeper, thinker
from tests.engine.processes import Process, Start
from tests.paths import REPO

HOLDFAST = Path(sys.executable).with_name("holdfast")
LEASE_MS = 500
"""Milliseconds after which a silent owner has lost its session: long enough for a machine under load."""
LONG_MS = 60_000
"""Milliseconds that an effect takes which is not to end by itself."""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite(tmp_path)
    return fresh_database(request.getfixturevalue("server"))


@pytest.fixture
def another(url: str, tmp_path: Path) -> Start:
    """Start another process on the store."""
    return lambda **options: Process.on(url, tmp_path / "ledger", lease_ms=LEASE_MS, **options)


@pytest.fixture
def runs(tmp_path: Path) -> Callable[[], list[list[str]]]:
    """The effects that were begun so far, by whichever process: session, query, attempt, process."""
    ledger = tmp_path / "ledger"
    return lambda: [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []


@pytest.fixture
async def hf(url: str) -> AsyncIterator[Holdfast]:
    """An engine in this process that does only what it is told."""
    async with quiet(url, lease_ms=LEASE_MS) as opened:
        yield opened


async def is_owned(store: Store, session: str) -> bool:
    return (await store.session(session)).owner is not None


async def check_sound(store: Store, session: str) -> Session:
    """The journal folds, its summary is true, it ends once at most, and no message waits."""
    folded = Session.fold(session, [entry async for entry in store.journal(session)])
    assert (await store.session(session)).summary == summarize(folded)
    assert await store.mailbox(session) == []
    return folded


# --- an owner that is busy ------------------------------------------------------------------------------


async def test_an_answer_reaches_an_owner_that_is_busy_with_an_effect(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("drive", what="work")
        await owner.do("start", program=helped.name, id="s", ctx={"ms": 400}, wait=0)
        event = await soon(hf.feed("s", {"q-0": "me"}))
        there = await owner.do("result", session="s", timeout=HANG_S)
        assert there == ["me", f"done by {owner.pid}"]
        assert await soon(hf.result("s")) == there
        assert not event.replayed
    await check_sound(hf.store, "s")


async def test_a_wrong_answer_to_a_busy_owner_is_refused_and_changes_nothing(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("drive", what="work")
        await owner.do("start", program=helped.name, id="s", ctx={"ms": LONG_MS}, wait=0)
        before = await records(hf.store, "s")
        wrong: list[tuple[Any, type[HoldfastError]]] = [
            ({"q-7": 1}, UnknownQueryError),
            ("which?", QueryIdRequiredError),
            ({"q-0": object()}, InvalidValueError),
        ]
        for answers, refusal in wrong:
            with pytest.raises(refusal):
                await soon(hf.feed("s", answers))
        assert await records(hf.store, "s") == before
        await soon(hf.feed("s", {"q-0": "this"}))
        with pytest.raises(AnswerConflictError):
            await soon(hf.feed("s", {"q-0": "that"}))
        assert len(await of_type(hf.store, "s", AnsweredRecord)) == 1
        assert await hf.store.mailbox("s") == []


async def test_an_answer_without_id_to_a_busy_owner_answers_one_query_only(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("drive", what="llm", ms=LONG_MS)
        await owner.do("start", program=questions.name, id="s", wait=0)
        event = await soon(hf.feed("s", "mine", wait=1))
        assert [query.id for query in event.queries] == ["q-1"]
        answered = await of_type(hf.store, "s", AnsweredRecord)
        assert [(each.query_id, each.answer) for each in answered] == [("q-0", Value(value="mine"))]


async def test_a_cancellation_reaches_a_busy_owner_and_both_see_the_same_end(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("drive", what="work")
        await owner.do("start", program=called.name, id="s", ctx={"ms": LONG_MS}, wait=0)
        there = owner.call("result", session="s", timeout=HANG_S)
        event = await soon(hf.cancel("s", "enough", by="me"))
        assert event.to_json()["reason"] == "enough"
        told = await soon(there)
        assert told["refused"] == "session_failed"
        assert "enough" in told["why"]
        assert (await soon(hf.cancel("s", "once more"))).replayed
    assert len(await of_type(hf.store, "s", CancelledRecord)) == 1
    await check_sound(hf.store, "s")


async def test_an_answer_reaches_an_owner_that_thinks_in_a_thread(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("start", program=thinker.name, id="s", ctx={"ms": 800})
        await owner.do("feed", session="s", answers={"q-0": "one"}, wait=0)
        assert await is_owned(hf.store, "s")
        event = await soon(hf.feed("s", {"q-1": "two"}))
        assert event.result == ["one", "two"]
        assert await owner.do("result", session="s", timeout=HANG_S) == ["one", "two"]
    await check_sound(hf.store, "s")


async def test_a_message_that_comes_too_late_is_refused_and_does_not_stay_in_the_mailbox(
    hf: Holdfast, another: Start
) -> None:
    sessions = [f"s-{number}" for number in range(12)]
    async with another() as owner:
        await owner.do("drive", what="work", concurrency=len(sessions))
        for session in sessions:
            await owner.do("start", program=called.name, id=session, ctx={"ms": 1000}, wait=0)

        async def cancel(session: str, after: float) -> None:
            await asyncio.sleep(after)
            with contextlib.suppress(TransitionError):
                await hf.cancel(session)

        await soon(asyncio.gather(*(cancel(session, 0.2 + n * 0.01) for n, session in enumerate(sessions))))
        for session in sessions:
            assert (await check_sound(hf.store, session)).is_terminal


# --- races ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
async def test_processes_that_race_agree_about_every_answer_and_the_end(
    hf: Holdfast, another: Start, url: str, seed: int
) -> None:
    chance = random.Random(seed)
    rounds = 20 if url.startswith("sqlite") else 10
    async with another(upkeep=False) as one, another(upkeep=False) as two:
        for process in (one, two):
            await process.do("drive", what="work")
        for number in range(rounds):
            session = f"race-{number}"
            program = chance.choice([questions, helped, thinker])
            ctx = {"ms": chance.choice([0, 5, 30]), "count": 3}
            await one.do("start", program=program.name, id=session, ctx=ctx, wait=0)
            sent: list[tuple[dict[str, str] | None, asyncio.Future[Any]]] = []
            for turn in range(8):
                process = chance.choice([one, two])
                if chance.random() < 0.12:
                    sent.append((None, process.call("cancel", session=session, reason=f"{turn}")))
                else:
                    answers = {f"q-{chance.choice([0, 0, 1, 2])}": f"{process.pid} {turn}"}
                    sent.append((answers, process.call("feed", session=session, answers=answers, wait=5)))
                await asyncio.sleep(chance.choice([0, 0, 0.003]))
            outcomes = await soon(asyncio.gather(*(outcome for _, outcome in sent)))
            await one.do("cancel", session=session, reason="over")
            folded = await check_sound(hf.store, session)
            answered = {
                each.query_id: each.answer.value
                for each in await of_type(hf.store, session, AnsweredRecord)
                if isinstance(each.answer, Value)
            }
            for (given, _), outcome in zip(sent, outcomes, strict=True):
                assert "broken" not in outcome, outcome
                assert outcome.get("refused") != "contention", outcome
                if given is not None and "refused" not in outcome:
                    assert given.items() <= answered.items(), (session, given, outcome)
            told = {outcome["reason"] for outcome in outcomes if outcome.get("status") == "cancelled"}
            assert folded.is_terminal
            assert len(told) <= 1
            if isinstance(folded.ended, CompletedRecord):
                assert not told


# --- owners that stop or die ----------------------------------------------------------------------------


async def test_an_owner_that_was_stopped_past_its_lease_is_refused_when_it_wakes(
    hf: Holdfast, another: Start, runs: Callable[[], list[list[str]]]
) -> None:
    async with another() as owner, another() as heir:
        await owner.do("drive", what="work", recovery="safe")
        await owner.do("start", program=called.name, id="s", ctx={"ms": 1000}, wait=0)
        await until(lambda: _is_so(runs()))
        owner.stop()
        await heir.do("drive", what="work", recovery="safe")
        assert await soon(hf.result("s")) == f"done by {heir.pid}"
        written = await records(hf.store, "s")
        owner.go_on()
        assert await owner.do("result", session="s", timeout=HANG_S) == f"done by {heir.pid}"
        await asyncio.sleep(0.4)  # until the effect that was stopped has ended too
        assert await records(hf.store, "s") == written
        assert await owner.do("start", program=called.name, id="t", ctx={"ms": 0}, wait=5)
        assert owner.is_alive
    assert [run[1:] for run in runs() if run[0] == "s"] == [
        ["q-0", "1", str(owner.pid)],
        ["q-0", "2", str(heir.pid)],
    ]
    await check_sound(hf.store, "s")


async def test_a_thought_of_an_owner_that_was_stopped_past_its_lease_is_ignored(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("start", program=thinker.name, id="s", ctx={"ms": 400})
        await owner.do("feed", session="s", answers={"q-0": "one"}, wait=0)
        owner.stop()
        event = await soon(hf.feed("s", {"q-1": "two"}))
        assert event.result == ["one", "two"]
        written = await records(hf.store, "s")
        owner.go_on()
        assert await owner.do("result", session="s", timeout=HANG_S) == ["one", "two"]
        await asyncio.sleep(0.5)
        assert await records(hf.store, "s") == written
        assert owner.is_alive


@pytest.mark.parametrize(("recovery", "attempts"), [("never", 1), ("idempotent", 2)])
async def test_the_session_of_a_killed_owner_goes_on_elsewhere_as_its_policy_says(
    hf: Holdfast, another: Start, runs: Callable[[], list[list[str]]], recovery: str, attempts: int
) -> None:
    async with another() as owner, another() as heir:
        await owner.do("drive", what="work", recovery=recovery)
        await owner.do("start", program=called.name, id="s", ctx={"ms": 400}, wait=0)
        await until(lambda: _is_so(runs()))
        await owner.kill()
        await heir.do("drive", what="work", recovery=recovery)
        told = await soon(hf.result("s"))
        assert told == ("unknown_outcome" if recovery == "never" else f"done by {heir.pid}")
    assert [run[2] for run in runs()] == [str(number + 1) for number in range(attempts)]
    assert len(await attempts_at(hf.store, "s")) == attempts


async def _is_so(what: object) -> bool:
    return bool(what)


async def test_a_living_owner_keeps_its_session_however_busy_the_store_is(hf: Holdfast, another: Start) -> None:
    async with another() as owner:
        await owner.do("drive", what="work")
        await owner.do("start", program=called.name, id="s", ctx={"ms": 3 * LEASE_MS}, wait=0)
        epoch = (await hf.store.session("s")).epoch
        while not (row := await hf.store.session("s")).summary.state.is_terminal:
            assert row.owner is not None
            await hf.store.put_state("busy", "key", row.position)
            await asyncio.sleep(0.02)
        assert row.epoch == epoch
        assert await hf.result("s") == f"done by {owner.pid}"


# --- the command line, watchers, timers -----------------------------------------------------------------


async def cli(url: str, *arguments: str) -> tuple[int, Any]:
    command = (str(HOLDFAST), "--store", url, "--json", *arguments)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=REPO, stdout=pipe, stderr=pipe)
    told, errors = await soon(process.communicate())
    assert b"Traceback" not in errors, errors.decode()
    return process.returncode or 0, json.loads(told) if told.strip() else errors.decode()


async def test_the_command_line_works_on_the_file_of_a_running_engine(tmp_path: Path) -> None:
    url = sqlite(tmp_path)
    async with Process.on(url, tmp_path / "ledger") as owner:
        await owner.do("drive", what="work")
        await owner.do("start", program=helped.name, id="busy", ctx={"ms": round(patience(1_500))}, wait=0)
        await owner.do("start", program=called.name, id="endless", ctx={"ms": LONG_MS}, wait=0)
        await owner.do("start", program=questions.name, id="idle")
        there = owner.call("result", session="endless", timeout=HANG_S)

        code, shown = await cli(url, "show", "busy")
        assert (code, [each["query_id"] for each in shown["pending"]]) == (0, ["q-0", "q-1"])
        code, told = await cli(url, "answer", "idle", "from outside", "--wait", str(HANG_S))
        assert (code, told["status"], told["query_id"]) == (0, "needs_response", "q-1")
        assert (await owner.do("feed", session="idle", answers="from here"))["query_id"] == "q-2"
        code, told = await cli(url, "answer", "busy", "hello", "--query", "q-0", "--wait", str(HANG_S))
        assert "replayed" not in told
        code, told = await cli(url, "answer", "busy", "no", "--query", "q-9")
        assert code == 3
        code, told = await cli(url, "cancel", "endless")
        assert told["status"] == "cancelled"
        assert (await soon(there))["refused"] == "session_failed"
        assert await owner.do("result", session="busy", timeout=HANG_S) == ["hello", f"done by {owner.pid}"]


async def test_a_watcher_sees_every_entry_of_a_session_driven_elsewhere(hf: Holdfast, another: Start) -> None:
    count = 40
    async with another() as owner:
        await owner.do("start", program=questions.name, id="s", ctx={"count": count})
        there = owner.call("watch", session="s")

        async def watch() -> list[list[Any]]:
            return [[entry.position, type_of(entry.record)] async for entry in hf.watch("s")]

        here = asyncio.create_task(watch())
        for number in range(count):
            await owner.do("feed", session="s", answers={f"q-{number}": number})
        seen = await soon(here)
        assert seen == await soon(there)
    assert [position for position, _ in seen] == list(range(1, len(seen) + 1))
    assert [kind for _, kind in seen] == [type_of(record) for record in await records(hf.store, "s")]


async def test_a_timer_of_a_process_that_died_is_fired_by_another(hf: Holdfast, another: Start) -> None:
    async with another() as owner, another():
        await owner.do("start", program=sleeper.name, id="s", ctx={"ms": 700}, wait=0)
        await owner.kill()
        assert await soon(hf.result("s")) == "woken"
    assert len(await of_type(hf.store, "s", AnsweredRecord)) == 1


async def test_timers_that_two_processes_know_of_fire_once(hf: Holdfast, another: Start) -> None:
    async with another() as one, another() as two:
        for number in range(10):
            process = (one, two)[number % 2]
            await process.do("start", program=sleeper.name, id=f"s-{number}", ctx={"ms": 600}, wait=0)
        for number in range(10):
            assert await soon(hf.result(f"s-{number}")) == "woken"
            assert len(await of_type(hf.store, f"s-{number}", AnsweredRecord)) == 1
            await check_sound(hf.store, f"s-{number}")
        assert one.is_alive
        assert two.is_alive


# --- what runs here goes on, whatever others write ------------------------------------------------------


class Interference:
    """Writes to a state item each time a commit of that name is about to be made, a few times."""

    def __init__(self, reason: str, times: int) -> None:
        self.hf: Holdfast | None = None
        self._reason = reason
        self._times = times

    async def __call__(self, seam: str) -> None:
        if seam == f"before {self._reason}" and self._times and self.hf is not None:
            self._times -= 1
            await self.hf.store.put_state("shared", "count", 100)


def plus_one(value: Any) -> Any:
    return (value or 0) + 1


async def test_a_state_item_written_by_others_does_not_stop_effects_under_way(tmp_path: Path) -> None:
    runs: list[int] = []

    async def counts(ctx: Context) -> Any:
        async def count() -> Any:
            await ctx.llm("shall I?")
            return await ctx.state("shared").update("count", plus_one)

        return list(await asyncio.gather(ctx.tool("once"), count()))

    async def once() -> str:
        runs.append(1)
        await asyncio.sleep(0.3)
        return "done"

    others = Interference("feed", 2)
    async with quiet(sqlite(tmp_path), seam=others) as hf:
        others.hf = hf
        hf.drive("once", once)
        event = await hf.start(counts)
        assert (await soon(hf.feed(event.session_id, {"q-1": "yes"}))).result == ["done", 101]
        assert len(await attempts_at(hf.store, event.session_id)) == len(runs) == 1


async def test_a_state_item_written_by_others_does_not_hold_up_a_long_step(tmp_path: Path) -> None:
    async def thinks_and_counts(ctx: Context) -> Any:
        ponder(2 * PROMPT_MS / 1000)
        await ctx.llm("?")
        ponder(2 * PROMPT_MS / 1000)
        return await ctx.state("shared").update("count", plus_one)

    others = Interference("step", 2)
    async with quiet(sqlite(tmp_path), seam=others) as hf:
        others.hf = hf
        event = await hf.start(thinks_and_counts)
        await hf.feed(event.session_id, "!", wait=0)
        assert await soon(hf.result(event.session_id)) == 101


@pytest.mark.parametrize("where", ["before feed", "after feed"])
async def test_a_feed_that_is_given_up_leaves_no_effect_begun_and_not_executed(tmp_path: Path, where: str) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def seam(name: str) -> None:
        if name == where:
            reached.set()
            await go_on.wait()

    async def asks_then_works(ctx: Context) -> Any:
        await ctx.llm("?")
        return await ctx.tool("once")

    async def once() -> str:
        return "done"

    async with quiet(sqlite(tmp_path), seam=seam) as hf:
        hf.drive("once", once)
        event = await hf.start(asks_then_works)
        feeding = asyncio.create_task(hf.feed(event.session_id, "!"))
        await soon(reached.wait())
        feeding.cancel()
        await asyncio.wait([feeding])
        go_on.set()
        assert await soon(hf.result(event.session_id)) == "done"


async def test_mail_that_two_tasks_take_at_once_does_not_stop_effects_under_way(tmp_path: Path) -> None:
    runs: list[int] = []

    async def work(ms: int) -> str:
        runs.append(1)
        await asyncio.sleep(ms / 1000)
        return "done"

    async with quiet(sqlite(tmp_path)) as hf, quiet(sqlite(tmp_path)) as other:
        hf.drive("work", work)
        for number in range(10):
            session = f"s-{number}"
            await hf.start(helped, id=session, ctx={"ms": 100}, wait=0)
            feeding = asyncio.create_task(other.feed(session, {"q-0": "me"}))
            while not feeding.done():
                await hf.resume(session, wait=0)
            await soon(feeding)
            assert await soon(hf.result(session)) == ["me", "done"]
        assert len(runs) == 10
