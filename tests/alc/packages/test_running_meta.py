"""Metadata that a package computes is found by running it, in a session of its own."""

from __future__ import annotations

from pathlib import Path

from holdfast.alc.lua.packages import Package
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.package_list import listing
from holdfast.alc.packages.run_meta import fill_in


def write(home: Path, name: str, code: str) -> None:
    directory = home / "packages" / name
    directory.mkdir(parents=True)
    (directory / "init.lua").write_text(code)


async def listed(home: Path) -> dict[str, Package]:
    found = listing(PackageDirectories(environ={"HOLDFAST_HOME": str(home)}))
    await fill_in(found)
    return {each.package.name: each.package for each in found.packages}


async def test_metadata_that_a_package_computes_is_found_by_running_it(tmp_path: Path) -> None:
    code = """
    local version = table.concat({1, 2, 3}, ".")
    return { meta = { name = "made", version = version, odd = print }, run = function() end }
    """
    write(tmp_path, "made", code)
    package = (await listed(tmp_path))["made"]
    assert package.meta is not None
    assert package.meta.values == {"name": "made", "version": "1.2.3"}
    assert package.meta.type == "runnable"
    assert package.version == "1.2.3"


async def test_a_package_that_fails_or_hangs_when_it_is_loaded_does_not_keep_the_others_from_being_listed(
    tmp_path: Path,
) -> None:
    write(tmp_path, "fails", "local m = nil; return m.x")
    write(tmp_path, "hangs", "while true do end")
    write(tmp_path, "asks", "local v = alc.llm('x'); return { meta = { version = v } }")
    write(tmp_path, "fine", "local v = '1' .. '.0'; local M = {}; M['meta'] = { version = v }; return M")
    found = await listed(tmp_path)
    assert "attempt to index a nil value" in str(found["fails"].error)
    assert "deadline" in str(found["hangs"].error)
    assert "cannot pause while a module is being loaded" in str(found["asks"].error)
    assert found["fine"].error is None
    assert found["fine"].version == "1.0"
