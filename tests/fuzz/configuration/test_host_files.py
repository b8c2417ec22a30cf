"""Configuration files of MCP hosts, changed: an entry is added and all else stays, or they are refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import hypothesis.strategies as st

from holdfast.serve.mcp.config_file import EditError, merged, read_json, set_json, set_toml
from holdfast.serve.mcp.hosts import HOSTS, ServerCommand, write
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import changed_bytes, changed_text

ENTRY = {"command": "holdfast", "args": ["mcp", "--tools"], "env": {"A": "1"}}
PATH = ("mcpServers", "holdfast")

JSON_FILES = [
    '{\n  // remark\n  "a": 1, /* b */\n "mcpServers": {\n    "other": {"command": "x"}, // last\n  },\n}\n',
    '{"mcpServers": {"holdfast": {"command": "old", "env": {"B": "2"}}}, "n": [1.5e3, null, true, "\\u00e9"]}',
    '\ufeff{\r\n\t"mcpServers": {},\r\n\t"z": "// no remark"\r\n}',
    "{}",
]

TOML_FILES = [
    '# remark\nmodel = "m"\n\n[mcpServers.other]\ncommand = "x"\nargs = []\n\n[z]\nwhen = 2026-01-01T00:00:00Z\n',
    '[mcpServers.holdfast]\ncommand = "old"\n\n[mcpServers.holdfast.env]\nB = "2"\n\n[[list]]\nn = 0x1F\n',
    'mcpServers = { other = { command = """\nx""" } }\n',
]
WORDS = [
    "[",
    "]",
    "[[x]]",
    "{",
    "}",
    "//",
    "/*",
    "*/",
    "#",
    '"""',
    "'''",
    '"',
    "=",
    ":",
    ",",
    ".",
    "\n",
    "mcpServers",
    "holdfast",
]

KNOWN = ["null", '{"a":' * 5_000, "[" * 5_000, '{"a": ' + "9" * 5_000 + "}"]


def test_a_changed_json_file_gets_the_entry_and_keeps_the_rest_or_is_refused(fuzzer: Fuzzer) -> None:
    def check(text: str) -> None:
        try:
            changed = set_json(text, PATH, ENTRY)
        except EditError as error:
            assert_is_declared(error)
            return
        before, after = read_json(text), read_json(changed)
        before = before or {}
        assert after["mcpServers"]["holdfast"] == merged((before.get("mcpServers") or {}).get("holdfast"), ENTRY)
        after["mcpServers"]["holdfast"] = None
        wanted = {**before, "mcpServers": {**(before.get("mcpServers") or {}), "holdfast": None}}
        assert json.dumps(after, sort_keys=True) == json.dumps(wanted, sort_keys=True)
        assert set_json(changed, PATH, ENTRY) == changed

    fuzzer.run(check, changed_text(JSON_FILES, words=WORDS), examples=125, known=KNOWN)


def test_a_changed_toml_file_gets_the_entry_and_keeps_the_rest_or_is_refused(fuzzer: Fuzzer) -> None:
    def check(text: str) -> None:
        try:
            changed = set_toml(text, PATH, ENTRY)
        except EditError as error:
            assert_is_declared(error)
            return
        before, after = tomllib.loads(text), tomllib.loads(changed)
        assert after["mcpServers"].pop("holdfast") == merged(before.get("mcpServers", {}).pop("holdfast", None), ENTRY)
        assert repr(after) == repr({**before, "mcpServers": before.get("mcpServers", {})}) or after == before
        assert set_toml(changed, PATH, ENTRY) == changed

    fuzzer.run(
        check, changed_text(TOML_FILES, words=WORDS), examples=150, known=["a = " + "[" * 5_000, "a = " + "9" * 5_000]
    )


def test_a_file_that_is_refused_is_left_as_it_was(fuzzer: Fuzzer, tmp_path: Path) -> None:
    command = ServerCommand("/opt/holdfast", ("mcp",), {})

    def check(given: tuple[bytes, str]) -> None:
        data, name = given
        path = tmp_path / "settings"
        path.write_bytes(data)
        try:
            result = write(HOSTS[name], path, command)
        except Exception as error:
            assert_is_declared(error)
            assert path.read_bytes() == data
            assert [each.name for each in tmp_path.iterdir()] == ["settings"]
            return
        if result.backup is not None:
            assert result.backup.read_bytes() == data
            result.backup.unlink()

    files = changed_bytes([text.encode() for text in [*JSON_FILES, *TOML_FILES]])
    fuzzer.run(check, st.tuples(files, st.sampled_from(sorted(HOSTS))), examples=50)
