"""Answers: who they are for, what is refused, and what a repeated one gets."""

from __future__ import annotations

from typing import Any

from holdfast.core.decide import FeedMessage, decide, decide_feed
from holdfast.core.errors import (
    AnswerConflictError,
    EmptyFeedError,
    FeedError,
    InvalidValueError,
    NoPendingQueryError,
    QueryIdRequiredError,
    StaleQueryError,
    UnknownQueryError,
)
from holdfast.core.events import AcceptedEvent
from holdfast.core.limits import RECENT_ANSWERS
from holdfast.core.queries import Failure, ToolQuery, Usage, Value
from holdfast.core.records import AnsweredRecord, LoggedRecord
from holdfast.core.state import State
from tests.core.helpers import Journal, given, in_state, llm, paused, refused, started
from tests.tables import each_row


def three() -> Journal:
    return paused(llm("a"), llm("b"), llm("c"))


# --- which query is meant ----------------------------------------------------------------------------


def test_an_answer_is_recorded_with_its_usage_and_who_gave_it() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=4)
    decision = paused().feed(given("q-0", "because", usage), by="ann")
    answer = given("q-0", "because").answer
    assert decision.records == [AnsweredRecord(query_id="q-0", answer=answer, usage=usage, by="ann")]
    assert not decision.is_replay


def test_an_answer_without_id_goes_to_the_only_pending_query() -> None:
    journal = paused(llm(), llm()).answer("q-0")
    journal.feed(given(None, "yes"))
    assert journal.entries[-1].record == AnsweredRecord(query_id="q-1", answer=Value(value="yes"))


@each_row("state", [State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED])
def test_an_answer_without_id_is_refused_when_nothing_is_pending(state: State) -> None:
    journal = in_state(state)
    with refused(journal.session, NoPendingQueryError) as caught:
        journal.feed(given(None))
    assert str(caught.value) == f"no pending queries (session 's-1' is {state})"


def test_an_answer_without_id_is_refused_while_the_program_runs_and_waits_for_nothing() -> None:
    journal = paused().answer("q-0")
    with refused(journal.session, NoPendingQueryError):
        journal.feed(given(None))


def test_an_answer_without_id_is_refused_when_several_queries_are_pending() -> None:
    journal = three()
    with refused(journal.session, QueryIdRequiredError) as caught:
        journal.feed(given(None))
    assert caught.value.pending == ["q-0", "q-1", "q-2"]
    assert str(caught.value).startswith("3 queries pending; specify query_id explicitly")


@each_row("query_id", ["q-3", "q-00", "Q-0", "", "q-0 ", "f-0-0"])
def test_an_id_that_was_never_asked_is_unknown(query_id: str) -> None:
    journal = three()
    with refused(journal.session, UnknownQueryError) as caught:
        journal.feed(given(query_id))
    assert str(caught.value) == f"unknown query_id: {query_id} (session 's-1' waits for q-0, q-1, q-2)"


def test_an_answer_to_a_query_that_was_withdrawn_is_stale() -> None:
    journal = in_state(State.RUNNING).ask(llm(), withdrawn=["q-0"])
    with refused(journal.session, StaleQueryError) as caught:
        journal.feed(given("q-0"))
    assert caught.value.query_id == "q-0"
    assert "the program withdrew it" in str(caught.value)


@each_row("ending", ["cancel", "expire"])
def test_an_answer_that_comes_after_the_end_is_stale(ending: str) -> None:
    journal = paused()
    getattr(journal, ending)()
    with refused(journal.session, StaleQueryError) as caught:
        journal.feed(given("q-0"))
    assert f"the session is {journal.session.state}" in str(caught.value)


def test_a_query_left_over_when_the_program_returns_is_stale() -> None:
    journal = in_state(State.RUNNING).complete()
    with refused(journal.session, StaleQueryError):
        journal.feed(given("q-0"))


def test_an_unknown_id_stays_unknown_after_the_end() -> None:
    journal = paused().cancel()
    with refused(journal.session, UnknownQueryError):
        journal.feed(given("q-1"))


# --- several at once ---------------------------------------------------------------------------------


def test_several_answers_are_taken_together_and_wake_the_session_once() -> None:
    journal = three()
    journal.feed(given("q-0"), given("q-1"), given("q-2"))
    assert journal.session.state is State.RUNNING
    assert journal.session.metrics.rounds == 1


@each_row("order", [("q-0", "q-1", "q-2"), ("q-2", "q-0", "q-1"), ("q-1", "q-2", "q-0")])
def test_answers_may_come_in_any_order(order: tuple[str, ...]) -> None:
    journal = three()
    for query_id in order[:-1]:
        assert journal.answer(query_id).session.state is State.PAUSED
    assert journal.answer(order[-1]).session.state is State.RUNNING


