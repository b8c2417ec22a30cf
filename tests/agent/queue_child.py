"""A process with agents that does what it is told, line by line: sends items, works them, stops turns.

Run as `python -m agent.queue_child URL OPTIONS`. A line in is `[number, what, arguments]`, a line out
`[number, outcome]`; the outcome of what was refused is `{"error": kind}`. What its model does is said in what it is
asked:

    hang    it does not answer
    call    it calls the tool `hang`, which does not return
    approve it calls the tool `ask_first`, which somebody has to agree to
    else    it says the same again
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import msgspec

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.core.errors import HoldfastError
from holdfast.store import open_store
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call


async def answer(request: ModelRequest) -> ScriptStep:
    last = request.messages[-1]
    asked = next(message.text for message in reversed(request.messages) if message.role == "user")
    if asked.startswith("hang"):
        await asyncio.Event().wait()
    if asked.startswith("call") and last.role != "tool":
        return tool_call("hang")
    if asked.startswith("approve") and last.role != "tool":
        return tool_call("ask_first")
    return f"re: {asked}"


async def hang() -> None:
    """Does not return."""
    await asyncio.Event().wait()


def ask_first() -> str:
    """Somebody has to agree to it."""
    return "done"


class Child:
    """What can be asked of the process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._working: asyncio.Task[None] | None = None

    async def open(self, session: str) -> None:
        await self._runtime.session(session).open()

    async def enqueue(self, session: str, text: str, id: str, **options: Any) -> Any:
        builder = (await self._runtime.session(session).open()).enqueue(text).id(id)
        for name, value in options.items():
            builder = getattr(builder, name)(value)
        return await builder

    async def cancel(self, session: str, **options: Any) -> Any:
        return await (await self._runtime.session(session).open()).cancel(**options)

    async def wait_for(self, session: str, item: str) -> Any:
        return await (await self._runtime.session(session).open()).wait_for(item, timeout=HANG_S)

    async def turn(self, session: str, text: str, id: str) -> Any:
        opening = self._runtime.session(session).approval(Approval(rules=[Rule.confirm("ask_first")]))
        return await (await opening.open()).turn(text).id(id).run()

    async def work(self) -> None:
        """Work until the process ends."""
        worker = self._runtime.work()
        self._working = asyncio.create_task(worker.run())
        await asyncio.sleep(0)


async def main(url: str, options: str) -> None:
    said = sys.stdout
    provider = ScriptedProvider([answer], loop=True)
    runtime = Runtime(open_store(url), provider=provider, model="m-1", tools=[hang, ask_first], **json.loads(options))
    async with runtime:
        child = Child(runtime)
        under_way: set[asyncio.Task[None]] = set()

        async def do(number: int, what: str, arguments: dict[str, Any]) -> None:
            try:
                outcome = msgspec.to_builtins(await getattr(child, what)(**arguments))
            except HoldfastError as error:
                outcome = {"error": error.kind}
            print(json.dumps([number, outcome]), file=said, flush=True)

        print(json.dumps([0, None]), file=said, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            task = asyncio.create_task(do(*json.loads(line)))
            under_way.add(task)
            task.add_done_callback(under_way.discard)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
