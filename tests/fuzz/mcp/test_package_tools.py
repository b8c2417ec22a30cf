"""Arguments of the MCP tools for packages, changed: answered or refused, and nothing elsewhere is touched."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest

from holdfast.core.values import Json
from tests.alc.mcp.user_packages import files_below, new_user, write_collection, write_package, write_project
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.generation import Draw, changed_json, encoded
from tests.fuzz.mcp.test_server import StdioServer, request

PLACE = "@place@"
"""Stands for the directory that all of it happens in."""

PATHS = ("url", "path", "target_dir", "project_root", "code_file", "spec_dir", "search_paths")
"""Arguments that say where to read and write. What they name may be used: so they stay within the place."""

ODD_PATHS = ["", "missing", "~nobody", "a\0b", "x" * 300, "\ud800", PLACE, f"{PLACE}/file", f"{PLACE}/collection/alpha"]

CALLS: list[Json] = [
    {
        "name": "alc_pkg_list",
        "arguments": {"limit": 3, "sort": "-name", "filter": {"scope": "global"}, "verbose": "full"},
    },
    {"name": "alc_pkg_list", "arguments": {"project_root": f"{PLACE}/project", "fields": ["name", "version"]}},
    {"name": "alc_pkg_install", "arguments": {"url": f"{PLACE}/collection", "force": True}},
    {"name": "alc_pkg_install", "arguments": {"url": f"{PLACE}/collection/alpha", "name": "another"}},
    {"name": "alc_pkg_remove", "arguments": {"name": "one", "scope": "all", "version": "1.0.0", "delete_files": True}},
    {"name": "alc_pkg_link", "arguments": {"path": f"{PLACE}/collection/beta", "name": "beta", "force": True}},
    {"name": "alc_pkg_link", "arguments": {"path": f"{PLACE}/collection", "scope": "global"}},
    {"name": "alc_pkg_unlink", "arguments": {"name": "beta", "project_root": f"{PLACE}/project"}},
    {"name": "alc_pkg_doctor", "arguments": {"name": "one"}},
    {"name": "alc_pkg_repair", "arguments": {"name": "one", "force": True}},
    {
        "name": "alc_pkg_scaffold",
        "arguments": {"name": "fresh", "target_dir": PLACE, "category": "x", "description": "y"},
    },
    {"name": "alc_init", "arguments": {"project_root": f"{PLACE}/collection"}},
    {"name": "alc_update", "arguments": {"project_root": f"{PLACE}/project"}},
    {"name": "alc_pkg_test", "arguments": {"pkg": "one", "filter": "x", "spec_dir": "spec", "live": False}},
]


@st.composite
def calls(draw: Draw) -> bytes:
    """A call of which one or two arguments were changed."""
    sample = draw(st.sampled_from(CALLS))
    arguments = draw(changed_json([sample["arguments"]], most=2))
    if isinstance(arguments, dict):
        for name in PATHS:
            value = arguments.get(name)
            if isinstance(value, str) and (not value.startswith(PLACE) or ".." in value):
                arguments[name] = draw(st.sampled_from(ODD_PATHS))
    return encoded(request("tools/call", name=sample["name"], arguments=arguments))


# --- nothing elsewhere is touched ----------------------------------------------------------------------

_allowed: list[str] = []
"""Where files may be written at present; empty if nobody watches."""

_WRITES = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.symlink", "os.link", "os.truncate", "shutil.rmtree"}


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if not _allowed:
        return
    if event == "open" and isinstance(args[0], str) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        paths = args[:1]
    elif event in _WRITES:
        paths = args[:2] if event in ("os.rename", "os.link") else args[1:2] if event == "os.symlink" else args[:1]
    else:
        return
    for path in paths:
        if isinstance(path, str | os.PathLike) and os.path.isabs(os.fspath(path)):
            place = os.path.realpath(os.path.dirname(os.path.abspath(path)))
            if not any(f"{place}/".startswith(f"{each}/") for each in _allowed) and "__pycache__" not in place:
                raise AssertionError(f"{event} {path} is outside")


@contextmanager
def kept_within(*places: Path) -> Iterator[None]:
    """Let nothing be written by this process anywhere else."""
    if _watch not in _watching:
        _watching.append(_watch)
        sys.addaudithook(_watch)
    _allowed[:] = [os.path.realpath(place) for place in places]
    try:
        yield
    finally:
        _allowed.clear()


_watching: list[Any] = []


def test_changed_arguments_of_package_tools_are_used_or_refused(
    fuzzer: Fuzzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    home = new_user(monkeypatch, place)
    write_collection(place / "collection")
    write_project(place / "project")
    write_package(home / "packages", "one")
    (place / "file").write_text("text")
    kept = tmp_path / "kept"
    shutil.copytree(place, kept, symlinks=True)
    before = files_below(place)
    server = StdioServer()

    async def check(line: bytes) -> None:
        await server.check(line.replace(PLACE.encode(), str(place).encode()))
        if files_below(place) != before:
            for each in place.iterdir():
                if each.name != "here":
                    shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
            shutil.copytree(kept, place, symlinks=True, dirs_exist_ok=True)

    with asyncio.Runner() as runner:
        runner.run(server.open())
        try:
            with kept_within(tmp_path, Path("/dev"), Path("/tmp")):
                fuzzer.run(lambda line: runner.run(check(line)), calls(), examples=30)
        finally:
            runner.run(server.close())
