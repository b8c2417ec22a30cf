"""What an envelope can hold comes back exactly; what it cannot hold is refused, and the old envelope stays."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.envelopes.store import SessionEnvelope, read_envelope
from holdfast.agent.machine.messages import (
    AgentMessage,
    ImageBlock,
    ImageSource,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import MAX_INTEGER, MAX_VALUE_BYTES, MAX_VALUE_DEPTH, MIN_INTEGER
from holdfast.core.values import encode
from holdfast.store.errors import EnvelopeError, SchemaVersionError
from tests.agent.envelopes.helpers import FROM_FLUERS, GOOD, KINDS, Rig, a_rig, an_envelope, called, nested, said
from tests.examples import examples

NOT_SO_DEEP = MAX_VALUE_DEPTH - 5  # under the envelope, its messages, a message, its content, a block


@pytest.mark.parametrize(
    ("envelope", "why"),
    [
        pytest.param(an_envelope(model="\ud800"), "surrogate", id="surrogate in the model"),
        pytest.param(an_envelope(said("a\udfffb")), r"messages\[0\].*surrogate", id="surrogate in a text"),
        pytest.param(an_envelope(metadata={"\ud800": ""}), "surrogate", id="surrogate in a key"),
        pytest.param(an_envelope(called({"x": ["\ud800"]})), r"input\.x\[0\].*surrogate", id="surrogate in an input"),
        pytest.param(an_envelope(called(nested(NOT_SO_DEEP + 1))), "nested deeper", id="one level too deep"),
        pytest.param(an_envelope(called(nested(100_000))), "recursion|nested", id="far too deep"),
        pytest.param(an_envelope(said("x" * MAX_VALUE_BYTES)), "larger than", id="too large"),
        pytest.param(an_envelope(called(float("nan"))), "nan", id="not a number"),
        pytest.param(an_envelope(called(2**63)), "64 bits", id="past 64 bits"),
        pytest.param(an_envelope(called({1: 2})), "keys are text", id="a key that is no text"),
        pytest.param(an_envelope(called(b"raw")), "changed", id="bytes"),
        pytest.param(an_envelope(called({"on": date(2025, 1, 1)})), "changed", id="a date"),
        pytest.param(an_envelope(called({date(2025, 1, 1): 1})), "changed", id="a date for a key"),
        pytest.param(an_envelope(called({1, 2})), "changed", id="a set"),
        pytest.param(an_envelope(called(object())), "object", id="an object"),
        pytest.param(an_envelope(max_turns=-1), "max_turns", id="negative turns"),
        pytest.param(an_envelope(max_turns=True), "max_turns", id="true turns"),
        pytest.param(an_envelope(max_turns=1.5), "max_turns", id="half turns"),
        pytest.param(an_envelope(metadata={"n": 1}), "metadata", id="metadata that is no text"),
        pytest.param(an_envelope(system_message=5), "system_message", id="system message that is no text"),
        pytest.param(an_envelope(schema_version=2), "schema_version", id="a version not ours"),
        pytest.param(an_envelope(messages=None), "messages", id="no messages"),
        pytest.param(an_envelope(said("hi", "wizard")), "role", id="unknown role"),  # type: ignore[arg-type]
        pytest.param(an_envelope(AgentMessage("user", "hi")), "content", id="text for content"),  # type: ignore[arg-type]
        pytest.param(an_envelope(messages=[{"role": "user"}]), "changed", id="an object for a message"),
        pytest.param({"model": "m"}, "model|max_turns", id="no envelope"),
        pytest.param(msgspec.to_builtins(an_envelope()), "changed", id="an object for an envelope"),
        pytest.param(None, "object", id="nothing"),
    ],
)
async def test_a_value_that_cannot_be_kept_is_refused_and_the_old_one_stays(rig: Rig, envelope: Any, why: str) -> None:
    await rig.envelopes.save("s-1", FROM_FLUERS)
    with pytest.raises(InvalidValueError, match=f"envelope of session 's-1'.*({why})") as caught:
        await rig.envelopes.save("s-1", envelope)
    assert len(str(caught.value)) < 1000
    assert await rig.envelopes.load("s-1") == FROM_FLUERS


async def test_awkward_values_within_the_limits_are_kept_exactly(rig: Rig) -> None:
    awkward = an_envelope(
        said("\0 \x7f \u2028 \ufeff \U0010ffff \r\n"),
        called(nested(NOT_SO_DEEP)),
        called([MAX_INTEGER, MIN_INTEGER, 5e-324, -0.0, 1.0, 1, True, {}, [], None, "", {"": {"$blob": "x"}}]),
        AgentMessage("user", [ImageBlock(ImageSource("", bytes(range(256))))]),
        max_turns=MAX_INTEGER,
        system_message="",
        metadata={"": "", "ключ": "значение"},
    )
    await rig.envelopes.save("s-1", awkward)
    assert encode(await rig.envelopes.load("s-1")) == encode(awkward)


async def test_a_transcript_of_twenty_megabytes_is_kept(rig: Rig) -> None:
    large = an_envelope(*(said(f"{n} " * 100_000) for n in range(30)))
    await rig.envelopes.save("s-1", large)
    assert await rig.envelopes.load("s-1") == large


async def test_what_is_loaded_is_the_callers_own(rig: Rig) -> None:
    await rig.envelopes.save("s-1", an_envelope(called({"list": [1]})))
    loaded = await rig.envelopes.load("s-1")
    assert loaded is not None
    block = loaded.messages[0].content[0]
    assert isinstance(block, ToolUseBlock)
    block.input["list"].append(2)
    loaded.messages.clear()
    assert await rig.envelopes.load("s-1") == an_envelope(called({"list": [1]}))


async def test_an_envelope_changed_while_it_is_saved_is_kept_as_it_was(rig: Rig) -> None:
    envelope = an_envelope(called({"list": [1]}))
    saving = asyncio.ensure_future(rig.envelopes.save("s-1", envelope))
    await asyncio.sleep(0)
    envelope.messages.append(said("too late"))
    await saving
    assert await rig.envelopes.load("s-1") == an_envelope(called({"list": [1]}))


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

_json = st.recursive(
    st.none() | st.booleans() | st.integers(MIN_INTEGER, MAX_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip

_block = st.one_of(
    st.builds(TextBlock, _text),
    st.builds(ImageBlock, st.builds(ImageSource, _text, st.binary(max_size=20))),
    st.builds(ToolUseBlock, _text, _text, _json),
    st.builds(ToolResultBlock, _text, _json),
)

_message = st.builds(
    AgentMessage,
    st.sampled_from(["system", "user", "assistant", "tool", "signal"]),
    st.lists(_block, max_size=4),
)

_envelope = st.builds(
    SessionEnvelope,
    model=_text,
    max_turns=st.integers(0, MAX_INTEGER),
    system_message=st.none() | _text,
    messages=st.lists(_message, max_size=4),
    metadata=st.dictionaries(_text, _text, max_size=4),
)


@pytest.mark.parametrize("kind", KINDS)
def test_any_envelope_comes_back_byte_for_byte(kind: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        envelopes = runner.run(a_rig(kind, tmp_path, stack)).envelopes

        async def round_trip(envelope: SessionEnvelope) -> SessionEnvelope | None:
            await envelopes.save("s-1", envelope)
            return await envelopes.load("s-1")

        @settings(max_examples=examples(40), deadline=None, database=None)
        @given(_envelope)
        def check(envelope: SessionEnvelope) -> None:
            assert encode(runner.run(round_trip(envelope))) == encode(envelope)

        try:
            check()
        finally:
            runner.run(stack.aclose())


@settings(max_examples=examples(40), deadline=None, database=None)
@given(st.sampled_from(sorted(GOOD)), _json)
def test_any_json_in_any_field_is_an_envelope_or_an_error_naming_the_session(field: str, value: Any) -> None:
    try:
        read_envelope("s-1", GOOD | {field: value})
    except (EnvelopeError, SchemaVersionError) as error:
        told = str(error)
    else:
        told = "session 's-1'"
    assert "session 's-1'" in told
