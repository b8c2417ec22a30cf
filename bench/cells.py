"""The benchmarks of RLM mode: what a cell takes, what 300 variables cost, a waiting gather, and tokens sent."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from bench import Figure, Plan, Round, Target
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.machine.turn import ValueOutcome
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.session_builder import AgentState
from holdfast.agent.tools import Tool, tool
from holdfast.core.errors import HoldfastError
from holdfast.core.tokens import estimate_tokens
from holdfast.store.commits import Snapshot

TURNS = 40
"""Turns that a figure is made of."""

VARIABLES, RECORDS = 300, 55
"""Variables that a session holds, and records in each: about 3.5 KB of JSON."""

TEXT_BYTES = 10 * 1024 * 1024
"""Bytes of the text of the comparison."""


class CellsModel:
    """A model that follows a function of the request, and says nothing of what it costs."""

    id = "bench"
    model = "m-1"

    def __init__(self, reply: Callable[[ModelRequest], str], *, counts: bool = False) -> None:
        self._reply = reply
        self._counts = counts
        self.sent = 0
        """Tokens that it was sent, estimated, if it counts them: that takes longer than Holdfast does."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        if self._counts:
            self.sent += estimate_tokens(request.system)
            self.sent += sum(estimate_tokens(message.text) for message in request.messages)
        yield ModelReply(content=[TextBlock(self._reply(request))])


def cell(code: str) -> str:
    return f"```python\n{code}\n```"


async def finished_turn(session: AgentSession) -> None:
    """A turn whose one cell finishes it; `AssertionError` if it does not, as a cell that fails is asked for again."""
    result = await session.turn("go").run()
    if not isinstance(result.outcome, ValueOutcome) or len(result.messages) > 3:  # the input, the reply, the feedback
        raise AssertionError(f"the cell did not finish the turn: {result.messages[-1].text[:400]}")


