"""What an operator allows to the programs of hosts: packages outside of the sandbox, more time, more memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.lua import trust
from holdfast.alc.mcp.extension import EXTENSION
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.serve.mcp.allowed import AllowedCode
from tests.alc.mcp.user_packages import new_user, write_package
from tests.cli.helpers import Home
from tests.serve.calls import Host, host_of

READS = """
local M = {}
M.meta = { name = "reads", version = "1.0.0" }
function M.run(ctx)
    local file, why = io.open(ctx.path)
    if not file then return why end
    return file:read("a") .. alc.llm("Go on?")
end
return M
"""
TAKES_LONG = "local n = 0 while n < 120000000 do n = n + 1 end return n"


@pytest.fixture(autouse=True)
def nothing_allowed_before() -> Iterator[None]:
    allowed, served = set(trust._allowed), list(trust._served)
    yield
    trust._allowed, trust._served[:] = allowed, served


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has the package `reads`, and a file to read."""
    home = new_user(monkeypatch, tmp_path)
    (write_package(home / "packages", "reads") / "init.lua").write_text(READS)
    (tmp_path / "note").write_text("tea ")
    return home


@pytest.fixture
async def holdfast(home: Path, tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


async def advice(host: Host, path: Path, **more: object) -> Any:
    return await host.call("alc_advice", strategy="reads", opts={"path": str(path)}, **more)


async def test_without_trust_the_error_says_who_can_give_it(holdfast: Holdfast, tmp_path: Path) -> None:
    async with host_of(holdfast, EXTENSION.tools) as host:
        told = await advice(host, tmp_path / "note")
    assert "`holdfast mcp --trust DIRECTORY|PACKAGE`" in str(told["result"])


async def test_a_trusted_package_has_files(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    allowed = AllowedCode(trusted=[home / "packages" / "reads"])
    async with host_of(holdfast, EXTENSION.tools, allowed=allowed) as host:
        asked = await advice(host, tmp_path / "note")
        told = await host.call("alc_continue", session_id=asked["session_id"], response="yes")
        assert told["result"] == "tea yes"


async def test_text_that_a_host_sends_stays_in_the_sandbox(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    async with host_of(holdfast, EXTENSION.tools, allowed=AllowedCode(trusted=[home / "packages"])) as host:
        told = await host.call("alc_run", code=f"return {{io.open('{tmp_path}/note')}}")
        assert told["result"] is None or "sandbox" in str(told["result"])


async def test_a_file_of_a_trusted_directory_has_files(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "look.lua").write_text(f"return io.open('{tmp_path}/note'):read('a')")
    async with host_of(holdfast, EXTENSION.tools, allowed=AllowedCode(trusted=[tmp_path / "mine"])) as host:
        told = await host.call("alc_run", code_file=str(tmp_path / "mine" / "look.lua"))
        assert told["result"] == "tea "


async def test_a_project_that_a_host_names_cannot_put_its_code_in_the_place_of_trusted_code(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    hostile = tmp_path / "hostile"
    for name in ("reads", "helper"):
        write_package(hostile / "packages", name)
    (hostile / "packages" / "reads" / "init.lua").write_text(READS)
    (hostile / "packages" / "helper" / "init.lua").write_text("return { evil = io.open('/etc/passwd') }")
    (hostile / "alc.toml").write_text('[packages]\nreads = { path = "packages/reads" }\n')
    allowed = AllowedCode(trusted=[home / "packages" / "reads"])
    async with host_of(holdfast, EXTENSION.tools, allowed=allowed) as host:
        told = await advice(host, tmp_path / "note", project_root=str(hostile))
        assert "sandbox" in str(told["result"])
        (home / "packages" / "reads" / "init.lua").write_text("require('helper') " + READS)
        (hostile / "alc.toml").write_text('[packages]\nhelper = { path = "packages/helper" }\n')
        told = await advice(host, tmp_path / "note", project_root=str(hostile))
        assert "module 'helper' not found" in str(told["error"])


async def test_a_link_out_of_a_trusted_directory_is_not_trusted(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    write_package(tmp_path / "elsewhere", "other")
    (tmp_path / "elsewhere" / "other" / "init.lua").write_text(READS)
    os.symlink(tmp_path / "elsewhere" / "other", home / "packages" / "other")
    async with host_of(holdfast, EXTENSION.tools, allowed=AllowedCode(trusted=[home / "packages"])) as host:
        told = await host.call("alc_advice", strategy="other", opts={"path": str(tmp_path / "note")})
        assert "sandbox" in str(told["result"])


async def test_a_host_cannot_install_over_a_trusted_package(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    other = write_package(tmp_path / "new", "reads", "2.0.0")
    async with host_of(holdfast, EXTENSION.tools, allowed=AllowedCode(trusted=[home / "packages" / "reads"])) as host:
        told = await host.call("alc_pkg_install", url=str(other), force=True)
    assert "only whoever runs the server" in told["refused"][0]["why"]
    assert (home / "packages" / "reads" / "init.lua").read_text() == READS


async def test_a_restarted_server_continues_the_trusted_sessions_of_the_one_before(home: Path, tmp_path: Path) -> None:
    url, allowed = f"sqlite:///{tmp_path}/runs.db", AllowedCode(trusted=[home / "packages" / "reads"])
    async with open_holdfast(url) as holdfast, host_of(holdfast, EXTENSION.tools, allowed=allowed) as host:
        asked = await advice(host, tmp_path / "note")
    trust._allowed.clear()
    trust._served.clear()  # as in another process
    async with open_holdfast(url) as holdfast, host_of(holdfast, EXTENSION.tools, allowed=allowed) as host:
        told = await host.call("alc_continue", session_id=asked["session_id"], response="yes")
        assert told["result"] == "tea yes"


async def test_the_operators_deadline_is_the_one_of_every_run(holdfast: Holdfast) -> None:
    async with host_of(holdfast, EXTENSION.tools, allowed=AllowedCode(deadline_s=0.05)) as host:
        told = await host.call("alc_run", code=TAKES_LONG)
        assert (told["status"], told["error_kind"]) == ("error", "deadline")


async def test_a_call_gets_up_to_what_the_operator_allows(holdfast: Holdfast) -> None:
    async with host_of(holdfast, EXTENSION.tools, allowed=AllowedCode(deadline_s=60, memory_mib=128)) as host:
        told = await host.call("alc_run", code=TAKES_LONG, deadline_s=0.05)
        assert told["error_kind"] == "deadline"
        longer = await host.call("alc_continue", session_id=told["session_id"], deadline_s=60)
        assert (longer["status"], longer["result"]) == ("completed", 120000000)
        refusal = await host.refusal("alc_run", code="return 1", deadline_s=61)
        assert "`holdfast mcp --deadline 61`" in refusal
        refusal = await host.refusal("alc_run", code="return 1", memory_mib=200)
        assert "`holdfast mcp --memory 200`" in refusal


def test_the_command_line_passes_on_what_is_trusted(tmp_path: Path) -> None:
    place = Home(tmp_path)
    args = ("mcp", "--trust", str(tmp_path), "--deadline", "600", "--memory", "256", "--install", "cursor", "--json")
    shown = place.process(*args)
    assert all(word in shown.stdout for word in (str(tmp_path), "--deadline", "600", "--memory", "256")), shown.stdout
    unknown = place.process("mcp", "--trust", "nowhere", "--install", "cursor")
    assert unknown.returncode != 0
    assert "no directory and no Lua package 'nowhere'" in unknown.stderr
