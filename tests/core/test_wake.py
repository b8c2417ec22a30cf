"""When a paused session goes on: wake rules, answers kept for later, the clock's answers, and expiry."""

from __future__ import annotations

from holdfast.core.decide import WakeMessage, decide, decide_due, decide_expire, decide_pause
from holdfast.core.errors import InvalidValueError, StaleQueryError
from holdfast.core.limits import MAX_QUERIES_PER_PAUSE, MAX_WAIT_MS
from holdfast.core.queries import Failure, HumanQuery, TimerQuery, ToolQuery, Value
from holdfast.core.records import AnsweredRecord, Entry, LoggedRecord, Record
from holdfast.core.state import Session, State
from tests.core.helpers import START, Journal, given, in_state, llm, paused, refused, started
from tests.tables import each_row

WEEK_MS = 7 * 24 * 3600 * 1000


def answered(records: list[Record]) -> list[str]:
    return [record.query_id for record in records if isinstance(record, AnsweredRecord)]


# --- all and first -----------------------------------------------------------------------------------


def test_a_pause_for_all_goes_on_until_the_last_answer() -> None:
    journal = paused(llm(), ToolQuery(name="t"), HumanQuery(prompt="ok?"))
    assert journal.answer("q-1").answer("q-0").session.state is State.PAUSED
    assert journal.answer("q-2").session.state is State.RUNNING


def test_a_pause_for_the_first_ends_at_any_one_answer() -> None:
    journal = paused(llm(), llm(), llm(), wake="first").answer("q-1")
    assert journal.session.state is State.RUNNING
    assert list(journal.session.pending) == ["q-0", "q-2"]


def test_a_failure_ends_a_pause_for_the_first_as_well() -> None:
    journal = paused(llm(), llm(), wake="first")
    journal.feed(given("q-0", Failure("no")))
    assert journal.session.state is State.RUNNING


def test_queries_left_over_are_waited_for_in_the_next_pause() -> None:
    journal = paused(llm(), llm(), wake="first").answer("q-1").ask(llm())
    assert journal.answer("q-2").session.state is State.PAUSED
    assert journal.answer("q-0").session.state is State.RUNNING


def test_a_pause_may_wait_for_nothing_but_what_is_left_over() -> None:
    journal = paused(llm(), llm(), wake="first").answer("q-1").ask()
    assert journal.session.state is State.PAUSED
    assert journal.answer("q-0").session.state is State.RUNNING


def test_an_answer_that_arrives_while_the_program_runs_does_not_disturb_it() -> None:
    journal = in_state(State.RUNNING).answer("q-0")
    assert journal.session.state is State.RUNNING
    assert journal.session.undelivered == ["q-0"]
    assert journal.session.metrics.rounds == 1


def test_an_answer_kept_while_running_ends_the_next_pause_for_the_first_at_once() -> None:
    journal = in_state(State.RUNNING).answer("q-0").ask(llm(), wake="first")
    assert journal.session.state is State.RUNNING
    assert journal.session.undelivered == []
    assert list(journal.session.pending) == ["q-2"]


def test_an_answer_kept_while_running_does_not_end_a_pause_for_all() -> None:
    journal = in_state(State.RUNNING).answer("q-0").ask(llm())
    assert journal.session.state is State.PAUSED
    assert journal.answer("q-2").session.undelivered == []


def test_a_pause_that_only_collects_what_was_kept_ends_at_once() -> None:
    journal = in_state(State.RUNNING).answer("q-0").ask()
    assert journal.session.state is State.RUNNING
    assert journal.session.metrics.rounds == 2


def test_an_answer_that_was_given_to_the_program_does_not_end_the_next_pause() -> None:
    journal = paused(wake="first").answer("q-0").ask(llm(), wake="first")
    assert journal.session.state is State.PAUSED


def test_of_answers_fed_together_the_first_wakes_and_the_others_are_kept_in_their_order() -> None:
    journal = paused(llm(), llm(), llm(), wake="first")
    journal.feed(given("q-2"), given("q-1"), given("q-0"))
    assert journal.session.undelivered == ["q-1", "q-0"]


def test_the_wake_rule_of_the_present_pause_counts() -> None:
    journal = paused(llm(), llm(), wake="first").answer("q-0").ask(llm(), wake="all").answer("q-1")
    assert journal.session.state is State.PAUSED


def test_withdrawn_queries_are_not_waited_for() -> None:
    journal = in_state(State.RUNNING).ask(llm(), withdrawn=["q-0"])
    assert list(journal.session.pending) == ["q-2"]
    with refused(journal.session, StaleQueryError):
        journal.answer("q-0")
    assert journal.answer("q-2").session.state is State.RUNNING


