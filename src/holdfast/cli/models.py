"""Models and tools as they are named on a command line, and what to do when a model cannot be had."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.errors import InputError
from holdfast.cli.lookup import find_modules_here

if TYPE_CHECKING:
    from holdfast.agent.providers.provider import Provider
    from holdfast.agent.tools.catalog import DeclaredTool, Toolish

F = TypeVar("F", bound=Callable[..., Any])

MODEL_VARIABLE = "HOLDFAST_MODEL"
"""The environment variable that names the model where none is given."""

_HINTS = {
    "auth": "set the key of the service (such as OPENAI_API_KEY) to one that it takes; a server at another URL gets"
    " OPENAI_API_KEY if OPENAI_BASE_URL is that URL",
    "network": "see that the server runs, and that its URL is right (--base-url)",
    "timeout": "try again, or take another model",
    "rate_limit": "try again later, or take another model",
    "overloaded": "try again later, or take another model",
    "context_length": "take a model with a larger window, or begin a new session",
    "invalid_request": "see that the service has the model, and that the URL is right",
}
"""What to do about a call that failed, by the class of its error."""


def model_options(about: str) -> Callable[[F], F]:
    """Add `--model` and `--base-url`, with what the model is for."""

    def add(function: F) -> F:
        model = click.option("--model", metavar="SERVICE:MODEL", help=about)
        base_url = click.option(
            "--base-url",
            metavar="URL",
            help="Where the model is: a server that speaks the chat-completions form of OpenAI. MODEL alone names it"
            " there.",
        )
        return model(base_url(function))

    return add


def hint_for(fault: str | None) -> str:
    """What to do about a call that failed with an error of this class; empty if there is nothing to say."""
    return _HINTS.get(fault or "", "")


def find_model(model: str, base_url: str | None) -> tuple[Provider, str]:
    """The provider and the model that were named."""
    from holdfast.agent.providers.model_names import find_provider

    return find_provider(model, base_url=base_url)


async def close_provider(provider: Provider) -> None:
    """Let go of its connections, if it has any."""
    if (aclose := getattr(provider, "aclose", None)) is not None:
        await aclose()


def find_tools(given: Sequence[str]) -> list[Toolish | DeclaredTool]:
    """The tools behind `module:name` or `FILE.py:name`. A name may be that of a list of tools."""
    find_modules_here()
    tools: list[Toolish | DeclaredTool] = []
    for each in given:
        found = _find_tool(each)
        tools += found if isinstance(found, (list, tuple)) else [found]
    return tools


def _find_tool(given: str) -> Any:
    where, colon, name = given.rpartition(":")
    module = _load(where if colon else given, given)
    if not colon or not name:
        own = [key for key, value in vars(module).items() if _is_own(module, key, value)]
        there = f" (it has {', '.join(own)})" if own else ""
        raise InputError(f"--tool {given}: name the function, as in {where or given}:NAME{there}")
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InputError(f"--tool {given}: {where} has no '{name}'")
    return found


def _is_own(module: ModuleType, name: str, value: object) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")


def _load(where: str, given: str) -> ModuleType:
    try:
        return _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:
        why = error if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
        raise InputError(f"--tool {given}: {where or 'it'} cannot be imported: {why}") from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"there is no such file in {os.getcwd()}")
    name = f"holdfast_tools_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where the types of its functions are looked up
    spec.loader.exec_module(module)
    return module
