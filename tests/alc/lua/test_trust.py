"""Trusted Lua runs where somebody asked for it, and not because a store says that it is trusted."""

from __future__ import annotations

from pathlib import Path

from holdfast.alc.lua import trust
from holdfast.alc.lua.source import lua_code, source_of
from holdfast.core.events import SentEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import soon
from tests.cli.helpers import Home

TRUSTED = """
local file = io.open(ctx.path, "a") file:write("ran ") file:close()
return alc.llm("Go on?")
"""


def test_trust_is_no_part_of_what_is_stored() -> None:
    program = lua_code(TRUSTED, trust="trusted")
    assert source_of(program).is_unconfined
    assert "trust" not in (program.source or "")


async def test_a_store_cannot_make_a_process_run_trusted_lua(tmp_path: Path) -> None:
    url, ran = f"sqlite:///{tmp_path}/sessions.db", tmp_path / "ran"
    program = lua_code(TRUSTED, trust="trusted")
    async with open_holdfast(url) as hf:
        sid = (await soon(hf.start(program, ctx={"path": str(ran)}))).session_id
    assert ran.read_text() == "ran "
    before = set(trust._allowed)
    trust._allowed.clear()  # as in a process that has only the store
    try:
        async with open_holdfast(url, upkeep=Upkeep(on=False)) as hf:
            assert isinstance(await soon(hf.feed(sid, "yes")), SentEvent)
            outcome = await hf.check_replay(sid)
            assert (outcome.state, "is trusted Lua" in outcome.why) == ("unchecked", True)
        assert ran.read_text() == "ran "
        assert lua_code(TRUSTED, trust="trusted") == program  # somebody asks for it here
        async with open_holdfast(url) as hf:
            assert await soon(hf.result(sid)) == "yes"
    finally:
        trust._allowed |= before


def test_the_command_line_runs_the_trusted_lua_that_it_is_asked_to_serve(tmp_path: Path) -> None:
    home = Home(tmp_path)
    file, ran = home.folder / "trusted.lua", home.folder / "ran"
    file.write_text(TRUSTED)
    args = ("--trusted", "--id", "t", "--set", f"path={ran}")
    assert home.process("run", str(file), *args).returncode == 0
    assert "kept in the mailbox" in home.process("answer", "t", "yes").stdout
    assert ran.read_text() == "ran "
    done = home.process("run", "--resume", "t", "--serve", str(file))
    assert "completed" in done.stdout, done.stdout + done.stderr