def test_withdrawing_a_query_twice_in_one_pause_withdraws_it_once() -> None:
    journal = in_state(State.RUNNING).ask(llm(), withdrawn=["q-0", "q-0"])
    assert list(journal.session.pending) == ["q-2"]


def test_a_withdrawn_query_does_not_fall_due() -> None:
    journal = paused(llm(), TimerQuery(delay_ms=10), wake="first").answer("q-0").ask(llm(), withdrawn=["q-1"])
    assert journal.session.next_due() is None
    assert journal.later(100).due() == []


def test_logs_and_attempts_do_not_wake() -> None:
    journal = paused(wake="first").write(LoggedRecord(message="hello"))
    assert journal.session.state is State.PAUSED


def test_a_new_session_waits_for_nothing() -> None:
    assert started().session.next_due() is None


# --- the clock's answers -------------------------------------------------------------------------------


def test_a_timer_is_answered_with_null_when_it_is_over() -> None:
    journal = paused(TimerQuery(delay_ms=10))
    assert journal.later(9).due() == []
    assert journal.later(1).due() == [AnsweredRecord(query_id="q-0", answer=Value(value=None), by="clock")]
    assert journal.session.state is State.RUNNING


def test_a_query_that_lapses_is_answered_with_a_timeout() -> None:
    journal = paused(llm(timeout_ms=10))
    assert journal.later(9).due() == []
    failure = Failure("no answer within 10 ms", "timeout")
    assert journal.later(1).due() == [AnsweredRecord(query_id="q-0", answer=failure, by="clock")]


def test_a_query_without_a_timeout_never_lapses() -> None:
    journal = paused(llm(), HumanQuery(prompt="ok?"))
    assert journal.later(MAX_WAIT_MS * 2).due() == []


def test_a_timer_of_no_time_is_due_at_once() -> None:
    assert answered(paused(TimerQuery(delay_ms=0)).due()) == ["q-0"]


def test_an_answer_before_the_timeout_keeps_the_clock_silent() -> None:
    journal = paused(llm(timeout_ms=10)).answer("q-0")
    assert journal.later(100).due() == []


def test_what_is_due_is_answered_in_order_of_time_then_of_asking() -> None:
    queries = [TimerQuery(delay_ms=ms) for ms in (30, 10, 20, 10)] + [TimerQuery(delay_ms=10) for _ in range(8)]
    journal = paused(*queries)
    expected = ["q-1", "q-3", *(f"q-{n}" for n in range(4, 12)), "q-2", "q-0"]
    assert answered(journal.later(100).due()) == expected


def test_only_what_is_due_is_answered() -> None:
    journal = paused(TimerQuery(delay_ms=10), llm(timeout_ms=20), TimerQuery(delay_ms=30))
    assert answered(journal.later(20).due()) == ["q-0", "q-1"]
    assert journal.session.next_due() == START + 30


def test_a_timer_runs_from_when_it_was_asked() -> None:
    journal = paused(llm(), llm(), wake="first").answer("q-0").later(50).ask(TimerQuery(delay_ms=10))
    assert journal.session.next_due() == START + 60


def test_a_timer_left_over_fires_while_the_program_runs() -> None:
    journal = paused(llm(), TimerQuery(delay_ms=10), wake="first").answer("q-0")
    assert answered(journal.later(10).due()) == ["q-1"]
    assert journal.session.state is State.RUNNING
    assert journal.session.undelivered == ["q-1"]


def test_whoever_answers_a_timer_first_ends_it() -> None:
    journal = paused(TimerQuery(delay_ms=10)).answer("q-0", "skip")
    assert journal.later(10).due() == []


def test_a_timeout_races_a_timer_in_a_pause_for_the_first() -> None:
    journal = paused(llm(timeout_ms=20), TimerQuery(delay_ms=10), wake="first")
    assert answered(journal.later(10).due()) == ["q-1"]
    assert list(journal.session.pending) == ["q-0"]


def test_an_ended_session_owes_and_is_owed_nothing() -> None:
    journal = paused(TimerQuery(delay_ms=10)).cancel()
    assert journal.session.next_due() is None
    assert journal.later(10).due() == []


def test_a_wake_message_looks_at_what_is_due() -> None:
    journal = paused(TimerQuery(delay_ms=10))
    decision = decide(journal.session, WakeMessage(), journal.now + 10)
    assert decision.records == decide_due(journal.session, journal.now + 10)
    assert answered(decision.records) == ["q-0"]


