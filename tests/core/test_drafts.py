"""A decision's record comes with the JSON that checking it has made, and that JSON is the record."""

from __future__ import annotations

import pytest

from holdfast.core.decide import FeedMessage, GivenAnswer, decide_feed, decide_pause
from holdfast.core.queries import Answer, Failure, HumanQuery, LlmQuery, Query, ToolQuery, Usage, Value
from holdfast.core.records import attempted_in, attempted_pause, decode_record
from holdfast.core.values import encode
from tests.core.helpers import START, llm, paused, started
from tests.tables import each_row

QUERIES: list[list[Query]] = [
    [llm()],
    [LlmQuery(prompt='ü\n"$blob"', system="s", max_tokens=5, grounded=True, timeout_ms=7)],
    [llm(options={"model": "big"})],
    [llm(), HumanQuery(prompt="?", choices=["a", "b"]), ToolQuery(name="t", arguments={"a": [1, {"b": None}]})],
    [llm(prompt="long" * 20_000)],
]

ANSWERS: list[tuple[Answer, Usage | None]] = [
    (Value(value="text"), None),
    (Value(value="ü" * 40_000), None),
    (Value(value={"a": [1.5, True, None]}), None),
    (Value(value="text"), Usage(prompt_tokens=3)),
    (Failure("no", "refused"), None),
]


@each_row("queries", QUERIES, ids=range(len(QUERIES)))
def test_the_json_of_a_pause_is_its_record(queries: list[Query]) -> None:
    draft = decide_pause(started().session, queries, START)
    assert draft.body in (None, encode(draft.record))
    assert decode_record(encode(draft.record)) == draft.record
    attempted = attempted_pause(draft.record, draft.body)
    assert attempted.body in (None, encode(attempted.record))
    assert attempted_in(attempted.record) == [query.id for query in draft.record.queries]


@each_row("answer, usage", ANSWERS, ids=range(len(ANSWERS)))
def test_the_json_of_an_answer_is_its_record(answer: Answer, usage: Usage | None) -> None:
    decision = decide_feed(paused().session, FeedMessage([GivenAnswer(answer, "q-0", usage)], "ann"))
    [draft] = decision.drafts
    assert draft.body == encode(draft.record)
    assert decode_record(draft.body) == draft.record


@pytest.mark.parametrize("queries", [[llm()], [llm(options={"model": "big"})]])
def test_a_usual_pause_is_encoded_when_it_is_decided(queries: list[Query]) -> None:
    assert decide_pause(started().session, queries, START).body is not None
