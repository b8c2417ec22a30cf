"""pydantic-ai: an agent with an external tool, whose whole history is kept in one row of SQLite, by hand.

The library stores nothing itself: a run ends with the calls that wait, and the next one is given their results.
"""

from __future__ import annotations

import json
import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers import Pending, Shown, digest, question, ran

_TOOL = {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}


class PydanticAiPeer:
    """See `Peer`."""

    def __init__(self) -> None:
        self._messages: Any = import_module("pydantic_ai.messages")
        self._tools: Any = import_module("pydantic_ai.tools")
        tool = self._tools.ToolDefinition(name="llm", parameters_json_schema=_TOOL)
        model = import_module("pydantic_ai.models.function").FunctionModel(self._reply)
        self._agent = import_module("pydantic_ai").Agent(
            model,
            output_type=[str, self._tools.DeferredToolRequests],
            toolsets=[import_module("pydantic_ai.toolsets").ExternalToolset([tool])],
        )
        self._limits = import_module("pydantic_ai.usage").UsageLimits(request_limit=None)

    def _reply(self, messages: list[Any], _: Any) -> Any:
        """The program, in the place of the model."""
        parts = [part for message in messages for part in message.parts]
        session, pauses = next(each.content for each in parts if each.part_kind == "user-prompt").split()
        answers = [each.content for each in parts if each.part_kind == "tool-return"]
        ran(session, len(answers))
        if len(answers) < int(pauses):
            asked = {"prompt": question(session, len(answers))}
            call = self._messages.ToolCallPart("llm", asked, tool_call_id=f"{session}-{len(answers)}")
            return self._messages.ModelResponse(parts=[call])
        return self._messages.ModelResponse(parts=[self._messages.TextPart(digest(answers))])

    async def open(self, db: Path) -> None:
        self._db = sqlite3.connect(db, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS history (session TEXT PRIMARY KEY, body BLOB)")

    async def close(self) -> None:
        self._db.close()

    async def start(self, session: str, pauses: int) -> Shown:
        return self._kept(session, await self._agent.run(f"{session} {pauses}", usage_limits=self._limits))

    async def feed(self, session: str, number: int, answer: str) -> Shown:
        history = self._messages.ModelMessagesTypeAdapter.validate_json(self._body(session))
        results = self._tools.DeferredToolResults(calls={f"{session}-{number}": answer})
        run = self._agent.run(message_history=history, deferred_tool_results=results, usage_limits=self._limits)
        return self._kept(session, await run)

    def _body(self, session: str) -> bytes:
        found: bytes = self._db.execute("SELECT body FROM history WHERE session = ?", (session,)).fetchone()[0]
        return found

    def _kept(self, session: str, result: Any) -> Shown:
        self._db.execute("INSERT OR REPLACE INTO history VALUES (?, ?)", (session, result.all_messages_json()))
        if isinstance(result.output, self._tools.DeferredToolRequests):
            return str(result.output.calls[0].args_as_dict()["prompt"])
        return "done", str(result.output)

    async def pending(self, session: str) -> Pending:
        last = json.loads(self._body(session))[-1]["parts"][0]
        return int(last["tool_call_id"].rpartition("-")[2]) if last["part_kind"] == "tool-call" else None

    async def mend(self, session: str) -> None:
        """One row cannot be torn."""


def peer() -> PydanticAiPeer:
    return PydanticAiPeer()