@each_row(
    ("bad", "error"),
    [
        (given("q-9"), UnknownQueryError),
        (given(None), QueryIdRequiredError),
        (given("q-2", float("nan")), InvalidValueError),
        (given("q-0", "other"), AnswerConflictError),
        (given("q-2", "x", Usage(prompt_tokens=-1)), InvalidValueError),
    ],
)
@each_row("place", [0, 1, 2])
def test_one_bad_answer_and_none_is_taken(bad: Any, error: type[Exception], place: int) -> None:
    journal = three()
    feed = [given("q-0", "a"), given("q-1", "b")]
    feed.insert(place, bad)
    with refused(journal.session, error):
        journal.feed(*feed)


def test_a_feed_without_answers_is_refused() -> None:
    journal = paused()
    with refused(journal.session, EmptyFeedError):
        journal.feed()


def test_the_same_answer_twice_in_one_feed_counts_once() -> None:
    journal = three()
    assert len(journal.feed(given("q-0", "a"), given("q-0", "a")).records) == 1


def test_two_different_answers_to_one_query_in_one_feed_conflict() -> None:
    journal = three()
    with refused(journal.session, AnswerConflictError) as caught:
        journal.feed(given("q-0", "a"), given("q-0", "b"))
    assert (caught.value.recorded, caught.value.given) == ('"a"', '"b"')


LOOKALIKES = [(1, True), (0, False), (1, 1.0), ("1", 1), ([], {}), (None, ""), (None, False), ({"a": 1}, {"a": True})]


@each_row(("first", "second"), LOOKALIKES)
def test_values_that_only_look_alike_conflict(first: Any, second: Any) -> None:
    journal = three().answer("q-0", first)
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-0", second))


@each_row(("first", "second"), LOOKALIKES)
def test_values_that_only_look_alike_conflict_within_one_feed(first: Any, second: Any) -> None:
    journal = three()
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-0", first), given("q-0", second))


def test_a_feed_may_repeat_an_old_answer_and_bring_a_new_one() -> None:
    journal = three().answer("q-0", "a")
    decision = journal.feed(given("q-0", "a"), given("q-1", "b"))
    assert [record.query_id for record in decision.records if isinstance(record, AnsweredRecord)] == ["q-1"]
    assert decision.replayed == [3]
    assert not decision.is_replay


# --- the same answer again -----------------------------------------------------------------------------


def test_same_answer_twice_changes_nothing() -> None:
    journal = three().answer("q-0", "a")
    decision = journal.feed(given("q-0", "a"))
    assert decision.is_replay
    assert decision.replayed == [3]
    assert len(journal.entries) == 3


def test_the_order_of_keys_makes_no_other_answer() -> None:
    journal = three().answer("q-0", {"a": 1, "b": 2})
    assert journal.feed(given("q-0", {"b": 2, "a": 1})).is_replay


def test_the_order_of_items_makes_another_answer() -> None:
    journal = three().answer("q-0", [1, 2])
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-0", [2, 1]))


def test_other_usage_makes_no_other_answer_and_the_first_usage_stays() -> None:
    journal = three().answer("q-0", "a", Usage(completion_tokens=5))
    assert journal.feed(given("q-0", "a", Usage(completion_tokens=500))).is_replay
    assert journal.session.metrics.response_tokens.tokens == 5


def test_a_session_remembers_only_where_the_latest_answers_are() -> None:
    journal = started()
    for number in range(RECENT_ANSWERS + 2):
        journal.ask(llm()).answer(f"q-{number}", number)
    assert len(journal.session.settled) == RECENT_ANSWERS
    assert "q-1" not in journal.session.settled
    assert journal.feed(given("q-1", 1)).replayed == [5]
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-1", 2))


def test_a_conflict_names_both_answers() -> None:
    journal = three().answer("q-0", "first words")
    with refused(journal.session, AnswerConflictError) as caught:
        journal.feed(given("q-0", {"other": "words"}))
    error = caught.value
    assert (error.query_id, error.recorded, error.given) == ("q-0", '"first words"', '{"other":"words"}')
    assert str(error).startswith("already responded to query_id: q-0")
    assert error.recorded in str(error)
    assert error.given in str(error)


def test_a_conflict_names_long_answers_by_their_beginning() -> None:
    journal = three().answer("q-0", "x" * 10_000)
    with refused(journal.session, AnswerConflictError) as caught:
        journal.feed(given("q-0", "y" * 10_000))
    assert len(str(caught.value)) < 400


def test_a_failure_after_a_value_with_the_same_words_is_a_conflict() -> None:
    journal = three().answer("q-0", "no")
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-0", Failure("no")))


