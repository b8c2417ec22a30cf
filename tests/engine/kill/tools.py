"""The tools of the kill tests: receivers of effects, which find in the ledger the keys they have seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast import Attempt, Holdfast, NotDone
from tests.engine.kill.ledger import Ledger, read_ledger
from tests.engine.kill.programs import Gate


class World:
    """What lies outside a session: receivers of effects, which remember the keys they have seen in the ledger."""

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self._directory = directory
        self._ledger = ledger
        self.held = Gate()

    def drive(self, hf: Holdfast) -> None:
        for name in ("never", "safe", "idempotent", "ask"):
            hf.drive(name, self._tool(name), recovery=name)
        hf.drive("confirm", self._tool("confirm"), recovery="confirm", probe=self._probe)
        hf.drive("queued", self._tool("queued"), recovery="never", concurrency=1)
        hf.drive("held", self._tool("held"), recovery="safe")
        hf.drive("late", self._tool("late"), recovery="idempotent")

    def _tool(self, tool: str) -> Callable[..., Awaitable[str]]:
        async def effect(what: str, attempt: Attempt) -> str:
            self._ledger.note(
                "effect", attempt.session_id, query=attempt.query_id, tool=tool, key=attempt.key, number=attempt.number
            )
            if tool in ("held", "late"):
                await self.held.wait()
            return did(tool, what)

        return effect

    def _probe(self, attempt: Attempt) -> str | NotDone:
        seen = read_ledger(self._directory)
        done = any(line["what"] == "effect" and line["key"] == attempt.key for line in seen)
        return did("confirm", "once") if done else NotDone()


def did(tool: str, what: str) -> str:
    return f"{tool} did {what}"
