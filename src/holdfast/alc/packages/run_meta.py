"""Metadata that cannot be read without running the package: each is asked in a sandboxed session of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.meta import PackageMeta, docstring, read_source
from holdfast.alc.lua.packages import Package, Roots
from holdfast.alc.lua.source import KIND, LuaSource
from holdfast.alc.packages.package_list import PackageList
from holdfast.core.events import CompletedEvent, Event
from holdfast.core.records import Program
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep

DEADLINE_S = 2.0
"""Seconds that a package may take to be loaded: many times what one needs, and a list is not to wait longer."""

_CODE = """
local found = require(ctx.name)
if type(found) ~= "table" then return {} end
local meta = {}
if type(found.meta) == "table" then
    for key, value in pairs(found.meta) do
        if type(key) == "string" and (pcall(alc.json_encode, value)) then meta[key] = value end
    end
end
return { meta = meta, run = type(found.run) == "function" }
"""


async def fill_in(found: PackageList) -> None:
    """Complete the packages of a list whose metadata could not be read, by running them."""
    unread = [at for at, each in enumerate(found.packages) if each.package.meta is None and not each.package.error]
    if not unread:
        return
    completed = await _run([found.packages[at].package for at in unread], found.roots)
    for at, package in zip(unread, completed, strict=True):
        found.packages[at] = msgspec.structs.replace(found.packages[at], package=package)


async def _run(packages: Sequence[Package], roots: Roots) -> list[Package]:
    async with open_holdfast("memory:", upkeep=Upkeep(on=False)) as holdfast:
        holdfast.add_kind(LuaKind(deadline_s=DEADLINE_S))
        starts = [holdfast.start(_program(each, roots), ctx={"name": each.name}) for each in packages]
        events = await asyncio.gather(*starts)
    return [_completed(package, event) for package, event in zip(packages, events, strict=True)]


def _program(package: Package, roots: Roots) -> Program:
    """With the package's own directory first: it may be one that another hides."""
    own = {**roots.variants, package.name: package.directory}
    source = LuaSource(code=_CODE, roots=msgspec.structs.replace(roots, variants=own))
    return Program(kind=KIND, name="pkg-meta", source=msgspec.json.encode(source).decode())


def _completed(package: Package, event: Event) -> Package:
    if not isinstance(event, CompletedEvent):
        why = event.error or "it asks something while it is loaded"
        return msgspec.structs.replace(package, error=f"it cannot be loaded: {' '.join(why.split())}")
    loaded = event.result if isinstance(event.result, dict) else {}
    values = loaded.get("meta") or {}
    text = {key: value for key, value in values.items() if isinstance(value, str)}
    source = read_source(Path(package.directory) / "init.lua") or ""
    meta = PackageMeta(
        name=text.get("name"),
        version=text.get("version"),
        description=text.get("description"),
        category=text.get("category"),
        type="runnable" if loaded.get("run") else "library",
        docstring=docstring(source),
        values=values,
    )
    return msgspec.structs.replace(package, meta=meta, version=package.version or meta.version)
