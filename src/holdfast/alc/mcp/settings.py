"""`alc_setting_resolve`: the `[setting.*]` tables of the project's and the user's files, and of the environment."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.core.values import Json
from holdfast.programs.paths import PROJECT_NAMES, algocline_home
from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about

PREFIX = "ALC_SETTING_"

Settings = dict[str, dict[str, Json]]

_TARGET = re.compile(r"[a-z][a-z0-9_]*")


class SettingParams(Params):
    target: Annotated[str | None, about("One table, as `journal` of [setting.journal]; else all.")] = None
    project_root: ProjectRoot = None


async def alc_setting_resolve(call: McpCall, params: SettingParams) -> Object:
    if params.target is not None and not _TARGET.fullmatch(params.target):
        raise McpToolError(f"setting: target '{params.target}' contains invalid characters (snake_case only)")
    layers = await on_files(_layers, directories_of(params.project_root))
    resolved: Settings = {}
    sources: dict[str, dict[str, str]] = {}
    for layer, settings in layers:  # the weakest first
        for target, fields in settings.items():
            if params.target in (None, target):
                resolved.setdefault(target, {}).update(fields)
                sources.setdefault(target, {}).update(dict.fromkeys(fields, layer))
    return {"resolved": resolved, "sources": sources}


def _layers(where: PackageDirectories) -> list[tuple[str, Settings]]:
    found = [("global", _of_file(algocline_home(where.environ) / "config.toml"))]
    found.append(("global", _of_file(where.home / "config.toml")))
    if where.root is not None:
        for ending in ("toml", "local.toml"):
            names = [f"{name}.{ending}" for name in reversed(PROJECT_NAMES)]  # Holdfast's own say the last word
            found += [("project", _of_file(where.root / name)) for name in names]
    return [*found, ("env", of_environment(where.environ))]


def _of_file(path: Path) -> Settings:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise McpToolError(f"setting: failed to parse TOML at {path}: {error}") from None
    tables = document.get("setting")
    if not isinstance(tables, dict):
        return {}
    return {
        target: {name: _json(value) for name, value in fields.items()}
        for target, fields in tables.items()
        if isinstance(fields, dict)
    }


def _json(value: Any) -> Json:
    """A value of TOML as JSON; dates as text."""
    return msgspec.to_builtins(value)


def of_environment(environ: Mapping[str, str]) -> Settings:
    """What variables set: ALC_SETTING_JOURNAL_PATH is `path` of `journal`; the last word is the field."""
    found: Settings = {}
    for variable in sorted(environ):
        target, _, name = variable.removeprefix(PREFIX).lower().rpartition("_")
        if variable.startswith(PREFIX) and name and _TARGET.fullmatch(target):
            found.setdefault(target, {})[name] = _value(environ[variable])
    return found


def _value(text: str) -> Json:
    """What a variable means: a truth value, a number, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


TOOL: McpTool[SettingParams] = McpTool(
    "alc_setting_resolve",
    "Look up settings",
    "The [setting.*] tables as they hold here: the environment (ALC_SETTING_TARGET_FIELD) before the project's files,"
    " and those before the user's config.toml; and for each field where it comes from (env, project, global).",
    SettingParams,
    alc_setting_resolve,
    read_only=True,
    idempotent=True,
)
