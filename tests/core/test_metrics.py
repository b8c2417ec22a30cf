"""What a session counts of itself: calls, sizes, tokens, time, money, logs and history."""

from __future__ import annotations

from typing import Any

from holdfast.core.budget import Price
from holdfast.core.call_history import CallHistory
from holdfast.core.queries import Failure, HumanQuery, TimerQuery, ToolQuery, Usage
from holdfast.core.records import LoggedRecord, ProgressedRecord, RefusedRecord, StatRecord
from holdfast.core.state import State
from holdfast.core.tokens import estimate_tokens
from tests.core.helpers import START, Journal, given, in_state, llm, paused, started
from tests.tables import each_row

PER_MILLION = 1_000_000


def tokens(journal: Journal) -> tuple[Any, Any, Any]:
    stats = journal.stats()
    return tuple((stats[name]["tokens"], stats[name]["source"]) for name in _TOKEN_FIELDS)  # type: ignore[return-value]


_TOKEN_FIELDS = ("prompt_tokens", "response_tokens", "total_tokens")

# --- counts ------------------------------------------------------------------------------------------


def test_each_llm_query_is_a_call_from_the_moment_it_is_asked() -> None:
    assert paused(llm(), llm(), llm()).stats()["llm_calls"] == 3


def test_queries_of_other_kinds_are_no_calls() -> None:
    journal = paused(ToolQuery(name="t"), HumanQuery(prompt="ok?"), TimerQuery(delay_ms=1))
    assert journal.stats()["llm_calls"] == 0


def test_a_batch_is_one_pause_and_one_round() -> None:
    journal = paused(llm(), llm())
    assert (journal.stats()["pauses"], journal.stats()["rounds"]) == (1, 0)
    assert journal.answer("q-0").stats()["rounds"] == 0
    assert journal.answer("q-1").stats()["rounds"] == 1


def test_pauses_and_rounds_add_up() -> None:
    journal = paused().answer("q-0").ask(llm()).answer("q-1").ask(llm())
    assert (journal.stats()["pauses"], journal.stats()["rounds"]) == (3, 2)


def test_failures_of_every_kind_of_query_are_counted() -> None:
    journal = paused(llm(), ToolQuery(name="t"), llm())
    journal.feed(given("q-0", Failure("no")), given("q-1", Failure("no")), given("q-2"))
    assert journal.stats()["failures"] == 2


def test_queries_that_were_refused_are_counted_but_are_no_calls() -> None:
    journal = started().write(RefusedRecord(queries=3, failure=Failure("too dear", "budget_exceeded")))
    assert (journal.stats()["refused"], journal.stats()["llm_calls"], journal.stats()["failures"]) == (3, 0, 0)


def test_a_replayed_answer_is_not_counted_again() -> None:
    journal = paused(llm(), llm()).answer("q-0", "words")
    before = journal.stats()
    assert journal.answer("q-0", "words").stats() == before


def test_a_session_that_asked_nothing_has_counted_nothing() -> None:
    assert started().complete().wire()["stats"] == {
        "auto": {
            "elapsed_ms": 0,
            "own_ms": 0,
            "waiting_ms": 0,
            "llm_calls": 0,
            "pauses": 0,
            "rounds": 0,
            "failures": 0,
            "refused": 0,
            "total_prompt_chars": 0,
            "total_response_chars": 0,
            "prompt_characters": 0,
            "response_characters": 0,
            "total_system_chars": 0,
            "total_prompt_bytes": 0,
            "total_response_bytes": 0,
            "prompt_tokens": {"tokens": 0, "source": "definite"},
            "response_tokens": {"tokens": 0, "source": "definite"},
            "total_tokens": {"tokens": 0, "source": "definite"},
        },
        "custom": {},
    }


# --- sizes -------------------------------------------------------------------------------------------