def test_a_wake_message_with_nothing_due_does_nothing() -> None:
    assert decide(paused().session, WakeMessage(), START).records == []


def test_asking_the_clock_does_not_answer_by_itself() -> None:
    journal = paused(TimerQuery(delay_ms=10))
    decide_due(journal.session, journal.now + 10)
    assert list(journal.session.pending) == ["q-0"]


# --- expiry ------------------------------------------------------------------------------------------


def expires(journal: Journal, ttl_ms: int) -> bool:
    return bool(decide_expire(journal.session, journal.now, ttl_ms))


def test_a_fresh_session_does_not_expire() -> None:
    assert not expires(paused(), 1000)


def test_a_session_idle_for_longer_than_the_limit_expires() -> None:
    assert expires(paused().later(7_200_000), 3_600_000)


def test_a_session_idle_for_exactly_the_limit_expires() -> None:
    assert expires(paused().later(3_600_000), 3_600_000)


def test_a_session_idle_for_less_than_the_limit_does_not_expire() -> None:
    assert not expires(paused().later(3_600_000), 10_800_000)


def test_with_a_limit_of_zero_a_paused_session_expires_at_once() -> None:
    assert expires(paused(), 0)


@each_row("state", [state for state in State if state is not State.PAUSED])
def test_only_a_paused_session_expires(state: State) -> None:
    assert not expires(in_state(state).later(WEEK_MS * 2), 0)


def test_an_answer_to_one_of_several_starts_the_idle_time_anew() -> None:
    journal = paused(llm(), llm()).later(900).answer("q-0").later(900)
    assert not expires(journal, 1000)
    assert expires(journal.later(100), 1000)


def test_a_session_does_not_expire_before_its_timer_fires() -> None:
    journal = paused(TimerQuery(delay_ms=10_000)).later(9_999)
    assert not expires(journal, 1000)
    assert not expires(journal, 0)


def test_a_session_does_not_expire_before_its_query_lapses() -> None:
    assert not expires(paused(llm(timeout_ms=10_000)).later(5_000), 1000)


def test_a_session_does_not_expire_while_any_of_its_timers_lies_ahead() -> None:
    journal = paused(TimerQuery(delay_ms=10), TimerQuery(delay_ms=1_000_000)).later(5_000)
    assert not expires(journal, 1000)


def test_a_session_does_not_expire_while_a_timer_is_overdue() -> None:
    journal = paused(TimerQuery(delay_ms=10)).later(WEEK_MS * 2)
    assert not expires(journal, 1000)
    assert not expires(paused(llm(timeout_ms=10)).later(WEEK_MS * 2), 1000)


def test_an_expired_session_has_withdrawn_what_it_waited_for() -> None:
    journal = paused(llm(), llm()).answer("q-0").expire()
    assert journal.session.state is State.EXPIRED
    with refused(journal.session, StaleQueryError):
        journal.answer("q-1")


def test_the_reason_of_an_expiry_tells_how_long_nobody_answered() -> None:
    journal = paused().later(1500)
    [record] = decide_expire(journal.session, journal.now, 1000)
    assert getattr(record, "reason", "") == "no answer for 1500 ms (the limit is 1000 ms)"


# --- determinism -------------------------------------------------------------------------------------


def test_what_a_program_is_given_at_each_waking_follows_from_the_journal_alone() -> None:
    journal = paused(llm(), llm(), TimerQuery(delay_ms=5), wake="first")
    journal.later(5).due()
    journal.answer("q-1").ask(llm(), wake="first").answer("q-0").ask(wake="first").complete()

    def deliveries(entries: list[Entry]) -> list[list[str]]:
        session, given_at_each = Session("s-1"), []
        for entry in entries:
            rounds, kept = session.metrics.rounds, [*session.undelivered]
            if isinstance(entry.record, AnsweredRecord):
                kept.append(entry.record.query_id)
            session.apply(entry)
            if session.metrics.rounds > rounds:
                given_at_each.append(kept)
        return given_at_each

    assert deliveries(journal.entries) == [["q-2"], ["q-1"], ["q-0"]]


def test_a_pause_past_the_number_of_queries_allowed_is_refused() -> None:
    session = started().session
    with refused(session, InvalidValueError):
        decide_pause(session, [TimerQuery(delay_ms=1)] * (MAX_QUERIES_PER_PAUSE + 1), START)
    assert len(decide_pause(session, [TimerQuery(delay_ms=1)] * MAX_QUERIES_PER_PAUSE, START).record.queries) == 10_000
