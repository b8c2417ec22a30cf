"""The runtime of commands that run agents: with the models and tools that their options name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.errors import usage_error
from holdfast.cli.models import default_model, find_model
from holdfast.cli.options import settings
from holdfast.cli.retention import retention_in_config

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.catalog import DeclaredTool, Toolish
    from holdfast.engine.dispatch import Dispatch


F = TypeVar("F", bound=Callable[..., Any])


def agents_options(command: F) -> F:
    """Add `--agents` and `--no-agents`, which `find_agents` reads."""
    named = click.option(
        "--agents",
        "agents",
        multiple=True,
        metavar="DIR|FILE.md",
        help="Subagents that the model can give tasks to: the files NAME.md of a directory, or one. Repeatable."
        "  [default: agents/ beside the project's holdfast.toml]",
    )
    none = click.option("--no-agents", is_flag=True, help="No subagents, not even those of the project.")
    return named(none(command))


def find_agents(named: Sequence[str], *, none: bool) -> list[str]:
    """The files and directories with the subagents of a command: as named, or else the project's."""
    from holdfast.agent.subagents.files import project_agents

    if none:
        if named:
            raise usage_error("give either --agents or --no-agents")
        return []
    found = project_agents() if not named else None
    return [str(found)] if found is not None else [*named]


def model_names(given: Sequence[str]) -> list[str]:
    """The models that options name, or else the environment; empty if none does."""
    return [*given] or [name for name in [default_model()] if name]


def make_runtime(
    url: str,
    models: Sequence[str],
    base_url: str | None,
    tools: Sequence[Toolish | DeclaredTool],
    commands: Sequence[Callable[..., Any]] = (),
    *,
    agents: Sequence[str] = (),
    limits: Sequence[str] = (),
    dispatch: Dispatch | None = None,
) -> Runtime:
    """A runtime with these models, of which the first is that of new sessions, these tools and commands, and the
    subagents of these files and directories.

    It declares these limits of the fleet, and keeps sessions for as long as the project's file says. `dispatch` brings
    it work, if anything else than the store does.
    """
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.catalog import DeclaredTool

    found = [find_model(name, base_url) for name in models]
    provider, model = found[0] if found else (None, None)
    runtime = Runtime(
        url,
        provider=provider,
        model=model,
        tools=[tool for tool in tools if not isinstance(tool, DeclaredTool)],
        commands=commands,
        agents=agents,
        service=settings().services,
        limits=limits,
        dispatch=dispatch,
        upkeep=retention_in_config().upkeep(on=True),
    )
    for name, (each, its_model) in zip(models, found, strict=True):
        runtime.add_model(name, each, its_model)
    for tool in tools:
        if isinstance(tool, DeclaredTool):
            runtime.tools.declare(tool.name, tool.description, tool.parameters)
    return runtime
