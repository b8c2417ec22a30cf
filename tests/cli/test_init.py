"""`init`: a project from three questions, and what commands take from its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.chat_helpers import serving
from tests.cli.helpers import Home


@pytest.fixture
def outside(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home that is no project, with no store of the environment."""
    home.serve_nothing()
    monkeypatch.chdir(home.folder)
    return home


def started(home: Home, folder: Path, *args: str) -> tuple[int, str, str]:
    """A command run inside a folder, with no store but that of the project."""
    env = {"HOLDFAST_STORE": "", "HOLDFAST_PROJECT_ROOT": str(folder), "XDG_DATA_HOME": str(home.folder / "data")}
    done = home.call(*args, env=env)
    return done.exit_code, done.stdout, done.stderr


def test_a_terminal_is_asked_three_questions(outside: Home) -> None:
    with outside.terminal("init", "project") as terminal:
        terminal.expect("Which model answers?")
        terminal.type("openai:gpt-5\n")
        terminal.expect("Where are sessions kept?")
        terminal.type("sqlite:///sessions.db\n")
        terminal.expect("Which MCP host")
        terminal.type("claude-code\n")
        terminal.expect("holdfast run first --dry-run")
        assert terminal.exit_code() == 0
    project = outside.folder / "project"
    assert {path.name for path in project.iterdir()} == {"holdfast.toml", "strategies", "__builtins__.pyi", ".mcp.json"}
    config = (project / "holdfast.toml").read_text()
    assert 'model = "openai:gpt-5"\nstore = "sqlite:///sessions.db"\n' in config
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["holdfast"]
    assert server["args"][-2:] == ["--project", str(project)]
    assert started(outside, project, "run", "first", "--dry-run")[0] == 0


def test_without_a_terminal_options_say_it_and_the_rest_is_left_out(outside: Home) -> None:
    report = outside.json("init", "quiet", "--strategy", "triage")
    assert (report["model"], report["store"], report["host"]) == (None, None, None)
    assert "# model = " in (outside.folder / "quiet" / "holdfast.toml").read_text()
    assert (outside.folder / "quiet" / "strategies" / "triage.py").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "gpt-5"], "'openai:MODEL'"),
        (["--store", "sessions.db"], "expected sqlite:///path"),
        (["--host", "claude-cod"], "did you mean 'claude-code'?"),
        (["--strategy", "Not a name"], "cannot be called"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_written(
    outside: Home, options: list[str], said: str
) -> None:
    done = outside.call("init", "refused", *options)
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert not (outside.folder / "refused" / "holdfast.toml").exists()


def test_a_project_is_not_made_twice(outside: Home) -> None:
    outside.ok("init", "twice", "--yes")
    again = outside.call("init", "twice", "--yes")
    assert (again.exit_code, "is a project already" in again.stderr) == (2, True)


def test_commands_take_the_store_and_the_model_of_the_project(outside: Home) -> None:
    project = outside.folder / "own"
    with serving("A first draft.", "Scattering.") as server:
        outside.ok("init", "own", "--store", "sqlite:///kept.db", "--model", f"{server.url}#m")
        code, said, _ = started(outside, project, "run", "first", "--task", "Why is the sky blue?", "--json")
    assert (code, json.loads(said)["result"]["result"]) == (0, "Scattering.")
    assert (project / "kept.db").exists()
    assert "first" in started(outside, project, "sessions")[1]
    (project / "holdfast.toml").write_text("store = 3\n")
    code, _, error = started(outside, project, "sessions")
    assert (code, "store has to be a text, as in" in error) == (2, True)
