"""The command `alc`, as algocline's users and their hosts call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from holdfast import __version__
from holdfast.testing.patience import HANG_S
from tests.alc.mcp.user_packages import write_collection
from tests.paths import REPO
from tests.serve.calls import ERAS, Host

ALC = (sys.executable, "-m", "holdfast.alc.cli.alc")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "here").mkdir()
    home = str(tmp_path / "home")
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ALC_HOME": home, "HOLDFAST_HOME": home}


def run(environment: dict[str, str], tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ALC, *words],
        cwd=tmp_path / "here",
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_init_installs_collections_and_update_replaces_them(environment: dict[str, str], tmp_path: Path) -> None:
    source = write_collection(tmp_path / "collection")
    done = run(environment, tmp_path, "init", "--from", str(source))
    assert done.returncode == 0, done.stderr
    installed = tmp_path / "home" / "packages"
    assert sorted(each.name for each in installed.iterdir() if each.name[0] != ".") == ["alpha", "beta", "gamma"]
    (source / "alpha" / "init.lua").write_text("return { changed = true }")
    done = run(environment, tmp_path, "update", "--from", str(source))
    assert done.returncode == 0, done.stderr
    assert "changed" in (installed / "alpha" / "init.lua").read_text()
    listed = json.loads(run(environment, tmp_path, "pkg", "list", "--json").stdout)
    assert {each["name"] for each in listed["packages"]} == {"alpha", "beta", "gamma"}


def test_it_tells_its_version_and_what_it_can_do(environment: dict[str, str], tmp_path: Path) -> None:
    assert run(environment, tmp_path, "--version").stdout.strip() == f"alc (holdfast {__version__})"
    assert "init" in run(environment, tmp_path, "--help").stdout


@pytest.mark.parametrize("era", ERAS)
async def test_alone_it_serves_the_tools_under_their_old_names(
    environment: dict[str, str], tmp_path: Path, era: str
) -> None:
    server = StdioServerParameters(command=ALC[0], args=list(ALC[1:]), env=environment, cwd=tmp_path / "here")
    async with Client(stdio_client(server), mode=era) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"alc_run", "alc_advice", "alc_continue"} <= names
        assert all(name.startswith("alc_") for name in names)
        told = await Host(client).call("alc_run", code="return 1 + 1")
        assert told["result"] == 2


def test_the_package_declares_the_command() -> None:
    assert 'alc = "holdfast.alc.cli.alc:main"' in (REPO / "pyproject.toml").read_text()