@each_row("ending", ["complete", "fail", "cancel"])
def test_same_answer_after_the_end_is_still_a_replay(ending: str) -> None:
    journal = paused().answer("q-0", "a")
    getattr(journal, ending)()
    assert journal.feed(given("q-0", "a")).is_replay


def test_another_answer_after_the_end_is_still_a_conflict() -> None:
    journal = paused().answer("q-0", "a").complete()
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-0", "b"))


# --- failures ----------------------------------------------------------------------------------------


def test_a_failure_is_an_answer() -> None:
    journal = paused()
    journal.feed(given("q-0", Failure("rate limited", "refused")))
    assert journal.session.state is State.RUNNING
    assert journal.session.metrics.failures == 1


def test_same_failure_twice_is_a_replay() -> None:
    journal = three()
    journal.feed(given("q-0", Failure("rate limited", "refused")))
    assert journal.feed(given("q-0", Failure("rate limited", "refused"))).is_replay


def test_the_same_failure_with_another_code_is_a_conflict() -> None:
    journal = three()
    journal.feed(given("q-0", Failure("too slow")))
    with refused(journal.session, AnswerConflictError):
        journal.feed(given("q-0", Failure("too slow", "timeout")))


# --- the reply ---------------------------------------------------------------------------------------


def test_same_answer_twice_gets_the_same_reply_while_others_are_awaited() -> None:
    journal = three().answer("q-1", "b")
    first = AcceptedEvent(session_id="s-1", remaining=["q-0", "q-2"]).to_json()
    journal.answer("q-0").answer("q-2").ask(llm())
    assert journal.reply(journal.feed(given("q-1", "b"))) == {**first, "replayed": True}


def test_same_answer_twice_gets_the_same_questions_though_they_were_answered_since() -> None:
    journal = paused().answer("q-0", "a").later(3).ask(llm("next", timeout_ms=50), ToolQuery(name="t"))
    first = journal.wire()
    journal.answer("q-1").answer("q-2").ask(llm("and then")).answer("q-3").complete()
    assert journal.reply(journal.feed(given("q-0", "a"))) == {**first, "replayed": True}


def test_same_answer_twice_gets_the_same_ending() -> None:
    journal = paused().later(5).answer("q-0", "a").later(2).complete({"found": True})
    first = journal.wire()
    journal.later(1000)
    assert journal.reply(journal.feed(given("q-0", "a"))) == {**first, "replayed": True}


def test_same_answer_twice_hears_that_the_program_runs_while_it_does() -> None:
    journal = paused().answer("q-0", "a").write(LoggedRecord(message="thinking"))
    assert journal.reply(journal.feed(given("q-0", "a"))) == {**journal.wire(), "replayed": True}
    assert journal.wire()["status"] == "running"


def test_an_answer_given_while_the_program_ran_gets_its_next_question_again() -> None:
    journal = in_state(State.RUNNING).answer("q-0", "late").ask(llm("one more"), wake="all")
    first = journal.wire()
    assert first["query_id"] == "q-2"
    journal.answer("q-2").complete()
    assert journal.reply(journal.feed(given("q-0", "late"))) == {**first, "replayed": True}


def test_a_whole_feed_repeated_gets_the_reply_to_its_last_answer() -> None:
    journal = three()
    feed = [given("q-2", "c"), given("q-0", "a"), given("q-1", "b")]
    journal.feed(*feed)
    first = journal.complete(1).wire()
    decision = journal.feed(*reversed(feed))
    assert decision.is_replay
    assert journal.reply(decision) == {**first, "replayed": True}


def test_a_pause_that_ended_at_once_is_not_what_the_reply_tells() -> None:
    journal = paused(llm(), llm(), wake="first")
    journal.feed(given("q-0"), given("q-1", "kept"))
    journal.ask(llm("never waited for"), wake="first").complete("done")
    reply = journal.reply(journal.feed(given("q-1", "kept")))
    assert (reply["status"], reply["result"]) == ("completed", "done")


def test_feeding_through_decide_is_the_same_as_feeding() -> None:
    session, message = three().session, FeedMessage([given("q-1")])
    assert decide(session, message, 0) == decide_feed(session, message)


def test_every_refusal_of_a_feed_is_a_feed_error() -> None:
    refusals = (EmptyFeedError, NoPendingQueryError, QueryIdRequiredError, UnknownQueryError, StaleQueryError)
    assert all(issubclass(error, FeedError) for error in (*refusals, AnswerConflictError))


def test_deciding_about_a_feed_does_not_yet_take_it() -> None:
    journal = started().ask(llm())
    decide_feed(journal.session, FeedMessage([given("q-0")]))
    assert list(journal.session.pending) == ["q-0"]
