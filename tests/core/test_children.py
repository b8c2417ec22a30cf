"""Children in the fold of their parent: what they spend counts there, once, and what is left is what they may spend."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given as given_
from hypothesis import strategies as st

from holdfast.core.budget import Budget, Price, for_child, remaining
from holdfast.core.errors import BudgetExceededError, InvalidValueError, JournalError
from holdfast.core.queries import ChildQuery, Failure, Usage
from holdfast.core.records import PausedRecord, decode_record
from holdfast.core.state import Session
from tests.core.helpers import Journal, given, llm, refused, started
from tests.tables import each_row

PRICES = {"default": Price(1.0, 1.0)}
SPENT = Usage(prompt_tokens=30, completion_tokens=70, cost=0.5, llm_calls=3)


def with_child(budget: Budget | None = None) -> Journal:
    return started(budget=budget, prices=PRICES).ask(ChildQuery(program="other"))


def test_what_a_child_spent_counts_in_its_parent_and_is_shown_apart() -> None:
    journal = with_child().answer("q-0", "done", SPENT).ask(llm("own")).answer("q-1", "x", Usage(cost=0.25))
    auto = journal.session.metrics.to_json(journal.now, None)["auto"]
    assert (auto["llm_calls"], auto["cost"]) == (4, 0.75)
    assert auto["total_tokens"]["tokens"] == journal.session.metrics.total_tokens >= 100
    assert auto["children"] == {"llm_calls": 3, "tokens": 100, "cost": 0.5}


def test_a_parent_whose_children_spent_nothing_says_nothing_of_them() -> None:
    journal = with_child().answer("q-0", "done")
    assert "children" not in journal.session.metrics.to_json(journal.now, None)["auto"]
    assert journal.session.metrics.usage() is None


def test_a_child_that_failed_has_spent_as_well() -> None:
    journal = with_child()
    journal.feed(given("q-0", Failure("broken", "child_failed"), SPENT))
    assert journal.session.metrics.llm_calls == 3


def test_what_a_session_tells_its_parent_holds_all_that_its_own_children_spent() -> None:
    journal = with_child().answer("q-0", "done", SPENT).ask(llm("own"))
    journal.answer("q-1", "x", Usage(prompt_tokens=1, completion_tokens=2, cost=0.25))
    told = Usage(prompt_tokens=31, completion_tokens=72, cost=0.75, llm_calls=4)
    assert journal.session.metrics.usage() == told


def test_a_repeated_answer_of_a_child_counts_once() -> None:
    journal = with_child(Budget(max_llm_calls=5)).answer("q-0", "done", SPENT)
    again = journal.feed(given("q-0", "done", SPENT))
    assert again.is_replay
    assert Session.fold("s-1", journal.entries).metrics.llm_calls == 3


def test_what_children_spent_is_missing_from_the_budget() -> None:
    budget = Budget(max_llm_calls=4, max_tokens=1000, max_cost=1.0)
    journal = with_child(budget).answer("q-0", "done", SPENT)
    left = remaining(budget, journal.session.metrics, journal.now)
    assert (left.llm_calls, left.tokens, left.cost) == (1, 900, 0.5)
    journal.ask(llm("last", max_tokens=1)).answer("q-1")
    with refused(journal.session, BudgetExceededError):
        journal.ask(llm("one too many", max_tokens=1))


def test_a_child_may_spend_what_is_left_and_not_the_time_that_its_parent_may_compute() -> None:
    budget = Budget(max_llm_calls=4, max_tokens=1000, max_cost=1.0, max_elapsed_ms=5000, max_own_ms=100)
    journal = with_child(budget).answer("q-0", "done", SPENT).ask(ChildQuery(program="other")).later(1000)
    assert for_child(journal.session, "q-1", None, journal.now) == Budget(
        max_llm_calls=1, max_tokens=900, max_cost=0.5, max_elapsed_ms=4000
    )


@each_row(
    ("own", "given"),
    [
        (Budget(max_llm_calls=2), Budget(max_llm_calls=2, max_tokens=50)),
        (Budget(max_llm_calls=9, max_own_ms=7), Budget(max_llm_calls=4, max_tokens=50, max_own_ms=7)),
    ],
)
def test_a_child_has_the_tighter_of_its_own_budget_and_what_is_left(own: Budget, given: Budget) -> None:
    journal = with_child(Budget(max_llm_calls=4, max_tokens=50))
    assert for_child(journal.session, "q-0", own, journal.now) == given


def test_a_child_of_a_session_without_limits_has_its_own() -> None:
    journal = with_child()
    assert for_child(journal.session, "q-0", None, journal.now) is None
    assert for_child(journal.session, "q-0", Budget(max_llm_calls=1), journal.now) == Budget(max_llm_calls=1)
    bare = with_child(Budget(max_own_ms=5))
    assert for_child(bare.session, "q-0", None, bare.now) is None


# --- shares --------------------------------------------------------------------------------------------


def share(journal: Journal, asked: str) -> Budget:
    found = for_child(journal.session, asked, None, journal.now)
    assert found is not None
    return found


def test_children_side_by_side_divide_what_is_left() -> None:
    journal = started(budget=Budget(max_llm_calls=8, max_tokens=1000, max_cost=1.0), prices=PRICES)
    journal.ask(*(ChildQuery(program="other") for _ in range(3)))
    shares = [share(journal, asked) for asked in ("q-0", "q-1", "q-2")]
    assert [each.max_llm_calls for each in shares] == [3, 3, 2]
    assert [each.max_tokens for each in shares] == [334, 333, 333]
    assert sum(each.max_cost or 0 for each in shares) == pytest.approx(1.0)
    assert remaining(Budget(max_llm_calls=8), journal.session.metrics, journal.now).llm_calls == 0


def test_a_parent_that_may_go_on_meanwhile_keeps_a_part() -> None:
    journal = started(budget=Budget(max_llm_calls=9))
    journal.ask(llm(), ChildQuery(program="other"), wake="first").answer("q-0")
    assert share(journal, "q-1").max_llm_calls == 4
    journal.ask(llm(), llm(), llm(), llm())
    for asked in ("q-2", "q-3", "q-4", "q-5"):
        journal.answer(asked)
    journal.answer("q-1")
    assert remaining(Budget(max_llm_calls=9), journal.session.metrics, journal.now).llm_calls == 4


def test_what_is_set_aside_for_children_cannot_be_asked_here() -> None:
    journal = started(budget=Budget(max_llm_calls=4))
    journal.ask(ChildQuery(program="a"), ChildQuery(program="b"), wake="first").answer(
        "q-0", "done", Usage(llm_calls=1)
    )
    with refused(journal.session, BudgetExceededError) as caught:
        journal.ask(llm(), llm())
    assert caught.value.why == "max_llm_calls (4) would be passed (1 used, 2 reserved for children, 2 asked)"
    journal.ask(llm())


def test_a_child_that_ends_or_is_withdrawn_gives_back_what_it_has_not_spent() -> None:
    journal = started(budget=Budget(max_llm_calls=6, max_tokens=600, max_cost=6.0), prices=PRICES)
    journal.ask(ChildQuery(program="a"), ChildQuery(program="b"), wake="first")
    journal.answer("q-0", "done", Usage(llm_calls=1, prompt_tokens=50, completion_tokens=50, cost=1.0))
    budget = Budget(max_llm_calls=6, max_tokens=600, max_cost=6.0)
    left = remaining(budget, journal.session.metrics, journal.now)
    assert (left.llm_calls, left.tokens, left.cost) == (2, 200, 2.0)
    journal.ask(ChildQuery(program="c"), withdrawn=["q-1"])
    assert share(journal, "q-2") == Budget(max_llm_calls=5, max_tokens=500, max_cost=5.0)
    journal.cancel()
    spent = journal.session.metrics
    assert (spent.reserved_calls, spent.reserved_tokens, spent.reserved_cost, spent.shares) == (0, 0, 0.0, {})


@given_(data=st.data(), calls=st.integers(0, 20), tokens=st.integers(0, 500))
def test_a_parent_and_its_children_never_spend_more_than_there_is(data: st.DataObject, calls: int, tokens: int) -> None:
    """Whatever is asked and answered in whichever order: every child spends at most its share."""
    budget = Budget(max_llm_calls=calls, max_tokens=tokens, max_cost=tokens / 100)
    journal = started(budget=budget, prices={"default": Price(10_000.0, 10_000.0)})
    for _ in range(data.draw(st.integers(1, 8))):
        if journal.session.state == "running":
            queries = [ChildQuery(program="c")] * data.draw(st.integers(0, 3)) + [
                llm("abcd", max_tokens=9)
            ] * data.draw(st.integers(0, 2))
            pending = list(journal.session.pending)
            gone = data.draw(st.lists(st.sampled_from(pending), unique=True)) if pending else []
            try:
                journal.ask(*queries, wake=data.draw(st.sampled_from(["all", "first"])), withdrawn=gone)
            except (BudgetExceededError, JournalError):
                continue
        asked = data.draw(st.sampled_from(list(journal.session.pending)))
        if isinstance(journal.session.pending[asked].query, ChildQuery):
            most = share(journal, asked)
            used = data.draw(st.integers(0, most.max_tokens or 0))
            journal.answer(
                asked,
                "done",
                Usage(
                    llm_calls=data.draw(st.integers(0, most.max_llm_calls or 0)),
                    prompt_tokens=used,
                    completion_tokens=0,
                    cost=(most.max_cost or 0.0) * data.draw(st.floats(0, 1)),
                ),
            )
        else:
            journal.answer(asked, "x", Usage(prompt_tokens=1, completion_tokens=data.draw(st.integers(0, 9))))
        spent = journal.session.metrics
        assert spent.llm_calls + spent.reserved_calls <= calls
        assert spent.total_tokens + spent.reserved_tokens <= tokens
        assert spent.cost + spent.reserved_cost <= tokens / 100 + 1e-9
        assert spent.reserved_calls == sum(each.llm_calls for each in spent.shares.values())
        assert Session.fold("s-1", journal.entries).metrics == spent


def test_calls_cannot_be_given_back() -> None:
    with pytest.raises(InvalidValueError, match="llm_calls cannot be negative"):
        with_child().answer("q-0", "done", Usage(llm_calls=-1))


def test_child_queries_are_for_native_programs_unless_they_say_otherwise() -> None:
    body = '{"type":"paused","queries":[{"kind":"child","program":"m:p","ctx":1,"id":"q-0"}]}'
    record = decode_record(body)
    assert record == PausedRecord(queries=[ChildQuery(id="q-0", program="m:p", ctx=1)])
    assert msgspec.json.encode(record).decode() == body
