"""Envelope files that were changed: refused with the session's name, or continued as a session like any other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec

from holdfast.agent.envelopes.conversation import export_envelope, import_envelope, read, written
from holdfast.agent.envelopes.files import DirectoryEnvelopes
from holdfast.agent.machine.messages import AgentMessage, ReasoningBlock
from holdfast.core.values import Json
from holdfast.testing.sessions import begin, picture
from tests.agent.envelopes.helpers import FROM_FLUERS
from tests.agent.helpers import Home
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import changed_bytes, changed_document
from tests.paths import REPO

FLUERS = json.loads((REPO / "tests" / "agent" / "envelopes" / "fluers_session.json").read_text())

MARKED: Json = {
    **msgspec.to_builtins(FROM_FLUERS),
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "Hm.", "signature": "abc"},
                {"type": "tool_use", "id": "c-1", "name": "look", "input": {"at": 1}},
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c-1",
                    "content": {
                        "content": [
                            {"type": "text", "text": 'Error: {"deep": [1]}'},
                            {"type": "image", "image": {"media_type": "image/png", "data": "iVBORw=="}},
                        ],
                        "details": {"holdfast": {"form": "json", "is_error": True}},
                    },
                }
            ],
        },
    ],
}
"""An envelope with all that stands in ours and not in those of fluers."""

SAMPLES = [FLUERS, MARKED]


def test_a_changed_envelope_is_refused_or_continued(fuzzer: Fuzzer, tmp_path: Path) -> None:
    fuzzer.run(lambda data: asyncio.run(_continue(data, tmp_path)), changed_document(SAMPLES), examples=75)


def test_a_changed_file_harms_no_other_envelope(fuzzer: Fuzzer, tmp_path: Path) -> None:
    inputs = changed_bytes([json.dumps(each, indent=2).encode() for each in SAMPLES])
    fuzzer.run(lambda data: asyncio.run(_list(data, tmp_path)), inputs, examples=40)


async def _continue(data: bytes, folder: Path) -> None:
    (folder / "s-1.json").write_bytes(data)
    home = Home("memory:")
    store = home.store()
    await begin(store, "another")
    before = await picture(store)
    async with home.runtime("Right.") as runtime:
        try:
            envelope = await DirectoryEnvelopes(folder).load("s-1")
            assert envelope is not None
            session = await import_envelope(runtime, "s-1", envelope)
        except Exception as error:
            assert_is_declared(error)
            assert await picture(store) == before
            return
        ours = read(envelope.messages, "s-1")
        assert read(written(ours, "s-1"), "s-1") == [m for m in _without_reasoning(ours) if m.content]
        turn = await session.turn("And now?").run()
        assert turn.text == "Right."
        again = await export_envelope(session)
        assert len(again.messages) >= 2


def _without_reasoning(messages: list[AgentMessage]) -> list[AgentMessage]:
    return [
        AgentMessage(each.role, [block for block in each.content if not isinstance(block, ReasoningBlock)])
        for each in messages
    ]


async def _list(data: bytes, folder: Path) -> None:
    envelopes = DirectoryEnvelopes(folder)
    await envelopes.save("other", FROM_FLUERS)
    (folder / "s-1.json").write_bytes(data)
    report = await envelopes.list()
    assert "other" in report.ids
    assert ("s-1" in report.ids) != ("s-1" in report.bad)
    assert (folder / "s-1.json").read_bytes() == data
