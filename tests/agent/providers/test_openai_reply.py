"""Replies in the chat-completions form, put together from chunks as services really send them."""

from __future__ import annotations

import pytest

from holdfast.agent.machine.messages import ReasoningBlock, TextBlock, ToolUseBlock
from holdfast.agent.providers import openai_reply
from holdfast.agent.providers.openai_reply import BadReplyError, ReplyReader, read_json
from holdfast.agent.providers.provider import ModelReply, ReasoningDelta, TextDelta
from holdfast.core.queries import Usage
from holdfast.core.values import Json
from tests.tables import each_row


def delta(finish: str | None = None, **fields: Json) -> Json:
    return {"model": "m-1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def piece(arguments: Json = None, **fields: Json) -> dict[str, Json]:
    name = fields.pop("name", None)
    function = {"name": name} if name else {}
    return {**fields, "function": {**function, **({} if arguments is None else {"arguments": arguments})}}


def read(*chunks: Json) -> tuple[list[TextDelta | ReasoningDelta], ModelReply]:
    reader = ReplyReader()
    deltas = [told for chunk in chunks for told in reader.take(chunk)]
    return deltas, reader.reply()


def calls(*pieces: dict[str, Json]) -> list[tuple[str, str, Json]]:
    _, reply = read(*[delta(tool_calls=[each]) for each in pieces], delta("tool_calls"))
    assert reply.stop == "tool_use"
    return [(use.id, use.name, use.input) for use in reply.content if isinstance(use, ToolUseBlock)]


def test_text_is_put_together() -> None:
    deltas, reply = read(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), delta("stop"))
    assert deltas == [TextDelta("Hel"), TextDelta("lo")]
    assert reply == ModelReply(content=[TextBlock("Hello")], stop="end", model="m-1")


