"""A process of the tests with several: it opens the engine on a store, and does what it is told, line by line.

A line is a call as JSON, `[number, name, arguments]`; the reply is `[number, outcome]`, where an error that the engine
raised is told by its kind. Effects write a line to the ledger before they begin, so that their runs can be counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Attempt, Context, Holdfast, QueryFailedError
from holdfast.core.errors import HoldfastError
from holdfast.core.records import type_of
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.kind import PROMPT_MS

# --- the programs ---------------------------------------------------------------------------------------


@holdfast.strategy(name="processes-helped")
async def helped(ctx: Context) -> Any:
    """A driven tool, and a question to anyone, at the same time."""
    return list(await asyncio.gather(ctx.llm("anyone?"), called(ctx)))


@holdfast.strategy(name="processes-called")
async def called(ctx: Context) -> Any:
    try:
        return await ctx.tool("work", ms=ctx.get("ms", 0))
    except QueryFailedError as error:
        return error.code


@holdfast.strategy(name="processes-questions")
async def questions(ctx: Context) -> Any:
    return [await ctx.llm(f"question {number}") for number in range(ctx.get("count", 3))]


@holdfast.strategy(name="processes-thinker")
async def thinker(ctx: Context) -> Any:
    """Takes so long over its first answer that its owner lets it think in a thread; the second query stays open."""
    time.sleep(1.5 * PROMPT_MS / 1000)  # noqa: ASYNC251 - longer than is prompt
    first, second = (asyncio.ensure_future(ctx.llm(which)) for which in ("first", "second"))
    await first
    time.sleep(ctx.get("ms", 0) / 1000)  # noqa: ASYNC251
    return [await first, await second]


@holdfast.strategy(name="processes-sleeper")
async def sleeper(ctx: Context) -> Any:
    await ctx.sleep(ctx.get("ms", 0) / 1000)
    return "woken"


# --- the process ----------------------------------------------------------------------------------------


class Child:
    """The engine in this process, and what can be called from outside."""

    def __init__(self, hf: Holdfast, ledger: Path) -> None:
        self.hf = hf
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def start(self, program: str, **options: Any) -> Any:
        return (await self.hf.start(program, **options)).to_json()

    async def feed(self, session: str, answers: Any, **options: Any) -> Any:
        return (await self.hf.feed(session, answers, **options)).to_json()

    async def cancel(self, session: str, reason: str) -> Any:
        return (await self.hf.cancel(session, reason)).to_json()

    async def result(self, session: str, timeout: float) -> Any:  # noqa: ASYNC109
        return await self.hf.result(session, timeout)

    async def watch(self, session: str) -> Any:
        return [[entry.position, type_of(entry.record)] async for entry in self.hf.watch(session)]

    async def drive(self, what: str, **options: Any) -> None:
        """Drive `work`, or the model: each takes as long as it is asked to."""

        async def work(ms: int, attempt: Attempt) -> str:
            self._note(attempt)
            await asyncio.sleep(ms / 1000)
            return f"done by {os.getpid()}"

        async def model(query: Any, attempt: Attempt) -> str:
            self._note(attempt)
            await asyncio.sleep(options["ms"] / 1000)
            return f"answered by {os.getpid()}"

        known = {key: value for key, value in options.items() if key != "ms"}
        self.hf.drive(what, work if what == "work" else model, **known)

    def _note(self, attempt: Attempt) -> None:
        line = f"{attempt.session_id} {attempt.query_id} {attempt.number} {os.getpid()}\n"
        os.write(self._ledger, line.encode())


async def serve(url: str, ledger: Path, options: dict[str, Any]) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    upkeep = Upkeep(on=options.pop("upkeep", True))
    async with holdfast.open(url, upkeep=upkeep, **options) as hf, asyncio.TaskGroup() as calls:
        child = Child(hf, ledger)
        _tell(0, "ready")
        while line := await lines.readline():
            calls.create_task(_call(child, *json.loads(line)))


async def _call(child: Child, number: int, name: str, arguments: dict[str, Any]) -> None:
    try:
        _tell(number, await getattr(child, name)(**arguments))
    except HoldfastError as error:
        _tell(number, {"refused": error.kind, "why": str(error)})
    except Exception:
        _tell(number, {"broken": traceback.format_exc()})


def _tell(number: int, outcome: Any) -> None:
    print(json.dumps([number, outcome]), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
