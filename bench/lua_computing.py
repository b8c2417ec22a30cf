"""Computing in Lua, in instructions counted by callgrind: agent-based models in a worker, beside plain Lua 5.4."""

from __future__ import annotations

import asyncio
from pathlib import Path

import lupa.lua54 as lua

from bench import Figure, Plan, Round, Target
from bench.callgrind import count, mark, require_callgrind
from holdfast.alc.lua.frames import VmSpec, VmWaking
from holdfast.alc.lua.outcomes import step_of
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.stopper import Stopper
from holdfast.alc.lua.vm import Vm
from holdfast.core.values import encode
from holdfast.programs.contract import ReturnStep

MODELS = Path(__file__).parent / "models"
SEED = 7


async def lua_computing(plan: Plan) -> list[Figure]:
    """What each model takes in a worker's VM, beside what it takes in a bare one with the same random numbers."""
    require_callgrind()
    figures = []
    for model in sorted(MODELS.glob("*.lua")):
        (plain,) = await asyncio.to_thread(count, plan, "lua_computing", "run_plain", model.stem)
        (ours,) = await asyncio.to_thread(count, plan, "lua_computing", "run_in_worker", model.stem)
        name = f"lua-computing: {model.stem}"
        plan.say(f"{name}: {ours:,} instructions, {ours / plain:.2f} of plain Lua's")
        rounds = [Round(ours, before=plain, after=plain)]
        figures.append(Figure(name, "instructions", rounds, floor="plain Lua", targets=[Target("ratio", "<=", 1.5)]))
    return figures


def run_plain(model: str) -> None:
    """Run in a process of its own: a model in a bare VM."""
    runtime = lua.LuaRuntime(encoding=None)
    runtime.globals()[b"math"][b"randomseed"](SEED)
    begin = runtime.eval(b"function(code) return coroutine.wrap(load(code)) end")
    program = begin(_code(model).encode())
    mark()
    program()
    mark()


def run_in_worker(model: str) -> None:
    """Run in a process of its own: a model as a worker runs it."""
    config = {"name": model, "code": _code(model), "ctx": None, "seed": SEED, "at": 0}
    limits = {"deadline_s": 3600.0, "memory_mib": 64, "dirs": {}}
    spec = VmSpec(encode(config | limits), Roots(), is_trusted=False, memory_mib=64, scenarios="/nowhere")
    vm = Vm(spec, Stopper.found())
    mark()
    outcome = vm.step(VmWaking(0, 0, 0))
    mark()
    assert isinstance(step_of(outcome), ReturnStep), outcome


def _code(model: str) -> str:
    return (MODELS / f"{model}.lua").read_text()


BENCHMARKS = {"lua-computing": lua_computing}
