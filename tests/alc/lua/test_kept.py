"""A session goes on with the modules it began with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast import lua_code, lua_package
from holdfast.alc.lua.kept import MAX_KEPT_BYTES
from holdfast.alc.lua.source import source_of
from holdfast.engine.holdfast import open_holdfast


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_PACKAGES_PATH", str(tmp_path / "packages"))
    return tmp_path / "packages"


def write(root: Path, module: str, code: str) -> None:
    path = root / f"{module.replace('.', '/')}.lua"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)


def make(root: Path) -> None:
    write(root, "talk.init", "local w = require('talk.words')\nreturn { run = function(ctx) return w.twice(ctx) end }")
    write(root, "talk.words", "return { twice = function() return alc.llm('one') .. alc.llm('two') end }")


async def test_a_session_goes_on_with_the_package_as_it_was_when_it_began(root: Path, tmp_path: Path) -> None:
    make(root)
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    async with open_holdfast(store) as hf:
        event = await hf.start("talk")
        session_id = event.session_id
    write(root, "talk.words", "return { twice = function() return alc.llm('something else') end }")
    async with open_holdfast(store) as hf:
        event = await hf.feed(session_id, "a")
        assert [query.text for query in event.queries] == ["two"]
        assert (await hf.start("talk")).queries[0].text == "something else"


async def test_a_session_goes_on_where_its_package_is_not_installed(root: Path, tmp_path: Path) -> None:
    make(root)
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    async with open_holdfast(store) as hf:
        session_id = (await hf.start("talk")).session_id
    shutil.rmtree(root)
    async with open_holdfast(store) as hf:
        await hf.feed(session_id, "a")
        assert (await hf.feed(session_id, "b")).result == "ab"


async def test_packages_that_are_forked_by_name_are_kept_too(root: Path) -> None:
    make(root)
    program = lua_code('return alc.fork({"talk", "talk"}, {})')
    shutil.rmtree(root)
    async with open_holdfast("memory:") as hf:
        event = await hf.start(program)
        assert [query.text for query in event.queries] == ["one", "one"]


def test_only_what_is_mentioned_is_kept(root: Path) -> None:
    make(root)
    write(root, "other.init", "return {}")
    assert sorted(source_of(lua_package("talk")).modules) == ["talk", "talk.words"]
    assert source_of(lua_code("return 'talk'")).modules == {}


def test_what_is_too_large_to_be_kept_is_left_on_disk(root: Path) -> None:
    make(root)
    write(root, "talk.words", "--" + "x" * MAX_KEPT_BYTES)
    assert source_of(lua_package("talk")).modules == {}


def test_a_module_that_is_not_there_or_not_text_is_left_to_require(root: Path) -> None:
    write(root, "talk.init", "require('missing'); require('binary'); return { run = print }")
    (root / "binary.lua").write_bytes(b"\xff\xfe")
    assert sorted(source_of(lua_package("talk")).modules) == ["talk"]