@each_row("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_kept_apart_under_either_name(field: str) -> None:
    deltas, reply = read(delta(**{field: "Hm"}), delta(**{field: "."}), delta("stop", content="Yes."))
    assert deltas == [ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta("Yes.")]
    assert reply.content == [ReasoningBlock("Hm."), TextBlock("Yes.")]


def test_reasoning_under_both_names_is_taken_once() -> None:
    assert read(delta("stop", reasoning="Hm.", reasoning_content="Hm."))[1].content == [ReasoningBlock("Hm.")]


def test_text_and_reasoning_by_turns_keep_their_order() -> None:
    _, reply = read(delta(reasoning="a"), delta(content="b"), delta(reasoning="c"), delta("stop", content="d"))
    assert reply.content == [ReasoningBlock("a"), TextBlock("b"), ReasoningBlock("c"), TextBlock("d")]


def test_content_in_parts_is_read() -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
    _, reply = read(delta(content=thinking), delta("stop", content=[{"type": "text", "text": "Yes."}]))
    assert reply.content == [ReasoningBlock("Hm."), TextBlock("Yes.")]


# --- calls ---------------------------------------------------------------------------------------------


def test_parallel_calls_are_put_together_by_their_index() -> None:
    assert calls(
        piece("", index=0, id="c1", name="add"),
        piece("", index=1, id="c2", name="now"),
        piece('{"a": 2, ', index=0),
        piece('{"zone"', index=1),
        piece('"b": 40}', index=0),
        piece(': "UTC"}', index=1),
    ) == [("c1", "add", {"a": 2, "b": 40}), ("c2", "now", {"zone": "UTC"})]


def test_calls_are_in_the_order_of_their_index() -> None:
    assert [
        name for _, name, _ in calls(piece("", index=1, id="b", name="b"), piece("", index=0, id="a", name="a"))
    ] == [
        "a",
        "b",
    ]


def test_calls_that_all_have_one_index_are_told_apart_by_their_ids() -> None:
    given = [piece('{"a": 1}', index=0, id="c1", name="add"), piece('{"a": 2}', index=0, id="c2", name="add")]
    assert calls(*given) == [("c1", "add", {"a": 1}), ("c2", "add", {"a": 2})]


def test_a_new_id_with_every_piece_makes_no_new_call() -> None:
    given = [piece('{"a":', index=0, id="c1", name="add"), piece(" 1}", index=0, id="c2")]
    assert calls(*given) == [("c1", "add", {"a": 1})]


def test_a_name_that_comes_with_every_piece_is_one_name() -> None:
    given = [piece('{"a":', index=0, id="c1", name="add"), piece(" 1}", index=0, id="c1", name="add")]
    assert calls(*given) == [("c1", "add", {"a": 1})]


def test_calls_without_an_index_begin_with_a_name_or_another_id() -> None:
    given = [piece('{"a":', id="c1", name="add"), piece(" 1}"), piece("{}", id="c2", name="now"), piece("", id="c2")]
    assert calls(*given) == [("c1", "add", {"a": 1}), ("c2", "now", {})]


def test_calls_without_an_id_get_one_and_no_two_the_same() -> None:
    given = calls(piece("{}", name="add"), piece("{}", name="add"), piece("{}", id="x", name="a"))
    assert len({call_id for call_id, _, _ in given}) == 3
    assert all(call_id for call_id, _, _ in given)


def test_the_same_id_for_two_calls_is_replaced_in_the_second() -> None:
    first, second = calls(piece("{}", index=0, id="call", name="a"), piece("{}", index=1, id="call", name="b"))
    assert first[0] == "call"
    assert second[0] not in ("call", "")


def test_arguments_that_are_an_object_already_are_taken() -> None:
    assert calls(piece({"a": 2}, index=0, id="c1", name="add")) == [("c1", "add", {"a": 2})]


def test_arguments_that_are_no_json_are_given_as_they_were_written() -> None:
    assert calls(piece('{"a": 2', index=0, id="c1", name="add")) == [("c1", "add", {"_raw": '{"a": 2'})]


def test_a_call_without_a_name_is_no_reply() -> None:
    with pytest.raises(BadReplyError, match="without the name of the tool"):
        calls(piece("{}", index=0, id="c1"))


# --- the end -------------------------------------------------------------------------------------------


@each_row(
    ("finish", "stop"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "refusal"),
        ("tool_calls", "end"),
        ("eos", "other"),
        (None, "end"),
    ],
)
def test_the_reason_of_the_end_is_told(finish: str | None, stop: str) -> None:
    assert read(delta(finish, content="x"))[1].stop == stop


@each_row(("finish", "stop"), [("stop", "tool_use"), (None, "tool_use"), ("length", "length")])
def test_with_calls_it_wants_tools_unless_it_was_cut_off(finish: str | None, stop: str) -> None:
    assert read(delta(finish, tool_calls=[piece("{}", index=0, id="c", name="a")]))[1].stop == stop


def test_a_refusal_in_words_is_text_and_a_refusal() -> None:
    deltas, reply = read(delta(refusal="I will "), delta("stop", refusal="not."))
    assert deltas == [TextDelta("I will "), TextDelta("not.")]
    assert (reply.content, reply.stop) == ([TextBlock("I will not.")], "refusal")


def test_an_error_as_the_reason_of_the_end_is_no_reply() -> None:
    with pytest.raises(BadReplyError, match="aborted the answer"):
        read(delta("error", content="Hel"))


def test_a_stream_without_any_answer_is_no_reply() -> None:
    with pytest.raises(BadReplyError, match="no answer"):
        read({"choices": [], "usage": {"prompt_tokens": 1}}, {"object": "ping"})


def test_only_the_first_of_several_answers_is_taken() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "No"}}, {"index": 0, "delta": {"content": "Yes"}}]}
    assert read(other)[1].content == [TextBlock("Yes")]


def test_fields_that_are_null_or_of_another_type_are_passed_over() -> None:
    odd = {"choices": [None, {"index": 0, "delta": None}], "usage": None, "model": None}
    empty = delta(content=None, tool_calls=None, reasoning_content=None, reasoning={"text": "x"}, refusal=None)
    assert read(odd, empty, delta("stop", content="x"))[1].content == [TextBlock("x")]


