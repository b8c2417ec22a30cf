"""Approval: which rule counts, which layer, and what may be answered."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from holdfast.agent.machine.approval import (
    ALLOWED,
    AlwaysDecision,
    Approval,
    ApproveDecision,
    Decision,
    DenyDecision,
    Rule,
    check_approval,
    decision_of,
    is_granted,
    ruling,
    with_layers,
)
from holdfast.agent.machine.errors import InvalidDecisionError
from holdfast.agent.machine.policy import Policy, Spec, resolve
from holdfast.agent.machine.queries import ApprovalCall, ApprovalQuery
from holdfast.core.decide import FeedMessage, GivenAnswer, decide_expire, decide_feed
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import event_of, query_json
from holdfast.core.queries import Failure, HumanQuery, Value
from holdfast.core.status import parse_pending_filter, snapshot
from holdfast.core.values import Json
from tests.core.helpers import Journal, picture
from tests.tables import each_row

# --- rules -----------------------------------------------------------------------------------------------


def said(*layers: Approval, tool: str = "shell", **arguments: Json) -> str:
    return ruling(layers, tool, arguments).verdict


def test_without_layers_everything_is_allowed() -> None:
    assert ruling([], "shell", {}) is ALLOWED
    assert ALLOWED.verdict == "allow"


def test_the_first_rule_that_matches_counts() -> None:
    layer = Approval(rules=[Rule.allow("shell", command="git *"), Rule.confirm("shell")], default="allow")
    assert said(layer, command="git status") == "allow"
    assert said(layer, command="ls") == "confirm"
    assert said(layer) == "confirm"
    assert said(layer, tool="read") == "allow"


def test_a_denial_that_matches_counts_wherever_it_stands() -> None:
    layer = Approval(rules=[Rule.allow("*"), Rule.confirm("shell"), Rule.deny("shell", command="*rm *")])
    assert said(layer, command="rm -rf /") == "deny"
    assert said(layer, command="ls") == "allow"


def test_the_default_is_for_calls_that_no_rule_speaks_of() -> None:
    layer = Approval(rules=[Rule.allow("read_*")], default="deny")
    assert said(layer, tool="read_file") == "allow"
    assert said(layer, tool="read") == "deny"


@each_row(
    ("pattern", "value", "fits"),
    [
        ("rm *", "rm x", True),
        ("rm *", "rm x\nls", True),
        ("rm *", " rm x", False),
        ("a[1]", "a[1]", True),
        ("a[1]", "a1", False),
        ("?.txt", "a.txt", True),
        ("?.txt", "ab.txt", False),
        ("true", True, True),
        ("true", "true", True),
        ("5", 5, True),
        ("null", None, True),
        ('{"a":1,"b":[2]}', {"b": [2], "a": 1}, True),
        ("Rm *", "rm x", False),
    ],
)
def test_patterns_of_arguments(pattern: str, value: Json, fits: bool) -> None:
    assert Rule("t", "deny", {"x": pattern}).matches("t", {"x": value}) is fits


def test_all_patterns_of_a_rule_must_match_and_what_is_not_given_matches_none() -> None:
    rule = Rule.deny("pay", to="*@else.where", amount=5)
    assert rule.matches("pay", {"to": "me@else.where", "amount": 5, "note": "x"})
    assert not rule.matches("pay", {"to": "me@else.where", "amount": 6})
    assert not rule.matches("pay", {"to": "me@else.where"})
    assert not rule.matches("pay", "me@else.where")


def test_a_rule_may_speak_of_an_argument_that_is_called_tool() -> None:
    assert Rule.confirm("run", tool="rm*").match == {"tool": "rm*"}


def test_a_rule_gives_its_reason() -> None:
    layer = Approval(rules=[Rule.confirm("shell").because("it may do anything")])
    assert ruling([layer], "shell", {}).reason == "it may do anything"


def test_of_several_layers_the_strictest_counts_with_its_reason() -> None:
    parent = Approval(rules=[Rule.confirm("shell").because("the parent wants to know")])
    child = Approval(rules=[Rule.allow("shell").because("it is fine")])
    assert ruling([child, parent], "shell", {}).reason == "the parent wants to know"
    assert said(child, parent) == said(parent, child) == "confirm"
    assert said(child, parent, Approval(default="deny")) == "deny"


def test_of_several_timeouts_the_shortest_of_those_who_ask_counts() -> None:
    long = Approval(default="confirm", timeout_ms=5_000)
    short = Approval(default="confirm", timeout_ms=1_000)
    silent = Approval(default="allow", timeout_ms=10)
    assert ruling([long, short, silent], "t", {}).timeout_ms == 1_000
    assert ruling([silent], "t", {}).timeout_ms is None


def test_callbacks_of_all_layers_are_asked_beside_the_verdict() -> None:
    code = Approval(rules=[Rule.callback("pay")], callback="one", timeout_ms=70)
    other = Approval(default="callback", callback="two")
    found = ruling([code, other, Approval(default="confirm")], "pay", {})
    assert (found.verdict, found.callbacks, found.timeout_ms) == ("confirm", ["one", "two"], 70)
    assert ruling([code], "pay", {}).verdict == "allow"


def test_a_verdict_of_newer_data_is_read_and_denies() -> None:
    stored: dict[str, Any] = {"approval": [{"rules": [{"tool": "a", "verdict": "quarantine"}], "default": "maybe"}]}
    policy = msgspec.convert(stored, Policy)
    assert said(*policy.approval, tool="a") == "deny"
    assert said(*policy.approval, tool="b") == "deny"
    beside_a_permission = Approval(rules=[Rule.allow("a"), *policy.approval[0].rules])
    assert said(beside_a_permission, tool="a") == "deny"


@each_row(
    ("layer", "told"),
    [
        (
            Approval(rules=[Rule("t", "alow")]),
            "'alow' is not a verdict; the verdicts are allow, callback, confirm, deny",
        ),
        (Approval(default="ask"), "'ask' is not a verdict"),
        (Approval(default="callback"), "needs a callback"),
        (Approval(rules=[Rule.callback("t")]), "needs a callback"),
        (Approval(rules=[Rule.allow("")]), "names no tool"),
        (Approval(timeout_ms=0), "more than 0 ms"),
    ],
)
def test_rules_that_make_no_sense_are_refused(layer: Approval, told: str) -> None:
    with pytest.raises(InvalidValueError, match=told):
        check_approval(layer)


def test_a_change_of_settings_leaves_the_rules() -> None:
    policy = Policy(approval=[Approval(default="deny")])
    assert resolve(Spec(model="other", tools=["*"]), policy).approval == policy.approval
    assert "approval" not in Spec.__struct_fields__


# --- layers ----------------------------------------------------------------------------------------------

OWN = Approval(default="confirm")
OURS = Approval(default="deny", origin="runtime")
THEIRS = Approval(default="confirm", origin="parent")


def test_rules_are_never_lost_by_naming_none() -> None:
    assert with_layers([OWN, THEIRS, OURS], []) == [OWN, THEIRS, OURS]


def test_rules_are_replaced_by_others_of_the_same_origin() -> None:
    new = Approval(default="allow")
    assert with_layers([OWN, THEIRS, OURS], [new]) == [new, THEIRS, OURS]
    assert with_layers([OWN], [OURS]) == [OWN, OURS]


def test_the_same_layers_come_to_the_same_list_in_any_order() -> None:
    assert with_layers([], [OURS, OWN, THEIRS]) == with_layers([OWN, OURS], [THEIRS, THEIRS]) == [OWN, THEIRS, OURS]


# --- properties of the ruling ----------------------------------------------------------------------------

tools = st.sampled_from(["read", "write", "shell"])
verdicts = st.sampled_from(["allow", "deny", "confirm", "callback", "newer"])
arguments = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2", 1]), max_size=2)
rules = st.builds(
    Rule,
    st.sampled_from(["*", "read", "w*", "sh?ll", "other"]),
    verdicts,
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "*", "3"]), max_size=1),
)
layers_ = st.lists(
    st.builds(Approval, rules=st.lists(rules, max_size=4), default=verdicts, callback=st.just("code")), max_size=4
)
ORDER = ["allow", "confirm", "deny"]


@given(layers_, layers_, tools, arguments)
def test_another_layer_never_makes_a_ruling_milder(
    layers: list[Approval], more: list[Approval], tool: str, given_: dict[str, Json]
) -> None:
    before, after = ruling(layers, tool, given_), ruling([*layers, *more], tool, given_)
    alone = ruling(more, tool, given_)
    assert ORDER.index(after.verdict) == max(ORDER.index(before.verdict), ORDER.index(alone.verdict))
    assert set(after.callbacks) == {*before.callbacks, *alone.callbacks}


@given(layers_, tools, arguments)
def test_a_denial_that_matches_beats_everything(layers: list[Approval], tool: str, given_: dict[str, Json]) -> None:
    denies = any(
        rule.verdict in ("deny", "newer") and rule.matches(tool, given_) for layer in layers for rule in layer.rules
    )
    if denies:
        assert ruling(layers, tool, given_).verdict == "deny"
    allows = all(rule.verdict == "allow" for layer in layers for rule in [*layer.rules, Rule("*", layer.default)])
    if allows:
        assert ruling(layers, tool, given_) == ALLOWED


@given(layers_, tools, arguments)
def test_the_order_of_layers_does_not_matter(layers: list[Approval], tool: str, given_: dict[str, Json]) -> None:
    one, other = ruling(layers, tool, given_), ruling(layers[::-1], tool, given_)
    assert (one.verdict, set(one.callbacks), one.timeout_ms) == (other.verdict, set(other.callbacks), other.timeout_ms)


def test_what_was_granted_covers_calls_of_the_tool_that_match() -> None:
    granted = [Rule("write", "allow", {"path": "/tmp/*"})]
    assert is_granted(granted, "write", {"path": "/tmp/x"})
    assert not is_granted(granted, "write", {"path": "/etc/x"})
    assert not is_granted(granted, "read", {"path": "/tmp/x"})
    assert not is_granted([], "write", {})


# --- decisions -------------------------------------------------------------------------------------------


@each_row(
    ("value", "decision"),
    [
        ("approve", ApproveDecision()),
        ("deny", DenyDecision()),
        ("always", AlwaysDecision()),
        (" Approve\n", ApproveDecision()),
        (True, ApproveDecision()),
        (False, DenyDecision()),
        ({"decision": "approve"}, ApproveDecision()),
        ({"decision": "approve", "arguments": {"x": 1}}, ApproveDecision({"x": 1})),
        ({"decision": "approve", "arguments": {}}, ApproveDecision({})),
        ({"decision": "deny", "reason": "no"}, DenyDecision("no")),
        ({"decision": "always", "match": {"x": "1"}}, AlwaysDecision({"x": "1"})),
        ('{"decision": "approve", "arguments": {"x": 2}}', ApproveDecision({"x": 2})),
    ],
)
def test_a_decision_is_a_word_or_an_object_or_its_text(value: Json, decision: Decision) -> None:
    assert decision_of(Value(value=value)) == decision


@each_row(
    "value",
    [
        "yes",
        "",
        "approve it",
        None,
        1,
        0,
        [],
        {},
        {"decision": "maybe"},
        {"decision": "approve", "argument": {"x": 1}},
        {"decision": "approve", "arguments": [1]},
        {"decision": "deny", "why": "no"},
        {"decision": "always", "match": {"x": 1}},
        '{"decision": "approve"',
        '{"decision": "approve", "args": {}}',
    ],
)
def test_anything_else_decides_nothing(value: Json) -> None:
    with pytest.raises(InvalidValueError, match="answer 'approve', 'deny' or 'always'"):
        decision_of(Value(value=value))


def test_a_failure_is_a_denial() -> None:
    assert decision_of(Failure("not on a Friday")) == DenyDecision("not on a Friday")


# --- feeding ---------------------------------------------------------------------------------------------


def asked(**more: Any) -> Journal:
    call = ApprovalCall("call_1", "delete", {"path": "/x"}, "it is gone then")
    return Journal().start().ask(ApprovalQuery(prompt="Run the tool 'delete'?", approves=call, **more))


@each_row("value", ["yes", {"decision": "aprove"}, {"decision": "approve", "args": {}}])
def test_an_answer_that_decides_nothing_is_refused_and_changes_nothing(value: Json) -> None:
    journal = asked()
    before = picture(journal.session)
    with pytest.raises(InvalidDecisionError) as caught:
        decide_feed(journal.session, FeedMessage([GivenAnswer(Value(value=value), "q-0")]))
    error = caught.value
    assert (error.session_id, error.query_id, error.tool, error.kind) == ("s-1", "q-0", "delete", "invalid_decision")
    assert "session 's-1': q-0 asks whether to run the tool 'delete'" in str(error)
    assert "answer 'approve', 'deny' or 'always'" in str(error)
    assert picture(journal.session) == before


def test_always_for_calls_that_are_not_like_this_one_is_refused() -> None:
    with pytest.raises(InvalidDecisionError, match="does not match the call itself"):
        feed(asked(), {"decision": "always", "match": {"path": "/tmp/*"}})
    assert feed(asked(), {"decision": "always", "match": {"path": "/*"}})


def feed(journal: Journal, value: Json) -> list[Any]:
    return decide_feed(journal.session, FeedMessage([GivenAnswer(Value(value=value), "q-0")])).records


def test_other_questions_to_people_take_any_answer() -> None:
    journal = Journal().start().ask(HumanQuery(prompt="Tea?", choices=["yes", "no"]))
    assert feed(journal, "maybe")


def test_a_failure_answers_an_approval() -> None:
    journal = asked()
    assert decide_feed(journal.session, FeedMessage([GivenAnswer(Failure("no"), "q-0")])).records


def test_a_session_that_waits_for_an_approval_does_not_expire() -> None:
    journal = asked().later(10_000)
    assert decide_expire(journal.session, journal.now, 1_000) == []
    other = Journal().start().ask(HumanQuery(prompt="Tea?")).later(10_000)
    assert decide_expire(other.session, other.now, 1_000) != []


def test_hosts_are_told_of_the_call() -> None:
    journal = asked()
    told = {"id": "call_1", "tool": "delete", "arguments": {"path": "/x"}, "reason": "it is gone then"}
    query = journal.session.pending["q-0"].query
    assert query_json(query)["approves"] == told
    assert event_of(journal.session, journal.now).to_json()["approves"] == told
    shown = snapshot(journal.session, journal.now, pending_filter=parse_pending_filter("full"))
    assert shown["pending"][0]["approves"] == told
