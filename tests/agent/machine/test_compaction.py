"""Windows of models: when they are full, what is kept of a conversation that is summed up, and what the model sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.machine.compaction import (
    IMAGE_TOKENS,
    MAX_RESERVE,
    Compaction,
    WindowUsage,
    content_tokens,
    tail_start,
    threshold,
    value_tokens,
)
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.inbox import Command
from holdfast.agent.machine.messages import (
    AgentMessage,
    ContentBlock,
    ImageBlock,
    ImageSource,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.program import AgentInstance
from holdfast.agent.machine.queries import InputQuery, ReplyQuery, SummaryQuery
from holdfast.agent.machine.records import FrameRecord
from holdfast.agent.machine.tree import Frame
from holdfast.agent.machine.turn import RecordedReply, StoppedOutcome
from holdfast.agent.machine.turn_input import NewConversation, TurnInput
from holdfast.core.errors import BudgetExceededError
from holdfast.core.queries import Answer, Failure, HumanQuery, LlmQuery, ToolQuery, Usage, Value
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord, Program, Record, RefusedRecord, StartedRecord
from holdfast.core.replay import ReplayFold
from holdfast.core.state import Session
from holdfast.programs.contract import AskStep, Step
from tests.agent.machine.segments import check_segments
from tests.core.helpers import check_checkpoints, picture
from tests.examples import examples
from tests.tables import each_row

PICTURE = ImageBlock(ImageSource("image/png", b"png"))


# --- the window -----------------------------------------------------------------------------------------


@each_row(
    ("window", "reserve", "most"),
    [
        (200_000, None, 200_000 - MAX_RESERVE),
        (40_002, None, 40_002 - MAX_RESERVE),
        (40_000, None, 40_000 - 13_333),
        (9_000, None, 6_000),
        (9_000, 1_000, 8_000),
        (9_000, 9_001, 1),
        (1, None, 1),
    ],
)
def test_room_is_left_for_the_next_reply(window: int, reserve: int | None, most: int) -> None:
    assert threshold(window, Compaction(reserve=reserve)) == most


def test_tokens_are_guessed_by_size_and_a_picture_is_many() -> None:
    assert value_tokens("") == 0
    assert value_tokens("abcde") == 2
    assert value_tokens("äöü") == 2
    assert value_tokens({"a": 1}) == 2
    assert content_tokens([TextBlock("abcd"), PICTURE]) == 1 + IMAGE_TOKENS
    assert content_tokens([ToolUseBlock("c", "t", {}), ToolResultBlock("c", "abcdefgh")]) == 1 + 2


SMALL = Compaction(keep=100)
"""In a window of 900 tokens, 600 may be in use."""


def gauge(*said: int, sent: int | None = None) -> WindowUsage:
    made = WindowUsage()
    for tokens in said:
        made.said(tokens)
    if sent is not None:
        made.counted(sent)
    return made


def test_a_window_is_full_by_what_is_guessed_where_nobody_counts() -> None:
    assert not gauge(300, 300).is_full(900, SMALL)
    assert gauge(300, 301).is_full(900, SMALL)


def test_a_window_is_full_by_what_the_service_has_counted_and_what_came_since() -> None:
    counted = gauge(300, sent=590)
    assert not counted.is_full(900, SMALL)
    counted.said(11)
    assert counted.is_full(900, SMALL)


def test_a_window_that_is_filled_by_what_is_no_conversation_is_not_summed_up() -> None:
    assert not gauge(500, sent=1_200).is_full(900, SMALL)
    full = gauge(500, sent=900)  # 400 are fixed
    assert full.is_full(900, SMALL)
    full.opened(50, full.keep(900, SMALL))
    full.said(10)
    full.counted(700)  # it is as full as before, and that cannot be helped
    assert not full.is_full(900, SMALL)


def test_a_fresh_window_is_full_only_when_something_was_said_in_it() -> None:
    used = gauge(700)
    used.opened(550, used.keep(900, SMALL))
    assert used.tokens == 650
    used.said(75)
    assert not used.is_full(900, SMALL)
    used.said(1)
    assert used.is_full(900, SMALL)


def test_what_was_counted_for_one_model_is_not_held_against_another() -> None:
    other = gauge(500, sent=1_200)
    other.changed()
    other.counted(800)
    assert other.is_full(900, SMALL)


def test_so_much_is_kept_as_was_wished_unless_nothing_would_be_gained() -> None:
    assert gauge(10_000).keep(200_000, Compaction(keep=3_000)) == 3_000
    assert gauge(10_000).keep(900, Compaction(keep=8_000)) == 300
    assert gauge(10_000).keep(None, Compaction(keep=8_000)) == 8_000
    assert gauge(700, sent=900).keep(900, Compaction()) == 200
    assert gauge(700, sent=9_000).keep(900, Compaction()) == 0
    assert gauge(700).keep(900, Compaction(keep=0)) == 0


def test_a_conversation_that_begins_anew_has_an_empty_window() -> None:
    begun = gauge(700, sent=900)
    begun.began(20)
    assert begun.tokens == 20 + 200
    assert not begun.is_full(900, SMALL)


# --- the tail -------------------------------------------------------------------------------------------


def user(text: str) -> AgentMessage:
    return AgentMessage("user", [TextBlock(text)])


def calls(*ids: str) -> AgentMessage:
    return AgentMessage("assistant", [ToolUseBlock(each, "t", {}) for each in ids])


def result(call: str, text: str = "done") -> AgentMessage:
    return AgentMessage("tool", [ToolResultBlock(call, text)])


def test_the_tail_has_as_many_messages_as_fit() -> None:
    said = [user("x" * 40) for _ in range(5)]
    assert [tail_start(said, keep) for keep in (0, 9, 10, 19, 20, 40, 49)] == [5, 5, 4, 4, 3, 1, 1]


def test_if_all_would_be_kept_it_is_half() -> None:
    said = [user("x" * 40) for _ in range(5)]
    assert [tail_start(said, keep) for keep in (50, 1_000)] == [3, 3]
    assert [tail_start(said[:count], 1_000) for count in (0, 1, 2)] == [0, 1, 1]


def test_a_message_that_is_larger_than_the_tail_leaves_it_empty() -> None:
    assert tail_start([user("hi"), user("x" * 1_000)], 100) == 2


def test_the_tail_does_not_begin_between_a_call_and_its_results() -> None:
    said = [user("go"), calls("a", "b"), result("a"), result("b"), user("and")]
    assert [tail_start(said, keep) for keep in (1, 2, 3, 4, 5)] == [4, 4, 4, 4, 1]


def test_a_result_that_comes_late_keeps_its_call_with_it() -> None:
    said = [user("go"), calls("a"), user("hurry"), result("a"), user("and")]
    assert tail_start(said, 3) == 4
    assert tail_start(said, 5) == 1


def test_a_result_without_a_call_is_not_kept() -> None:
    said = [result("x"), user("a"), user("b")]
    assert tail_start(said, 1_000) == 1


IDS = st.sampled_from(["a", "b", "c"])
MESSAGES = st.one_of(
    st.builds(lambda size: user("x" * size), st.integers(0, 60)),
    st.lists(IDS, min_size=1, max_size=3).map(lambda ids: calls(*ids)),
    st.builds(lambda call, size: result(call, "x" * size), IDS, st.integers(0, 60)),
)


def unpaired(said: list[AgentMessage]) -> Counter[str]:
    """Results that come before, or without, a call of their id."""
    waiting: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for block in (block for message in said for block in message.content):
        if isinstance(block, ToolUseBlock):
            waiting[block.id] += 1
        elif isinstance(block, ToolResultBlock):
            if waiting[block.tool_use_id]:
                waiting[block.tool_use_id] -= 1
            else:
                missing[block.tool_use_id] += 1
    return missing


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=12), st.integers(0, 60))
def test_no_tail_of_whatever_messages_has_a_result_without_its_call(said: list[AgentMessage], keep: int) -> None:
    start = tail_start(said, keep)
    assert not unpaired(said[start:])
    assert sum(content_tokens(message.content) for message in said[start:]) <= keep
    assert start > 0 or not sum(content_tokens(message.content) for message in said)


# --- what the model sees --------------------------------------------------------------------------------

APPROVAL = Approval(rules=[Rule("rm", "deny", reason="never"), Rule("pay", "confirm")])


def at_once(step: Step | Awaitable[Step]) -> Step:
    """A step that is not waited for: only cells take time."""
    assert not isinstance(step, Awaitable)
    return step


class Agent:
    """A session whose program is the real one, with whoever answers in the hands of the test. No I/O anywhere."""

    def __init__(self, **policy: Any) -> None:
        self.session = Session("s-1")
        self.entries: list[Entry] = []
        self.whole, self.part = Conversation("s-1"), Conversation("s-1", keep_all=False)
        self.windows: dict[str | None, list[AgentMessage]] = {}
        """What the window was at each leaf, before anything else was said."""
        self.turns = 0
        self._answers: list[tuple[str, Answer]] = []
        self._shown: list[AgentMessage] = []
        """What the model was shown last, in this window."""
        started = {"policy": msgspec.to_builtins(Policy(provider="p", model="m", approval=[APPROVAL], **policy))}
        self._write(StartedRecord(program=Program("agent", "a"), ctx=started))
        self.instance = AgentInstance(self)
        self._take(at_once(self.instance.resume(0, [])))

    # --- driving -----------------------------------------------------------------------------------

    def answer(self, asked: str, answer: Any, usage: Usage | None = None) -> None:
        told: Answer = answer if isinstance(answer, Failure) else Value(value=answer)
        before = self.session.wakings
        self._answers.append((asked, told))
        self._write(AnsweredRecord(query_id=asked, answer=told, usage=usage))
        if self.session.wakings > before:
            answers, self._answers = self._answers, []
            self._take(at_once(self.instance.resume(len(self.entries), answers)))

    def say(self, *content: ContentBlock, **more: Any) -> None:
        self.turns += 1
        given = TurnInput(turn=f"t-{self.turns}", content=list(content), **more)
        self.answer(self.asked(InputQuery).id, msgspec.to_builtins(given))

    def reply(self, *content: ContentBlock, usage: Usage | None = None) -> None:
        reply = msgspec.to_builtins(RecordedReply(content=list(content), model="m"))
        self.answer(self.asked(LlmQuery).id, reply, usage)

    def asked(self, kind: type[Any]) -> Any:
        """The one query of this kind that waits."""
        (query,) = [each.query for each in self.session.pending.values() if isinstance(each.query, kind)]
        return query

    def _take(self, step: Step) -> None:
        assert isinstance(step, AskStep), step
        self._write(*step.notes, PausedRecord(queries=step.queries, wake=step.wake, withdrawn=step.withdrawn))

    def _write(self, *records: Record) -> None:
        for record in records:
            entry = Entry(len(self.entries) + 1, len(self.entries) * 10, record)
            opened = len(self.whole.tree.summed), self.whole.window
            self.session.apply(entry)
            self.whole.apply(entry)
            self.part.apply(entry)
            self.entries.append(entry)
            self._check(record, *opened)

    # --- what holds at every position --------------------------------------------------------------

    def _check(self, record: Record, summed: int, before: list[AgentMessage]) -> None:
        whole, part = self.whole, self.part
        assert whole.window == whole.tree.window_of(whole.leaf)
        assert (part.window, part.path(), part.tree.frame) == (whole.window, whole.path(), whole.tree.frame)
        self.windows[whole.leaf] = list(whole.window)
        if isinstance(record, FrameRecord):
            frame = whole.path()[-1].payload
            assert isinstance(frame, Frame)
            assert frame.summary == record.summary
            # All that was not summed up is still there, and nothing else but the opening.
            opening = before[: len(before) - len(self._told(before))]
            assert whole.window[1:] == before[len(opening) + summed :]
            self._shown = []
        queries = record.queries if isinstance(record, PausedRecord) else []
        for query in queries:
            if isinstance(query, ReplyQuery):
                self._check_shown()

    def _told(self, window: list[AgentMessage]) -> list[AgentMessage]:
        """The window without what its frame began with."""
        nodes = {id(node.payload) for node in self.whole.nodes.values()}
        return [message for message in window if id(message) in nodes]

    def _check_shown(self) -> None:
        """What a model is about to be shown."""
        window = self.whole.window
        assert not unpaired(window)
        assert not unpaired([_reversed(message) for message in reversed(window)]), "a call has no result"
        shown = [block for message in window for block in message.content]
        assert self.whole.running is not None
        assert all(block in shown for block in self.whole.running.content)
        begins_anew = self.whole.running.begins and len(self.whole.running.messages) == 1
        if not begins_anew:
            assert window[: len(self._shown)] == self._shown, "what the provider has cached is no longer the same"
        self._shown = list(window)


def _reversed(message: AgentMessage) -> AgentMessage:
    """Results as calls, and calls as results."""
    content: list[ContentBlock] = []
    for block in reversed(message.content):
        if isinstance(block, ToolResultBlock):
            content.append(ToolUseBlock(block.tool_use_id, "", {}))
        elif isinstance(block, ToolUseBlock):
            content.append(ToolResultBlock(block.id, ""))
    return AgentMessage(message.role, content)


TEXTS = st.integers(1, 300).map(lambda size: TextBlock("abc " * (size // 4) + "x"))
INPUTS: st.SearchStrategy[list[ContentBlock]] = st.lists(st.one_of(TEXTS, st.just(PICTURE)), min_size=1, max_size=2)
TOOLS = st.sampled_from(["add", "rm", "pay"])
USAGES = st.one_of(st.none(), st.integers(0, 900).map(lambda sent: Usage(prompt_tokens=sent, completion_tokens=5)))
DECISIONS: st.SearchStrategy[Any] = st.sampled_from(
    ["approve", "deny", {"decision": "approve", "arguments": {"edited": True}}, {"decision": "deny", "reason": "no"}]
)


WISHES: list[dict[str, Any]] = [{}, {"keep": 0}, {"keep": 40}, {"instructions": "be brief"}, {"keep": -1}]
"""What commands to sum up are given, the last of it in vain."""


def work(agent: Agent, data: st.DataObject) -> None:
    """Answer one of the queries that wait, somehow."""
    draw = data.draw
    query = draw(st.sampled_from([each.query for each in agent.session.pending.values()]))
    match query:
        case InputQuery() if draw(st.integers(0, 4)) == 0:
            agent.say(command=Command("compact", draw(st.sampled_from(WISHES))))
        case InputQuery():
            begin = NewConversation([user("before")]) if draw(st.integers(0, 9)) == 0 else None
            agent.say(*draw(INPUTS), begin=begin)
        case SummaryQuery():
            agent.answer(query.id, draw(st.sampled_from(["Notes.", "Longer notes. " * 5, "", {"content": 7}])))
        case LlmQuery() if draw(st.integers(0, 7)) == 0:
            code = draw(st.sampled_from(["context_length", "context_length", "cancelled", "auth"]))
            agent.answer(query.id, Failure("no", code))
        case LlmQuery():
            wished: list[ContentBlock] = [
                ToolUseBlock(f"c-{draw(st.integers(0, 3))}", name, {}) for name in draw(st.lists(TOOLS, max_size=3))
            ]
            agent.reply(draw(TEXTS), *wished, usage=draw(USAGES))
        case HumanQuery():
            agent.answer(query.id, draw(DECISIONS))
        case ToolQuery():
            failure = Failure("stop", draw(st.sampled_from(["cancelled", "failed"])))
            agent.answer(query.id, failure if draw(st.integers(0, 5)) == 0 else "r" * draw(st.integers(0, 200)))


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_however_a_conversation_goes_the_window_follows_from_the_tree_and_what_the_model_sees_is_whole(
    data: st.DataObject,
) -> None:
    window = data.draw(st.sampled_from([None, 150, 300, 900, 3_000]))
    keep = data.draw(st.sampled_from([0, 30, 100, 8_000]))
    agent = Agent(window=window, compaction=Compaction(keep=keep))
    for _ in range(data.draw(st.integers(5, 40))):
        work(agent, data)
    # What was shown at a node once is what the tree says of it for ever.
    for leaf, shown in agent.windows.items():
        assert agent.whole.tree.window_of(leaf) == shown
    again = Conversation("s-1")
    for entry in agent.entries:
        again.apply(entry)
    assert (again.nodes, again.window) == (agent.whole.nodes, agent.whole.window)
    check_segments(agent.entries)
    check_checkpoints(agent.entries)
    # A program that is rebuilt from the journal would ask the same.
    fold = ReplayFold("s-1")
    fold.apply(agent.entries[0])
    replayed = AgentInstance(fold)
    answers: list[tuple[str, Answer]] = []
    for entry in agent.entries[1:]:
        if isinstance(entry.record, PausedRecord):
            step = replayed.resume(entry.position - 1, answers)
            assert isinstance(step, AskStep)
            assert step.queries == entry.record.queries
            answers = []
        elif isinstance(entry.record, AnsweredRecord):
            answers.append((entry.record.query_id, entry.record.answer))
        fold.apply(entry)
        if isinstance(entry.record, PausedRecord) and (state := replayed.dump()) is not None:
            restored = AgentInstance.restore(fold, state)
            assert restored is not None
            assert picture(restored) == picture(replayed)
            replayed = restored


class Poor(Agent):
    """One whose budget does not allow a summary."""

    def _take(self, step: Step) -> None:
        assert isinstance(step, AskStep)
        if any(isinstance(query, SummaryQuery) for query in step.queries):
            spent = Failure("the budget is spent", BudgetExceededError.kind)
            self._write(*step.notes, RefusedRecord(queries=1, failure=spent))
            step = at_once(self.instance.refuse(len(self.entries), spent))
        super()._take(step)


def test_a_summary_that_the_budget_does_not_allow_stops_the_turn_and_the_session_goes_on() -> None:
    agent = Poor(window=300)
    agent.say(TextBlock("word " * 100))
    agent.reply(TextBlock("word " * 100))
    agent.say(TextBlock("More"))
    assert agent.whole.turns["t-2"].ended == StoppedOutcome("budget", "the budget is spent", limit="budget")
    agent.say(command=Command("compact", {}))
    assert agent.whole.turns["t-3"].ended == StoppedOutcome("budget", "the budget is spent", limit="budget")
    assert agent.asked(InputQuery)


def test_the_search_for_windows_does_find_summaries_in_the_middle_of_turns() -> None:
    agent = Agent(window=300, compaction=Compaction(keep=30))
    agent.say(TextBlock("Count the words."))
    for number in range(6):
        agent.reply(ToolUseBlock(f"c-{number}", "add", {}))
        agent.answer(agent.asked(ToolQuery).id, "word " * 60)
        if isinstance(agent.asked(LlmQuery), SummaryQuery):
            agent.answer(agent.asked(LlmQuery).id, f"Notes {number}.")
    frames = [node.payload for node in agent.whole.path() if isinstance(node.payload, Frame)]
    assert [frame.summary for frame in frames] == ["", "Notes 2.", "Notes 5."]
    assert [frame.asked for frame in frames] == [[], [TextBlock("Count the words.")], [TextBlock("Count the words.")]]
    assert len(agent.whole.messages) == 13
