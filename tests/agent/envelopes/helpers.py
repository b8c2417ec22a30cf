"""What the tests of envelopes share: messages, envelopes, and every kind of place to keep them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from holdfast.agent.envelopes.files import DirectoryEnvelopes
from holdfast.agent.envelopes.store import NAMESPACE, EnvelopeStore, SessionEnvelope, StoreEnvelopes
from holdfast.agent.machine.messages import (
    AgentMessage,
    ImageBlock,
    ImageSource,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.store import Store, open_store

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

GOOD = {"schema_version": 1, "model": "m", "max_turns": 1, "messages": [], "metadata": {}}


def version(number: int) -> SessionEnvelope:
    """A large envelope in which every part tells the same number."""
    return an_envelope(said(f"{number} " * 50_000), called({"n": number}), metadata={"n": str(number)})
