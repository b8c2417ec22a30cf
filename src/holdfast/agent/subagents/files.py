"""Subagents as files: `agents/NAME.md`, with settings at the head and instructions as the text.

They are read because whoever makes a runtime says so, or works in the project that has them; never because a store
names one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from holdfast.agent.subagents.definition import AgentDefinition, check_definition
from holdfast.agent.subagents.errors import AgentDefinitionError
from holdfast.agent.subagents.front_matter import FrontMatterError, split_front_matter
from holdfast.core.budget import Budget
from holdfast.core.values import Json
from holdfast.programs.paths import find_project

AGENTS_DIR = "agents"
"""Where a project keeps its subagents."""

_KEYS = [name for name in AgentDefinition.__struct_fields__ if name != "instructions"]


def load_agents(path: str | Path | None = None) -> list[AgentDefinition]:
    """The subagents of a directory, or of one file; without a path, those of the project around the working directory.

    Raises `AgentDefinitionError`, with the file.
    """
    if path is None:
        found = project_agents()
        return load_agents(found) if found is not None else []
    path = Path(path)
    if path.is_file():
        return [read_agent(path)]
    if not path.is_dir():
        raise AgentDefinitionError(str(path), "there is no such file or directory")
    return [read_agent(file) for file in sorted(path.glob("*.md"))]


def project_agents(project: Path | None = None) -> Path | None:
    """The directory with a project's subagents: `agents/` beside its `holdfast.toml`; None if there is none."""
    root = find_project(project)
    folder = root / AGENTS_DIR if root is not None else None
    return folder if folder is not None and folder.is_dir() and any(folder.glob("*.md")) else None


def read_agent(file: Path) -> AgentDefinition:
    """The subagent that a file defines. Raises `AgentDefinitionError`."""
    try:
        settings, text = split_front_matter(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, FrontMatterError) as error:
        raise AgentDefinitionError(str(file), str(error)) from None
    if unknown := sorted(set(settings) - set(_KEYS)):
        raise AgentDefinitionError(str(file), f"unknown key: {', '.join(unknown)} (the keys are: {', '.join(_KEYS)})")
    settings = {key: value for key, value in settings.items() if value is not None}
    settings.setdefault("name", file.stem)
    if settings["name"] != file.stem:
        why = f"its name is '{settings['name']}', but the file is called '{file.name}'; one of them has to change"
        raise AgentDefinitionError(str(file), why)
    if not text:
        raise AgentDefinitionError(str(file), "it has no instructions: write them after the settings")
    given: dict[str, Any] = {**settings, "instructions": text, "result": _schema(file, settings.get("result"))}
    _check_budget(file, settings.get("budget"))
    try:
        definition = msgspec.convert(given, AgentDefinition)
    except msgspec.ValidationError as error:
        raise AgentDefinitionError(str(file), str(error)) from None
    return check_definition(definition, str(file))


def _check_budget(file: Path, given: Json) -> None:
    names = Budget.__struct_fields__
    if isinstance(given, dict) and (unknown := sorted(set(given) - set(names))):
        why = f"unknown limit in budget: {', '.join(unknown)} (the limits are: {', '.join(names)})"
        raise AgentDefinitionError(str(file), why)


def _schema(file: Path, named: Json) -> Json:
    """The JSON schema of a result, which is in a file of its own beside the definition."""
    if named is None:
        return None
    if not isinstance(named, str):
        raise AgentDefinitionError(str(file), "result: name the file with the JSON schema")
    schema = file.parent / named
    try:
        return msgspec.json.decode(schema.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise AgentDefinitionError(str(file), f"result: {schema}: {error}") from None
