"""Holdfast as a peer: an adapter for the harness that other runtimes are measured with.

    python bench/peer_holdfast.py --workload DIRECTORY --phase single,concurrent --repeat 3 --db FILE_OR_URL

The directory holds the harness, `workload.py`; all other options are its own. `--variant hot` keeps the programs of
paused sessions in memory (the default), `--variant cold` rebuilds them from the journal at every feed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, TypeAlias

import holdfast
from holdfast.core.events import CompletedEvent, Event, PausedEvent
from holdfast.core.queries import LlmQuery
from holdfast.engine.holdfast import open_holdfast

DIRECTORY = "HOLDFAST_BENCH_WORKLOAD"
"""The environment variable by which the phases, which run in processes of their own, find the harness."""

Shown: TypeAlias = str | tuple[str, str]
"""A prompt, or `("done", digest)`."""


def _workload() -> Any:
    if "--workload" in sys.argv:
        at = sys.argv.index("--workload")
        os.environ[DIRECTORY] = os.path.abspath(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    if DIRECTORY not in os.environ:
        sys.exit("say where workload.py is: --workload DIRECTORY")
    sys.path.insert(0, os.environ[DIRECTORY])
    return import_module("workload")


W = _workload()


@holdfast.strategy(name="peer")
async def program(ctx: holdfast.Context) -> str:
    """The program that every peer runs."""
    log = []
    for number in range(ctx["pauses"]):
        W.side_effect(ctx.session_id, number)
        log.append(await ctx.llm(W.prompt(ctx.session_id, number)))
    digest: str = W.digest(log)
    return digest


class Adapter:
    """What the harness calls."""

    name = "holdfast"

    def __init__(self, variant: str) -> None:
        self._hot_programs = 0 if variant == "cold" else 1_000
        self._holdfast: holdfast.Holdfast

    async def open(self, db: str) -> None:
        url = db if W.is_pg(db) else f"sqlite:///{os.path.abspath(db)}"
        self._holdfast = open_holdfast(url, hot_programs=self._hot_programs)
        await self._holdfast.__aenter__()

    async def close(self) -> None:
        await self._holdfast.__aexit__(None, None, None)

    async def start(self, session_id: str, pauses: int) -> Shown:
        return _shown(await self._holdfast.start(program, ctx={"pauses": pauses}, id=session_id))

    async def feed(self, session_id: str, number: int, answer: str) -> Shown:
        return _shown(await self._holdfast.feed(session_id, {f"q-{number}": answer}))

    async def peek(self, session_id: str) -> tuple[int, str] | tuple[str, str]:
        """What is pending, from the journal alone."""
        status = await self._holdfast.status(session_id)
        if status["state"] == "terminal":
            return "done", status["outcome"]["result"]
        if not status["pending"]:
            return "torn", str(status["phase"])
        pending = status["pending"][0]
        return int(pending["query_id"].removeprefix("q-")), pending["prompt"]

    async def nudge(self, session_id: str) -> None:
        """Go on with a session whose answer was kept, and whose next question was not."""
        await self._holdfast.resume(session_id)


def _shown(event: Event) -> Shown:
    match event:
        case PausedEvent(queries=[LlmQuery(prompt=prompt)]):
            return prompt
        case CompletedEvent(result=result):
            return "done", result
        case _:
            raise AssertionError(f"unexpected: {event.to_json()}")


if __name__ == "__main__":
    W.main(Adapter, "hot")
