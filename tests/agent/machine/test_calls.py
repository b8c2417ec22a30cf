"""The calls of one reply: each on its way to a result, and none run that nobody has agreed to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from holdfast.agent.machine.approval import Approval, Rule, ruling
from holdfast.agent.machine.calls import AUTHORIZE, CALL_TOOL, FIND_TOOLS, Calls, ChildTerms
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import ApprovalQuery, CallQuery
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL, CallTools, TurnUsage
from holdfast.core.queries import Answer, Failure, Query, ToolQuery, Value
from holdfast.core.values import Json
from tests.tables import each_row


class Round:
    """Calls with the queries that were asked for them: as the program of an agent does it."""

    def __init__(self, layers: Sequence[Approval], *calls: ToolUseBlock, granted: list[Rule] | None = None) -> None:
        self.granted: list[Rule] = granted if granted is not None else []
        self.calls = Calls(CallTools(list(calls)), Policy(approval=list(layers)), self.granted, ChildTerms(TurnUsage()))
        self.asked: dict[str, Query] = {}
        self.waiting: list[str] = []
        self.refused: list[str] = []
        self._take(self.calls.begin())

    def answer(self, query: str, answer: Answer | Json) -> list[Query]:
        """What is asked after an answer."""
        return self.answer_all({query: answer})

    def answer_all(self, answers: dict[str, Answer | Json]) -> list[Query]:
        queries: list[Query] = []
        for query, answer in answers.items():
            self.waiting.remove(query)
            told = answer if isinstance(answer, Value | Failure) else Value(value=answer)
            queries += self.calls.answered(query, told)
        queries += self.calls.granted()
        for gone in self.calls.withdrawals():
            self.waiting.remove(gone)
        return self._take(queries)

    def _take(self, queries: list[Query]) -> list[Query]:
        ids = [f"q-{len(self.asked) + number}" for number in range(len(queries))]
        self.calls.asked(ids)
        self.asked.update(zip(ids, queries, strict=True))
        self.waiting += ids
        self.refused += [record.call_id for record in self.calls.refusals()]
        assert sorted(self.calls.waiting) == sorted(self.waiting)
        return queries

    @property
    def first(self) -> Query:
        return self.asked["q-0"]

    @property
    def runs(self) -> list[CallQuery]:
        """The tools that were asked for, in order."""
        return [query for query in self.asked.values() if isinstance(query, CallQuery) and query.name != AUTHORIZE]


def call(tool: str = "delete", number: int = 1, /, **arguments: Json) -> ToolUseBlock:
    return ToolUseBlock(f"call_{number}", tool, arguments)


CONFIRM = Approval(default="confirm")
CODE = Approval(default="callback", callback="code")


def wake(made: Round) -> str:
    return made.calls.wake


def content(made: Round, number: int = 0) -> Any:
    return made.calls.results[number].content


def test_a_call_that_is_allowed_is_run_at_once() -> None:
    made = Round([], call(path="/x"))
    assert made.first == CallQuery(name="delete", arguments={"path": "/x"}, call_id="call_1")
    assert made.calls.wake == "all"
    made.answer("q-0", "gone")
    assert content(made) == "gone"


def test_a_call_that_is_denied_is_not_asked_and_the_model_is_told_why() -> None:
    made = Round([Approval(rules=[Rule.deny("delete").because("never here")])], call())
    assert (made.asked, made.refused) == ({}, ["call_1"])
    assert content(made) == {"error": "not approved: never here", "code": "denied"}
    assert not made.calls.results[0].executed


def test_a_call_to_be_confirmed_is_shown_to_somebody_and_then_run() -> None:
    made = Round([Approval(rules=[Rule.confirm("delete").because("for good")], timeout_ms=90)], call(path="/x"))
    asked = made.first
    assert isinstance(asked, ApprovalQuery)
    shown = (asked.approves.tool, asked.approves.arguments, asked.approves.reason, asked.timeout_ms)
    assert shown == ("delete", {"path": "/x"}, "for good", 90)
    assert wake(made) == "first"
    assert made.answer("q-0", "approve") == [CallQuery(name="delete", arguments={"path": "/x"}, call_id="call_1")]
    assert wake(made) == "all"


@each_row(
    ("answer", "told"),
    [
        ("deny", "not approved: the person asked did not approve it"),
        ({"decision": "deny", "reason": "too late"}, "not approved: too late"),
        (Failure("ask me tomorrow"), "not approved: ask me tomorrow"),
        (Failure("no answer within 5 ms", "timeout"), "not approved: nobody approved it in time"),
        ("sure", "not approved: invalid decision"),
        ({"decision": "approve", "args": {}}, "not approved: invalid decision"),
    ],
)
def test_what_is_no_yes_is_a_no(answer: Any, told: str) -> None:
    made = Round([CONFIRM], call())
    assert made.answer("q-0", answer) == []
    assert content(made)["error"].startswith(told)
    assert made.refused == ["call_1"]


def test_edited_arguments_are_the_ones_that_it_is_run_with() -> None:
    made = Round([CONFIRM], call(path="/x"))
    made.answer("q-0", {"decision": "approve", "arguments": {"path": "/y"}})
    assert made.runs == [CallQuery(name="delete", arguments={"path": "/y"}, call_id="call_1", edited=True)]


def test_the_same_arguments_again_are_no_edit() -> None:
    made = Round([CONFIRM], call(path="/x"))
    made.answer("q-0", {"decision": "approve", "arguments": {"path": "/x"}})
    assert made.runs == [CallQuery(name="delete", arguments={"path": "/x"}, call_id="call_1")]


def test_whoever_is_asked_may_not_edit_a_call_into_one_that_is_denied() -> None:
    made = Round([Approval(rules=[Rule.deny("delete", path="/")], default="confirm")], call(path="/x"))
    assert made.answer("q-0", {"decision": "approve", "arguments": {"path": "/"}}) == []
    assert content(made)["code"] == "denied"


def test_code_looks_at_edited_arguments_as_well_and_nobody_is_asked_twice() -> None:
    made = Round([CODE], call(path="/x"))
    made.answer("q-0", {"verdict": "confirm"})
    asked = made.answer("q-1", {"decision": "approve", "arguments": {"path": "/y"}})
    assert [query.arguments["arguments"] for query in asked if isinstance(query, CallQuery)] == [{"path": "/y"}]
    [run] = made.answer("q-2", {"verdict": "confirm"})
    assert run == CallQuery(name="delete", arguments={"path": "/y"}, call_id="call_1", edited=True)
    other = Round([CODE], call(path="/x"))
    other.answer("q-0", {"verdict": "confirm"})
    other.answer("q-1", {"decision": "approve", "arguments": {"path": "/y"}})
    assert other.answer("q-2", {"verdict": "deny", "reason": "not there"}) == []
    assert content(other)["error"] == "not approved: not there"


def test_always_is_for_the_calls_of_the_session_that_come_after() -> None:
    granted: list[Rule] = []
    made = Round([CONFIRM], call(path="/x"), granted=granted)
    made.answer("q-0", {"decision": "always", "match": {"path": "/*"}})
    assert granted == [Rule("delete", "allow", {"path": "/*"})]
    assert isinstance(Round([CONFIRM], call(path="/y"), granted=granted).first, ToolQuery)
    assert isinstance(Round([CONFIRM], call(path="y"), granted=granted).first, ApprovalQuery)
    assert isinstance(Round([CONFIRM], call("write", path="/y"), granted=granted).first, ApprovalQuery)
    assert Round([CONFIRM, Approval(default="deny")], call(path="/y"), granted=granted).asked == {}


def test_always_is_for_the_calls_that_wait_as_well() -> None:
    made = Round([CONFIRM], call(path="/x"), call("write", 2), call("delete", 3, path="/y"))
    asked = made.answer("q-0", "always")
    assert [query.call_id for query in asked if isinstance(query, CallQuery)] == ["call_1", "call_3"]
    assert made.waiting == ["q-1", "q-3", "q-4"]


def test_answers_that_come_together_count_each_for_its_call() -> None:
    made = Round([CONFIRM], call(path="/x"), call("delete", 2, path="/y"))
    made.answer_all({"q-0": "always", "q-1": "deny"})
    assert [run.call_id for run in made.runs] == ["call_1"]
    assert made.refused == ["call_2"]


def test_a_call_that_waits_does_not_hold_up_the_others() -> None:
    layer = Approval(rules=[Rule.confirm("delete"), Rule.deny("shell")])
    made = Round([layer], call(), call("read", 2), call("shell", 3))
    assert [type(query) for query in made.asked.values()] == [ApprovalQuery, CallQuery]
    assert made.refused == ["call_3"]
    assert made.answer("q-1", "text") == []
    assert made.waiting == ["q-0"]
    made.answer("q-0", "approve")
    made.answer("q-2", "gone")
    assert [done.content if not done.is_error else "refused" for done in made.calls.results] == [
        "gone",
        "text",
        "refused",
    ]


# --- code of the host ------------------------------------------------------------------------------------


def test_code_is_asked_with_the_call() -> None:
    made = Round([Approval(default="callback", callback="code", timeout_ms=40)], call(path="/x"))
    asked = {"tool": "delete", "arguments": {"path": "/x"}, "callbacks": ["code"]}
    assert made.first == CallQuery(name=AUTHORIZE, arguments=asked, call_id="call_1", timeout_ms=40)
    assert made.answer("q-0", {"verdict": "allow"}) == made.runs


def test_code_may_be_stricter_than_the_rules_and_not_milder() -> None:
    made = Round([CODE, CONFIRM], call())
    assert isinstance(made.answer("q-0", {"verdict": "allow"})[0], ApprovalQuery)
    denied = Round([CODE, Approval(default="deny")], call())
    assert denied.asked == {}


def test_a_reason_of_the_rules_stays_where_code_gives_none() -> None:
    made = Round([Approval(rules=[Rule.callback("delete").because("for good")], callback="code")], call())
    [asked] = made.answer("q-0", {"verdict": "confirm"})
    assert isinstance(asked, ApprovalQuery)
    assert asked.approves.reason == "for good"


@each_row(
    "answer",
    [{"verdict": "deny"}, {"verdict": "yes"}, "allow", True, None, Failure("it broke"), Failure("late", "timeout")],
)
def test_code_that_does_not_allow_it_denies_it(answer: Any) -> None:
    made = Round([CODE], call())
    assert made.answer("q-0", answer) == []
    assert content(made)["code"] == "denied"


# --- which tool is meant ---------------------------------------------------------------------------------


@each_row("name", [FINISH_TOOL, GIVE_UP_TOOL, FIND_TOOLS, CALL_TOOL])
def test_nobody_is_asked_about_what_a_model_only_says_to_the_runtime(name: str) -> None:
    assert Round([CONFIRM], call(name)).runs == [CallQuery(name=name, call_id="call_1")]


def test_rules_look_at_the_tool_that_is_called_through_another() -> None:
    layer = Approval(rules=[Rule.deny("delete", path="/*")])
    through = call(CALL_TOOL, name="delete", arguments={"path": "/x"})
    assert Round([layer], through).refused == ["call_1"]


@each_row("name", [AUTHORIZE, "holdfast.command", "holdfast.state"])
@each_row("layers", [[], [CONFIRM]])
def test_a_model_cannot_call_what_programs_ask_the_runtime_by(name: str, layers: list[Approval]) -> None:
    for wished in (call(name, op="set"), call(CALL_TOOL, name=name, arguments={"op": "set"})):
        made = Round(layers, wished)
        assert made.asked == {}
        assert content(made) == {"error": f"there is no tool '{name}'", "code": "unknown_tool"}


# --- any order of answers --------------------------------------------------------------------------------

names = st.sampled_from(["read", "write", "shell"])
arguments = st.dictionaries(st.just("x"), st.sampled_from(["1", "2"]), max_size=1)
layers_ = st.lists(
    st.builds(
        Approval,
        rules=st.lists(
            st.builds(Rule, names | st.just("*"), st.sampled_from(["allow", "deny", "confirm", "callback"])), max_size=3
        ),
        default=st.sampled_from(["allow", "deny", "confirm", "callback"]),
        callback=st.just("code"),
    ),
    max_size=3,
)
decisions = st.sampled_from(
    [
        "approve",
        "deny",
        "always",
        "nonsense",
        {"decision": "approve", "arguments": {"x": "2"}},
        {"decision": "always", "match": {"x": "1"}},
    ]
)
verdicts = st.sampled_from([{"verdict": "allow"}, {"verdict": "confirm"}, {"verdict": "deny"}, "nonsense"])


@given(layers_, st.lists(st.tuples(names, arguments), min_size=1, max_size=5), st.data())
def test_in_any_order_of_answers_every_call_is_done_and_none_is_run_twice_or_without_a_yes(
    layers: list[Approval], wishes: list[tuple[str, dict[str, Json]]], data: st.DataObject
) -> None:
    calls = [ToolUseBlock(f"call_{number}", name, given_) for number, (name, given_) in enumerate(wishes)]
    made = Round(layers, *calls)
    approved: dict[str, dict[str, Json]] = {}
    """Calls that a person said yes to, with the arguments."""
    authorized: list[tuple[str, dict[str, Json]]] = []
    """Calls that code did not refuse, with the arguments."""
    results = 0
    while made.waiting:
        some = data.draw(st.lists(st.sampled_from(made.waiting), min_size=1, max_size=2, unique=True))
        answers: dict[str, Any] = {}
        for query in some:
            match made.asked[query]:
                case ApprovalQuery(approves=asked):
                    answers[query] = said = data.draw(decisions)
                    if said in ("approve", "always") or isinstance(said, dict):
                        edited = said.get("arguments") if isinstance(said, dict) else None
                        approved[asked.id] = asked.arguments if edited is None else edited
                case CallQuery(name="holdfast.authorize", call_id=call_id, arguments=given_):
                    answers[query] = said = data.draw(verdicts)
                    if isinstance(said, dict) and said["verdict"] != "deny":
                        authorized.append((call_id, given_["arguments"]))
                case _:
                    answers[query], results = "done", results + 1
        made.answer_all(answers)
    assert len(made.calls.results) == len(calls)
    ran = [query.call_id for query in made.runs]
    assert len(set(ran)) == len(ran) == results
    assert sorted([*ran, *made.refused], key=str) == sorted(call.id for call in calls)
    for run in made.runs:
        found = ruling(layers, run.name, run.arguments)
        assert found.verdict != "deny"
        if found.callbacks:
            assert (run.call_id, run.arguments) in authorized
        if found.verdict == "confirm":
            is_granted = any(rule.matches(run.name, run.arguments) for rule in made.granted)
            assert is_granted or approved.get(str(run.call_id)) == run.arguments
        assert run.edited == (run.arguments != msgspec.to_builtins(calls[int(str(run.call_id)[5:])].input))
