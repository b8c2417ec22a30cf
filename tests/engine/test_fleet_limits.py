"""How limits of a fleet are written, declared and matched with calls."""

from __future__ import annotations

import pytest

from holdfast.core.errors import InvalidValueError
from holdfast.engine.fleet_limits import (
    Call,
    declare_limits,
    limits_of,
    parse_limit,
    parse_limits,
    read_limits,
    remove_limits,
)
from holdfast.store.memory import MemoryStore

ACME = Call("billing", "triage", ["customer=acme", "urgent"], ["openai:gpt-5", "gpt-5"])


@pytest.mark.parametrize(
    ("text", "name", "most", "period_ms"),
    [
        ("service:billing=20", "service:billing", 20, 0),
        ("model:openai:gpt-5=60/m", "model:openai:gpt-5/m", 60, 60_000),
        ("key:customer = 5/30s", "key:customer/30s", 5, 30_000),
        ("model:m,key:customer=10/60s", "key:customer,model:m/m", 10, 60_000),
        ("tool:*=1000/d", "tool:*/d", 1000, 86_400_000),
    ],
)
def test_a_limit_is_read_and_written_in_one_form(text: str, name: str, most: int, period_ms: int) -> None:
    limit = parse_limit(text.replace(" = ", "="))
    assert (limit.name, limit.most, limit.period_ms) == (name, most, period_ms)
    assert parse_limit(str(limit)) == limit


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("service:billing", "write SUBJECT=COUNT"),
        ("service:billing=", "expected a number of calls"),
        ("service:billing=many", "got 'many'"),
        ("service:billing=0", "it allows 1 to 100000"),
        ("service:billing=5/0s", "a period is at least a millisecond"),
        ("service:billing=5/week", "60/m"),
        ("billing=5", "what is limited is one of service:NAME"),
        ("customer:acme=5", "what is limited is one of service:NAME"),
        ("key:*=5", "the name of a label"),
        ("service:a,service:b=5", "each kind of subject stands in it once"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(InvalidValueError, match="limit") as refused:
        parse_limit(text)
    assert why in str(refused.value)


def test_one_text_is_not_taken_for_a_list_of_limits() -> None:
    with pytest.raises(InvalidValueError, match="a list of texts"):
        parse_limits("service:a=1")


def test_a_table_has_counts_texts_and_lists_of_them() -> None:
    limits = limits_of({"service:billing": 20, "model:m": [8, "60/m"]})
    assert [str(limit) for limit in limits] == ["service:billing=20", "model:m=8", "model:m=60/m"]


@pytest.mark.parametrize(
    ("text", "counter"),
    [
        ("service:billing=1", "service:billing"),
        ("service:*=1", "service:billing"),
        ("service:support=1", None),
        ("program:triage=1", "program:triage"),
        ("model:gpt-5=1/m", "model:gpt-5/m"),
        ("model:openai:gpt-5=1", "model:openai:gpt-5"),
        ("model:*=1", "model:openai:gpt-5"),
        ("tool:search=1", None),
        ("tool:*=1", None),
        ("key:customer=1", "key:customer=acme"),
        ("key:region=1", None),
        ("service:billing,key:customer=1/h", "key:customer=acme,service:billing/h"),
        ("service:support,key:customer=1/h", None),
    ],
)
def test_a_limit_counts_the_calls_that_it_is_on(text: str, counter: str | None) -> None:
    limit = parse_limit(text)
    share = limit.share(ACME)
    assert (None if share is None else share.counter) == counter
    if share is not None:
        assert limit.counts(share.counter)
        others = [parse_limit(each) for each in ("key:x=1", "service:other=1/m", "program:*=2/h")]
        assert not any(other.counts(share.counter) for other in others)


async def test_declared_limits_are_kept_in_the_store_and_replaced_by_name() -> None:
    store = MemoryStore()
    assert [str(limit) for limit in await declare_limits(store, parse_limits(["service:a=1", "service:b=2"]))] == [
        "service:a=1",
        "service:b=2",
    ]
    assert await declare_limits(store, parse_limits(["service:a=1"])) == []
    assert [str(limit) for limit in await declare_limits(store, parse_limits(["service:a=3"]))] == ["service:a=3"]
    assert await remove_limits(store, ["service:b", "service:c"]) == ["service:b"]
    assert [str(limit) for limit in await read_limits(store)] == ["service:a=3"]


async def test_a_store_has_a_hundred_limits_at_most() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidValueError, match="at most 100"):
        await declare_limits(store, parse_limits([f"service:s-{n}=1" for n in range(101)]))
    assert await read_limits(store) == []