async def _turn_ms(session: AgentSession, turns: int = TURNS) -> tuple[float, float]:
    """The median time of a turn that is one cell, and the median CPU time of this process for it, in milliseconds."""
    times, spent = [], []
    for _ in range(turns):
        began, before = time.perf_counter(), time.process_time()
        await finished_turn(session)
        times.append((time.perf_counter() - began) * 1000)
        spent.append((time.process_time() - before) * 1000)
    return sorted(times)[len(times) // 2], sorted(spent)[len(spent) // 2]


def filling() -> str:
    """Code that makes all variables, each with a value of its own."""
    made = f'v{{n}} = [dict(id={{n}} * 1000 + i, name="n" + str(i), tag=[1, 2], w=1.5) for i in range({RECORDS})]'
    return f"for n in range({VARIABLES}):\n    exec(f'{made}')"


def _stored(path: Path) -> int:
    """Bytes of all records and blobs in a store."""
    connection = sqlite3.connect(path)
    try:
        (records,) = connection.execute("SELECT sum(length(body)) FROM journal").fetchone()
        (blobs,) = connection.execute("SELECT coalesce(sum(length(data)), 0) FROM blobs").fetchone()
        return int(records) + int(blobs)
    finally:
        connection.close()


async def cells(plan: Plan) -> list[Figure]:
    """A cell that does next to nothing, alone and beside 300 variables of which it changes one."""
    trivial, trivial_cpu, held, held_cpu = list[Round](), list[Round](), list[Round](), list[Round]()
    reopened, reopened_cpu, all_read, leaves = list[Round](), list[Round](), list[Round](), list[Round]()
    for number in range(plan.repeat):
        path = plan.directory / f"cells-{number}.db"
        codes = {"code": "x = 1\nfinish(x)"}
        model = CellsModel(lambda request, codes=codes: cell(codes["code"]))  # type: ignore[misc]
        async with Runtime(f"sqlite:///{path}", provider=model) as runtime:
            session = await runtime.session("s").rlm().open()
            await _turn_ms(session, 5)
            wall, cpu = await _turn_ms(session)
            trivial.append(Round(wall))
            trivial_cpu.append(Round(cpu))
            codes["code"] = f"{filling()}\nfinish(1)"
            await finished_turn(session)
            codes["code"] = "v7[0]['w'] += 1\nfinish(len(v9))"
            await finished_turn(session)
            stored = _stored(path)
            more, more_cpu = await _turn_ms(session)
            held.append(Round(more - wall))
            held_cpu.append(Round(more_cpu - cpu))
            leaves.append(Round((_stored(path) - stored) / TURNS))
        async with Runtime(f"sqlite:///{path}", provider=model) as runtime:
            began, before = time.perf_counter(), time.process_time()
            session = await runtime.session("s").open()
            await finished_turn(session)
            reopened.append(Round((time.perf_counter() - began) * 1000))
            reopened_cpu.append(Round((time.process_time() - before) * 1000))
            codes["code"] = f"finish(sum([{', '.join(f'len(v{n})' for n in range(VARIABLES))}]))"
            began = time.perf_counter()
            await finished_turn(session)
            all_read.append(Round((time.perf_counter() - began) * 1000))
    return [
        Figure("a turn of one trivial cell, SQLite", "ms", trivial, targets=[Target("value", "<=", 5)]),
        Figure("… CPU time", "ms", trivial_cpu, targets=[Target("value", "<=", 5)]),
        Figure("more with 300 variables, one changed", "ms", held, targets=[Target("value", "<=", 3)]),
        Figure("… CPU time", "ms", held_cpu, targets=[Target("value", "<=", 3)]),
        Figure("bytes stored a turn, one of 300 changed", "bytes", leaves, targets=[Target("value", "<=", 6_000)]),
        Figure("first turn after reopening, 2 of 300 read", "ms", reopened, targets=[Target("value", "<=", 25)]),
        Figure("… CPU time", "ms", reopened_cpu, targets=[Target("value", "<=", 25)]),
        Figure("a turn that reads all 300", "ms", all_read, targets=[Target("value", "<=", 1_000)]),
    ]


TOGETHER, ANSWERED = 50, 20
"""Calls of one gather, and those that have an answer when its process ends."""


def _waits(held: asyncio.Event, answered: int) -> Tool:
    """A tool of which so many calls have an answer at once."""

    @tool(recovery="safe")
    async def wait(n: int) -> int:
        """Wait."""
        if n >= answered:
            await held.wait()
        return n

    return wait


async def waiting(plan: Plan) -> list[Figure]:
    """A gather over 50 calls with 300 variables held, 20 of them answered: its stored snapshot, and going on from it
    with the next answer, until it waits again."""
    sizes, resumed, resumed_cpu = list[Round](), list[Round](), list[Round]()
    gathering = f"finish([len(x), sum(await asyncio.gather(*[wait_async(n) for n in range({TOGETHER})]))])"
    for number in range(plan.repeat):
        url = f"sqlite:///{plan.directory}/waiting-{number}.db"
        codes = {"code": f"{filling()}\nfinish(1)"}
        model = CellsModel(lambda request, codes=codes: cell(codes["code"]))  # type: ignore[misc]
        held = asyncio.Event()
        async with Runtime(url, provider=model, tools=[_waits(held, ANSWERED)]) as runtime:
            session = await runtime.session("s").rlm().open()
            await finished_turn(session)
            codes["code"] = f"import asyncio\nx = v3\n{gathering}"
            working = asyncio.create_task(session.turn("go").id("t").run())
            while len(await _pending(runtime)) != TOGETHER - ANSWERED:  # noqa: ASYNC110 - other tables tell nobody
                await asyncio.sleep(0.01)
            sizes.append(Round(float(len((await _snapshot(runtime)).data))))
        with contextlib.suppress(HoldfastError, asyncio.CancelledError):
            await working  # its runtime is gone
        async with Runtime(url, provider=model, tools=[_waits(held, ANSWERED + 1)]) as runtime:
            before = await _snapshot(runtime)
            began, began_cpu = time.perf_counter(), time.process_time()
            session = await runtime.session("s").open()
            working = asyncio.create_task(session.turn("go").id("t").run())
            while (await _snapshot(runtime)).position == before.position:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            resumed.append(Round((time.perf_counter() - began) * 1000))
            resumed_cpu.append(Round((time.process_time() - began_cpu) * 1000))
            held.set()
            result = await working
            assert result.value == [RECORDS, sum(range(TOGETHER))], result.outcome
    return [
        Figure("snapshot of a gather over 50 calls", "bytes", sizes, targets=[Target("value", "<=", 64 * 1024)]),
        Figure("reopened, and gone on with the next answer", "ms", resumed, targets=[Target("value", "<=", 50)]),
        Figure("… CPU time", "ms", resumed_cpu, targets=[Target("value", "<=", 50)]),
    ]


async def _snapshot(runtime: Runtime) -> Snapshot:
    found = await runtime.mount.store.snapshot("s")
    assert found is not None
    return found


async def _pending(runtime: Runtime) -> list[str]:
    """The tool calls that a session waits for."""
    session = await runtime.mount.holdfast.session("s")
    return [asked for asked, pending in session.pending.items() if pending.query.kind == "tool"]


async def tokens(plan: Plan) -> list[Figure]:
    """Tokens sent for one task on 10 MB of text: in cells, and with the text in the conversation piece by piece."""
    line = "2026-11-17 the request took a while and then it was answered\n"
    text = line * (TEXT_BYTES // len(line)) + "NEEDLE 4711\n"
    steps = ["hits = [line for line in text.splitlines() if 'NEEDLE' in line]\nprint(hits)", "finish(hits[0])"]

    def in_cells(request: ModelRequest) -> str:
        return cell(steps[sum(message.role == "assistant" for message in request.messages)])

    sent, plain = [], []
    for number in range(plan.repeat):
        model = CellsModel(in_cells, counts=True)
        async with Runtime("memory:", provider=model) as runtime:
            session = await runtime.session(f"s{number}").rlm().bind("text", text).open()
            await session.turn("Find the needle.").run()
        sent.append(Round(float(model.sent)))
        reader = CellsModel(lambda request: "nothing here", counts=True)
        async with Runtime("memory:", provider=reader) as runtime:
            size = 256 * 1024
            for part in range(0, len(text), size):
                session = await runtime.session(f"p{part}").open()
                await session.turn(f"Find the needle.\n{text[part : part + size]}").run()
        plain.append(Round(float(reader.sent)))
    return [
        Figure("tokens sent for 10 MB, in cells", "tokens", sent, targets=[Target("value", "<=", 10_000)]),
        Figure("tokens sent for 10 MB, in the conversation", "tokens", plain),
    ]


SEEDED, TURNS_OF_LASH = 36, 12
"""Messages that are there before, and turns of one run, as in the benchmarks of lash."""

_SENTENCES = "[f'Sentence number {n} says something about it.' for n in range(45)]"

_GLOBALS = (
    "table = {f'k{n}': {'id': n, 'name': f'name {n}', 'tags': ['a', 'b']} for n in range(24)}\n"
    f"sentences = {_SENTENCES}\ntext = ''\nfor n in range(40):\n    text += f'step {{n}} '\n"
    "nested = {'a': {'b': {'c': [1, 2, 3]}}}\nthree = [table['k0'], table['k1'], table['k2']]\nfinish(len(text))"
)
_LARGE_PRINT = (
    "text = '\\n'.join(f'{n} ' + 'x' * 72 for n in range(70))\n"
    "payload = [{'id': n, 'text': text} for n in range(16)]\nprint(echo(payload))\nfinish(1)"
)

LASH = {
    "rlm": ("finish('done')", 506.1 / 12),
    "rlm_tool_calls": ("\n".join(f"r{n} = echo('{n}')" for n in range(4)) + "\nfinish([r0, r1, r2, r3])", 346.0 / 12),
    "rlm_globals": (_GLOBALS, 530.8 / 12),
    "rlm_large_print": (_LARGE_PRINT, 658.0 / 12),
}
"""Cells like those of lash's benchmarks, with the ceiling of a turn on lash's machine in ms."""


async def beside_lash(plan: Plan) -> list[Figure]:
    """Turns like those of lash's benchmarks. Its figures are ceilings on another machine: no comparison of the two."""

    def echo(value: object) -> object:
        """Give it back."""
        return value

    figures = []
    for name, (code, ceiling) in LASH.items():
        walls, cpus = [], []
        for number in range(plan.repeat):
            model = CellsModel(lambda request, code=code: cell(code))  # type: ignore[misc]
            path = plan.directory / f"{name}-{number}.db"
            async with Runtime(f"sqlite:///{path}", provider=model, tools=[echo]) as runtime:
                said = [
                    AgentMessage("user" if n % 2 == 0 else "assistant", [TextBlock(f"Sentence {n} of the chat.")])
                    for n in range(SEEDED)
                ]
                state = AgentState(session_id="s", messages=said)
                session = await runtime.session("s").rlm().open_with_state(state)
                await finished_turn(session)
                wall, cpu = await _turn_ms(session, TURNS_OF_LASH)
                walls.append(Round(wall))
                cpus.append(Round(cpu))
        figures += [
            Figure(f"{name}, a turn", "ms", walls, targets=[Target("value", "<=", round(ceiling, 1))]),
            Figure("… CPU time", "ms", cpus),
        ]
    return figures


BENCHMARKS = {"cells": cells, "cells-lash": beside_lash, "cells-waiting": waiting, "cells-tokens": tokens}
