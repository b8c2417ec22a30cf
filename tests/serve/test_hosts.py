"""Adding Holdfast to a host's configuration: the right file, the right words, and nothing else changed."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from holdfast.serve.mcp.config_file import EditError, read_json, set_json, set_toml
from holdfast.serve.mcp.hosts import HOSTS, ServerCommand, UserDirectories, write
from holdfast.testing.patience import HANG_S
from tests.examples import examples

LAUNCH = ServerCommand("/opt/holdfast/bin/holdfast", ("mcp", "--tools", "all"), {})
ENTRY = {"command": "holdfast", "args": ["mcp"]}


# --- the table -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "user", "project"),
    [
        ("claude-code", ".claude.json", ".mcp.json"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", None),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
        ("vscode", ".config/Code/User/mcp.json", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml", ".codex/config.toml"),
        ("opencode", ".config/opencode/opencode.json", "opencode.json"),
        ("gemini", ".gemini/settings.json", ".gemini/settings.json"),
        ("zed", ".config/zed/settings.json", ".zed/settings.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json", None),
    ],
)
def test_every_host_has_its_file(host: str, user: str, project: str | None) -> None:
    directories = UserDirectories({"HOME": "/home/ada"}, "linux")
    assert HOSTS[host].path(None, directories) == Path("/home/ada") / user
    in_project = Path("/work") / project if project else Path("/home/ada") / user
    assert HOSTS[host].path(Path("/work"), directories) == in_project


def test_variables_and_the_system_move_the_files() -> None:
    environ = {"HOME": "/h", "XDG_CONFIG_HOME": "/c", "CODEX_HOME": "/codex", "CLAUDE_CONFIG_DIR": "/claude"}
    linux, mac = UserDirectories(environ, "linux"), UserDirectories({"HOME": "/h"}, "darwin")
    assert HOSTS["vscode"].path(None, linux) == Path("/c/Code/User/mcp.json")
    assert HOSTS["codex"].path(None, linux) == Path("/codex/config.toml")
    assert HOSTS["claude-code"].path(None, linux) == Path("/claude/.claude.json")
    support = Path("/h/Library/Application Support")
    assert HOSTS["claude-desktop"].path(None, mac) == support / "Claude/claude_desktop_config.json"
    assert HOSTS["vscode"].path(None, mac) == support / "Code/User/mcp.json"
    assert HOSTS["zed"].path(None, mac) == Path("/h/.config/zed/settings.json")


def test_of_the_two_spellings_of_opencode_the_one_that_is_there_is_taken(tmp_path: Path) -> None:
    directories = UserDirectories({"HOME": str(tmp_path)})
    (tmp_path / "opencode.jsonc").write_text("{}")
    assert HOSTS["opencode"].path(tmp_path, directories).name == "opencode.jsonc"
    (tmp_path / "opencode.json").write_text("{}")
    assert HOSTS["opencode"].path(tmp_path, directories).name == "opencode.json"


SHAPES: dict[str, Any] = {
    "claude-code": {"mcpServers": {"holdfast": {"type": "stdio", "command": LAUNCH.command, "args": [*LAUNCH.args]}}},
    "claude-desktop": {"mcpServers": {"holdfast": {"command": LAUNCH.command, "args": [*LAUNCH.args]}}},
    "cursor": {"mcpServers": {"holdfast": {"type": "stdio", "command": LAUNCH.command, "args": [*LAUNCH.args]}}},
    "vscode": {"servers": {"holdfast": {"type": "stdio", "command": LAUNCH.command, "args": [*LAUNCH.args]}}},
    "codex": {"mcp_servers": {"holdfast": {"command": LAUNCH.command, "args": [*LAUNCH.args], "required": True}}},
    "opencode": {"mcp": {"holdfast": {"type": "local", "command": [LAUNCH.command, *LAUNCH.args], "enabled": True}}},
    "gemini": {"mcpServers": {"holdfast": {"command": LAUNCH.command, "args": [*LAUNCH.args]}}},
    "zed": {"context_servers": {"holdfast": {"command": LAUNCH.command, "args": [*LAUNCH.args]}}},
    "windsurf": {"mcpServers": {"holdfast": {"command": LAUNCH.command, "args": [*LAUNCH.args]}}},
}


@pytest.mark.parametrize("name", HOSTS)
def test_what_is_printed_and_what_is_written_are_the_same(tmp_path: Path, name: str) -> None:
    host = HOSTS[name]
    path = tmp_path / "deep" / "file"
    written = write(host, path, LAUNCH)
    assert (written.changed, written.backup) == (True, None)
    for text in (host.shown(LAUNCH), path.read_text()):
        assert (json.loads(text) if host.format == "json" else tomllib.loads(text)) == SHAPES[name]
    assert not write(host, path, LAUNCH).changed
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_variables_of_the_server_are_called_as_each_host_calls_them() -> None:
    command = ServerCommand("holdfast", ("mcp",), {"HOLDFAST_HOME": "/x"})
    assert json.loads(HOSTS["cursor"].shown(command))["mcpServers"]["holdfast"]["env"] == {"HOLDFAST_HOME": "/x"}
    assert json.loads(HOSTS["opencode"].shown(command))["mcp"]["holdfast"]["environment"] == {"HOLDFAST_HOME": "/x"}
    assert tomllib.loads(HOSTS["codex"].shown(command))["mcp_servers"]["holdfast"]["env"] == {"HOLDFAST_HOME": "/x"}


# --- writing ---------------------------------------------------------------------------------------


def test_a_file_keeps_all_it_had_and_is_kept_as_it_was(tmp_path: Path) -> None:
    path, target = tmp_path / "settings.json", tmp_path / "dotfiles.json"
    before = (
        '// mine\n{\n\t"theme": "dark", // at night\n\t"context_servers": {\n\t\t"other": {"command": "x"},\n\t},\n}\n'
    )
    target.write_text(before)
    target.chmod(0o640)
    path.symlink_to(target)
    written = write(HOSTS["zed"], path, LAUNCH)
    assert path.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert written.backup == tmp_path / "settings.json.bak"
    assert written.backup.read_text() == before
    text = path.read_text()
    assert text.startswith(
        '// mine\n{\n\t"theme": "dark", // at night\n\t"context_servers": {\n\t\t"other": {"command": "x"},\n'
    )
    assert read_json(text)["context_servers"]["holdfast"] == SHAPES["zed"]["context_servers"]["holdfast"]
    again = write(HOSTS["zed"], path, ServerCommand("/elsewhere/holdfast", ("mcp",), {}))
    assert again.backup == tmp_path / "settings.json.bak2"
    assert again.backup.read_text() == text
    assert written.backup.read_text() == before


@pytest.mark.parametrize(
    ("host", "content"),
    [
        ("zed", b'{"context_servers": {'),
        ("zed", b'{"context_servers": []}'),
        ("zed", b"[]"),
        ("zed", b'{"a": 1} {"b": 2}'),
        ("zed", b"\xff\xfe"),
        ("codex", b"[mcp_servers"),
        ("codex", b'mcp_servers = "none"'),
        ("codex", b'mcp_servers = { other = { command = "x" } }'),
        ("codex", b'[mcp_servers]\nholdfast.command = "x"\n'),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_as_it_is(tmp_path: Path, host: str, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(EditError, match="was not changed"):
        write(HOSTS[host], path, LAUNCH)
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


# --- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "h": {\n      "c": 1\n    }\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "h": {\n      "c": 1\n    }\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "s": {"h": {"c": 1}}}'),
        ('{"a": 1,}', '{"a": 1, "s": {"h": {"c": 1}}}'),
        ('{\n "a": 1\n}', '{\n "a": 1,\n "s": {\n  "h": {\n   "c": 1\n  }\n }\n}'),
        ('{\n "a": 1, // why\n}', '{\n "a": 1, // why\n "s": {\n  "h": {\n   "c": 1\n  }\n }\n}'),
        ('{\n "a": 1 /* why */\n}', '{\n "a": 1, /* why */\n "s": {\n  "h": {\n   "c": 1\n  }\n }\n}'),
        ('{\n "s": {}\n}', '{\n "s": {\n  "h": {\n   "c": 1\n  }\n }\n}'),
        ('{\n "s": null\n}', '{\n "s": {\n  "h": {\n   "c": 1\n  }\n }\n}'),
        ('{\n "s": {\n  // none yet\n }\n}', '{\n "s": {\n  "h": {\n   "c": 1\n  }\n  // none yet\n }\n}'),
        ('{"s": {"h": {"c": 0, "mine": true}}}', '{"s": {"h": {\n  "c": 1,\n  "mine": true\n}}}'),
        ('{\r\n  "a": 1\r\n}', '{\r\n  "a": 1,\r\n  "s": {\r\n    "h": {\r\n      "c": 1\r\n    }\r\n  }\r\n}'),
    ],
)
def test_an_entry_is_put_where_a_person_would_put_it(before: str, after: str) -> None:
    assert set_json(before, ["s", "h"], {"c": 1}) == after
    assert set_json(after, ["s", "h"], {"c": 1}) == after


def test_what_the_user_added_to_the_entry_stays() -> None:
    kept = {"command": "old", "args": ["x"], "env": {"KEY": "1"}, "disabled": True}
    text = set_json(json.dumps({"s": {"h": kept}}), ["s", "h"], {**ENTRY, "env": {"HOLDFAST_HOME": "/x"}})
    assert read_json(text)["s"]["h"] == {**kept, **ENTRY, "env": {"KEY": "1", "HOLDFAST_HOME": "/x"}}


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=5),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
PLACES = some.dictionaries(some.sampled_from("sab"), JSON | some.just({}) | some.just({"h": {"c": 0}}), max_size=3)


@settings(max_examples=examples(100), deadline=None)
@given(before=PLACES, indent=some.sampled_from([None, 0, 1, 2, "\t"]), ascii_only=some.booleans())
def test_any_file_keeps_everything_but_the_entry(before: dict[str, Any], indent: Any, ascii_only: bool) -> None:
    text = json.dumps(before, indent=indent, ensure_ascii=ascii_only)
    there = before.get("s")
    if there is not None and not isinstance(there, dict):
        with pytest.raises(EditError):
            set_json(text, ["s", "h"], {"c": 1})
        return
    old = (there or {}).get("h")
    entry = {**old, "c": 1} if isinstance(old, dict) else {"c": 1}
    after = set_json(text, ["s", "h"], {"c": 1})
    assert json.loads(after) == {**before, "s": {**(there or {}), "h": entry}}
    assert set_json(after, ["s", "h"], {"c": 1}) == after


# --- TOML ------------------------------------------------------------------------------------------

CODEX = """\
# my settings
model = "gpt"   # the good one

