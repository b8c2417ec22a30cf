"""The benchmarks of dispatchers: what Restate costs and brings, beside PostgreSQL alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import holdfast
from bench import Figure, Plan, Rate, Target, UnavailableError, interleave, latencies, texts
from holdfast import Context
from holdfast.core.events import Event, PausedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.restate_server import VARIABLE, RestateServer, find_restate, restate_server

PICKED_UP = 200
"""Sessions whose way to another process is timed, each started when the one before is done."""


@holdfast.strategy(name="bench-dispatch-asks")
async def asks(ctx: Context) -> None:
    """Asks its host again and again."""
    for number in itertools.count():
        await ctx.ask(texts(1_000)[number % 256])


@holdfast.strategy(name="bench-dispatch-model")
async def asks_model(ctx: Context) -> str:
    """Asks whichever process has a model."""
    return str(await ctx.llm("hello?"))


@contextlib.contextmanager
def _servers(plan: Plan) -> Iterator[tuple[str, RestateServer]]:
    program = find_restate(Path(__file__).parents[1] / "build" / "restate")
    if program is None:
        raise UnavailableError(f"no Restate server: `make restate` installs one, or set {VARIABLE}")
    from holdfast.testing.postgres_server import postgres_server

    directory = plan.directory / f"restate-{uuid4().hex[:8]}"
    with postgres_server(plan.directory, durable=True) as url, restate_server(program, directory) as engine:
        yield url, engine


# --- feeds ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _feeding(url: str, dispatch: str | None) -> AsyncIterator[Rate]:
    """Answers of a host, each made durable together with the next question."""
    async with open_holdfast(url, dispatch=dispatch) as hf:

        async def rate(seconds: float) -> float:
            event: Event = await hf.start(asks)
            done, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                assert isinstance(event, PausedEvent)
                event = await hf.feed(event.session_id, texts(1_000)[done % 256])
                done += 1
            took = time.perf_counter() - began
            await hf.cancel(event.session_id)
            return done / took

        yield rate


async def feeds(plan: Plan) -> list[Figure]:
    """Feeds that a host answers, with a dispatcher configured, beside the same without."""
    with _servers(plan) as (url, engine):
        async with _feeding(url, None) as alone, _feeding(url, f"restate+http://{engine.ingress}") as dispatched:
            rounds, _ = await interleave(plan, "dispatch-feeds", alone, dispatched)
    return [Figure("dispatch-feeds: round trips", "/s", rounds, "without a dispatcher", [Target("ratio", ">=", 0.95)])]


# --- pick-up -------------------------------------------------------------------------------------------


async def _picked_up(url: str, dispatch: str | None, more: str) -> list[float]:
    """Milliseconds from the wish to start a session until another process has ended it, sorted."""
    program = (
        f"from bench import dispatch; dispatch.worker_alone({url!r}, {f'{dispatch}{more}' if dispatch else None!r})"
    )
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe)
    try:
        assert worker.stdout is not None
        await worker.stdout.readline()
        async with open_holdfast(url, dispatch=dispatch, upkeep=Upkeep(on=False)) as front:
            took = []
            for _ in range(PICKED_UP + 10):
                began = time.perf_counter()
                event = await front.start(asks_model, llm="any", wait=0)
                await front.result(event.session_id, 60)
                took.append(1000 * (time.perf_counter() - began))
        return sorted(took[10:])
    finally:
        worker.kill()
        await worker.wait()


def worker_alone(url: str, dispatch: str | None) -> None:
    """Run in a process of its own: answer what others leave."""

    async def run() -> None:
        async with open_holdfast(url, dispatch=dispatch) as hf:
            hf.drive("llm", lambda query: "hello")
            print("ready", flush=True)
            await asyncio.get_running_loop().create_future()

    asyncio.run(run())


async def pick_up(plan: Plan) -> list[Figure]:
    """A session that another process takes up and ends, with Restate and with PostgreSQL alone."""
    with _servers(plan) as (url, engine):
        alone = await _picked_up(url, None, "")
        more = f"&listen=127.0.0.1:0&register={engine.admin}"
        dispatched = await _picked_up(url, f"restate+http://{engine.ingress}?service=bench", more)
    figures = latencies(plan, "started to ended", "dispatch-pick-up, PostgreSQL only", alone)
    return [*figures, *latencies(plan, "started to ended", "dispatch-pick-up, Restate", dispatched, 200)]


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {
    "dispatch-feeds": feeds,
    "dispatch-pick-up": pick_up,
}
