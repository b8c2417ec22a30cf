"""A process of the tests that holds sessions: it opens a store, takes leases, says so, and stays until it is killed."""

from __future__ import annotations

import asyncio
import sys

from holdfast.store import open_store
from holdfast.testing.sessions import begin


async def main(url: str, prefix: str, count: int) -> None:
    async with open_store(url) as store:
        for number in range(count):
            await begin(store, f"{prefix}-{number}", owner=prefix)
        print("held", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