[mcp_servers.other]
command = "x"

# about the next one
[profiles.work]
model = "o"
"""


def test_a_table_is_added_at_the_end_and_replaced_in_its_place() -> None:
    added = set_toml(CODEX, ["mcp_servers", "holdfast"], ENTRY)
    assert added == CODEX + '\n[mcp_servers.holdfast]\ncommand = "holdfast"\nargs = ["mcp"]\n'
    other = {"command": "y", "args": ["a b", 'q"\\\n']}
    changed = set_toml(added, ["mcp_servers", "other"], other)
    assert changed == added.replace('command = "x"\n', 'command = "y"\nargs = ["a b", "q\\"\\\\\\n"]\n')
    assert set_toml(changed, ["mcp_servers", "other"], other) == changed


def test_tables_inside_the_table_and_keys_of_the_user_stay() -> None:
    before = (
        '[ mcp_servers . "holdfast" ] # mine\ncommand = "old"\nstartup_timeout_sec = 20.5\nsince = 2026-01-02\n'
        'lists = [[1, 2],\n  [3]]\nhttp_headers = { a = "b" }\n\n'
        '[mcp_servers.holdfast.env]\nKEY = "1" # secret\n\n[tail]\nx = 1\n'
    )
    after = set_toml(before, ["mcp_servers", "holdfast"], {**ENTRY, "env": {"HOLDFAST_HOME": "/x"}})
    was, found = tomllib.loads(before), tomllib.loads(after)
    expected = {**was["mcp_servers"]["holdfast"], **ENTRY, "env": {"KEY": "1", "HOLDFAST_HOME": "/x"}}
    assert found == {"mcp_servers": {"holdfast": expected}, "tail": {"x": 1}}
    assert after.endswith("\n\n[tail]\nx = 1\n")


def test_a_header_inside_a_text_is_not_taken_for_one() -> None:
    before = 'note = """\n[mcp_servers.holdfast]\ncommand = "no"\n"""\n'
    with pytest.raises(EditError, match="cannot be edited safely"):
        set_toml(before, ["mcp_servers", "holdfast"], ENTRY)


# --- the command -----------------------------------------------------------------------------------


def _mcp(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli", "mcp", *args]
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=HANG_S, check=False)


async def test_what_is_written_starts_a_server(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    args = [
        "--install",
        "claude-code",
        "--write",
        "--tools",
        "alc",
        "--project",
        "project",
        "--store",
        "sqlite:///s.db",
    ]
    done = _mcp(tmp_path, *args)
    assert done.returncode == 0, done.stderr
    assert f"{project}/.mcp.json is written." in done.stdout
    entry = json.loads((project / ".mcp.json").read_text())["mcpServers"]["holdfast"]
    assert entry["args"][-4:] == ["--project", str(project), "--store", f"sqlite:///{tmp_path}/s.db"]
    home = {"HOLDFAST_HOME": str(tmp_path / "home")}
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=home, cwd="/")
    with (tmp_path / "stderr").open("w") as errors:
        async with Client(stdio_client(server, errors), mode="legacy") as client:
            assert "alc_run" in {tool.name for tool in (await client.list_tools()).tools}
    assert (tmp_path / "s.db").exists()
    assert "has it already" in _mcp(tmp_path, *args).stdout


def test_without_write_the_configuration_is_printed_and_no_file_is_touched(tmp_path: Path) -> None:
    printed = _mcp(tmp_path, "--install", "codex")
    assert tomllib.loads(printed.stdout)["mcp_servers"]["holdfast"]["args"][-1] == "mcp"
    assert f"{tmp_path}/.codex/config.toml" in printed.stderr
    told = json.loads(_mcp(tmp_path, "--install", "codex", "--json").stdout)
    assert (told["host"], told["format"], told["config"]) == ("codex", "toml", printed.stdout)
    assert list(tmp_path.iterdir()) == []


def test_what_is_to_be_served_is_written_with_its_whole_path(tmp_path: Path) -> None:
    printed = _mcp(tmp_path, "--install", "codex", "--serve", "jobs.py", "--serve", "app.triage:triage")
    args = tomllib.loads(printed.stdout)["mcp_servers"]["holdfast"]["args"]
    assert args[-5:] == ["mcp", "--serve", f"{tmp_path}/jobs.py", "--serve", "app.triage:triage"]


def test_the_command_replaces_the_key(tmp_path: Path) -> None:
    told = json.loads(_mcp(tmp_path, "--rotate-key", "--json").stdout)
    assert told == {"path": f"{tmp_path}/.local/share/holdfast/mcp.keys", "kept": 0}
    assert "keys kept to open what they sealed: 1" in _mcp(tmp_path, "--rotate-key").stdout
