"""The conversation as a fold of the journal: nodes and their ids, frames, beginnings, and the order of results."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.machine.conversation import Conversation, tool_answer, tool_done
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import CallQuery, InputQuery, ReplyQuery
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.machine.tree import Frame
from holdfast.agent.machine.turn import (
    FrameSwitchOutcome,
    MessageOutcome,
    RecordedReply,
    StoppedOutcome,
    ToolCallOutcome,
)
from holdfast.agent.machine.turn_input import NewConversation, TurnInput, input_of
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import SwitchFrame
from holdfast.core.queries import Answer, Failure, Query, Usage, Value
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    CancelledRecord,
    Entry,
    LoggedRecord,
    PausedRecord,
    Program,
    Record,
    StartedRecord,
)
from holdfast.store.limits import READ_LIMIT
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, ScriptedToolCall, tool_call
from tests.agent.helpers import Home, add, journal, said
from tests.agent.machine.segments import check_segments


class Journal:
    """A journal that is written by hand, as an agent would."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._asked = 0
        policy = msgspec.to_builtins(Policy(provider="p", model="m"))
        self.add(StartedRecord(program=Program("agent", "a"), ctx={"policy": policy, "parent": "s-0"}))
        self.ask(InputQuery())

    def add(self, *records: Record) -> None:
        self.entries += [
            Entry(number, number * 10, record) for number, record in enumerate(records, len(self.entries) + 1)
        ]

    def ask(self, *queries: Query) -> list[str]:
        ids = [f"q-{self._asked + n}" for n in range(len(queries))]
        self._asked += len(queries)
        asked = [msgspec.structs.replace(query, id=each) for query, each in zip(queries, ids, strict=True)]
        self.add(PausedRecord(queries=asked))
        return ids

    def answer(self, asked: str, answer: Any, usage: Usage | None = None) -> None:
        given: Answer = answer if isinstance(answer, Failure) else Value(value=answer)
        self.add(AnsweredRecord(query_id=asked, answer=given, usage=usage))

    @property
    def last(self) -> str:
        return f"q-{self._asked - 1}"

    def input(self, turn: str, text: str, **more: Any) -> None:
        given = TurnInput(turn=turn, content=[TextBlock(text)], **more)
        self.answer(self.last, msgspec.to_builtins(given))
        self.ask(ReplyQuery(iteration=1))

    def reply(self, *content: ContentBlock, usage: Usage | None = None) -> list[str]:
        """A reply; where it has calls, they are asked, and their queries given."""
        self.answer(self.last, msgspec.to_builtins(RecordedReply(content=list(content), model="m")), usage)
        calls = [block for block in content if isinstance(block, ToolUseBlock)]
        return self.ask(*(CallQuery(name=call.name, call_id=call.id) for call in calls)) if calls else []

    def say(self, text: str) -> None:
        """A reply that ends the turn."""
        self.reply(TextBlock(text))
        self.ask(InputQuery())

    def end(self, outcome: Any) -> None:
        self.add(TurnRecord(outcome=outcome))
        self.ask(InputQuery())

    def folded(self, **options: Any) -> Conversation:
        conversation = Conversation("s-1", **options)
        for entry in self.entries:
            conversation.apply(entry)
        return conversation


def call(name: str, call_id: str = "c-1") -> ToolUseBlock:
    return ToolUseBlock(call_id, name, {})


def texts(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in conversation.messages]


def results(conversation: Conversation) -> list[tuple[str, Any, bool]]:
    blocks = [block for message in conversation.window for block in message.content]
    return [(b.tool_use_id, b.content, b.is_error) for b in blocks if isinstance(b, ToolResultBlock)]


# --- turns ----------------------------------------------------------------------------------------------


def test_a_turn_is_an_input_and_what_was_said_until_the_next_input_is_asked_for() -> None:
    book = Journal()
    book.input("t-1", "Hi")
    running = book.folded()
    assert running.running is not None
    assert (running.running.id, running.input, running.turns["t-1"].ended) == ("t-1", None, None)
    book.say("Hello")
    over = book.folded()
    assert (over.running, over.turns["t-1"].ended, over.input) == (None, MessageOutcome(), "q-2")
    assert texts(over) == [("user", "Hi"), ("assistant", "Hello")]
    assert over.parent == "s-0"


