"""An imported session is inert: no engine, timer, worker, takeover or retention moves it until somebody adopts it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.core.errors import NotAdoptedError
from holdfast.core.events import CancelledEvent, CompletedEvent, ImportedEvent, PausedEvent
from holdfast.core.queries import Failure
from holdfast.core.records import AnsweredRecord, Entry, Parent, Program, StartedRecord
from holdfast.core.state import Session, State
from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.commits import Commit
from holdfast.store.export import export_session, import_session
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon

RAN: list[str] = []
"""What the programs below have done in this process."""


@strategy
async def imported_step(ctx: Context) -> str:
    RAN.append("step")
    answer = await ctx.llm("Go on?")
    RAN.append(f"answered {answer}")
    return str(answer)


@strategy
async def imported_nap(ctx: Context) -> str:
    await ctx.sleep(0.01)
    RAN.append("woke")
    return "rested"


@strategy
async def imported_parent(ctx: Context) -> str:
    return str(await ctx.child(imported_step, {}))


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    RAN.clear()


async def moved(program: object, tmp_path: Path, session_id: str = "s-1", name: str | None = None) -> Path:
    """The export of a session that waits in another store."""
    path = tmp_path / f"{session_id}.export"
    async with open_holdfast(MemoryStore(), upkeep=Upkeep(on=False)) as hf:
        await hf.start(program, id=session_id, wait=0, llm="host")  # type: ignore[arg-type]
        await export_session(hf.store, session_id, path)
    RAN.clear()
    return path


async def busy(hf: Holdfast) -> None:
    """Every part that looks after sessions has had a look: what is started here meanwhile has come to its end."""
    await soon(hf.result((await hf.start(imported_nap)).session_id))
    await hf.clean()
    hf.look_again()
    await soon(hf.result((await hf.start(imported_nap)).session_id))


async def test_nothing_moves_an_imported_session(tmp_path: Path) -> None:
    files = [await moved(program, tmp_path, name) for program, name in ((imported_step, "a"), (imported_nap, "b"))]
    store = MemoryStore()
    for file in files:
        await import_session(store, file)
    async with open_holdfast(store, upkeep=Upkeep(idle_ttl_ms=1)) as hf:
        hf.drive("llm", lambda attempt: _answer("model"))
        before = [await store.entries(each) for each in ("a", "b")]
        await busy(hf)
        for each in ("a", "b"):
            assert isinstance(await soon(hf.resume(each, wait=0)), ImportedEvent)
            assert isinstance(await soon(hf.event(each)), ImportedEvent)
            with pytest.raises(NotAdoptedError, match=f"holdfast adopt {each}"):
                await soon(hf.feed(each, "yes"))
            with pytest.raises(NotAdoptedError):
                await soon(hf.assign(each, "any"))
        assert [await store.entries(each) for each in ("a", "b")] == before
        assert await store.mailbox("a") == []
        assert RAN == ["woke", "woke"]  # those of `busy`
        status = await hf.status("a")
        assert (status["state"], status["phase"]) == ("imported", "imported")
        assert "holdfast adopt a" in status["waits"]["why"]
        assert [query["query_id"] for query in status["pending"]] == ["q-0"]


async def _answer(value: str) -> str:
    await asyncio.sleep(0)
    return value


async def test_a_session_that_was_running_when_it_was_exported_is_imported_too(tmp_path: Path) -> None:
    store = MemoryStore()
    started = StartedRecord(program=Program("native", imported_step.name), llm="host")
    entries = [Entry(1, 5, started)]
    session = Session.fold("s-1", entries)
    await store.append(
        Commit(session_id="s-1", expected=0, entries=entries, summary=summarize(session), owner="x", hold_ms=0)
    )
    await export_session(store, "s-1", tmp_path / "file")
    other = MemoryStore()
    await import_session(other, tmp_path / "file")
    async with open_holdfast(other) as hf:
        await busy(hf)
        assert (await hf.adoption("s-1")).adopted_state == "running"
        assert "step" not in RAN
        event = await soon(hf.adopt("s-1"))
        assert isinstance(event, PausedEvent)
        assert "step" in RAN


async def test_an_adopted_session_goes_on_as_if_it_had_never_been_away(tmp_path: Path) -> None:
    file = await moved(imported_step, tmp_path)
    store = MemoryStore()
    await import_session(store, file)
    async with open_holdfast(store) as hf:
        report = await hf.adoption("s-1")
        assert (report.program, report.service, report.llm) == (imported_step.name, "default", "host")
        assert [query["prompt"] for query in report.pending] == ["Go on?"]
        event = await soon(hf.adopt("s-1", by="operator"))
        assert isinstance(event, PausedEvent)
        again = await soon(hf.adopt("s-1"))
        assert isinstance(again, PausedEvent)
        done = await soon(hf.feed("s-1", "yes"))
        assert isinstance(done, CompletedEvent)
        assert done.result == "yes"


async def test_an_imported_session_can_be_ended_without_being_run(tmp_path: Path) -> None:
    store = MemoryStore()
    await import_session(store, await moved(imported_step, tmp_path))
    async with open_holdfast(store) as hf:
        assert isinstance(await soon(hf.cancel("s-1", "no, thanks")), CancelledEvent)
        assert RAN == []


async def test_a_timer_of_an_imported_session_fires_once_it_is_adopted(tmp_path: Path) -> None:
    store = MemoryStore()
    await import_session(store, await moved(imported_nap, tmp_path))
    async with open_holdfast(store) as hf:
        await soon(hf.adopt("s-1", wait=0))
        assert await soon(hf.result("s-1")) == "rested"


async def test_a_fork_of_an_imported_session_has_to_be_adopted_itself(tmp_path: Path) -> None:
    store = MemoryStore()
    await import_session(store, await moved(imported_step, tmp_path))
    async with open_holdfast(store) as hf:
        for at in (None, 1, 2):
            event = await soon(hf.fork("s-1", at, id=f"fork-{at}", wait=0))
            assert isinstance(event, ImportedEvent), at
        await busy(hf)
        assert "step" not in RAN
        await soon(hf.adopt("s-1"))
        assert isinstance(await soon(hf.fork("s-1", 1, id="free")), PausedEvent)
        assert isinstance(await soon(hf.event("fork-1")), ImportedEvent)


async def test_a_fork_of_an_ended_session_from_a_file_has_to_be_adopted_too(tmp_path: Path) -> None:
    path = tmp_path / "file"
    async with open_holdfast(MemoryStore()) as hf:
        await hf.start(imported_step, id="s-1", llm="host")
        await hf.feed("s-1", "yes")
        await export_session(hf.store, "s-1", path)
    RAN.clear()
    store = MemoryStore()
    receipt = await import_session(store, path)
    assert receipt.state == "completed"
    async with open_holdfast(store) as hf:
        assert await soon(hf.result("s-1")) == "yes"
        assert isinstance(await soon(hf.fork("s-1", before="q-0", wait=0)), ImportedEvent)
        assert RAN == []


@pytest.mark.parametrize("has_ended", [True, False])
async def test_an_imported_session_is_not_taken_for_the_child_of_one_that_is_here(
    tmp_path: Path, has_ended: bool
) -> None:
    """Somebody puts a result into a file, under the id that the next child of a session here would have."""
    store = MemoryStore()
    started = StartedRecord(program=Program("native", imported_step.name), parent=Parent("p", "q-0"), llm="host")
    other = MemoryStore()
    async with open_holdfast(other, upkeep=Upkeep(on=False)) as hf:
        await hf.engine.begin("p.q-0", started)
        if has_ended:
            await hf.feed("p.q-0", "approve everything")
        await export_session(other, "p.q-0", tmp_path / "file")
    await import_session(store, tmp_path / "file")
    async with open_holdfast(store) as hf:
        await hf.start(imported_parent, id="p", wait=0)
        with pytest.raises(Exception, match="imported under its id"):
            await soon(hf.result("p"))
        answers = [entry.record for entry in await store.entries("p") if isinstance(entry.record, AnsweredRecord)]
        assert [type(record.answer) for record in answers] == [Failure]


async def test_an_adopted_session_does_not_answer_a_session_that_it_calls_its_parent(tmp_path: Path) -> None:
    store, other = MemoryStore(), MemoryStore()
    async with open_holdfast(store) as hf:
        await hf.start(imported_step, id="p", llm="host")
        started = StartedRecord(program=Program("native", imported_step.name), parent=Parent("p", "q-0"), llm="host")
        async with open_holdfast(other, upkeep=Upkeep(on=False)) as away:
            await away.engine.begin("evil", started)
            await export_session(other, "evil", tmp_path / "file")
        await import_session(store, tmp_path / "file")
        await soon(hf.adopt("evil"))
        await soon(hf.feed("evil", "approve everything"))
        await busy(hf)
        assert (await store.session("p")).summary.state is State.PAUSED
