"""`mcp`: serve strategies to an MCP host over stdio or HTTP, or add Holdfast to a host's configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.errors import InputError
from holdfast.cli.options import common, service_option, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.own_process import collect_seldom
from holdfast.cli.served import load_served, place_below, serve_option
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.serve.mcp.allowed import AllowedCode
    from holdfast.serve.mcp.hosts import ServerAddress, ServerCommand
    from holdfast.serve.mcp.server import Family, McpServer

_PASSED_ON = ("HOLDFAST_HOME", "HOLDFAST_PACKAGES_PATH", "HOLDFAST_STRATEGIES_PATH")
"""Variables that decide which strategies there are, and that hosts would not pass on."""


@click.command("mcp")
@click.option("--http", "use_http", is_flag=True, help="Serve streamable HTTP instead of standard input and output.")
@click.option("--host", metavar="ADDRESS", help="HTTP: the address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="HTTP: the port; 0 takes a free one.  [8421]")
@click.option(
    "--token",
    envvar="HOLDFAST_MCP_TOKEN",
    help="HTTP: the token that clients must send.  [env: HOLDFAST_MCP_TOKEN; default: that of a file, which is made]",
)
@click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="HTTP: a host name that clients may use. Repeatable."
)
@click.option(
    "--tools",
    type=click.Choice(["holdfast", "alc", "all"]),
    default="holdfast",
    help="Which tools to offer: Holdfast's own, those with algocline's names, or both.  [holdfast]",
)
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The project's root.  [env: HOLDFAST_PROJECT_ROOT; default: the nearest one around this directory]",
)
@click.option(
    "--code-dir",
    "code_dirs",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="A directory from which hosts may have files of code run, beside the project's. Repeatable.",
)
@click.option(
    "--trust-specs",
    is_flag=True,
    help="Let hosts have specs of Lua packages run outside of the sandbox, with your rights.",
)
@click.option(
    "--trust",
    "trusted",
    multiple=True,
    metavar="DIRECTORY|PACKAGE",
    help="Lua packages that hosts may have run outside of the sandbox, with your rights. Repeatable.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Sandbox: computing time between two questions; calls may ask for less.  [default: 10]",
)
@click.option(
    "--memory",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Sandbox: memory of a strategy; calls may ask for less.  [default: 64]",
)
@click.option("--install", "host_name", metavar="HOST", help="Print the configuration that adds Holdfast to a host.")
@click.option("--write", is_flag=True, help="With --install: edit the host's file; a backup is kept.")
@click.option("--login", "login_url", metavar="URL", help="Log in at a server whose tools you use with `--mcp`.")
@click.option("--logout", "logout_url", metavar="URL", help="Forget such a login.")
@click.option("--rotate-key", is_flag=True, help="Use a new key from now on to seal what hosts keep of paused calls.")
@serve_option
@service_option
@common()
def mcp_command(
    *,
    use_http: bool,
    host: str | None,
    port: int | None,
    token: str | None,
    names: tuple[str, ...],
    tools: Family,
    project: Path | None,
    code_dirs: tuple[Path, ...],
    trust_specs: bool,
    trusted: tuple[str, ...],
    deadline: float | None,
    memory: int | None,
    host_name: str | None,
    write: bool,
    login_url: str | None,
    logout_url: str | None,
    rotate_key: bool,
) -> int:
    """Serve strategies to an MCP host: an editor, an agent CLI.

    A host starts this command and talks to it over standard input and output. `--install HOST` prints what belongs in
    the configuration of a host, and `--write` puts it there. Hosts: claude-code, claude-desktop, cursor, vscode,
    codex, opencode, gemini, zed, windsurf.
    """
    if find_spec("mcp") is None:
        raise InputError("the MCP server needs the package `mcp`: pip install 'holdfast[mcp]'")
    if login_url is not None or logout_url is not None:
        return _log_in(login_url) if login_url is not None else _log_out(str(logout_url))
    if write and host_name is None:
        raise InputError("--write needs --install HOST")
    if not use_http and (host is not None or port is not None or names):
        raise InputError("--host, --port and --allow-host need --http")
    if rotate_key:
        return _rotate()
    if project is not None and host_name is None:
        os.environ["HOLDFAST_PROJECT_ROOT"] = str(project.absolute())
    from holdfast.serve.mcp.allowed import AllowedCode

    allowed = AllowedCode(code_dirs, trust_specs, _trusted(trusted, project), deadline, memory)
    if host_name is not None:
        if use_http:
            return _install(host_name, None, _server_address(host, port, token, project), write)
        return _install(host_name, project, _server_command(project, tools, allowed), write)
    logging.basicConfig(stream=sys.stderr, level=_log_level(), format="holdfast: %(name)s: %(message)s")
    # It warns of calls whose connection is gone, which does not matter: the session continues without it.
    logging.getLogger("mcp.shared.jsonrpc_dispatcher").setLevel(logging.ERROR)
    if not use_http:
        # Before anything else, so that nothing that is imported or run can print between the messages.
        from holdfast.serve.mcp.stdio import serve_stdio, take_stdio

        wire = take_stdio()
        return _serve(tools, allowed, lambda server: serve_stdio(server, wire))
    from holdfast.serve.connections import LogRate
    from holdfast.serve.listener import HttpSettings
    from holdfast.serve.mcp.http import serve_http
    from holdfast.serve.mcp.token import load_token, token_path

    for handler in logging.getLogger().handlers:
        handler.addFilter(LogRate())
    http = HttpSettings(**_address(host, port), token=token or load_token(), names=tuple(map(str.lower, names)))

    def ready(url: str) -> None:
        where = "" if token else f"; the token is in {plain(str(token_path()))}"
        click.echo(f"holdfast: serving MCP on {url}{where}", err=True)

    return _serve(tools, allowed, lambda server: serve_http(server, http, ready))


def _log_level() -> int:
    """How much goes to standard error: warnings, unless `ALC_LOG_LEVEL` says another level; errors for `off`."""
    names = {"off": "ERROR", "trace": "DEBUG", "warn": "WARNING"}
    given = os.environ.get("ALC_LOG_LEVEL", "").strip().lower()
    level = logging.getLevelName(names.get(given, given.upper()))
    return level if isinstance(level, int) else logging.WARNING


def _address(host: str | None, port: int | None) -> dict[str, Any]:
    return {name: given for name, given in (("host", host), ("port", port)) if given is not None}


def _trusted(given: tuple[str, ...], project: Path | None) -> list[Path]:
    """The directories that were named, or in which the packages are that were named."""
    from holdfast.programs.kinds import get_language

    found: list[Path] = []
    for each in given:
        if os.path.isdir(os.path.expanduser(each)):
            found.append(Path(os.path.realpath(os.path.expanduser(each))))
        elif (file := get_language("lua").find_file(each, project)) is not None:
            found.append(Path(os.path.realpath(file.parent)))
        else:
            raise InputError(
                f"--trust: there is no directory and no Lua package '{plain(each)}'; see `holdfast pkg list`"
            )
    return found


def _serve(tools: Family, allowed: AllowedCode, serve: Callable[[McpServer], Awaitable[None]]) -> int:
    from holdfast.engine.holdfast import open_holdfast
    from holdfast.serve.mcp.keys import load_keys
    from holdfast.serve.mcp.server import McpServer

    load_served()
    keys = load_keys()

    async def run() -> None:
        async with open_holdfast(settings().url(create=True), service=settings().services) as holdfast:
            await serve(McpServer(holdfast, family=tools, keys=keys, allowed=allowed))

    collect_seldom()
    asyncio.run(run())
    return ExitCode.OK


def _log_in(url: str) -> int:
    """Let the person log in at a server: in a browser, or at the address that is printed."""
    import webbrowser

    from holdfast.agent.mcp.oauth import OAuthLogin

    async def show(address: str) -> None:
        click.echo(f"Log in here, if no browser opens:\n{plain(address)}", err=True)
        await asyncio.to_thread(webbrowser.open, address)

    asyncio.run(OAuthLogin(url).log_in(show))
    print_json({"url": url, "login": True}) if settings().json else click.echo(f"Logged in at {plain(url)}.")
    return ExitCode.OK


def _log_out(url: str) -> int:
    from holdfast.agent.mcp.oauth import OAuthLogin

    if not OAuthLogin(url).forget():
        raise InputError(f"nobody is logged in at {url}")
    print_json({"url": url, "login": False}) if settings().json else click.echo(
        f"The login at {plain(url)} is forgotten."
    )
    return ExitCode.OK


def _rotate() -> int:
    from holdfast.serve.mcp.keys import key_path, rotate_keys

    kept = rotate_keys()
    if settings().json:
        print_json({"path": str(key_path()), "kept": kept})
    else:
        click.echo(f"The new key is in {plain(str(key_path()))}; keys kept to open what they sealed: {kept}.")
        click.echo("Restart running servers to use it.")
    return ExitCode.OK


# --- hosts -----------------------------------------------------------------------------------------


def add_to_host(name: str, project: Path) -> dict[str, Any]:
    """Add the server of a project to a host: to the host's file in the project, or else to that of the user."""
    from holdfast.serve.mcp import hosts
    from holdfast.serve.mcp.allowed import AllowedCode

    host, root = hosts.HOSTS[name], project.absolute()
    path = host.path(root, hosts.UserDirectories(os.environ))
    written = hosts.write(host, path, _server_command(root, "holdfast", AllowedCode(), names_store=False))
    return {"host": name, "path": str(path), "changed": written.changed, "next": host.next_step}


