"""The snapshot of a session, and how much of its pending queries a filter shows."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.budget import Budget
from holdfast.core.call_history import CallHistory
from holdfast.core.errors import InvalidFilterError
from holdfast.core.queries import Failure, HumanQuery, TimerQuery, ToolQuery
from holdfast.core.records import LoggedRecord, ProgressedRecord
from holdfast.core.state import State
from holdfast.core.status import parse_pending_filter, snapshot
from tests.core.helpers import START, Journal, given, in_state, llm, paused, picture, started
from tests.tables import each_row

ALIVE = [State.RUNNING, State.PAUSED]
ENDED = [State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED]


def shown(journal: Journal, **options: Any) -> dict[str, Any]:
    return snapshot(journal.session, journal.now, **options)


def pending(journal: Journal, wanted: object, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(journal, pending_filter=parse_pending_filter(wanted, **options))["pending"]
    return found


# --- the snapshot ------------------------------------------------------------------------------------


def test_a_paused_session_is_shown_whole() -> None:
    journal = started().later(10).ask(llm("abcd"), llm("abcdefgh")).later(100)
    assert shown(journal) == {
        "session_id": "s-1",
        "state": "paused",
        "phase": "paused",
        "started_at": START,
        "last_activity_at": START + 10,
        "metrics": {
            "elapsed_ms": 110,
            "own_ms": 10,
            "waiting_ms": 100,
            "llm_calls": 2,
            "pauses": 1,
            "rounds": 0,
            "tokens": {
                "prompt_total": 3,
                "response_total": 0,
                "total": 3,
                "current_query": {"query_id": "q-1", "prompt_tokens": 2, "started_waiting_at": START + 10},
            },
            "recent_logs": [],
        },
        "strategy": "demo",
        "pending_queries": 2,
    }


@each_row("state", ALIVE)
def test_a_living_session_is_in_the_state_of_its_phase(state: State) -> None:
    status = shown(in_state(state))
    assert (status["state"], status["phase"]) == (state, state)


@each_row("state", ENDED)
def test_an_ended_session_is_terminal_and_its_phase_tells_how(state: State) -> None:
    status = shown(in_state(state))
    assert (status["state"], status["phase"]) == ("terminal", state)


@each_row("state", ENDED)
def test_an_ended_session_has_nothing_pending(state: State) -> None:
    journal = in_state(state)
    assert "pending_queries" not in shown(journal)
    assert pending(journal, "full") == []
    assert shown(journal)["metrics"]["tokens"]["current_query"] is None


@each_row("state", [state for state in State if state is not State.PAUSED])
def test_pending_queries_are_counted_only_while_paused(state: State) -> None:
    assert "pending_queries" not in shown(in_state(state))


def test_a_session_without_records_can_be_shown() -> None:
    status = shown(Journal())
    assert (status["phase"], status["metrics"]["llm_calls"]) == ("absent", 0)
    assert "strategy" not in status


def test_queries_left_over_are_shown_while_the_program_runs() -> None:
    assert [query["query_id"] for query in pending(in_state(State.RUNNING), "meta")] == ["q-0"]


def test_without_a_filter_no_pending_query_is_shown() -> None:
    assert parse_pending_filter(None) is None
    assert "pending" not in shown(paused())


def test_the_current_query_of_a_half_answered_batch_is_one_that_waits() -> None:
    journal = paused(llm(), llm()).answer("q-1")
    assert shown(journal)["metrics"]["tokens"]["current_query"]["query_id"] == "q-0"


def test_there_is_no_current_query_when_all_are_answered() -> None:
    assert shown(paused().answer("q-0"))["metrics"]["tokens"]["current_query"] is None


def test_logs_are_shown_with_time_level_and_source() -> None:
    journal = started().later(3).write(LoggedRecord(message="hello", level="warn", source="print"))
    assert shown(journal)["metrics"]["recent_logs"] == [
        {"ts": START + 3, "level": "warn", "source": "print", "message": "hello"}
    ]


def test_progress_is_shown_once_there_is_some() -> None:
    journal = started()
    assert "progress" not in shown(journal)["metrics"]
    journal.write(ProgressedRecord(step=1, total=4))
    assert shown(journal)["metrics"]["progress"] == {"step": 1, "total": 4, "message": None}


def test_what_is_left_of_a_budget_is_shown_when_there_is_one() -> None:
    assert "budget_remaining" not in shown(started())["metrics"]
    journal = started(budget=Budget(max_llm_calls=3, max_tokens=100)).ask(llm("abcd", max_tokens=50))
    assert shown(journal)["metrics"]["budget_remaining"] == {
        "llm_calls": 2,
        "elapsed_ms": None,
        "own_ms": None,
        "tokens": 49,
        "cost": None,
    }


def test_history_is_shown_only_on_request() -> None:
    journal = paused(llm("a"), llm("b")).answer("q-0", "one")
    journal.feed(given("q-1", Failure("no")))
    assert "conversation_history" not in shown(journal)["metrics"]
    history = shown(journal, history=CallHistory(journal.entries))["metrics"]["conversation_history"]
    assert [(x["query_id"], x["prompt"], x["response"]) for x in history] == [("q-0", "a", "one"), ("q-1", "b", None)]


def test_looking_at_a_session_changes_nothing() -> None:
    journal = paused()
    before = picture(journal.session)
    shown(journal.later(50), pending_filter=parse_pending_filter("full"))
    assert picture(journal.session) == before


# --- filters -----------------------------------------------------------------------------------------

RICH = llm("p" * 300, system="be brief", max_tokens=7, grounded=True, options={"model": "m"})


def test_meta_shows_ids_and_limits_only() -> None:
    assert pending(paused(RICH), "meta") == [{"query_id": "q-0", "max_tokens": 7}]


def test_preview_shows_the_first_200_characters_as_well() -> None:
    assert pending(paused(RICH), "preview") == [{"query_id": "q-0", "max_tokens": 7, "prompt_preview": "p" * 200}]


def test_full_shows_everything() -> None:
    assert pending(paused(RICH), "full") == [
        {
            "query_id": "q-0",
            "max_tokens": 7,
            "system": "be brief",
            "grounded": True,
            "underspecified": False,
            "prompt": "p" * 300,
            "options": {"model": "m"},
        }
    ]


def test_the_length_of_a_preview_can_be_set() -> None:
    assert pending(paused(RICH), "preview", preview_chars=3)[0]["prompt_preview"] == "ppp"


def test_a_preview_is_cut_by_code_points() -> None:
    assert pending(paused(llm("日🙂é" * 100)), "preview")[0]["prompt_preview"] == ("日🙂é" * 67)[:200]


def test_a_short_prompt_is_previewed_whole() -> None:
    assert pending(paused(llm("short")), "preview")[0]["prompt_preview"] == "short"


@each_row(
    ("wanted", "told"),
    [
        ({}, {}),
        ({"query_id": True}, {"query_id": "q-0"}),
        ({"query_id": False, "max_tokens": True}, {"max_tokens": 7}),
        ({"system": True}, {"system": "be brief"}),
        ({"grounded": True, "underspecified": True}, {"grounded": True, "underspecified": False}),
        ({"prompt": {"mode": "off"}}, {}),
        ({"prompt": {"mode": "preview", "chars": 2}}, {"prompt_preview": "pp"}),
        ({"prompt": {"mode": "preview"}}, {"prompt_preview": "p" * 200}),
        ({"prompt": {"mode": "preview", "chars": 0}}, {"prompt_preview": ""}),
        ({"prompt": {"mode": "full"}}, {"prompt": "p" * 300, "options": {"model": "m"}}),
    ],
)
def test_an_object_shows_what_it_asks_for(wanted: dict[str, Any], told: dict[str, Any]) -> None:
    assert pending(paused(RICH), wanted) == [told]


def test_other_kinds_of_query_tell_their_kind_and_when_they_are_due() -> None:
    journal = paused(ToolQuery(name="t", arguments={"a": 1}), HumanQuery(prompt="sure?"), TimerQuery(delay_ms=5))
    assert pending(journal, "meta") == [
        {"query_id": "q-0", "kind": "tool"},
        {"query_id": "q-1", "kind": "human"},
        {"query_id": "q-2", "kind": "timer", "due_at": START + 5},
    ]
    assert pending(journal, "preview")[1] == {"query_id": "q-1", "kind": "human", "prompt_preview": "sure?"}
    assert pending(journal, "full") == [
        {"query_id": "q-0", "kind": "tool", "name": "t", "arguments": {"a": 1}},
        {"query_id": "q-1", "kind": "human", "prompt": "sure?"},
        {"query_id": "q-2", "kind": "timer", "delay_ms": 5, "due_at": START + 5},
    ]


def test_an_unknown_preset_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidFilterError) as caught:
        parse_pending_filter("everything")
    words = 'unknown pending_filter preset \'everything\' (valid: "meta" | "preview" | "full")'
    assert str(caught.value) == words


@each_row(("wanted", "kind"), [(3, "number"), (1.5, "number"), (True, "boolean"), ([], "array"), (["meta"], "array")])
def test_a_filter_of_another_type_is_refused(wanted: object, kind: str) -> None:
    with pytest.raises(InvalidFilterError) as caught:
        parse_pending_filter(wanted)
    assert str(caught.value) == f"pending_filter must be a preset name (string) or filter object, got {kind}"


@each_row(
    "wanted",
    [
        {"query_id": "yes"},
        {"prompt": "full"},
        {"prompt": {"mode": "some"}},
        {"prompt": {"mode": "preview", "chars": "2"}},
        {"prompt": {"mode": "preview", "chars": -1}},
        {"unheard_of": True},
        {1: True},
    ],
)
def test_an_object_that_is_no_filter_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidFilterError, match="pending_filter"):
        parse_pending_filter(wanted)
