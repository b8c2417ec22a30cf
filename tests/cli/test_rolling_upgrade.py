"""A rolling upgrade: two versions of the code side by side, and the older one drained while it is at work."""

from __future__ import annotations

import asyncio
import collections
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs import registry
from holdfast.testing.patience import soon, until_so
from tests.cli.helpers import Home
from tests.cli.test_worker import Worker

SESSIONS, STEPS, LAST_OF_OLD = 4, 6, 2

CODE = """
import asyncio, pathlib
import holdfast

LAST, STEPS = 2, 6
HERE = pathlib.Path(__file__).parent

async def work(session: str, step: int) -> int:
    with (HERE / "ledger").open("a") as ledger:
        ledger.write(f"{session} {step} {VERSION}\\n")
    while VERSION == 1 and step == LAST and not (HERE / "go-on").exists():
        await asyncio.sleep(0.01)
    return VERSION

@holdfast.strategy(name="rolling-steps")
async def steps(ctx):
    return [await ctx.tool("work", session=ctx.get("session"), step=step) for step in range(STEPS)]

VERSION = """


@contextmanager
def worker(home: Home, version: int) -> Iterator[Worker]:
    file = home.folder / f"version_{version}.py"
    file.write_text(f"{CODE}{version}\n")
    process = home.background("--json", "worker", "--serve", str(file), "--tool", f"{file}:work")
    try:
        running = Worker(process)
        running.until(lambda line: line["type"] == "ready")
        yield running
    finally:
        process.kill()
        process.communicate()


@holdfast.strategy(name="rolling-steps")
async def steps(ctx: holdfast.Context) -> Any:
    raise AssertionError("this process only starts it")


async def start(home: Home) -> None:
    async with holdfast.open(home.url, upkeep=Upkeep(on=False), service="front") as hf:
        for number in range(SESSIONS):
            name = f"s-{number}"
            await hf.start(steps, id=name, ctx={"session": name}, service="default", wait=0)


async def results(home: Home) -> list[Any]:
    async with holdfast.open(home.url, upkeep=Upkeep(on=False), service="front") as hf:
        return [await soon(hf.result(f"s-{number}")) for number in range(SESSIONS)]


def test_the_old_version_finishes_its_calls_and_the_new_one_goes_on(home: Home) -> None:
    home.serve_nothing()
    ledger = home.folder / "ledger"
    registry._registered["rolling-steps"] = steps
    asyncio.run(start(home))
    with worker(home, 1) as old:
        until_so(lambda: ledger.exists() and ledger.read_text().count(f" {LAST_OF_OLD} 1\n") == SESSIONS)
        (row,) = until_so(lambda: home.json("workers")["workers"])
        with worker(home, 2) as new:
            home.ok("workers", "drain", row["name"], "--within", "60")
            old.until(lambda line: line["type"] == "draining")
            (home.folder / "go-on").touch()
            assert old.ended() == 0
            expected = [1] * (LAST_OF_OLD + 1) + [2] * (STEPS - LAST_OF_OLD - 1)
            assert asyncio.run(results(home)) == [expected] * SESSIONS
            new.signal(signal.SIGTERM)
            assert new.ended() == 0
    runs = collections.Counter(tuple(line.split()[:2]) for line in ledger.read_text().splitlines())
    assert set(runs.values()) == {1}
    assert len(runs) == SESSIONS * STEPS
