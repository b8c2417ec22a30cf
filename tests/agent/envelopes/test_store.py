"""Envelopes: the laws of the contract over every place they can be kept, files that are torn, hostile or foreign, and
writers that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.envelopes.files import MAX_FILE_BYTES, DirectoryEnvelopes
from holdfast.agent.envelopes.store import (
    ENVELOPE_VERSION,
    NAMESPACE,
    EnvelopeReport,
    EnvelopeSessions,
    EnvelopeStore,
    SessionEnvelope,
    StoreEnvelopes,
    read_envelope,
)
from holdfast.agent.machine.messages import (
    AgentMessage,
    ImageBlock,
    ImageSource,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.core.errors import InvalidIdError, InvalidValueError, SessionNotFoundError
from holdfast.core.limits import MAX_INTEGER, MAX_VALUE_BYTES, MAX_VALUE_DEPTH, MIN_INTEGER
from holdfast.core.values import encode
from holdfast.store import Store, open_store
from holdfast.store.errors import EnvelopeError, SchemaVersionError, StoreUnavailableError
from holdfast.store.limits import READ_LIMIT
from holdfast.testing.patience import HANG_S
from tests.examples import examples

KINDS = ("directory", "memory", "sqlite")


def said(text: str, role: Role = "user") -> AgentMessage:
    return AgentMessage(role, [TextBlock(text)])


def called(value: Any) -> AgentMessage:
    return AgentMessage("assistant", [ToolUseBlock("t-1", "look", value)])


def an_envelope(*messages: AgentMessage, **fields: Any) -> SessionEnvelope:
    given: dict[str, Any] = {"model": "mock/model", "max_turns": 4, "messages": [*messages], "metadata": {}}
    return SessionEnvelope(**(given | fields))


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


class Rig:
    """One kind of place for envelopes, and a way to put something there behind its back."""

    def __init__(self, envelopes: EnvelopeStore, plant: Callable[[str, Any], Awaitable[None]]) -> None:
        self.envelopes = envelopes
        self.plant = plant


async def a_rig(kind: str, path: Path, stack: AsyncExitStack) -> Rig:
    if kind == "directory":
        directory = path / "sessions"

        async def write(session_id: str, value: Any) -> None:
            directory.mkdir(exist_ok=True)
            (directory / f"{session_id}.json").write_text(json.dumps(value))

        return Rig(DirectoryEnvelopes(directory), write)

    store: Store = await stack.enter_async_context(
        open_store("memory:" if kind == "memory" else f"sqlite:///{path}/holdfast.db")
    )

    async def put(session_id: str, value: Any) -> None:
        await store.put_state(NAMESPACE, session_id, value)

    return Rig(StoreEnvelopes(store), put)


@pytest.fixture(params=KINDS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        yield await a_rig(request.param, tmp_path, stack)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


# --- the seed's own cases ------------------------------------------------------------------------


def test_an_envelope_round_trips_through_json() -> None:
    envelope = an_envelope(said("hello"), system_message="be useful", metadata={"tag": "test"})
    back = msgspec.json.decode(msgspec.json.encode(envelope), type=SessionEnvelope)
    assert back == envelope
    assert back.schema_version == ENVELOPE_VERSION
    assert back.messages[0].text == "hello"


async def test_a_session_saved_then_loaded_is_the_same(rig: Rig) -> None:
    sessions = EnvelopeSessions()
    session_id = sessions.create_with_config("mock/model", 8, "system")
    sessions.append(session_id, said("persist me"))
    await sessions.save(rig.envelopes, session_id)

    loaded = await EnvelopeSessions.load(rig.envelopes, session_id)

    assert loaded is not None
    assert (loaded.id, loaded.model, loaded.max_turns) == (session_id, "mock/model", 8)
    assert loaded.system_message == "system"
    assert [message.text for message in loaded.messages] == ["persist me"]
    assert loaded.metadata == {}


async def test_another_schema_version_is_an_error_with_both_numbers(rig: Rig) -> None:
    session_id = str(uuid4())
    await rig.plant(session_id, msgspec.to_builtins(an_envelope()) | {"schema_version": 2})
    with pytest.raises(SchemaVersionError) as caught:
        await EnvelopeSessions.load(rig.envelopes, session_id)
    assert (caught.value.found, caught.value.supported) == (2, 1)
    assert session_id in str(caught.value)


# --- messages on the wire ------------------------------------------------------------------------

FLUERS = """\
{
  "schema_version": 1,
  "model": "openai/gpt-4o-mini",
  "max_turns": 8,
  "system_message": null,
  "messages": [
    {
      "role": "system",
      "content": [
        {
          "type": "text",
          "text": "Be brief. 🦀"
        }
      ]
    },
    {
      "role": "user",
      "content": [
        {
          "type": "text",
          "text": "What is "
        },
        {
          "type": "image",
          "image": {
            "media_type": "image/png",
            "data": "iVBORw0KGgo="
          }
        },
        {
          "type": "text",
          "text": "this?"
        }
      ]
    },
    {
      "role": "assistant",
      "content": [
        {
          "type": "tool_use",
          "id": "call_1",
          "name": "look",
          "input": {
            "zoom": 1.0,
            "at": [
              1,
              2
            ],
            "hint": null
          }
        }
      ]
    },
    {
      "role": "tool",
      "content": [
        {
          "type": "tool_result",
          "tool_use_id": "call_1",
          "content": {
            "content": [
              {
                "type": "text",
                "text": "a crab"
              }
            ],
            "details": {}
          }
        }
      ]
    },
    {
      "role": "signal"
    }
  ],
  "metadata": {
    "created_at": "2025-01-01T00:00:00Z"
  }
}"""

FROM_FLUERS = SessionEnvelope(
    model="openai/gpt-4o-mini",
    max_turns=8,
    messages=[
        said("Be brief. 🦀", "system"),
        AgentMessage(
            "user",
            [TextBlock("What is "), ImageBlock(ImageSource("image/png", b"\x89PNG\r\n\x1a\n")), TextBlock("this?")],
        ),
        AgentMessage("assistant", [ToolUseBlock("call_1", "look", {"zoom": 1.0, "at": [1, 2], "hint": None})]),
        AgentMessage(
            "tool",
            [ToolResultBlock("call_1", {"content": [{"type": "text", "text": "a crab"}], "details": {}})],
        ),
        AgentMessage("signal"),
    ],
    metadata={"created_at": "2025-01-01T00:00:00Z"},
)


async def test_what_fluers_wrote_is_read(rig: Rig) -> None:
    await rig.plant("from-fluers", json.loads(FLUERS))
    assert await rig.envelopes.load("from-fluers") == FROM_FLUERS


async def test_a_file_is_written_as_fluers_writes_it(directory: Path) -> None:
    await DirectoryEnvelopes(directory).save("s-1", FROM_FLUERS)
    assert (directory / "s-1.json").read_text() == FLUERS


async def test_a_missing_system_message_and_unknown_fields_are_fine_when_read(rig: Rig) -> None:
    value = {
        "schema_version": 1,
        "model": "m",
        "max_turns": 0,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache": True}], "id": 7}],
        "metadata": {},
        "future": [1, 2, 3],
    }
    await rig.plant("s-1", value)
    assert await rig.envelopes.load("s-1") == an_envelope(said("hi"), model="m", max_turns=0)


def test_the_text_of_a_message_is_its_text_blocks_joined() -> None:
    assert FROM_FLUERS.messages[1].text == "What is this?"
    assert FROM_FLUERS.messages[2].text == ""


# --- the laws of the contract --------------------------------------------------------------------


async def test_what_is_saved_is_loaded(rig: Rig) -> None:
    await rig.envelopes.save("s-1", FROM_FLUERS)
    assert await rig.envelopes.load("s-1") == FROM_FLUERS


async def test_an_absent_envelope_is_none(rig: Rig) -> None:
    assert await rig.envelopes.load("s-1") is None


async def test_a_second_save_replaces_the_whole_envelope(rig: Rig) -> None:
    await rig.envelopes.save("s-1", FROM_FLUERS)
    await rig.envelopes.save("s-1", an_envelope())
    assert await rig.envelopes.load("s-1") == an_envelope()


async def test_a_deleted_envelope_is_gone_and_can_be_saved_again(rig: Rig) -> None:
    assert await rig.envelopes.delete("s-1") is False
    await rig.envelopes.save("s-1", an_envelope(said("first")))
    assert await rig.envelopes.delete("s-1") is True
    assert await rig.envelopes.load("s-1") is None
    assert await rig.envelopes.delete("s-1") is False
    await rig.envelopes.save("s-1", an_envelope(said("second")))
    assert await rig.envelopes.load("s-1") == an_envelope(said("second"))


async def test_an_empty_place_lists_nothing(rig: Rig) -> None:
    assert await rig.envelopes.list() == EnvelopeReport([], {})


async def test_the_listing_is_sorted_and_the_same_through_the_sessions(rig: Rig) -> None:
    for session_id in ("s-2", "s-10", "S-3", "a.json", "s-1", "a@b:c+d=e_f.g"):
        await rig.envelopes.save(session_id, an_envelope())
    found = await EnvelopeSessions.list(rig.envelopes)
    assert found == EnvelopeReport(["S-3", "a.json", "a@b:c+d=e_f.g", "s-1", "s-10", "s-2"], {})


async def test_a_bad_envelope_is_listed_apart_and_stops_nobody(rig: Rig) -> None:
    await rig.envelopes.save("good", an_envelope())
    await rig.plant("shapeless", {"schema_version": 1})
    await rig.plant("newer", {"schema_version": 7, "turns": "of another shape"})
    found = await rig.envelopes.list()
    assert found.ids == ["good"]
    assert list(found.bad) == ["newer", "shapeless"]
    assert "schema version 7" in found.bad["newer"]
    assert "model" in found.bad["shapeless"]
    assert await rig.envelopes.load("good") == an_envelope()


async def test_a_bad_envelope_can_be_deleted_and_overwritten(rig: Rig) -> None:
    await rig.plant("s-1", ["no envelope"])
    await rig.plant("s-2", {"schema_version": 7})
    assert await rig.envelopes.delete("s-1") is True
    await rig.envelopes.save("s-2", an_envelope())
    assert await rig.envelopes.list() == EnvelopeReport(["s-2"], {})


@pytest.mark.parametrize("version", [2, 0, -1, 4_294_967_295, 10**30])
async def test_the_version_is_looked_at_before_the_shape(rig: Rig, version: int) -> None:
    if version > MAX_INTEGER and isinstance(rig.envelopes, StoreEnvelopes):
        version = MAX_INTEGER  # the most that a state item can hold
    await rig.plant("s-1", {"schema_version": version, "messages": "in a new shape"})
    with pytest.raises(SchemaVersionError, match=r"session 's-1'.*reads up to 1") as caught:
        await rig.envelopes.load("s-1")
    assert caught.value.found == version


GOOD = {"schema_version": 1, "model": "m", "max_turns": 1, "messages": [], "metadata": {}}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "Expected `object`"),
        ([], "Expected `object`"),
        ("text", "Expected `object`"),
        ({}, "schema_version"),
        (GOOD | {"schema_version": "1"}, "schema_version"),
        (GOOD | {"schema_version": 1.5}, "schema_version"),
        (GOOD | {"schema_version": True}, "schema_version"),
        ({key: value for key, value in GOOD.items() if key != "messages"}, "messages"),
        ({key: value for key, value in GOOD.items() if key != "metadata"}, "metadata"),
        (GOOD | {"model": None}, "model"),
        (GOOD | {"max_turns": -1}, "max_turns"),
        (GOOD | {"max_turns": 1.5}, "max_turns"),
        (GOOD | {"metadata": {"a": 1}}, "metadata"),
        (GOOD | {"messages": [{"content": []}]}, "role"),
        (GOOD | {"messages": [{"role": "wizard"}]}, r"messages\[0\].role|messages\[...\].role"),
        (GOOD | {"messages": [{"role": "user", "content": "hi"}]}, "content"),
        (GOOD | {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "type"),
        (GOOD | {"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "video"),
        (GOOD | {"messages": [{"role": "tool", "content": [{"type": "tool_result", "content": 1}]}]}, "tool_use_id"),
        (
            GOOD | {"messages": [{"role": "user", "content": [{"type": "image", "image": {"media_type": "a/b"}}]}]},
            "data",
        ),
        (
            GOOD
            | {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "image": {"media_type": "a/b", "data": "!"}}]}
                ]
            },
            "base64",
        ),
    ],
)
async def test_a_malformed_envelope_is_an_error_naming_the_session_and_the_fault(
    rig: Rig, value: Any, why: str
) -> None:
    await rig.plant("s-1", value)
    with pytest.raises(EnvelopeError, match=why) as caught:
        await rig.envelopes.load("s-1")
    assert "session 's-1'" in str(caught.value)
    assert len(str(caught.value)) < 1000


BAD_IDS = [
    *("../x", "..", ".", "a/b", "/tmp/holdfast-escaped", "a\\b", "", ".hidden", "-x", "a b", "a\n", "\na", "é", "ａ"),
    *("a\0b", "\0", "x" * 1_000_000, "x" * 201, "\ud800", "a\udcff", None, 5, b"s-1", ["s-1"]),
]


@pytest.mark.parametrize("session_id", BAD_IDS, ids=lambda value: ascii(value)[:20])
async def test_a_bad_id_is_refused_before_anything_is_touched(rig: Rig, tmp_path: Path, session_id: Any) -> None:
    before = sorted(path for path in tmp_path.rglob("*") if "holdfast.db" not in path.name)
    for refused in (
        rig.envelopes.save(session_id, an_envelope()),
        rig.envelopes.load(session_id),
        rig.envelopes.delete(session_id),
        EnvelopeSessions().save(rig.envelopes, session_id),
        EnvelopeSessions.load(rig.envelopes, session_id),
    ):
        with pytest.raises(InvalidIdError, match="session id") as caught:
            await refused
        assert len(str(caught.value)) < 1000
    assert sorted(path for path in tmp_path.rglob("*") if "holdfast.db" not in path.name) == before
    assert await rig.envelopes.list() == EnvelopeReport([], {})


async def test_the_longest_id_is_kept(rig: Rig) -> None:
    await rig.envelopes.save("x" * 200, an_envelope())
    assert await rig.envelopes.list() == EnvelopeReport(["x" * 200], {})


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


async def test_concurrent_saves_of_one_id_leave_one_of_them_whole(rig: Rig) -> None:
    versions = [an_envelope(said(f"{n} " * 20_000), metadata={"n": str(n)}) for n in range(30)]
    seen: list[SessionEnvelope | None] = []

    async def look() -> None:
        seen.append(await rig.envelopes.load("s-1"))

    await asyncio.gather(*(job for version in versions for job in (rig.envelopes.save("s-1", version), look())))
    assert all(found is None or found in versions for found in seen)
    assert await rig.envelopes.load("s-1") in versions
    assert await rig.envelopes.list() == EnvelopeReport(["s-1"], {})


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


# --- a store's state -----------------------------------------------------------------------------


async def test_a_store_with_more_envelopes_than_a_page_lists_them_all() -> None:
    async with open_store("memory:") as store:
        names = [f"s-{n:05}" for n in range(2 * READ_LIMIT + 1)]
        for name in names:
            await store.put_state(NAMESPACE, name, GOOD)
        assert await StoreEnvelopes(store).list() == EnvelopeReport(names, {})


async def test_state_items_of_others_are_not_envelopes() -> None:
    async with open_store("memory:") as store:
        await store.put_state("other", "s-1", GOOD)
        assert await StoreEnvelopes(store).load("s-1") is None
        assert await StoreEnvelopes(store).list() == EnvelopeReport([], {})


async def test_a_row_that_was_damaged_is_bad_and_stops_nobody(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/holdfast.db") as store:
        envelopes = StoreEnvelopes(store)
        await envelopes.save("s-1", an_envelope())
        await envelopes.save("s-2", an_envelope())
        with sqlite3.connect(tmp_path / "holdfast.db") as connection:
            connection.execute("UPDATE state SET value = '{\"schema_ver' WHERE key = 's-1'")
        connection.close()
        found = await envelopes.list()
        assert found.ids == ["s-2"]
        assert list(found.bad) == ["s-1"]
        with pytest.raises(EnvelopeError, match="session 's-1'"):
            await envelopes.load("s-1")


# --- files ---------------------------------------------------------------------------------------


async def test_the_directory_is_made_by_the_first_save_and_by_nothing_else(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory / "a" / "b")
    await envelopes.load("s-1")
    await envelopes.list()
    await envelopes.delete("s-1")
    assert not directory.exists()
    await envelopes.save("s-1", an_envelope())
    assert os.listdir(directory / "a" / "b") == ["s-1.json"]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"\xff\xfe", b'{"schema_version": 1', b"not json", b"\0" * 4096, b'{"model": "\\ud800"}'),
        *(b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        b'{"schema_version": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        json.dumps(GOOD).encode() + b"trailing",
        json.dumps(GOOD).encode().replace(b'"m"', b'"\xff"'),
        json.dumps(GOOD | {"messages": [{"role": "wizard" * 100_000}]}).encode(),
    ],
    ids=lambda data: ascii(data[:24]),
)
async def test_a_file_of_junk_is_an_error_naming_the_session_and_stops_nobody(directory: Path, data: bytes) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("good", an_envelope())
    (directory / "junk.json").write_bytes(data)
    with pytest.raises(EnvelopeError, match="session 'junk'") as caught:
        await envelopes.load("junk")
    assert len(str(caught.value)) < 1000
    found = await envelopes.list()
    assert found == EnvelopeReport(["good"], {"junk": str(caught.value)})


async def test_what_is_no_readable_file_is_bad_and_never_waited_for(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("good", an_envelope())
    (directory / "folder.json").mkdir()
    os.mkfifo(directory / "pipe.json")
    (directory / "loop.json").symlink_to(directory / "loop.json")
    (directory / "huge.json").touch()
    os.truncate(directory / "huge.json", MAX_FILE_BYTES + 1)
    release = asyncio.get_running_loop().call_later(5, os.open, directory / "pipe.json", os.O_RDWR)  # if it does hang
    async with asyncio.timeout(HANG_S):
        found = await envelopes.list()
    release.cancel()
    assert found.ids == ["good"]
    assert list(found.bad) == ["folder", "huge", "loop", "pipe"]
    assert "not a regular file" in found.bad["pipe"]
    assert str(MAX_FILE_BYTES) in found.bad["huge"]


async def test_files_whose_names_are_no_ids_are_bad_and_other_files_are_not_seen(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("good", an_envelope())
    for name in (".json", ".hidden.json", "-x.json", "a b.json", "é.json", "\udcff.json", "x" * 220 + ".json"):
        (directory / name).write_text(json.dumps(GOOD))
    for name in ("notes.txt", "good.json.tmp", ".saving-abc.tmp", "good.json~", "json"):
        (directory / name).write_text(json.dumps(GOOD))
    found = await envelopes.list()
    assert found.ids == ["good"]
    assert sorted(found.bad) == sorted(["", ".hidden", "-x", "a b", "é", "\\udcff", "x" * 220])
    assert all("invalid session id" in why for why in found.bad.values())
    encode(found)  # can be told as JSON


async def test_a_save_that_fails_leaves_the_old_envelope_and_nothing_else(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("s-1", FROM_FLUERS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        with pytest.raises(StoreUnavailableError, match="File too large"):
            await envelopes.save("s-1", an_envelope(said("x" * 1_000_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(directory) == ["s-1.json"]
    assert await envelopes.load("s-1") == FROM_FLUERS


async def test_a_save_that_cannot_take_its_name_leaves_nothing(directory: Path) -> None:
    (directory / "s-1.json").mkdir(parents=True)
    with pytest.raises(StoreUnavailableError, match="directory"):
        await DirectoryEnvelopes(directory).save("s-1", an_envelope())
    assert os.listdir(directory) == ["s-1.json"]


async def test_a_directory_that_is_a_file_is_unavailable(directory: Path) -> None:
    directory.write_text("no directory")
    envelopes = DirectoryEnvelopes(directory)
    for refused in (envelopes.save("s-1", an_envelope()), envelopes.list(), envelopes.delete("s-1")):
        with pytest.raises(StoreUnavailableError, match=str(directory)):
            await refused
    with pytest.raises(EnvelopeError, match="session 's-1'"):
        await envelopes.load("s-1")


async def test_the_file_is_durable_before_its_name_and_the_name_before_the_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        found = os.fstat(handle)
        steps.append("directory" if stat.S_ISDIR(found.st_mode) else f"file of {found.st_size > 0}")
        fsync(handle)

    def note_replace(source: str, target: Path) -> None:
        steps.append("rename")
        assert Path(source).parent == target.parent
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("s-1", an_envelope())
    assert steps == ["directory", "file of True", "rename", "directory"]  # the first is the new directory's own name
    steps.clear()
    await envelopes.delete("s-1")
    assert steps == ["directory"]


async def test_a_cancelled_save_ends_only_when_its_file_is_settled(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("s-1", an_envelope())
    slow, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow_fsync(handle: int) -> None:
        slow.set()
        assert go_on.wait(10)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    saving = asyncio.ensure_future(envelopes.save("s-1", FROM_FLUERS))
    assert await asyncio.to_thread(slow.wait, 10)
    for _ in range(3):
        saving.cancel()
        await asyncio.sleep(0.02)
    assert not saving.done()
    assert await envelopes.load("s-1") == an_envelope()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert os.listdir(directory) == ["s-1.json"]
    assert await envelopes.load("s-1") == FROM_FLUERS


async def test_transcripts_are_readable_by_their_owner_only(directory: Path) -> None:
    await DirectoryEnvelopes(directory).save("s-1", an_envelope())
    assert stat.S_IMODE((directory / "s-1.json").stat().st_mode) == 0o600


# --- other processes -----------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from contextlib import AsyncExitStack
from pathlib import Path
from tests.agent.envelopes.test_store import a_rig, version

async def main(kind, path, number):
    async with AsyncExitStack() as stack:
        envelopes = (await a_rig(kind, Path(path), stack)).envelopes
        while True:
            await envelopes.save("s-1", version(number))
            print(number, flush=True)
            number += 1

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def version(number: int) -> SessionEnvelope:
    """A large envelope in which every part tells the same number."""
    return an_envelope(said(f"{number} " * 50_000), called({"n": number}), metadata={"n": str(number)})


def a_writer(kind: str, path: Path, number: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(path), str(number)], cwd=root, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
async def test_a_writer_killed_while_saving_leaves_the_last_acknowledged_envelope_or_the_next(
    kind: str, tmp_path: Path
) -> None:
    chance = random.Random(2)
    for start in (0, 1_000_000, 2_000_000, 3_000_000):
        with a_writer(kind, tmp_path, start) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            await asyncio.sleep(chance.uniform(0, 0.1))
            writer.kill()
            lines = writer.stdout.read().split("\n")  # the last piece may be cut off
        acknowledged = int(lines[-2]) if len(lines) > 1 else start
        async with AsyncExitStack() as stack:
            envelopes = (await a_rig(kind, tmp_path, stack)).envelopes
            found = await envelopes.load("s-1")
            assert found in (version(acknowledged), version(acknowledged + 1))
            assert await envelopes.list() == EnvelopeReport(["s-1"], {})


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
async def test_readers_never_see_a_part_while_two_processes_save_the_same_id(kind: str, tmp_path: Path) -> None:
    with a_writer(kind, tmp_path, 0) as one, a_writer(kind, tmp_path, 1_000_000) as other:
        try:
            for writer in (one, other):
                assert writer.stdout is not None
                await asyncio.to_thread(writer.stdout.readline)
            async with AsyncExitStack() as stack:
                envelopes = (await a_rig(kind, tmp_path, stack)).envelopes
                seen = set()
                for _ in range(100):
                    found = await envelopes.load("s-1")
                    assert found is not None
                    assert found == version(int(found.metadata["n"]))
                    seen.add(found.metadata["n"])
                assert len(seen) > 1
        finally:
            one.kill()
            other.kill()


# --- sessions in memory --------------------------------------------------------------------------


async def test_a_new_session_has_a_random_uuid_and_nothing_else(rig: Rig) -> None:
    sessions = EnvelopeSessions()
    session_id = sessions.create()
    assert UUID(session_id).version == 4
    assert str(UUID(session_id)) == session_id
    assert sessions.create() != session_id
    assert sessions.messages(session_id) == []
    await sessions.save(rig.envelopes, session_id)
    assert await rig.envelopes.load(session_id) == an_envelope(model="", max_turns=0)


async def test_an_unknown_session_is_not_found(rig: Rig) -> None:
    sessions = EnvelopeSessions()
    unknown = str(uuid4())
    with pytest.raises(SessionNotFoundError, match=unknown):
        sessions.append(unknown, said("hello"))
    with pytest.raises(SessionNotFoundError, match=unknown):
        sessions.messages(unknown)
    with pytest.raises(SessionNotFoundError, match=unknown):
        await sessions.save(rig.envelopes, unknown)
    assert await EnvelopeSessions.load(rig.envelopes, unknown) is None
    assert await rig.envelopes.list() == EnvelopeReport([], {})


async def test_loading_does_not_register_the_session(rig: Rig) -> None:
    await rig.envelopes.save("s-1", FROM_FLUERS)
    sessions = EnvelopeSessions()
    assert await sessions.load(rig.envelopes, "s-1") is not None
    with pytest.raises(SessionNotFoundError):
        sessions.messages("s-1")


def test_messages_are_copied_in_and_out() -> None:
    sessions = EnvelopeSessions()
    session_id = sessions.create()
    arguments = {"list": [1]}
    sessions.append(session_id, called(arguments))
    arguments["list"].append(2)
    out = sessions.messages(session_id)
    block = out[0].content[0]
    assert isinstance(block, ToolUseBlock)
    block.input["list"].append(3)
    out.append(said("not mine"))
    assert sessions.messages(session_id) == [called({"list": [1]})]


def test_a_message_that_could_not_be_saved_is_not_appended() -> None:
    sessions = EnvelopeSessions()
    session_id = sessions.create()
    for bad in (said("\ud800"), called(nested(100_000)), called({1: 2}), {"role": "user"}, "hello"):
        with pytest.raises(InvalidValueError, match=f"message to session '{session_id}'"):
            sessions.append(session_id, bad)  # type: ignore[arg-type]
    assert sessions.messages(session_id) == []


def test_a_bad_configuration_is_refused() -> None:
    sessions = EnvelopeSessions()
    for model, max_turns, system in (("\ud800", 1, None), ("m", -1, None), ("m", 2**63, None), ("m", 1, 5)):
        with pytest.raises(InvalidValueError, match="session configuration"):
            sessions.create_with_config(model, max_turns, system)  # type: ignore[arg-type]


async def test_what_is_appended_during_a_save_goes_with_the_next(directory: Path) -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()

    class Slow(DirectoryEnvelopes):
        async def save(self, session_id: str, envelope: SessionEnvelope) -> None:
            waiting.set()
            await go_on.wait()
            await super().save(session_id, envelope)

    envelopes, sessions = Slow(directory), EnvelopeSessions()
    session_id = sessions.create_with_config("mock/model", 4)
    sessions.append(session_id, said("one"))
    saving = asyncio.ensure_future(sessions.save(envelopes, session_id))
    await waiting.wait()
    sessions.append(session_id, said("two"))
    go_on.set()
    await saving
    assert await envelopes.load(session_id) == an_envelope(said("one"))
    await sessions.save(envelopes, session_id)
    assert await envelopes.load(session_id) == an_envelope(said("one"), said("two"))
