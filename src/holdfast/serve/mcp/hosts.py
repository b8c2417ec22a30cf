"""The hosts that Holdfast can be added to: where each configures its MCP servers, and in which form."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.programs.files import write_atomically
from holdfast.serve.mcp.config_file import EditError, set_json, set_toml

NAME = "holdfast"
"""What hosts call the server."""


@dataclass(frozen=True)
class ServerCommand:
    """How the server is started."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is that runs by itself, and the token that it wants."""

    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True)
class Host:
    """A host: where its configuration is, and the entry it needs."""

    name: str
    title: str
    keys: tuple[str, ...]
    """The path of keys to the servers in the file."""
    entry: Callable[[ServerCommand], dict[str, Any]]
    user_file: Callable[[UserDirectories], Path]
    project_file: str | None = None
    """The file in a project, if the host has one."""
    remote_entry: Callable[[ServerAddress], dict[str, Any]] | None = None
    """The entry for a server over HTTP, if the host's file takes one."""
    format: Literal["json", "toml"] = "json"
    next_step: str = "Restart it to see Holdfast's tools."

    def path(self, project: Path | None, directories: UserDirectories) -> Path:
        """The file to edit: the project's, or the user's. Of two spellings, the one that exists."""
        path = project / self.project_file if project and self.project_file else self.user_file(directories)
        other = path.with_suffix(".jsonc")
        return other if self.name == "opencode" and not path.exists() and other.exists() else path

    def entry_for(self, server: ServerCommand | ServerAddress) -> dict[str, Any]:
        """The entry of a server that the host starts, or that runs by itself."""
        if isinstance(server, ServerCommand):
            return self.entry(server)
        if self.remote_entry is None:
            raise EditError(f"the file of {self.title} takes no servers over HTTP; leave out --http")
        return self.remote_entry(server)

    def edited(self, text: str, server: ServerCommand | ServerAddress) -> str:
        """The configuration with Holdfast in it."""
        change = set_json if self.format == "json" else set_toml
        return change(text, [*self.keys, NAME], self.entry_for(server))

    def shown(self, server: ServerCommand | ServerAddress) -> str:
        """The entry for the file, for people to copy."""
        if self.format == "toml":
            return set_toml("", [*self.keys, NAME], self.entry_for(server))
        value: dict[str, Any] = {NAME: self.entry_for(server)}
        for key in reversed(self.keys):
            value = {key: value}
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class UserDirectories:
    """Where programs keep the settings of this user."""

    environ: Mapping[str, str]
    platform: str = sys.platform

    @property
    def home(self) -> Path:
        return Path(self.environ.get("HOME") or "~").expanduser()

    @property
    def config(self) -> Path:
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")

    @property
    def applications(self) -> Path:
        """For desktop applications: a folder of its own on macOS."""
        return self.home / "Library" / "Application Support" if self.platform == "darwin" else self.config

    def named(self, variable: str, default: Path) -> Path:
        return Path(self.environ[variable]) if self.environ.get(variable) else default


# --- the table -------------------------------------------------------------------------------------


def _plain(command: ServerCommand) -> dict[str, Any]:
    entry: dict[str, Any] = {"command": command.command, "args": list(command.args)}
    return {**entry, "env": dict(command.env)} if command.env else entry


def _typed(command: ServerCommand) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _codex(command: ServerCommand) -> dict[str, Any]:
    # Codex starts without the tools of a server that takes more than a second to start, unless it is required.
    return {**_plain(command), "required": True}


def _opencode(command: ServerCommand) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "local", "command": [command.command, *command.args], "enabled": True}
    return {**entry, "environment": dict(command.env)} if command.env else entry


def _typed_http(server: ServerAddress) -> dict[str, Any]:
    return {"type": "http", "url": server.url, "headers": server.headers}


def _named_url(name: str) -> Callable[[ServerAddress], dict[str, Any]]:
    return lambda server: {name: server.url, "headers": server.headers}


def _codex_http(server: ServerAddress) -> dict[str, Any]:
    return {"url": server.url, "http_headers": server.headers}


def _opencode_http(server: ServerAddress) -> dict[str, Any]:
    return {"type": "remote", "url": server.url, "headers": server.headers, "enabled": True}