def test_characters_and_bytes_of_prompts_are_counted_apart_and_include_the_system_text() -> None:
    stats = paused(llm("héllo", system="日本"), llm("abc")).stats()
    assert stats["prompt_characters"] == 5 + 2 + 3
    assert stats["total_system_chars"] == 2
    assert stats["total_prompt_bytes"] == stats["total_prompt_chars"] == 6 + 6 + 3


def test_a_character_outside_the_basic_plane_is_one_character_and_four_bytes() -> None:
    stats = paused().answer("q-0", "🙂").stats()
    assert (stats["response_characters"], stats["total_response_chars"]) == (1, 4)


def test_an_answer_that_is_no_text_is_counted_as_its_json() -> None:
    stats = paused().answer("q-0", {"é": [1]}).stats()
    assert (stats["response_characters"], stats["total_response_bytes"]) == (len('{"é":[1]}'), 10)


def test_answers_of_other_kinds_are_not_counted_as_responses() -> None:
    assert paused(ToolQuery(name="t")).answer("q-0", "x" * 100).stats()["total_response_chars"] == 0


def test_the_words_of_a_failure_are_not_counted_as_a_response() -> None:
    journal = paused()
    journal.feed(given("q-0", Failure("a long explanation")))
    assert journal.stats()["total_response_chars"] == 0
    assert journal.stats()["response_tokens"]["tokens"] == 0


# --- tokens ------------------------------------------------------------------------------------------


@each_row(
    ("text", "estimate"),
    [
        ("", 0),
        ("a", 1),
        ("abcd", 1),
        ("abcde", 2),
        ("日", 1),
        ("日本", 2),
        ("日本語", 2),
        ("abcde日本", 4),
        ("é" * 9, 6),
    ],
)
def test_tokens_are_estimated_from_a_quarter_of_ascii_and_two_thirds_of_the_rest(text: str, estimate: int) -> None:
    assert estimate_tokens(text) == estimate


def test_prompt_and_system_are_estimated_apart_and_added() -> None:
    assert tokens(paused(llm("abcde", system="abcde")))[0] == (4, "estimated")


def test_without_usage_everything_is_estimated() -> None:
    assert tokens(paused(llm("abcd")).answer("q-0", "abcdefgh")) == (
        (1, "estimated"),
        (2, "estimated"),
        (3, "estimated"),
    )


def test_usage_replaces_the_estimate() -> None:
    journal = paused(llm("abcd")).answer("q-0", "abcdefgh", Usage(prompt_tokens=50, completion_tokens=7))
    assert tokens(journal) == ((50, "provided"), (7, "provided"), (57, "provided"))


@each_row(
    ("usage", "counted"),
    [
        (Usage(prompt_tokens=50), ((50, "provided"), (2, "estimated"), (52, "estimated"))),
        (Usage(completion_tokens=7), ((1, "estimated"), (7, "provided"), (8, "estimated"))),
        (Usage(), ((1, "estimated"), (2, "estimated"), (3, "estimated"))),
        (Usage(prompt_tokens=0, completion_tokens=0), ((0, "provided"), (0, "provided"), (0, "provided"))),
    ],
)
def test_half_of_the_usage_replaces_half_of_the_estimate(usage: Usage, counted: Any) -> None:
    assert tokens(paused(llm("abcd")).answer("q-0", "abcdefgh", usage)) == counted


def test_a_sum_is_only_as_good_as_its_weakest_part() -> None:
    journal = paused(llm("abcd"), llm("abcd")).answer("q-0", "abcd", Usage(prompt_tokens=10, completion_tokens=10))
    assert tokens(journal.answer("q-1", "abcd")) == ((11, "estimated"), (11, "estimated"), (22, "estimated"))


def test_a_prompt_without_answer_is_only_estimated() -> None:
    journal = paused(llm("abcd"), llm("abcd")).answer("q-0", "abcd", Usage(prompt_tokens=10, completion_tokens=10))
    assert tokens(journal)[0] == (11, "estimated")