def _install(name: str, project: Path | None, server: ServerCommand | ServerAddress, write: bool) -> int:
    from holdfast.serve.mcp import hosts

    host = hosts.HOSTS.get(name)
    if host is None:
        raise InputError(f"unknown host '{name}'; the hosts are {', '.join(hosts.HOSTS)}")
    root = project.absolute() if project is not None else None
    path = host.path(root, hosts.UserDirectories(os.environ))
    report: dict[str, Any] = {"host": name, "path": str(path), "format": host.format, "config": host.shown(server)}
    if write:
        written = hosts.write(host, path, server)
        report |= {"changed": written.changed, "backup": str(written.backup) if written.backup else None}
    if settings().json:
        print_json(report)
    elif not write:
        click.echo(f"{host.title} reads its MCP servers from {plain(str(path))}. Add:", err=True)
        click.echo(report["config"], nl=False)
        click.echo("--write adds it, and leaves everything else in the file as it is.", err=True)
    elif not report["changed"]:
        click.echo(f"{plain(str(path))} has it already.")
    else:
        click.echo(
            f"{plain(str(path))} is written." + (f" Backup: {plain(report['backup'])}" if report["backup"] else "")
        )
        click.echo(host.next_step)
    return ExitCode.OK


def _server_address(host: str | None, port: int | None, token: str | None, project: Path | None) -> ServerAddress:
    """Where the server is that runs by itself, and the token that hosts have to send."""
    from holdfast.serve.listener import HttpSettings
    from holdfast.serve.mcp.hosts import ServerAddress
    from holdfast.serve.mcp.http import PATH
    from holdfast.serve.mcp.token import load_token

    if project is not None:
        raise InputError("the file of a project is shared, and must not hold a token: leave out --project")
    secret = token or load_token()
    http = HttpSettings(**_address(host, port), token=secret)
    return ServerAddress(http.url(http.port) + PATH, secret)


