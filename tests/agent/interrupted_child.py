"""A process that waits for a turn without asyncio, is interrupted by Ctrl-C, and goes on. Run by `test_sync`."""

from __future__ import annotations

import asyncio
import sys

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.sync import SyncRuntime
from holdfast.testing import ScriptedProvider


async def late(request: ModelRequest) -> str:
    print("asked", flush=True)
    await asyncio.sleep(1)
    return "Late."


def main(url: str, how: str) -> None:
    with SyncRuntime(url, provider=ScriptedProvider([late, "Next."])) as runtime:
        session = runtime.session("s-1").open()
        turn = session.turn("Hi").id("t-1")
        try:
            if how == "run":
                turn.run()
            else:
                for _ in turn.stream():
                    pass
        except KeyboardInterrupt:
            print("interrupted", session.read_view().running, flush=True)
        print(session.turn("Hi").id("t-1").run().text, flush=True)
        print(session.turn("More").run().text, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
