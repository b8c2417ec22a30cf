"""Arguments of commands, changed: no command calls it a bug in Holdfast, and one that is refused changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st

from holdfast.core.errors import ExitCode
from holdfast.core.values import Json
from holdfast.store import open_store
from holdfast.testing.sessions import picture
from tests.cli.helpers import Home
from tests.fuzz.fuzzer import MESSAGE_CHARS, Fuzzer
from tests.fuzz.generation import Draw, changed_json, changed_text, encoded

SESSION = "waits"

RESPONSES: Json = [
    {"query_id": "q-0", "response": {"a": [1]}, "usage": {"prompt_tokens": 3}},
    {"query_id": "q-1", "error": "no"},
]

COMMANDS: list[list[str | Json]] = [
    ["run", "FILE:panel", "--ctx", {"task": "tea", "n": [1, None]}],
    ["run", "FILE:greet", "--set", "mark=!", "--budget", {"max_llm_calls": 3, "max_tokens": 100}],
    ["run", "FILE:greet", "--budget", "max_llm_calls=3", "--env", "A=b", "--id", "new-one"],
    ["run", "FILE:greet", "--dry-run", "--task", "tea", "--full"],
    ["answer", SESSION, "--responses", RESPONSES],
    ["answer", SESSION, "--responses", {"q-0": "one", "q-1": {"b": 2}}],
    ["answer", SESSION, "text", "--query", "q-0"],
    ["answer", SESSION, "--fail", "no idea", "--query", "q-1"],
    ["cancel", SESSION, "--reason", "enough", "--turn", "t-1"],
    ["enqueue", SESSION, "hello", "--id", "i-1", "--after", "3"],
    ["fork", SESSION, "--at", "2", "--before", "q-0", "--id", "copy"],
    ["show", SESSION, "--journal", "--history"],
    ["sessions", "--program", "panel", "--limit", "5", "--after", "cursor", "--parent", SESSION],
    ["diff", SESSION, SESSION],
    ["queue", SESSION],
    ["strategies", "cot"],
    ["delete", "wai", "--yes"],
    ["gc", "--expire", "3d", "--delete", "30d"],
]
ODD_ARGUMENTS = [
    "",
    "-",
    "--",
    "@",
    "@/dev/null",
    "@/",
    "\udcff",
    "=",
    "--json",
    "=x",
    "{",
    "nan",
    "-1",
    "9" * 400,
    "1e400",
]


@st.composite
def command_lines(draw: Draw) -> list[str]:
    """A command with one or two of its arguments changed, dropped or doubled."""
    words = list(COMMANDS[draw(st.integers(0, len(COMMANDS) - 1))])
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(min(1, len(words) - 1), len(words) - 1))
        word = words[at]
        if not isinstance(word, str):
            words[at] = draw(changed_json([word]))
            words[at] = json.dumps(words[at]) if isinstance(words[at], str) else words[at]
            continue
        match draw(st.sampled_from(["text", "text", "odd", "drop", "double"])):
            case "text":
                words[at] = draw(changed_text([word], most=1))
            case "odd":
                words[at] = draw(st.sampled_from(ODD_ARGUMENTS))
            case "drop" if len(words) > 1:
                del words[at]
            case _:
                words.insert(at, word)
    return [word if isinstance(word, str) else encoded(word).decode() for word in words]


def test_changed_arguments_are_used_or_refused(fuzzer: Fuzzer, tmp_path: Path) -> None:
    home = Home(tmp_path)

    async def content() -> dict[Any, Any]:
        async with open_store(home.url) as store:
            return await picture(store)

    def check(words: list[str]) -> None:
        if not home.db.exists():
            home.ok("run", f"{home.file}:panel", "--id", SESSION)
        before = asyncio.run(content())
        result = home.call(*[word.replace("FILE", str(home.file), 1) for word in words], "--json", stdin="")
        assert result.exit_code != ExitCode.BUG, result.output
        assert result.exit_code in set(ExitCode), result.output
        if result.exit_code in (ExitCode.BAD_INPUT, ExitCode.NOT_FOUND, ExitCode.CONFLICT):
            assert result.output.strip(), words
            assert len(result.output) <= 2 * MESSAGE_CHARS
            assert asyncio.run(content()) == before
        elif asyncio.run(content()) != before:
            home.db.unlink()
            for beside in tmp_path.glob("sessions.db-*"):
                beside.unlink()

    fuzzer.run(check, command_lines(), examples=40, known=[["run", "FILE:greet", "--budget", "a=" + "[" * 3_000]])
