"""A process that answers one query of a session: URL, session, query, answer as JSON. Says `ok`, or what was wrong."""

from __future__ import annotations

import asyncio
import json
import sys

from holdfast.agent.runtime import Runtime
from holdfast.core.errors import HoldfastError
from holdfast.store import open_store
from holdfast.testing.provider import ScriptedProvider


async def main(url: str, session_id: str, query: str, answer: str) -> None:
    async with Runtime(open_store(url), provider=ScriptedProvider([])) as runtime:
        runtime.tools.declare("approve", "Ask somebody.", {"type": "object"})
        session = await runtime.session(session_id).open()
        try:
            await session.answer(query, json.loads(answer))
        except HoldfastError as error:
            print(error.kind)
        else:
            print("ok")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
