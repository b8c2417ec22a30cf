"""Tools as they are named on a command line: Python functions and MCP servers."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.cli.engine import find_modules_here
from holdfast.cli.errors import InputError

if TYPE_CHECKING:
    from holdfast.agent.mcp.client import McpClient
    from holdfast.agent.mcp.oauth import OAuthLogin
    from holdfast.agent.tools.catalog import DeclaredTool, Toolish


def find_servers(specs: Sequence[str]) -> list[McpClient]:
    """The MCP servers named as `name=command …` or `name=https://…`."""
    if not specs:
        return []
    from holdfast.agent.mcp.client import McpClient
    from holdfast.core.errors import HoldfastError

    found = []
    for spec in specs:
        name, _, where = spec.partition("=")
        try:
            command = shlex.split(where)
            if not name or not command:
                raise InputError(f"--mcp {spec}: give its name and where it is, as NAME=COMMAND or NAME=URL")
            is_url = where.startswith(("http://", "https://"))
            found.append(McpClient.http(name, where, login=_login(where)) if is_url else McpClient.stdio(name, command))
        except (ValueError, HoldfastError) as error:
            raise error if isinstance(error, InputError) else InputError(f"--mcp {spec}: {error}") from None
    return found


def _login(url: str) -> OAuthLogin | None:
    """The login at a server, if there is one."""
    if importlib.util.find_spec("mcp") is None:
        return None  # the client of the server says what is missing
    from holdfast.agent.mcp.oauth import OAuthLogin

    login = OAuthLogin(url)
    return login if login.is_known else None


def find_tools(names: Sequence[str]) -> list[Toolish | DeclaredTool]:
    """The tools named as `module:name` or `FILE.py:name`. A name may stand for a list of tools."""
    find_modules_here()
    tools: list[Toolish | DeclaredTool] = []
    for name in names:
        found = find_object(name, f"--tool {name}")
        tools += found if isinstance(found, (list, tuple)) else [found]
    return tools


def find_commands(names: Sequence[str]) -> list[Callable[..., Any]]:
    """The functions named as `module:name` or `FILE.py:name`, for people to call."""
    found = [find_object(name, f"--command {name}") for name in names]
    for name, function in zip(names, found, strict=True):
        if not callable(function):
            raise InputError(f"--command {name}: it is not a function")
    return found


def find_object(spec: str, said_by: str) -> Any:
    """What `module:name` or `FILE.py:name` names. `said_by` is how an error names the option that says so."""
    find_modules_here()
    where, colon, name = spec.rpartition(":")
    module = _load(where if colon else spec, said_by)
    if not colon or not name:
        own = [key for key, value in vars(module).items() if _is_own(module, key, value)]
        there = f" (it has {', '.join(own)})" if own else ""
        raise InputError(f"{said_by}: say which name, as in {where or spec}:NAME{there}")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InputError(f"{said_by}: {where} has no '{name}'")
    return found


def _is_own(module: ModuleType, name: str, value: object) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def _load(where: str, said_by: str) -> ModuleType:
    try:
        return _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:
        why = error if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
        raise InputError(f"{said_by}: {where or 'it'} cannot be imported: {why}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no such file in {os.getcwd()}")
    name = f"holdfast_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where the type hints of its functions are resolved
    spec.loader.exec_module(module)
    return module