def _server_command(
    given: Path | None, tools: Family, allowed: AllowedCode, *, names_store: bool = True
) -> ServerCommand:
    """How a host starts this server: with full paths, as a host has its own PATH.

    Unless it `names_store`, the store is that of the project's file.
    """
    from holdfast.serve.mcp.hosts import ServerCommand

    project = given.absolute() if given is not None else None

    script = Path(sys.executable).with_name("holdfast")
    command, *args = [str(script)] if script.exists() else [sys.executable, "-m", "holdfast.cli"]
    args.append("mcp")
    if tools != "holdfast":
        args += ["--tools", tools]
    if project is not None:
        args += ["--project", str(project)]
    for each in allowed.code_directories:
        args += ["--code-dir", str(each.absolute())]
    if allowed.trusts_specs:
        args.append("--trust-specs")
    for each in allowed.trusted:
        args += ["--trust", str(each)]
    if allowed.deadline_s is not None:
        args += ["--deadline", f"{allowed.deadline_s:g}"]
    if allowed.memory_mib is not None:
        args += ["--memory", str(allowed.memory_mib)]
    for where in settings().serve:
        args += ["--serve", place_below(Path.cwd(), where)]
    for service in settings().named_services:
        args += ["--service", service]
    if names_store and settings().store is not None:
        args += ["--store", _absolute(settings().url(create=True))]
    return ServerCommand(command, tuple(args), {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)})


def _absolute(url: str) -> str:
    file = url.removeprefix("sqlite:///")
    return f"sqlite:///{os.path.abspath(file)}" if file not in ("", url) else url
