"""Every hostile strategy of the project is harmless as a cell: the turn goes on, and other sessions do not notice."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.testing.patience import soon
from tests.agent.rlm.helpers import cell, rlm
from tests.programs.sandbox.test_hostile import BOMBS

CELL_S = 0.5
"""Seconds that a cell may compute here."""

MORE = {
    "a mutation of what is read": "history.append(1)\nwhile True:\n    history += history",
    "a definition that loops when it is made again": "def f(n=[1] * 10 ** 9):\n    return n",
    "a value that takes long to be kept": "x = 0\nfor _ in range(30):\n    x = [x, x]",
    "many names": "for n in range(5000):\n    exec(f'name_{n} = {n}')",
    "the end of the interpreter": "raise SystemExit('x')",
    "locals": "locals()",
    "helpers of the runtime": "_holdfast_json = None\n_holdfast_json_of = 3\nx = [1]",
    "types that are hidden": "exec('str = 5\\nlist = None\\ntype = 3')\nx = (1, 2)",
}
"""What only a cell can do."""


async def test_hostile_cells_end_as_feedback_and_other_sessions_never_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("live_cell", "workers"):
        monkeypatch.setattr(f"holdfast.agent.rlm.{module}.CELL_S", CELL_S)
    codes = {**{name: code for name, (code, _) in BOMBS.items()}, **MORE}
    script = [cell("keep = [41]")]
    for code in codes.values():
        script += [cell(code), cell("print('kept', keep[0] + 1)\nfinish(0)")]
    others = 0
    async with rlm(*script, spec={"limits": {"iterations": None}}) as agent:
        bystander = await agent.runtime.session("bystander").standard().open()

        async def hostile() -> None:
            for _ in codes:
                await agent.turn()

        working = asyncio.create_task(hostile())
        while not working.done():
            assert (await soon(bystander.turn("still there?").run())).text
            others += 1
            await asyncio.sleep(0.05)
        await working
        told = [text for text in await agent.told() if "[VARIABLES]" not in text.split("\n")[0]]
    answers = [text for text in told if "kept 42" in text]
    assert len(answers) == len(codes), _broken(codes, told)
    assert others > 10


def _broken(codes: dict[str, str], told: list[str]) -> str:
    return "\n".join(text[:300] for text in told)
