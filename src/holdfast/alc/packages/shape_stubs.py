"""The type stubs of the package `alc_shapes`, as the package itself writes them, run in the sandbox."""

from __future__ import annotations

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.source import lua_code
from holdfast.alc.packages.run_meta import DEADLINE_S
from holdfast.core.events import CompletedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep

_CODE = """
local shapes = require("alc_shapes")
return require("alc_shapes.luacats").gen(shapes)
"""


async def generated_stubs() -> str | None:
    """The stubs of the installed package; None if it cannot write any."""
    async with open_holdfast("memory:", upkeep=Upkeep(on=False)) as holdfast:
        holdfast.add_kind(LuaKind(deadline_s=DEADLINE_S))
        event = await holdfast.start(lua_code(_CODE, name="shape-stubs"))
    return event.result if isinstance(event, CompletedEvent) and isinstance(event.result, str) else None
