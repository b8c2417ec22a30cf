"""A process whose sessions are watched by others: URL, how many sessions, how many turns. Begins when told to."""

from __future__ import annotations

import asyncio
import sys

from holdfast.agent.runtime import Runtime
from holdfast.store import open_store
from tests.agent.helpers import add
from tests.agent.test_reconnect import model


async def main(url: str, sessions: int, turns: int) -> None:
    async with Runtime(open_store(url), provider=model(), model="m-1", tools=[add]) as runtime:
        opened = [await runtime.session(f"s-{number}").open() for number in range(sessions)]
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(turns):
            for session in opened:
                await session.turn(f"Question {number}").id(f"t-{number}").run()
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
