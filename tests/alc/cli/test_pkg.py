"""`pkg`: packages from the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import Home


class Shell:
    """The command, run by a user with a home of their own, in a directory without a project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = Home(folder)
        self.home.serve_nothing()
        self.env = {
            "HOME": str(folder / "user"),
            "HOLDFAST_HOME": str(folder / "own"),
            "ALC_HOME": str(folder / "user" / ".algocline"),
            "HOLDFAST_PACKAGES_PATH": "",
            "ALC_PACKAGES_PATH": "",
            "HOLDFAST_PROJECT_ROOT": "",
            "ALC_PROJECT_ROOT": "",
        }
        self.packages = folder / "own" / "packages"

    def call(self, *args: str, code: int = 0) -> Any:
        result = self.home.call("pkg", *args, env=self.env)
        assert result.exit_code == code, result.output
        return result

    def json(self, *args: str, code: int = 0) -> Any:
        return json.loads(self.call(*args, "--json", code=code).stdout)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def git_repository(directory: Path) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for args in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *args], cwd=directory, check=True)
    return f"file://{directory}"


def test_a_package_lives_from_scaffold_to_removal(shell: Shell) -> None:
    assert "No packages yet" in shell.call("list").stdout
    made = shell.json("scaffold", "greeting", "--description", "Says hello", "--category", "demo")
    assert made["status"] == "ok"
    url = git_repository(Path(made["path"]))
    installed = shell.json("install", url)
    assert (installed["installed"], installed["mode"]) == (["greeting"], "single")
    (row,) = shell.json("list")["packages"]
    assert (row["name"], row["version"], row["category"], row["type"]) == ("greeting", "0.1.0", "demo", "runnable")
    assert row["source"]["url"] == url
    assert "Says hello" in shell.call("list").stdout
    assert shell.json("doctor")["healthy"] == ["greeting"]
    removed = shell.json("remove", "greeting")
    assert removed["deleted"] == [str(shell.packages / "greeting")]
    assert shell.json("list")["packages"] == []


def test_a_project_is_made_filled_and_locked(shell: Shell) -> None:
    assert shell.json("init")["created"] == str(shell.folder / "holdfast.toml")
    assert "already" in shell.call("init", code=2).stderr
    shell.call("scaffold", "p")
    shell.call("install", "./p")
    assert 'p = "*"' in (shell.folder / "holdfast.toml").read_text()
    updated = shell.json("update")
    assert (updated["resolved"], updated["errors"]) == (1, [])
    (shell.folder / "holdfast.toml").write_text('[packages]\np = "9.9.9"\n')
    assert shell.json("update", code=1)["errors"] != []
    ill = shell.json("doctor", code=1)
    assert ill["unmet_pin"][0]["name"] == "p"
    assert "broken" in shell.call("list").stdout
    assert shell.json("list", "--project", str(shell.folder / "own"))["packages"][0]["active"] is True


def test_links_are_made_shown_and_undone(shell: Shell) -> None:
    shell.call("scaffold", "p")
    linked = shell.json("link", "p")
    assert linked == {
        "linked": ["p"],
        "mode": "single",
        "targets": {"p": str(shell.folder / "p")},
        "scope": "global",
    }
    assert shell.json("list")["packages"][0]["linked"] is True
    assert shell.call("link", "p", code=4).stderr.count("--force") == 1
    assert shell.json("unlink", "p")["unlinked"] == "p"
    assert "package 'p' not found" in shell.call("unlink", "p", code=3).stderr


def test_damage_is_shown_and_repaired(shell: Shell) -> None:
    shell.call("scaffold", "p")
    shell.call("install", "./p")
    (shell.packages / "p" / "init.lua").unlink()
    told = shell.call("doctor", code=1).stdout
    assert "missing init" in told
    assert "pkg repair" in told
    assert shell.json("repair")["repaired"][0]["name"] == "p"
    assert "1 sound, 0 with problems." in shell.call("doctor").stdout
    assert shell.call("repair").stdout == "Nothing to repair.\n"


def test_hidden_packages_are_listed_when_asked_for(shell: Shell) -> None:
    shell.call("scaffold", "p")
    shell.call("install", "./p")
    shell.env["HOLDFAST_PACKAGES_PATH"] = str(shell.folder)
    assert len(shell.json("list")["packages"]) == 1
    both = shell.json("list", "--all")["packages"]
    assert [row["active"] for row in both] == [True, False]
    assert "hidden" in shell.call("list", "--all").stdout


def test_several_sources_tell_what_became_of_each(shell: Shell) -> None:
    shell.call("scaffold", "p")
    shell.call("scaffold", "q")
    os.symlink("/etc/passwd", shell.folder / "q" / "passwd.lua")
    result = shell.call("install", "./p", "./q", code=1)
    assert "p 0.1.0  installed" in result.stdout
    assert "passwd.lua" in result.stderr
    report = shell.json("install", "./p", "./q", code=1)
    assert report["skipped"] == ["p"]
    assert report["errors"][0]["kind"] == "unsafe_package"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["install", "nothing"], 2, "no such directory"),
        (["install", "file:///no/such/repository"], 5, "git:"),
        (["remove", "absent"], 3, "not found"),
        (["remove", "../x"], 2, "invalid package name"),
        (["scaffold", "No"], 2, "invalid package name"),
        (["update"], 2, "pkg init"),
        (["doctor", "absent"], 3, "not found"),
        (["link", "/no/such/directory"], 2, "does not exist"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_an_error_is_a_sentence_and_an_exit_code(shell: Shell, args: list[str], code: int, said: str) -> None:
    result = shell.call(*args, code=code)
    assert said in result.stderr
    assert result.stdout == ""
    told = json.loads(shell.call(*args, "--json", code=code).stderr)
    assert told["status"] == "error"


def test_a_warning_is_told_beside_the_answer(shell: Shell) -> None:
    (shell.folder / "alc.toml").write_text("[packages")
    result = shell.call("list")
    assert "alc.toml" in result.stderr
    assert "alc.toml" in shell.json("list")["warnings"][0]


def test_every_command_has_help(shell: Shell) -> None:
    told = shell.call("--help").stdout
    for name in ("list", "install", "remove", "link", "unlink", "doctor", "repair", "init", "update", "scaffold"):
        assert f"\n  {name} " in told
        assert "--json" in shell.call(name, "--help").stdout


def test_progress_is_shown_on_a_terminal(shell: Shell) -> None:
    shell.call("scaffold", "p")
    with shell.home.terminal("pkg", "install", "./p", env=shell.env) as terminal:
        terminal.expect("done ./p")
        terminal.expect("installed")
        assert terminal.exit_code() == 0
    assert (shell.packages / "p" / "init.lua").is_file()
