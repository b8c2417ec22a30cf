"""The benchmark of the MCP server: what a host waits for over stdio, beside the same calls inside one process."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from bench import Figure, Plan, Round, Target, UnavailableError, texts
from bench.engine import FOREVER, TEXT_BYTES, Host
from holdfast.alc.lua.source import lua_code
from holdfast.engine.holdfast import open_holdfast

CODE = f"""
local words = ("a question of about the same length as the others "):rep({TEXT_BYTES // 50})
for number = 1, ctx.pauses do
    alc.llm(("%08d "):format(number) .. words)
end
return "done"
"""

CALLS = 20
"""Runs, and answers, in one half of a round: few, so that both sides meet the same noise."""

WARM = 20
"""Answers that are not counted."""

ERAS = {"legacy": "2025 revisions", "2026-07-28": "2026-07-28"}


async def mcp_stdio(plan: Plan) -> list[Figure]:
    """Run to the first question, and answer to the next one: the official client and a server process, over stdio."""
    figures = []
    for era, title in ERAS.items():
        figures += await _compared(plan, era, title)
    return figures


async def _compared(plan: Plan, era: str, title: str) -> list[Figure]:
    starts: list[Round] = []
    answers: list[Round] = []
    async with (
        open_holdfast(f"sqlite:///{plan.directory / f'mcp-inside-{era}.db'}") as holdfast,
        _host(plan, era) as over_stdio,
    ):
        inside = Host(holdfast)

        async def start_inside() -> str:
            return await Host(holdfast, lua_code(CODE, name="code")).start(FOREVER)  # the server reads it each time too

        for start, feed in ((start_inside, inside.feed), over_stdio):
            await _timed(start, feed, WARM)
        before = await _timed(start_inside, inside.feed, CALLS)
        for number in range(1, plan.repeat + 1):
            found = await _timed(*over_stdio, CALLS)
            after = await _timed(start_inside, inside.feed, CALLS)
            starts.append(Round(found[0], before[0], after[0]))
            answers.append(Round(found[1], before[1], after[1]))
            figures = f"{found[0]:.2f} and {found[1]:.2f} ms, inside {after[0]:.2f} and {after[1]:.2f} ms"
            plan.say(f"mcp-stdio {title}: round {number}/{plan.repeat}: {figures}")
            before = after
    return [*_figures(f"mcp run, {title}", starts), *_figures(f"mcp answer, {title}", answers)]


def _figures(name: str, rounds: list[Round]) -> list[Figure]:
    more = [Round(r.value - statistics.mean((r.before or 0, r.after or 0))) for r in rounds]
    return [
        Figure(f"{name}: p50", "ms", rounds, "the same in one process"),
        Figure(f"{name}: more than inside", "ms", more, targets=[Target("value", "<=", 3)]),
    ]


async def _timed(
    start: Callable[[], Awaitable[str]], feed: Callable[[str, int], Awaitable[None]], calls: int
) -> tuple[float, float]:
    """Milliseconds (p50) from a start to the first question, and from an answer to the next question."""
    session_id, started, fed = "", [], []
    for _ in range(calls):
        began = time.perf_counter()
        session_id = await start()
        started.append(time.perf_counter() - began)
    for number in range(calls):
        began = time.perf_counter()
        await feed(session_id, number)
        fed.append(time.perf_counter() - began)
    return statistics.median(started) * 1000, statistics.median(fed) * 1000


@contextlib.asynccontextmanager
async def _host(
    plan: Plan, era: str
) -> AsyncIterator[tuple[Callable[[], Awaitable[str]], Callable[[str, int], Awaitable[None]]]]:
    """How a host of a server process starts a session and answers it."""
    try:
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
    except ImportError:
        raise UnavailableError("the package mcp is not installed") from None

    store = f"sqlite:///{plan.directory / f'mcp-stdio-{era}.db'}"
    args = ["-m", "holdfast.cli", "mcp", "--tools", "alc", "--store", store]
    env = {**os.environ, "HOLDFAST_HOME": str(plan.directory / "home")}
    given = texts(TEXT_BYTES)[::-1]
    async with Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=args, env=env)), mode=era
    ) as client:

        async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
            reply: dict[str, Any] | None = (await client.call_tool(tool, arguments)).structured_content
            if reply is None or reply["status"] != "needs_response":
                raise AssertionError(f"expected a question, got {reply}")
            return reply

        async def start() -> str:
            return str((await call("alc_run", {"code": CODE, "ctx": {"pauses": FOREVER}}))["session_id"])

        async def feed(session_id: str, number: int) -> None:
            await call("alc_continue", {"session_id": session_id, "response": given[number % len(given)]})

        yield start, feed


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {"mcp-stdio": mcp_stdio}
