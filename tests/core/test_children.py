"""Children in the fold of their parent: what they spend counts there, once, and what is left is what they may spend."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.budget import Budget, Price, for_child, remaining
from holdfast.core.errors import BudgetExceededError, InvalidValueError
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
    journal = with_child(budget).answer("q-0", "done", SPENT).later(1000)
    assert for_child(journal.session, None, journal.now) == Budget(
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
    journal = started(budget=Budget(max_llm_calls=4, max_tokens=50))
    assert for_child(journal.session, own, journal.now) == given


def test_a_child_of_a_session_without_limits_has_its_own() -> None:
    journal = started()
    assert for_child(journal.session, None, journal.now) is None
    assert for_child(journal.session, Budget(max_llm_calls=1), journal.now) == Budget(max_llm_calls=1)
    bare = started(budget=Budget(max_own_ms=5))
    assert for_child(bare.session, None, bare.now) is None


def test_calls_cannot_be_given_back() -> None:
    with pytest.raises(InvalidValueError, match="llm_calls cannot be negative"):
        with_child().answer("q-0", "done", Usage(llm_calls=-1))


def test_child_queries_are_for_native_programs_unless_they_say_otherwise() -> None:
    body = '{"type":"paused","queries":[{"kind":"child","program":"m:p","ctx":1,"id":"q-0"}]}'
    record = decode_record(body)
    assert record == PausedRecord(queries=[ChildQuery(id="q-0", program="m:p", ctx=1)])
    assert msgspec.json.encode(record).decode() == body
