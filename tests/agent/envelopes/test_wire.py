"""The JSON of an envelope: what fluers wrote is read, and a file is written as fluers writes it."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from holdfast.agent.envelopes.files import DirectoryEnvelopes
from holdfast.agent.envelopes.store import ENVELOPE_VERSION, EnvelopeSessions, SessionEnvelope
from holdfast.store.errors import SchemaVersionError
from tests.agent.envelopes.helpers import FROM_FLUERS, Rig, an_envelope, said

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
