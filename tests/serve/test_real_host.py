"""Real hosts from npm, with a scripted model behind them, run a strategy of ours to its end over MCP.

The host is installed once, has an empty home, is configured by `holdfast mcp --install`, and starts the server itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.state import State
from holdfast.engine.holdfast import open_holdfast
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.patience import HANG_S
from tests.serve.conformance.node import NodeMissingError, installed
from tests.serve.scripted_model import Model, Turn, Use, scripted_model

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
HOST_TIMEOUT_S = 90
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: a host that wants to call home reaches nothing."""

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")

PACKAGE = """\
--- Two sides at once, then a verdict.
local M = {}
M.meta = { name = "verdict", version = "0.1.0", description = "Weigh two sides.", category = "test" }
function M.run(ctx)
  local sides = alc.llm_batch({ { prompt = "For " .. ctx.task }, { prompt = "Against " .. ctx.task } })
  ctx.result = { sides = sides, verdict = alc.llm("Judge: " .. sides[1] .. "; " .. sides[2], { max_tokens = 50 }) }
  return ctx
end
return M
"""


@dataclass(frozen=True)
class Host:
    """A host: its package, how it is told of the model, and how it is given a task."""

    name: str
    package: str
    command: str
    arguments: tuple[str, ...]
    configure: Callable[[Path, Model], Path]


def _codex(home: Path, model: Model) -> Path:
    path = home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text(f"""\
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "{model.url}"
wire_api = "responses"
request_max_retries = 1
""")
    return path


def _opencode(home: Path, model: Model) -> Path:
    path = home / ".config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": model.url, "apiKey": "x"},
        "models": {"scripted": {"name": "scripted", "tool_call": True}},
    }
    named = {"model": "scripted/scripted", "small_model": "scripted/scripted", "provider": {"scripted": provider}}
    path.write_text(json.dumps({"autoupdate": False, "share": "disabled", **named}))
    return path


CODEX = Host("codex", "@openai/codex@0.166.0", "codex", ("exec", "--skip-git-repo-check"), _codex)
OPENCODE = Host("opencode", "opencode-ai@1.18.33", "opencode", ("run",), _opencode)


def answers(turn: Turn) -> Use | str:
    """The script: start the strategy, answer whatever it asks, and tell what came of it."""
    if not turn.tools:
        return "Tea"  # A host that asks for a title.
    if not turn.results:
        return Use("alc_advice", {"strategy": "verdict", "task": "tea"})
    told = _event(turn.results[-1])
    match told:
        case {"status": "needs_response", "queries": [*queries]}:
            each = [{"query_id": query["id"], "response": _answer(query["prompt"])} for query in queries]
            return Use("alc_continue", {"session_id": told["session_id"], "responses": each})
        case {"status": "needs_response", "query_id": query_id, "prompt": prompt}:
            given = {"session_id": told["session_id"], "query_id": query_id, "response": _answer(prompt)}
            return Use("alc_continue", given)
        case {"status": "completed", "result": {"result": {"verdict": verdict}}}:
            return f"The verdict is: {verdict}"
        case _:
            return f"This went wrong: {turn.results[-1]}"


def _event(result: str) -> dict[str, Any]:
    """The event in what a host makes of a tool's result: it may put words of its own around it."""
    try:
        event, _ = json.JSONDecoder().raw_decode(result[result.index("{") :])
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _answer(prompt: str) -> str:
    return f"<{prompt}>"


@pytest.mark.parametrize(
    "host", [CODEX, pytest.param(OPENCODE, marks=[pytest.mark.soak, soak])], ids=lambda host: host.name
)
async def test_a_real_host_runs_a_strategy_to_its_end(host: Host, tmp_path: Path) -> None:
    try:
        program = installed(host.package) / ".bin" / host.command
    except NodeMissingError as error:
        pytest.skip(f"{host.name} cannot be installed here: {error}")
    store = f"sqlite:///{tmp_path}/sessions.db"
    home, packages, work = _folders(tmp_path)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HOLDFAST_HOME": str(tmp_path / "holdfast"),
        "HOLDFAST_PACKAGES_PATH": str(packages),
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    install = [HOLDFAST, "mcp", "--install", host.name, "--write", "--tools", "all", "--store", store]

    with scripted_model(answers) as model:
        host.configure(home, model)
        _run(install, work, environment)
        said = _run([str(program), *host.arguments, "Advise me on tea."], work, environment)

    verdict = "<Judge: <For tea>; <Against tea>>"
    assert f"The verdict is: {verdict}" in said, model.turns
    assert not model.problems
    async with open_holdfast(store) as holdfast:
        [row] = (await holdfast.sessions(SessionFilter(states=[State.COMPLETED]))).rows
        result = await holdfast.result(row.session_id, timeout=HANG_S)
    assert result == {"task": "tea", "result": {"sides": ["<For tea>", "<Against tea>"], "verdict": verdict}}


def _folders(root: Path) -> tuple[Path, Path, Path]:
    """An empty home, the packages with the one that is run, and an empty folder to work in."""
    home, packages, work = root / "home", root / "packages", root / "work"
    for folder in (home, packages / "verdict", work):
        folder.mkdir(parents=True)
    (packages / "verdict" / "init.lua").write_text(PACKAGE)
    return home, packages, work


def _run(command: list[str], work: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HOST_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
