"""`cells-instructions`: the work of a turn of one cell, of 300 held variables, and of reopening a session with them.

Only this process is counted: what the interpreter computes happens in a worker, and is the same in every version of it.
"""

from __future__ import annotations

import asyncio

from bench import Figure, Plan
from bench.callgrind import count, instructions, mark, require_callgrind
from bench.cells import CellsModel, cell, filling, finished_turn
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.engine.upkeep import Upkeep

TURNS = 26
"""Turns that are counted: one checkpoint is made in them."""

TRIVIAL = "x = 1\nfinish(x)"
CHANGES_ONE = "v7[0]['w'] += 1\nfinish(len(v9))"

TRIVIAL_LIMIT, HELD_LIMIT, REOPEN_LIMIT = 10_000_000, 6_000_000, 50_000_000
"""Instructions of a trivial turn, more of them with 300 variables, and of the first turn after reopening: those that a
machine of two million a millisecond does in 5, 3 and 25 ms."""


async def cells_instructions(plan: Plan) -> list[Figure]:
    """A turn of one trivial cell; one that changes one of 300 variables; the first one after reopening."""
    require_callgrind()
    path = str(plan.directory / "cells-instructions.db")
    trivial, _, held = await asyncio.to_thread(count, plan, "cells_instructions", "take_turns", path)
    (reopened,) = await asyncio.to_thread(count, plan, "cells_instructions", "reopen", path)
    name = "cells-instructions"
    return [
        instructions(plan, f"{name}: a turn of one trivial cell", trivial / TURNS, TRIVIAL_LIMIT),
        instructions(plan, f"{name}: more with 300 variables, one changed", (held - trivial) / TURNS, HELD_LIMIT),
        instructions(plan, f"{name}: first turn after reopening, 2 of 300 read", reopened, REOPEN_LIMIT),
    ]


def take_turns(path: str) -> None:
    """Run in a process of its own: trivial turns, then turns beside 300 variables."""

    async def run() -> None:
        model = _Model(TRIVIAL)
        async with _open(path, model) as runtime:
            session = await runtime.session("s").rlm().open()
            await _turns(session, 5)
            mark()
            await _turns(session, TURNS)
            mark()
            model.code = f"{filling()}\nfinish(1)"
            await _turns(session, 1)
            model.code = CHANGES_ONE
            await _turns(session, 5)
            mark()
            await _turns(session, TURNS)
            mark()

    asyncio.run(run())


def reopen(path: str) -> None:
    """Run in a process of its own: the first turn of the session, after all imports were done for another one."""

    async def run() -> None:
        async with _open(f"{path}.other", _Model(TRIVIAL)) as runtime:
            await _turns(await runtime.session("other").rlm().open(), 2)
        async with _open(path, _Model(CHANGES_ONE)) as runtime:
            mark()
            await _turns(await runtime.session("s").open(), 1)
            mark()

    asyncio.run(run())


class _Model(CellsModel):
    def __init__(self, code: str) -> None:
        super().__init__(lambda request: cell(self.code))
        self.code = code


def _open(path: str, model: CellsModel) -> Runtime:
    return Runtime(f"sqlite:///{path}", provider=model, upkeep=Upkeep(on=False))


async def _turns(session: AgentSession, turns: int) -> None:
    for _ in range(turns):
        await finished_turn(session)


BENCHMARKS = {"cells-instructions": cells_instructions}
