"""Holdfast: a native strategy that asks a model, answered with `feed`."""

from __future__ import annotations

from pathlib import Path

import holdfast
from bench.peers import TORN, Pending, Shown, digest, question, ran
from holdfast.core.events import CompletedEvent, Event, PausedEvent
from holdfast.core.queries import LlmQuery


@holdfast.strategy(name="bench-peer")
async def program(ctx: holdfast.Context) -> str:
    """The program that every peer runs."""
    answers = []
    for number in range(ctx["pauses"]):
        ran(ctx.session_id, number)
        answers.append(await ctx.llm(question(ctx.session_id, number)))
    return digest(answers)


class HoldfastPeer:
    """See `Peer`."""

    async def open(self, db: Path) -> None:
        self._holdfast = holdfast.open(f"sqlite:///{db}")
        await self._holdfast.__aenter__()

    async def close(self) -> None:
        await self._holdfast.__aexit__(None, None, None)

    async def start(self, session: str, pauses: int) -> Shown:
        return _shown(await self._holdfast.start(program, ctx={"pauses": pauses}, id=session))

    async def feed(self, session: str, number: int, answer: str) -> Shown:
        return _shown(await self._holdfast.feed(session, {f"q-{number}": answer}))

    async def pending(self, session: str) -> Pending:
        status = await self._holdfast.status(session)
        if status["state"] == "terminal":
            return None
        waiting = status["pending"]
        return int(waiting[0]["query_id"].removeprefix("q-")) if waiting else TORN

    async def mend(self, session: str) -> None:
        await self._holdfast.resume(session)


def _shown(event: Event) -> Shown:
    match event:
        case PausedEvent(queries=[LlmQuery(prompt=prompt)]):
            return prompt
        case CompletedEvent(result=result):
            return "done", str(result)
        case _:
            raise AssertionError(f"unexpected: {event.to_json()}")


def peer() -> HoldfastPeer:
    return HoldfastPeer()