def test_the_usage_of_a_failure_is_counted() -> None:
    journal = paused(llm("abcd"))
    journal.feed(given("q-0", Failure("cut off"), Usage(prompt_tokens=10, completion_tokens=20)))
    assert tokens(journal)[2] == (30, "provided")


def test_an_answer_that_is_no_text_is_estimated_from_its_json() -> None:
    assert tokens(paused(llm("abcd")).answer("q-0", [1, 2, 3, 4]))[1] == (3, "estimated")


def test_a_withdrawn_query_keeps_its_prompt_counted() -> None:
    journal = paused(llm("abcd"), llm("abcd"), wake="first").answer("q-0", "").ask(llm("abcd"), withdrawn=["q-1"])
    assert tokens(journal)[0] == (3, "estimated")


# --- time --------------------------------------------------------------------------------------------


def times(journal: Journal) -> tuple[int, int, int]:
    metrics, now = journal.session.metrics, journal.now
    return metrics.elapsed_ms(now), metrics.own_ms(now), metrics.waiting_ms(now)


def test_own_time_and_waiting_time_are_told_apart() -> None:
    journal = started().later(10).ask(llm(), llm()).later(100)
    assert times(journal) == (110, 10, 100)
    journal.answer("q-0").later(200)
    assert times(journal) == (310, 10, 300)
    journal.answer("q-1").later(5)
    assert times(journal) == (315, 15, 300)
    journal.complete().later(1000)
    assert times(journal) == (315, 15, 300)


def test_time_stands_still_after_every_ending() -> None:
    for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
        journal = in_state(state)
        assert times(journal.later(1000)) == (0, 0, 0)


def test_an_answer_while_the_program_runs_does_not_turn_its_time_into_waiting() -> None:
    journal = in_state(State.RUNNING).later(10).answer("q-0").later(10)
    assert times(journal) == (20, 20, 0)


def test_a_clock_that_goes_backwards_takes_no_time_away() -> None:
    journal = started().later(10).ask(llm()).later(-500).answer("q-0").later(5)
    assert times(journal) == (0, 10, 0)
    journal.later(495).complete()
    assert times(journal) == (10, 10, 0)


def test_the_last_activity_never_goes_backwards() -> None:
    journal = started().later(10).ask(llm()).later(-500).answer("q-0")
    assert journal.session.metrics.last_activity_at == START + 10


# --- money -------------------------------------------------------------------------------------------


