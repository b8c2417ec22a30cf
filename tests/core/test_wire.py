"""The JSON that clients read: algocline's own cases, and the keys that Holdfast adds."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.events import AcceptedEvent, CancelledEvent, CompletedEvent, FailedEvent, PausedEvent, RunningEvent
from holdfast.core.queries import ChildQuery, HumanQuery, Query, TimerQuery, ToolQuery
from holdfast.core.state import State
from holdfast.core.values import encode
from tests.core.helpers import START, in_state, llm, paused, started
from tests.tables import each_row


def asked(*queries: Query, session_id: str = "s-abc") -> dict[str, Any]:
    """The event that offers the queries, numbered from q-0, on the wire."""
    numbered = [msgspec.structs.replace(query, id=f"q-{i}") for i, query in enumerate(queries)]
    return PausedEvent(session_id=session_id, queries=numbered).to_json()


# --- what algocline's clients rely on --------------------------------------------------------------


def test_accepted_tells_how_many_remain() -> None:
    wire = AcceptedEvent(session_id="s-123", remaining=["q-0", "q-3", "q-4"]).to_json()
    assert wire["status"] == "accepted"
    assert wire["remaining"] == 3


def test_a_single_query_is_told_flat() -> None:
    wire = asked(llm("What is 2+2?", system="You are a calculator.", max_tokens=50))
    assert wire == {
        "status": "needs_response",
        "session_id": "s-abc",
        "query_id": "q-0",
        "prompt": "What is 2+2?",
        "system": "You are a calculator.",
        "max_tokens": 50,
    }


def test_a_single_query_without_system_says_null() -> None:
    assert asked(llm("hello", max_tokens=1024)) == {
        "status": "needs_response",
        "session_id": "s-abc",
        "query_id": "q-0",
        "prompt": "hello",
        "system": None,
        "max_tokens": 1024,
    }


def test_a_grounded_query_says_so_and_nothing_of_underspecified() -> None:
    wire = asked(llm("verify this claim", grounded=True))
    assert wire["grounded"] is True
    assert "underspecified" not in wire


def test_an_underspecified_query_says_so_and_nothing_of_grounded() -> None:
    wire = asked(llm("what output format do you need?", underspecified=True))
    assert wire["underspecified"] is True
    assert "grounded" not in wire


def test_several_queries_are_told_as_a_list_with_ids() -> None:
    wire = asked(*(llm(f"prompt-{i}", max_tokens=100) for i in range(3)), session_id="s-multi")
    assert wire == {
        "status": "needs_response",
        "session_id": "s-multi",
        "queries": [{"id": f"q-{i}", "prompt": f"prompt-{i}", "system": None, "max_tokens": 100} for i in range(3)],
    }


@each_row("flag", ["grounded", "underspecified"])
def test_in_a_list_only_the_flagged_query_carries_its_flag(flag: str) -> None:
    first, second = asked(llm("verify", **{flag: True}), llm("generate"))["queries"]
    assert first[flag] is True
    assert flag not in second


def test_completed_tells_the_result_and_the_stats() -> None:
    wire = started().complete({"answer": 42}).wire()
    assert wire["status"] == "completed"
    assert wire["result"] == {"answer": 42}
    assert set(wire["stats"]) == {"auto", "custom"}


def test_a_program_that_returns_nothing_completes_with_null() -> None:
    wire = started().complete().wire()
    assert "result" in wire
    assert wire["result"] is None


def test_failed_tells_the_error() -> None:
    wire = started().fail("lua error: bad argument").wire()
    assert wire["status"] == "error"
    assert wire["error"] == "lua error: bad argument"


def test_cancelled_tells_the_stats() -> None:
    wire = paused().cancel().wire()
    assert wire["status"] == "cancelled"
    assert set(wire["stats"]) == {"auto", "custom"}


# --- what Holdfast adds ------------------------------------------------------------------------------


@each_row("state", [state for state in State if state is not State.ABSENT])
def test_every_shape_carries_the_session_id(state: State) -> None:
    assert in_state(state).wire()["session_id"] == "s-1"


@each_row("state", [State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED])
def test_every_ending_carries_the_stats(state: State) -> None:
    journal = in_state(state).later(5)
    assert journal.wire()["stats"] == journal.session.metrics.to_json(journal.now, None)


def test_accepted_carries_the_session_id_and_the_ids_that_remain() -> None:
    wire = AcceptedEvent(session_id="s-1", remaining=["q-1", "q-3"]).to_json()
    assert wire == {"status": "accepted", "session_id": "s-1", "remaining": 2, "remaining_ids": ["q-1", "q-3"]}


def test_options_are_passed_on_as_they_are() -> None:
    options = {"model": "m", "temperature": 0.2, "role": "critic"}
    assert asked(llm(options=options))["options"] == options


def test_a_query_without_options_has_no_such_key() -> None:
    assert "options" not in asked(llm())


@each_row(
    ("query", "told"),
    [
        (ToolQuery(name="grep", arguments={"for": "x"}), {"kind": "tool", "name": "grep", "arguments": {"for": "x"}}),
        (ToolQuery(name="now"), {"kind": "tool", "name": "now", "arguments": {}}),
        (HumanQuery(prompt="ok?", choices=["yes", "no"]), {"kind": "human", "prompt": "ok?", "choices": ["yes", "no"]}),
        (HumanQuery(prompt="ok?"), {"kind": "human", "prompt": "ok?"}),
        (TimerQuery(delay_ms=5), {"kind": "timer", "delay_ms": 5}),
        (ChildQuery(program="sub", ctx=[1]), {"kind": "child", "program": "sub", "ctx": [1]}),
    ],
)
def test_a_query_that_is_not_llm_tells_its_kind_and_fields(query: Query, told: dict[str, Any]) -> None:
    assert asked(query) == {"status": "needs_response", "session_id": "s-abc", "query_id": "q-0", **told}
    assert asked(query, llm())["queries"][0] == {"id": "q-0", **told}


def test_an_llm_query_has_no_kind() -> None:
    assert "kind" not in asked(llm())


def test_due_at_is_told_for_the_queries_that_lapse_and_for_no_other() -> None:
    wire = started().later(7).ask(llm(timeout_ms=100), TimerQuery(delay_ms=5), llm()).wire()
    assert [query.get("due_at") for query in wire["queries"]] == [START + 107, START + 12, None]
    assert "due_at" not in wire["queries"][2]


def test_a_single_query_that_lapses_tells_when() -> None:
    assert paused(llm(timeout_ms=100)).wire()["due_at"] == START + 100


def test_replayed_is_told_only_when_it_is_true() -> None:
    assert "replayed" not in RunningEvent(session_id="s-1").to_json()
    assert RunningEvent(session_id="s-1", replayed=True).to_json() == {
        "status": "running",
        "session_id": "s-1",
        "replayed": True,
    }


def test_a_failure_tells_its_kind() -> None:
    event = FailedEvent(session_id="s-1", error="too slow", error_kind="deadline", stats={})
    assert event.to_json()["error_kind"] == "deadline"


def test_a_cancellation_tells_who_and_why_where_known() -> None:
    event = CancelledEvent(session_id="s-1", reason="enough", by="ann", stats={})
    assert event.to_json() == {"status": "cancelled", "session_id": "s-1", "reason": "enough", "by": "ann", "stats": {}}
    assert CancelledEvent(session_id="s-1", stats={}).to_json().keys() == {"status", "session_id", "stats"}


def test_an_expired_session_tells_why() -> None:
    wire = paused().later(10).expire().wire()
    assert wire["status"] == "expired"
    assert wire["reason"] == "no answer for 10 ms (the limit is 0 ms)"


def test_a_later_pause_offers_what_is_left_over_together_with_what_is_new() -> None:
    journal = paused(llm("a"), llm("b"), wake="first").answer("q-1").ask(llm("c"))
    assert [query["id"] for query in journal.wire()["queries"]] == ["q-0", "q-2"]


@each_row("state", [state for state in State if state is not State.ABSENT])
def test_every_shape_is_plain_json(state: State) -> None:
    wire = in_state(state).wire()
    assert msgspec.json.decode(encode(wire)) == wire


def test_a_result_may_itself_look_like_an_event() -> None:
    result = {"status": "error", "session_id": "s-other", "stats": 1}
    wire = CompletedEvent(session_id="s-1", result=result, stats={}).to_json()
    assert (wire["status"], wire["session_id"], wire["result"]) == ("completed", "s-1", result)