HOSTS: dict[str, Host] = {
    host.name: host
    for host in (
        Host(
            "claude-code",
            "Claude Code",
            ("mcpServers",),
            _typed,
            lambda where: where.named("CLAUDE_CONFIG_DIR", where.home) / ".claude.json",
            ".mcp.json",
            remote_entry=_typed_http,
            next_step="Restart `claude`; `/mcp` lists the server.",
        ),
        Host(
            "claude-desktop",
            "Claude Desktop",
            ("mcpServers",),
            _plain,
            lambda where: where.applications / "Claude" / "claude_desktop_config.json",
            next_step="Quit Claude Desktop (closing its window is not enough) and start it again.",
        ),
        Host(
            "cursor",
            "Cursor",
            ("mcpServers",),
            _typed,
            lambda where: where.home / ".cursor" / "mcp.json",
            ".cursor/mcp.json",
            remote_entry=_named_url("url"),
            next_step="Turn the server on in Cursor's settings, under MCP.",
        ),
        Host(
            "vscode",
            "VS Code",
            ("servers",),
            _typed,
            lambda where: where.applications / "Code" / "User" / "mcp.json",
            ".vscode/mcp.json",
            remote_entry=_typed_http,
            next_step="Run the command `MCP: List Servers` and start the server.",
        ),
        Host(
            "codex",
            "Codex",
            ("mcp_servers",),
            _codex,
            lambda where: where.named("CODEX_HOME", where.home / ".codex") / "config.toml",
            ".codex/config.toml",
            format="toml",
            remote_entry=_codex_http,
            next_step="Restart `codex`; `/mcp` lists the server. A project's file needs Codex's trust in the project.",
        ),
        Host(
            "opencode",
            "opencode",
            ("mcp",),
            _opencode,
            lambda where: where.config / "opencode" / "opencode.json",
            "opencode.json",
            remote_entry=_opencode_http,
            next_step="Restart `opencode`; `opencode mcp list` lists the server.",
        ),
        Host(
            "gemini",
            "Gemini CLI",
            ("mcpServers",),
            _plain,
            lambda where: where.home / ".gemini" / "settings.json",
            ".gemini/settings.json",
            remote_entry=_named_url("httpUrl"),
            next_step="Restart `gemini`; `/mcp` lists the server.",
        ),
        Host(
            "zed",
            "Zed",
            ("context_servers",),
            _plain,
            lambda where: (
                (where.home / ".config" if where.platform == "darwin" else where.config) / "zed" / "settings.json"
            ),
            ".zed/settings.json",
            remote_entry=_named_url("url"),
            next_step="Zed starts the server at once; the settings of its agent panel show whether it runs.",
        ),
        Host(
            "windsurf",
            "Windsurf",
            ("mcpServers",),
            _plain,
            lambda where: where.home / ".codeium" / "windsurf" / "mcp_config.json",
            remote_entry=_named_url("serverUrl"),
            next_step="Press refresh in Cascade's MCP settings.",
        ),
    )
}


# --- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteResult:
    """How a file was changed."""

    path: Path
    changed: bool
    backup: Path | None = None
    """The file as it was, if there was one and it has changed."""


def write(host: Host, path: Path, server: ServerCommand | ServerAddress) -> WriteResult:
    """Add Holdfast to a host's file; everything else in it stays. A second call changes nothing."""
    try:
        old = path.read_bytes()
    except FileNotFoundError:
        old = None
    try:
        text = (old or b"").decode()
        new = host.edited(text, server).encode()
    except UnicodeDecodeError:
        raise EditError(f"{path} was not changed: it is not UTF-8 text") from None
    except EditError as error:
        raise EditError(f"{path} was not changed: {error}. Without --write, the entry it needs is printed") from None
    if new == old:
        return WriteResult(path, changed=False)
    backup = _kept(path, old) if old is not None else None
    path.parent.mkdir(parents=True, exist_ok=True)
    if old is None and isinstance(server, ServerAddress):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # it has the token in it
    write_atomically(path, new)
    return WriteResult(path, changed=True, backup=backup)


def _kept(path: Path, content: bytes) -> Path:
    """A copy beside the file, under a name that is not taken."""
    number = 1
    while True:
        backup = path.with_name(f"{path.name}.bak" if number == 1 else f"{path.name}.bak{number}")
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path.stat().st_mode & 0o777)
            with open(descriptor, "wb") as stream:
                stream.write(content)
            return backup
        number += 1