def test_a_chunk_that_is_no_object_is_no_reply() -> None:
    with pytest.raises(BadReplyError, match="not an object, but list"):
        read([1])


def test_a_reply_that_was_not_streamed_is_read_the_same_way() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "tool_calls": [call]}
    whole = {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    deltas, reply = read(whole)
    assert deltas == [ReasoningDelta("Hm."), TextDelta("Yes.")]
    assert reply.content == [ReasoningBlock("Hm."), TextBlock("Yes."), ToolUseBlock("c1", "add", {"a": 2})]


def test_a_reply_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_reply, "MAX_REPLY_CHARS", 10)
    with pytest.raises(BadReplyError, match="more than 10 characters"):
        read(delta(content="12345"), delta(tool_calls=[piece("123456", index=0, id="c", name="a")]))


# --- characters ----------------------------------------------------------------------------------------


def test_a_character_cut_in_two_is_put_together_again() -> None:
    halves = [read_json(b'{"choices": [{"delta": {"content": "a\\ud83d"}}]}'), delta("stop", content="\ude00b")]
    deltas, reply = read(*halves)
    assert deltas == [TextDelta("a"), TextDelta("😀b")]
    assert reply.content == [TextBlock("a😀b")]


def test_half_a_character_without_the_other_is_replaced_and_can_be_kept() -> None:
    assert read(delta(content="a\ude00b"), delta("stop", content="c\ud83d"))[1].content == [TextBlock("a?bc")]


def test_what_is_no_json_is_told_with_its_beginning() -> None:
    with pytest.raises(BadReplyError, match="invalid JSON: <html>"):
        read_json(b"<html>")


# --- usage ---------------------------------------------------------------------------------------------


def used(**usage: Json) -> Usage | None:
    return read(delta("stop", content="x"), {"choices": [], "usage": usage})[1].usage


def test_usage_is_told_with_cached_and_reasoning_tokens() -> None:
    assert used(
        prompt_tokens=100,
        completion_tokens=20,
        total_tokens=120,
        prompt_tokens_details={"cached_tokens": 80, "audio_tokens": 0, "cache_write_tokens": 5},
        completion_tokens_details={"reasoning_tokens": 15},
        cost=0.25,
    ) == Usage(
        prompt_tokens=100,
        completion_tokens=20,
        cache_read_tokens=80,
        cache_write_tokens=5,
        reasoning_tokens=15,
        cost=0.25,
    )


def test_reasoning_that_is_counted_beside_the_completion_is_added_to_it() -> None:
    usage = used(
        prompt_tokens=10, completion_tokens=5, total_tokens=115, completion_tokens_details={"reasoning_tokens": 100}
    )
    assert usage == Usage(prompt_tokens=10, completion_tokens=105, reasoning_tokens=100)


def test_the_cache_under_another_name_is_found() -> None:
    assert used(prompt_tokens=10, prompt_cache_hit_tokens=7) == Usage(prompt_tokens=10, cache_read_tokens=7)


def test_counts_that_make_no_sense_are_unknown() -> None:
    assert used(prompt_tokens=-1, completion_tokens="5", prompt_tokens_details=None, cost=True) is None


def test_usage_that_grows_with_every_chunk_counts_once() -> None:
    grown = [{**delta(content="x"), "usage": {"prompt_tokens": 10, "completion_tokens": n}} for n in (1, 2, 3)]
    assert read(*grown)[1].usage == Usage(prompt_tokens=10, completion_tokens=3)


@each_row(
    "chunk",
    [
        {"choices": [], "x_groq": {"usage": {"prompt_tokens": 3}}},
        {"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 3}}]},
    ],
)
def test_usage_in_other_places_is_found(chunk: Json) -> None:
    assert read(delta("stop", content="x"), chunk)[1].usage == Usage(prompt_tokens=3)


def test_no_usage_is_none() -> None:
    assert read(delta("stop", content="x"))[1].usage is None