def test_results_are_told_in_the_order_of_the_calls_whatever_the_order_of_the_answers() -> None:
    book = Journal()
    book.input("t-1", "go")
    first, second, third = book.reply(call("a", "c-1"), call("b", "c-2"), call("c", "c-3"))
    for asked, value in ((third, 3), (first, 1), (second, 2)):
        assert results(book.folded()) == []
        book.answer(asked, value)
    assert results(book.folded()) == [("c-1", 1, False), ("c-2", 2, False), ("c-3", 3, False)]


def test_calls_that_a_model_gave_the_same_id_each_have_their_result() -> None:
    book = Journal()
    book.input("t-1", "go")
    for _ in range(2):
        first, second = book.reply(call("a", "c"), call("b", "c"))
        book.answer(second, 2)
        book.answer(first, 1)
        book.ask(ReplyQuery(iteration=2))
    conversation = book.folded()
    assert results(conversation) == [("c", 1, False), ("c", 2, False)] * 2
    found = [(each.call.name, each.done.content) for each in conversation.turns["t-1"].calls if each.done]
    assert found == [("a", 1), ("b", 2)] * 2


def test_calls_of_a_turn_that_was_stopped_before_they_ran_have_results_that_say_so() -> None:
    book = Journal()
    book.input("t-1", "go")
    reply = RecordedReply(content=[TextBlock("well"), call("a", "c-1"), call("b", "c-2")])
    book.answer(book.last, msgspec.to_builtins(reply))
    book.end(StoppedOutcome("max_turns", "too many", "tool_calls"))
    conversation = book.folded()
    assert [(call_id, is_error) for call_id, _, is_error in results(conversation)] == [("c-1", True), ("c-2", True)]
    assert conversation.window[-1].text == "The turn was stopped: too many."
    assert [message.role for message in conversation.turns["t-1"].messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "system",
    ]


def test_a_turn_of_a_session_that_was_cancelled_ends_with_it() -> None:
    book = Journal()
    book.input("t-1", "go")
    (asked,) = book.reply(call("a"))
    book.add(AttemptedRecord(query_id=asked, driver="tool:a"), CancelledRecord(reason="closing time"))
    conversation = book.folded()
    assert conversation.ended == "cancelled"
    assert conversation.turns["t-1"].ended == StoppedOutcome("cancelled", "the session was cancelled: closing time")
    assert (conversation.running, conversation.input, conversation.asked) == (None, None, {})
    assert [is_error for *_, is_error in results(conversation)] == [True]


def test_usage_and_attempts_are_those_of_the_turn_in_which_the_model_was_asked() -> None:
    book = Journal()
    book.input("t-1", "go")
    for _ in range(2):
        book.add(AttemptedRecord(query_id=book.last, driver="llm"))
    book.reply(TextBlock("x"), usage=Usage(prompt_tokens=3))
    book.ask(InputQuery())
    turn = book.folded().turns["t-1"]
    assert (turn.asked, turn.usage) == (2, [("turn", "m", Usage(prompt_tokens=3))])


# --- what the program passes over -----------------------------------------------------------------------


def test_an_input_that_was_not_understood_is_passed_over() -> None:
    book = Journal()
    for wrong in ("Hello", {"turn": 7}, None, Failure("none today")):
        book.answer(book.last, wrong)
        book.add(LoggedRecord(message="an input was not understood", level="error"))
        book.ask(InputQuery())
    book.input("t-1", "Hi")
    book.say("Hello")
    assert texts(book.folded()) == [("user", "Hi"), ("assistant", "Hello")]


def test_a_reply_that_was_not_understood_is_passed_over_but_not_its_usage() -> None:
    book = Journal()
    book.input("t-1", "Hi")
    book.answer(book.last, {"content": 7}, Usage(prompt_tokens=3))
    book.end(StoppedOutcome("provider_error", "the reply was not understood"))
    turn = book.folded().turns["t-1"]
    assert [message.role for message in turn.messages] == ["user"]
    assert turn.usage == [("turn", "", Usage(prompt_tokens=3))]


def test_a_reply_given_by_hand_may_be_a_bare_text() -> None:
    book = Journal()
    book.input("t-1", "Hi")
    book.answer(book.last, "Hello")
    book.ask(InputQuery())
    assert texts(book.folded()) == [("user", "Hi"), ("assistant", "Hello")]