def test_cost_follows_from_the_price_and_the_tokens() -> None:
    journal = started(prices={"default": Price(2.0, 10.0)}).ask(llm())
    journal.answer("q-0", "x", Usage(prompt_tokens=PER_MILLION, completion_tokens=PER_MILLION // 2))
    assert journal.stats()["cost"] == 7.0


def test_the_price_of_the_model_goes_before_the_default() -> None:
    prices = {"default": Price(1.0, 1.0), "big": Price(5.0, 5.0)}
    usage = Usage(prompt_tokens=PER_MILLION, completion_tokens=0)
    journal = started(prices=prices).ask(llm(options={"model": "big"}), llm(options={"model": "small"}), llm())
    journal.feed(*(given(f"q-{n}", "x", usage) for n in range(3)))
    assert journal.stats()["cost"] == 7.0


def test_a_cost_that_is_told_goes_before_the_price() -> None:
    journal = started(prices={"default": Price(1.0, 1.0)}).ask(llm()).answer("q-0", "x", Usage(cost=0.25))
    assert journal.stats()["cost"] == 0.25


def test_a_free_answer_costs_nothing_whatever_the_price() -> None:
    journal = started(prices={"default": Price(1.0, 1.0)}).ask(llm()).answer("q-0", "x", Usage(cost=0.0))
    assert "cost" not in journal.stats()


def test_without_prices_there_is_no_cost() -> None:
    assert "cost" not in paused().answer("q-0").stats()


def test_a_model_option_that_is_no_text_gets_the_default_price() -> None:
    journal = started(prices={"default": Price(1.0, 0.0)}).ask(llm(options={"model": ["big"]}))
    assert journal.answer("q-0", "x", Usage(prompt_tokens=PER_MILLION)).stats()["cost"] == 1.0


# --- what the program tells of itself ------------------------------------------------------------------


def test_the_last_value_of_a_stat_counts() -> None:
    journal = started().write(
        StatRecord(key="a", value=1), StatRecord(key="b", value=[2]), StatRecord(key="a", value=3)
    )
    assert journal.complete().wire()["stats"]["custom"] == {"a": 3, "b": [2]}


def test_the_last_progress_counts() -> None:
    last = ProgressedRecord(step=2, total=3, message="nearly")
    journal = started().write(ProgressedRecord(step=1, total=3), last)
    assert journal.session.metrics.progress == last


def test_the_last_twenty_logs_are_kept_with_their_times() -> None:
    journal = started()
    for n in range(25):
        journal.later(1).write(LoggedRecord(message=f"line {n}"))
    kept = [(at, log.message) for at, log in journal.session.metrics.recent_logs]
    assert kept == [(START + n + 1, f"line {n}") for n in range(5, 25)]


def history(journal: Journal) -> list[dict[str, Any]]:
    return CallHistory(journal.entries).to_json()


def test_the_last_ten_exchanges_are_kept() -> None:
    journal = started()
    for n in range(12):
        journal.ask(llm(f"prompt {n}")).answer(f"q-{n}", f"answer {n}")
    assert [(x["prompt"], x["response"]) for x in history(journal)] == [
        (f"prompt {n}", f"answer {n}") for n in range(2, 12)
    ]


def test_an_exchange_tells_what_was_asked_what_was_answered_and_when() -> None:
    journal = started().later(5).ask(llm("abcd")).later(10).answer("q-0", "abcdefgh", Usage(prompt_tokens=9))
    assert history(journal) == [
        {
            "query_id": "q-0",
            "prompt": "abcd",
            "response": "abcdefgh",
            "prompt_tokens": 9,
            "response_tokens": 2,
            "started_at": START + 5,
            "completed_at": START + 15,
        }
    ]


def test_an_exchange_without_answer_is_open() -> None:
    [exchange] = history(paused())
    assert (exchange["response"], exchange["completed_at"]) == (None, None)


def test_an_exchange_that_failed_tells_the_error() -> None:
    journal = paused()
    journal.feed(given("q-0", Failure("refused")))
    [exchange] = history(journal)
    assert (exchange["response"], exchange["error"], exchange["completed_at"]) == (None, "refused", START)


def test_a_late_answer_completes_its_own_exchange() -> None:
    journal = paused(llm("first"), llm("second")).answer("q-1", "two").answer("q-0", "one")
    assert [x["response"] for x in history(journal)] == ["one", "two"]


def test_an_answer_to_an_exchange_no_longer_kept_is_still_counted() -> None:
    journal = paused(*(llm(f"prompt {n}") for n in range(12))).answer("q-0", "abcd")
    assert journal.stats()["total_response_chars"] == 4
    assert history(journal)[0]["query_id"] == "q-2"


def test_what_is_known_to_be_spent_on_models_is_reported_with_the_rest_as_unknown() -> None:
    spent = Usage(prompt_tokens=10, completion_tokens=5)
    named = Usage(prompt_tokens=10, completion_tokens=5, by_model={"m-1": spent})
    journal = paused(llm(), llm(), llm())
    journal.answer("q-0", usage=named).answer("q-1", usage=named).answer("q-2", usage=spent)
    reported = journal.session.metrics.usage()
    assert reported is not None
    assert reported.by_model == {
        "m-1": Usage(prompt_tokens=20, completion_tokens=10, llm_calls=2),
        "": Usage(prompt_tokens=10, completion_tokens=5, llm_calls=1),
    }
