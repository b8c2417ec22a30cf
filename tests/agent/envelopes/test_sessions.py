"""Sessions in memory that are saved as envelopes: what is appended is checked, copied, and saved as it was then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from holdfast.agent.envelopes.files import DirectoryEnvelopes
from holdfast.agent.envelopes.store import EnvelopeReport, EnvelopeSessions, SessionEnvelope
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.core.errors import InvalidValueError, SessionNotFoundError
from tests.agent.envelopes.helpers import FROM_FLUERS, Rig, an_envelope, called, nested, said


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