def test_what_came_of_a_call_survives_its_way_through_an_answer() -> None:
    for done in (
        ToolCallOutcome(content={"$tool": 1}),
        ToolCallOutcome(content=None, finish=None),
        ToolCallOutcome(content=[1], is_error=True, stops=True, executed=False),
        ToolCallOutcome(content={}, frame=FrameSwitchOutcome("f", "task")),
    ):
        answer = msgspec.json.decode(msgspec.json.encode(tool_answer(done)))
        assert tool_done(Value(value=answer)) == done
    assert tool_done(Value(value=42)) == ToolCallOutcome(content=42)
    assert tool_done(Failure("gone", "unknown_tool")).executed is False
    with pytest.raises(ValueError, match="no more"):
        input_of(Failure("no more"))


# --- the tree -------------------------------------------------------------------------------------------


def path(conversation: Conversation) -> list[str]:
    return [node.id for node in conversation.path()]


def test_every_node_but_a_root_has_a_parent_and_the_path_leads_from_a_root_to_the_leaf() -> None:
    book = Journal()
    book.input("t-1", "one")
    book.say("1")
    book.input("t-2", "two", begin=NewConversation([AgentMessage("user", [TextBlock("before")])]))
    book.say("2")
    conversation = book.folded()
    roots = [node.id for node in conversation.nodes.values() if node.parent is None]
    assert len(roots) == 2
    assert all(node.parent in conversation.nodes for node in conversation.nodes.values() if node.parent is not None)
    assert path(conversation)[0] == roots[1]
    assert path(conversation)[-1] == conversation.leaf
    assert len(conversation.nodes) == 3 + 3


def test_a_conversation_that_begins_anew_leaves_the_one_before_as_a_closed_branch() -> None:
    book = Journal()
    book.input("t-1", "one")
    book.say("1")
    before = book.folded()
    book.input("t-2", "two", begin=NewConversation())
    book.say("2")
    after = book.folded()
    assert texts(after) == [("user", "two"), ("assistant", "2")]
    assert (before.generation, after.generation) == (0, 1)
    assert {node: after.nodes[node] for node in before.nodes} == before.nodes
    assert not set(path(before)) & set(path(after))
    assert [message.text for message in after.window] == ["two", "2"]


def test_nothing_that_is_said_later_changes_a_node() -> None:
    book = Journal()
    book.input("t-1", "one")
    queries = book.reply(call("a", "c-1"), call("b", "c-2"))
    book.answer(queries[1], 2)
    book.answer(queries[0], 1)
    book.ask(ReplyQuery(iteration=2))
    book.say("1")
    book.input("t-2", "two", begin=NewConversation())
    book.end(StoppedOutcome("max_turns", "enough"))
    known: dict[str, Any] = {}
    conversation = Conversation("s-1")
    for entry in book.entries:
        conversation.apply(entry)
        assert {node: conversation.nodes[node] for node in known} == known
        known = dict(conversation.nodes)
    assert len(known) == 8


def test_a_frame_is_a_fresh_window_on_the_same_path() -> None:
    book = Journal()
    book.input("t-1", "long story")
    (asked,) = book.reply(call("handover"))
    switch = FrameSwitchOutcome("second", "write the report")
    book.answer(asked, tool_answer(ToolCallOutcome(content={"frame": "second"}, frame=switch)))
    book.end(switch)
    conversation = book.folded()
    assert [message.text for message in conversation.window] == ["write the report"]
    frames = [node.payload for node in conversation.path() if isinstance(node.payload, Frame)]
    assert frames == [Frame("main", "initial"), Frame("second", "continue_as", "write the report")]
    assert texts(conversation)[0] == ("user", "long story")
    book.input("t-2", "go on")
    assert [message.text for message in book.folded().window] == ["write the report", "go on"]


def test_without_what_is_closed_the_active_path_is_the_same_and_nothing_else_is_kept() -> None:
    book = Journal()
    book.input("t-1", "one")
    book.say("1")
    book.input("t-2", "two", begin=NewConversation())
    book.say("2")
    whole, part = book.folded(), book.folded(keep_all=False)
    assert part.path() == whole.path()
    assert part.window == whole.window
    assert set(part.nodes) == set(path(whole))
    assert (part.turns["t-1"].messages, part.turns["t-1"].is_whole) == ([], False)
    assert part.turns["t-2"] == whole.turns["t-2"]


