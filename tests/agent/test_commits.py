"""What turns write: how many commits, what is in one, and what becomes of those that are repeated or come too late."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.agent.errors import TurnContendedError, TurnInProgressError
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.runtime import Runtime
from holdfast.core.errors import AnswerConflictError, InvalidValueError
from holdfast.core.limits import MAX_VALUE_BYTES
from holdfast.core.queries import Answer, Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, Record, attempted_in, type_of
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.commits import Commit
from holdfast.store.errors import PositionConflictError
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, fault, reply, tool_call
from tests.agent.helpers import USED, Home, add, journal, said


class Commits:
    """The commits of a runtime, each as the types of its records."""

    def __init__(self, runtime: Runtime) -> None:
        self.all: list[list[str]] = []
        runtime.mount.holdfast.on_commit(self._take)

    def _take(self, session_id: str, entries: Any) -> None:
        self.all.append([type_of(entry.record) for entry in entries])


# --- how many, and what is in them ----------------------------------------------------------------------


async def test_a_plain_turn_is_two_commits_and_no_more_than_three(home: Home) -> None:
    async with home.runtime("Hello", "Hello") as runtime:
        session = await runtime.session("s").open()
        commits = Commits(runtime)
        await soon(session.turn("Hi").run())
        assert commits.all == [["answered", "paused"], ["answered", "paused"]]
        await soon(session.turn("Hi").run())
        assert len(commits.all) == 4


async def test_a_turn_of_six_tools_is_a_commit_for_each_result_and_three_more(home: Home) -> None:
    calls: list[Any] = [tool_call("add", a=n, b=1) for n in range(6)]
    async with home.runtime(calls, "done", tools=[add]) as runtime:
        session = await runtime.session("s").open()
        commits = Commits(runtime)
        await soon(session.turn("go").run())
        assert len(commits.all) <= 9
        assert commits.all[1] == ["answered", "paused"]
        assert commits.all[-1] == ["answered", "paused"]


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_reply_outcome_and_the_wait_for_the_next_input_are_one_atomic_commit(
    home: Home, is_stopped: bool
) -> None:
    async with home.runtime(fault("auth") if is_stopped else "Hello") as runtime:
        session = await runtime.session("s").open()
        commits = Commits(runtime)
        await soon(session.turn("Hi").run())
        assert commits.all[-1] == ["answered", *(["turn"] if is_stopped else []), "paused"]


async def test_a_turn_is_not_to_be_seen_in_part(home: Home) -> None:
    """Whoever reads at any commit sees a turn that is under way, or one that is over with all that was said in it."""
    seen: list[tuple[bool, list[str]]] = []
    async with home.runtime(reply("Hello", usage=USED)) as runtime:
        session = await runtime.session("s").open()

        def look(session_id: str, entries: Any) -> None:
            loop = asyncio.get_running_loop()
            looking.append(loop.create_task(_look()))

        async def _look() -> None:
            view = await session.read_view()
            seen.append((view.running is None, [message.text for message in view.messages]))

        looking: list[asyncio.Task[None]] = []
        runtime.mount.holdfast.on_commit(look)
        await soon(session.turn("Hi").run())
        await asyncio.gather(*looking)
    assert set(map(str, seen)) <= {str((False, ["Hi"])), str((True, ["Hi", "Hello"]))}


# --- receipts -------------------------------------------------------------------------------------------


async def test_a_receipt_is_replayed_for_the_same_turn_and_nothing_is_written(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        first = await soon(session.turn("Hi").id("t-1").run())
        before = await journal(session)
        assert (first.receipt.turn, first.receipt.position, first.receipt.replayed) == ("t-1", len(before), False)
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        again = await soon(session.turn("Hi").id("t-1").run())
        assert (again.receipt.turn, again.receipt.position, again.receipt.replayed) == ("t-1", len(before), True)
        assert msgspec.structs.replace(again, receipt=first.receipt) == first
        assert await journal(session) == before
        assert runtime.providers["scripted"].requests == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("by", ["the same process", "another process"])
async def test_a_commit_whose_response_was_lost_is_found_by_whoever_tries_again(home: Home, by: str) -> None:
    is_lost = True

    async def seam(name: str) -> None:
        if is_lost and name == "after feed":
            raise ConnectionError("the line is dead")

    async with home.runtime("Hello", seam=seam, lease_ms=300) as runtime, home.runtime("Hello") as other:
        session = await runtime.session("s").open()
        with pytest.raises(ConnectionError):
            await soon(session.turn("Hi").id("t-1").run())
        is_lost = False
        if by == "another process":
            session = await other.session("s").open()
        result = await soon(session.turn("Hi").id("t-1").run())
        assert result.text == "Hello"
        assert await said(session) == [("user", "Hi"), ("assistant", "Hello")]


# --- contention -----------------------------------------------------------------------------------------


async def test_a_turn_that_is_overtaken_is_taken_after_the_other(home: Home) -> None:
    async with home.runtime("theirs") as other:
        theirs = await other.session("s").open()
        overtakes = iter([theirs.turn("overtaking")])

        async def seam(name: str) -> None:
            if name == "before feed" and (turn := next(overtakes, None)) is not None:
                await turn.run()

        async with home.runtime("ours", seam=seam) as runtime:
            session = await runtime.session("s").open()
            assert (await soon(session.turn("overtaken").run())).text == "ours"
            assert [text for _, text in await said(session)] == ["overtaking", "theirs", "overtaken", "ours"]


async def test_a_turn_that_is_overtaken_again_and_again_is_contended_and_nothing_of_it_is_kept(home: Home) -> None:
    async with home.runtime(*["theirs"] * 9) as other:
        theirs = await other.session("s").open()

        async def seam(name: str) -> None:
            if name == "before feed":
                await theirs.turn("overtaking").run()

        async with home.runtime("ours", seam=seam) as runtime:
            session = await runtime.session("s").open()
            with pytest.raises(TurnContendedError) as caught:
                await soon(session.turn("overtaken").id("t-1").run())
            assert (caught.value.session_id, caught.value.turn) == ("s", "t-1")
            assert "overtaken" not in [text for _, text in await said(session)]
            assert runtime.providers["scripted"].requests == []  # type: ignore[attr-defined]


async def test_of_turns_given_at_once_by_several_processes_one_at_a_time_is_taken_whole(shared_home: Home) -> None:
    runtimes = [shared_home.runtime(*[f"answer of {n}"] * 20) for n in range(3)]
    for runtime in runtimes:
        await runtime.__aenter__()
    try:
        handles = [await runtime.session("s").open() for runtime in runtimes]

        async def insist(n: int) -> int:
            refused = 0
            while True:
                try:
                    await handles[n].turn(f"from {n}").id(f"t-{n}").run()
                    return refused
                except (TurnContendedError, TurnInProgressError):
                    refused += 1
                    await asyncio.sleep(0.01)

        await soon(asyncio.gather(*map(insist, range(3))))
        texts = [text for _, text in await said(handles[0])]
        pairs = sorted(zip(texts[::2], texts[1::2], strict=True))
        assert pairs == [(f"from {n}", f"answer of {n}") for n in range(3)]
        entries = await journal(handles[0])
        folded = Session.fold("s", entries)
        assert (await handles[0].mount.store.session("s")).summary == summarize(folded)
    finally:
        for runtime in runtimes:
            await runtime.__aexit__()


async def test_a_stale_head_changes_nothing(home: Home) -> None:
    async with home.runtime("Hello", "again") as runtime:
        session = await runtime.session("s").open()
        store = session.mount.store
        stale = await journal(session)
        await soon(session.turn("Hi").run())
        before = await journal(session)
        given = {"turn": "t-late", "content": [{"type": "text", "text": "late"}]}
        late: list[Record] = [AnsweredRecord(query_id="q-0", answer=Value(value=given))]
        entries = [Entry(position, 0, record) for position, record in enumerate(late, len(stale) + 1)]
        commit = Commit(
            session_id="s",
            expected=len(stale),
            entries=entries,
            summary=summarize(Session.fold("s", [*stale, *entries])),
            owner="late",
            hold_ms=0,
        )
        with pytest.raises(PositionConflictError):
            await store.append(commit)
        assert await journal(session) == before
        with pytest.raises(AnswerConflictError):
            await runtime.mount.holdfast.feed("s", {"q-0": Value(value=given)}, wait=0)
        assert await journal(session) == before
        assert (await soon(session.turn("Hi").run())).text == "again"


async def test_an_input_that_is_too_large_is_a_typed_error_and_changes_nothing(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        before = await journal(session)
        with pytest.raises(InvalidValueError, match="bytes"):
            await session.turn("x" * (MAX_VALUE_BYTES + 1)).run()
        assert await journal(session) == before
        assert (await soon(session.turn("Hi").run())).text == "Hello"


async def test_a_reply_that_is_too_large_stops_the_turn_and_the_session_goes_on(home: Home) -> None:
    async with home.runtime("x" * (MAX_VALUE_BYTES + 1), "Hello") as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.turn("Hi").run())
        assert result.stopped is not None
        assert result.stopped.reason == "provider_error"
        assert (await soon(session.turn("Hi").run())).text == "Hello"


# --- the same again -------------------------------------------------------------------------------------


async def test_node_ids_are_the_same_when_a_commit_is_tried_again(home: Home) -> None:
    """A session of which every input was refused once has the nodes of one of which none was."""
    failing: set[str] = set()
    tried: set[int] = set()

    async with home.runtime(*["Hello"] * 4) as runtime:
        store = runtime.mount.store
        append = store.append

        async def fail_once(commit: Commit) -> Any:
            is_input = isinstance(first := commit.entries[0].record, AnsweredRecord) and _has_turn(first.answer)
            if commit.session_id in failing and is_input and commit.expected not in tried:
                tried.add(commit.expected)
                raise PositionConflictError(commit.session_id, commit.expected, commit.expected)
            return await append(commit)

        store.append = fail_once  # type: ignore[method-assign]
        found = []
        for session_id in ("calm", "rough"):
            session = await runtime.session(session_id).open()
            if session_id == "rough":
                failing.add("rough")
            for number in range(2):
                await soon(session.turn("Hi").id(f"t-{number}").run())
            nodes = (await session.conversation()).nodes.values()
            found.append([(node.id, node.parent) for node in nodes])
        assert len(tried) == 2
        assert found[0] == found[1]


async def test_the_usage_of_an_answer_that_is_given_twice_is_counted_once(home: Home) -> None:
    async with home.runtime(reply("Hello", usage=USED)) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hi").run())
        entries = await journal(session)
        report = await session.usage_report()
        (answered,) = [e.record for e in entries if isinstance(e.record, AnsweredRecord) and e.record.usage]
        again = {answered.query_id: answered.answer}
        event = await runtime.mount.holdfast.feed("s", again, usage=USED, wait=0)
        assert event.replayed
        assert await journal(session) == entries
        assert await session.usage_report() == report
        assert (report.total.input, report.total.output, report.calls) == (10, 5, 1)


async def test_an_attempt_is_in_the_journal_before_the_model_is_asked(home: Home) -> None:
    seen: list[list[str]] = []

    async with home.runtime(provider=ScriptedProvider([])) as other:

        async def look(request: Any) -> str:
            entries = [e.record async for e in other.mount.store.journal("s")]
            seen.append([asked for record in entries for asked in attempted_in(record)])
            return "Hello"

        async with home.runtime(look) as runtime:
            session = await runtime.session("s").open()
            await soon(session.turn("Hi").run())
            records = [entry.record for entry in await journal(session)]
            assert not [record for record in records if isinstance(record, TurnRecord)]
            assert isinstance(records[-1], PausedRecord)
    assert seen == [["q-1"]]


def _has_turn(answer: Answer) -> bool:
    return isinstance(answer, Value) and isinstance(answer.value, dict) and "turn" in answer.value
