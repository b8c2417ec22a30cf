"""Two journals compared: how far they are the same, what belongs together after that, and what differs first."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agent.machine.messages import TextBlock, ToolUseBlock
from holdfast.agent.machine.queries import CallQuery, InputQuery, ReplyQuery
from holdfast.agent.machine.turn import RecordedReply
from holdfast.agent.machine.turn_input import TurnInput
from holdfast.core.compare import CommonFork, Comparison, compare
from holdfast.core.queries import Failure, HumanQuery, Query, Usage, Value
from holdfast.core.records import (
    AnsweredRecord,
    AttemptedRecord,
    Fork,
    LoggedRecord,
    PausedRecord,
    Program,
    Record,
    StartedRecord,
)
from tests.core.helpers import Journal, llm
from tests.tables import each_row


def session(session_id: str, fork: Fork | None = None, program: Program | None = None) -> Journal:
    return Journal(session_id).write(StartedRecord(program=program or Program("native", "demo"), forked_from=fork))


def compared(left: Journal, right: Journal) -> Comparison:
    return compare((left.session.id, left.entries), (right.session.id, right.entries))


def shown(found: Comparison) -> list[tuple[str | None, str | None, bool]]:
    """The rows: kind and text of each side."""
    return [
        (
            f"{row.left.kind} {row.left.text}" if row.left else None,
            f"{row.right.kind} {row.right.text}" if row.right else None,
            row.same,
        )
        for row in found.rows
    ]


def told(session_id: str, *answers: str) -> Journal:
    journal = session(session_id)
    for number, answer in enumerate(answers):
        journal.ask(llm(f"{number}?")).answer(f"q-{number}", answer)
    return journal


def test_two_that_say_the_same_have_no_difference() -> None:
    left, right = told("a", "x", "y").complete("end"), told("b", "x", "y").later(5_000).complete("end")
    found = compared(left, right)
    assert found.difference is None
    assert found.rows == []
    assert (found.left.common, found.right.common) == (6, 6)


def test_the_first_difference_is_named_and_what_follows_is_aligned() -> None:
    found = compared(told("a", "x", "y", "z").complete(1), told("b", "x", "other"))
    assert found.difference == "the answer to q-1 is another"
    assert found.left.common == 4
    assert shown(found) == [
        ("answered y", "answered other", False),
        ("asked 2?", None, False),
        ("answered z", None, False),
        ("ended completed: 1", None, False),
    ]


def test_what_is_the_same_again_after_a_difference_is_said_to_be() -> None:
    found = compared(told("a", "x", "same"), told("b", "y", "same"))
    assert [row.same for row in found.rows] == [False, True, True]


def test_one_that_only_goes_on_is_named() -> None:
    found = compared(told("a", "x"), told("b", "x").ask(llm("more?")))
    assert found.difference == "only b has it: the question q-1"
    assert shown(found) == [(None, "asked more?", False)]


def test_other_questions_and_other_ends_are_differences() -> None:
    assert compared(session("a").ask(llm("one")), session("b").ask(llm("two"))).difference == (
        "the question q-0 is another"
    )
    assert compared(session("a").complete(1), session("b").complete(2)).difference == "the end is another"
    assert compared(session("a").complete(1), session("b").fail("no")).difference == "the end is another"


def test_a_failure_and_an_answer_are_not_the_same() -> None:
    left, right = told("a", "x"), session("b").ask(llm("0?"))
    right.write(AnsweredRecord(query_id="q-0", answer=Failure("x")))
    assert compared(left, right).difference == "the answer to q-0 in one, the failed answer to q-0 in the other"


def test_times_logs_attempts_and_usage_make_no_difference() -> None:
    left = told("a", "x")
    right = session("b").write(LoggedRecord(message="a note")).later(99).ask(llm("0?"))
    right.write(AttemptedRecord(query_id="q-0", driver="llm"))
    right.answer("q-0", "x", Usage(prompt_tokens=100, completion_tokens=11))
    found = compared(left, right)
    assert found.difference is None
    assert (found.left.common, found.right.common) == (3, 5)
    assert found.right.total.tokens == 111


def test_what_was_spent_since_is_told_apart_from_the_whole() -> None:
    left = session("a").ask(llm("0?")).answer("q-0", "x", Usage(prompt_tokens=10, completion_tokens=10, cost=0.5))
    right = session("b").ask(llm("0?")).answer("q-0", "x", Usage(prompt_tokens=10, completion_tokens=10, cost=0.5))
    right.ask(llm("1?")).answer("q-1", "y", Usage(prompt_tokens=5, completion_tokens=2, cost=0.25))
    found = compared(left, right)
    assert (found.right.total.tokens, found.right.branch.tokens, found.right.branch.llm_calls) == (27, 7, 1)
    assert (found.right.total.cost, found.right.branch.cost) == (0.75, 0.25)
    assert found.left.branch.llm_calls == 0


def test_answers_that_came_in_another_order_stand_beside_each_other() -> None:
    def journal(name: str, order: tuple[str, str]) -> Journal:
        begun = session(name).ask(llm("left"), HumanQuery(prompt="right"))
        for query in order:
            begun.answer(query, f"to {query}")
        return begun.complete()

    found = compared(journal("a", ("q-0", "q-1")), journal("b", ("q-1", "q-0")))
    assert [row.same for row in found.rows] == [True, True, True]
    assert found.difference is None


@each_row(
    ("left", "right", "descent"),
    [
        (None, Fork("a", 4, "a"), CommonFork("a", 4)),
        (Fork("b", 3, "b"), None, CommonFork("b", 3)),
        (Fork("c", 5, "c"), Fork("c", 2, "c"), CommonFork("c", 2)),
        (Fork("x", 5, "root"), Fork("y", 2, "root"), CommonFork("root", 1)),
        (None, Fork("y", 2, "a"), CommonFork("a", 1)),
        (None, None, None),
        (Fork("c", 5, "c"), Fork("d", 2, "d"), None),
    ],
)
def test_where_both_come_from_is_told(left: Fork | None, right: Fork | None, descent: CommonFork | None) -> None:
    found = compared(session("a", left).ask(llm("one")), session("b", right).ask(llm("two")))
    assert found.descent == descent


def test_sessions_that_were_started_with_the_same_have_their_beginning_in_common_whatever_their_seeds() -> None:
    left, right = (
        Journal(name).write(StartedRecord(program=Program("native", "demo"), seed=n))
        for n, name in ((1, "a"), (2, "b"))
    )
    assert compared(left, right).left.common == 1


def test_sessions_of_other_programs_have_nothing_in_common() -> None:
    found = compared(session("a"), session("b", program=Program("native", "another")))
    assert (found.left.common, found.right.common) == (0, 0)
    assert found.difference == "what it was started with is another"


# --- agents ----------------------------------------------------------------------------------------

AGENT = Program("agent", "chat")


def reply(text: str, *calls: ToolUseBlock) -> Any:
    return msgspec.to_builtins(RecordedReply(content=[TextBlock(text), *calls], stop="tool_use" if calls else "end"))


def chat(session_id: str, *turns: list[tuple[str, Any]]) -> Journal:
    """A chat: for each turn what was said, in order, by whom."""
    journal = session(session_id, program=AGENT)
    number = 0

    def pause(query: Any) -> Record:
        return PausedRecord(queries=[msgspec.structs.replace(query, id=f"q-{number}")])

    for index, turn in enumerate(turns):
        for who, what in turn:
            if who == "user":
                given = TurnInput(turn=f"{session_id}-{index}", content=[TextBlock(what)])
                query: Query = InputQuery()
                value: Any = msgspec.to_builtins(given)
            elif who == "assistant":
                query, value = ReplyQuery(iteration=1), what
            else:
                query, value = CallQuery(name="look", call_id="c"), what
            journal.write(pause(query), AnsweredRecord(query_id=f"q-{number}", answer=Value(value=value)))
            number += 1
    return journal


def test_chats_are_compared_by_what_was_said_and_not_by_the_ids_of_turns() -> None:
    left = chat("a", [("user", "hello"), ("assistant", reply("hi"))], [("user", "why?"), ("assistant", reply("so"))])
    right = chat("b", [("user", "hello"), ("assistant", reply("hi"))], [("user", "how?"), ("assistant", reply("so"))])
    found = compared(left, right)
    assert found.difference == "the input is another"
    assert shown(found) == [("user why?", "user how?", False), ("assistant so", "assistant so", True)]


def test_turns_of_chats_stand_beside_each_other_however_long_each_was() -> None:
    call = ToolUseBlock("c", "look", {"at": "it"})
    left = chat(
        "a",
        [("user", "one"), ("assistant", reply("let me see", call)), ("tool", "seen"), ("assistant", reply("done"))],
        [("user", "two"), ("assistant", reply("bye"))],
    )
    right = chat("b", [("user", "one!"), ("assistant", reply("done"))], [("user", "two"), ("assistant", reply("bye"))])
    assert shown(compared(left, right)) == [
        ("user one", "user one!", False),
        ('assistant let me see\ncalls look {"at":"it"}', "assistant done", False),
        ("tool seen", None, False),
        ("assistant done", None, False),
        ("user two", "user two", True),
        ("assistant bye", "assistant bye", True),
    ]


def test_what_an_agent_would_not_understand_is_shown_as_it_is() -> None:
    left, right = chat("a", [("assistant", {"odd": 1})]), chat("b", [("assistant", {"odd": 2})])
    assert shown(compared(left, right)) == [('answered {"odd":1}', 'answered {"odd":2}', False)]


def test_a_comparison_is_plain_json() -> None:
    found = compared(told("a", "x"), told("b", "y"))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
    assert isinstance(found.rows[0].left, msgspec.Struct)