@given(st.data())
def test_node_ids_are_the_same_in_every_fold_wherever_it_was_interrupted(data: st.DataObject) -> None:
    book = Journal()
    for number in range(data.draw(st.integers(1, 4))):
        begin = NewConversation([AgentMessage("user", [TextBlock("old")])]) if data.draw(st.booleans()) else None
        book.input(f"t-{number}", "go", begin=begin)
        if data.draw(st.booleans()):
            queries = book.reply(call("a", "c-1"), call("b", "c-2"))
            for asked in data.draw(st.permutations(queries)):
                book.answer(asked, asked)
            book.ask(ReplyQuery(iteration=2))
        if data.draw(st.booleans()):
            book.say("done")
        else:
            book.answer(book.last, Failure("no", "cancelled"))
            book.end(StoppedOutcome("cancelled", "no"))
    whole = book.folded()
    cut = data.draw(st.integers(0, len(book.entries)))
    resumed = Conversation("s-1")
    for entry in book.entries[:cut]:
        resumed.apply(entry)
    for entry in book.entries[cut:]:
        resumed.apply(entry)
    assert resumed.nodes == whole.nodes
    assert path(resumed) == path(whole)
    assert len({node.id for node in whole.nodes.values()}) == len(whole.nodes)
    check_segments(book.entries)


# --- on a runtime ---------------------------------------------------------------------------------------


async def test_two_processes_see_the_same_nodes(home: Home) -> None:
    calls: list[Any] = [tool_call("add", a=1, b=2), ScriptedToolCall("nope", {}, "c-2")]
    async with home.runtime(calls, "3", tools=[add]) as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("add").run())
        here = (await session.conversation()).nodes
        async with home.runtime() as other:
            there = await (await other.session("s").open()).conversation()
            assert there.nodes == here
            assert len(here) == 1 + 5


async def test_a_tool_that_switches_frames_shows_the_model_its_task_and_nothing_from_before(home: Home) -> None:
    async def handover() -> SwitchFrame:
        """Go on with a clean slate."""
        return SwitchFrame("second", "write the report")

    async with home.runtime(tool_call("handover"), "written", tools=[handover]) as runtime:
        session = await runtime.session("s").open()
        switched = await soon(session.turn("a long story").run())
        assert switched.outcome == FrameSwitchOutcome("second", "write the report")
        await soon(session.turn("go on").run())
        shown = runtime.providers["scripted"].requests[-1].messages  # type: ignore[attr-defined]
        assert [message.text for message in shown] == ["write the report", "go on"]
        assert (await said(session))[0] == ("user", "a long story")


async def test_bytes_grow_in_line_with_what_was_said(home: Home) -> None:
    """Turn by turn the journal takes on as much as the turn says, however long the conversation is."""
    text = "x" * 500
    async with home.runtime(*[text] * 40) as runtime:
        session = await runtime.session("s").open()
        sizes = []
        for _ in range(40):
            before = len(await journal(session))
            await soon(session.turn(text).run())
            sizes.append(sum(len(msgspec.json.encode(entry)) for entry in (await journal(session))[before:]))
        assert max(sizes) - min(sizes) < 30  # digits of positions
        assert sizes[-1] < 1.5 * 2 * len(text) + 400


class _Slow(MemoryStore):
    """A store whose next read takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None
        self.is_read = asyncio.Event()

    async def read(self, session_id: str, after: int = 0, limit: int = READ_LIMIT) -> list[Entry]:
        page = await super().read(session_id, after, limit)
        gate, self.gate = self.gate, None
        if gate is not None:
            self.is_read.set()
            await gate.wait()
        return page


async def test_what_is_committed_while_a_conversation_is_read_is_not_missing_from_it() -> None:
    store = _Slow()
    async with Runtime(store, provider=ScriptedProvider(["ok"]), model="m") as runtime:
        session = await runtime.session("s").open()
        conversations = runtime.mount.conversations
        runtime.mount.holdfast.engine.drop("s")  # so that it has to be read
        gate = store.gate = asyncio.Event()
        reading = asyncio.create_task(conversations.get("s"))
        await soon(store.is_read.wait())
        turn = asyncio.create_task(session.turn("Hi").run())
        gate.set()
        await soon(turn)
        found = await soon(reading)
        assert found.position == await store.position("s")
        assert [message.text for message in found.messages] == ["Hi", "ok"]
        assert await conversations.get("s") is found
