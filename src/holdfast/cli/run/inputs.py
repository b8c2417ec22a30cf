"""What `run` starts a strategy with: its input, its environment and its budget, from the options."""

from __future__ import annotations

import json
from typing import Any

from holdfast.cli.errors import InputError
from holdfast.cli.options import parse_json


def parse_ctx(task: str | None, ctx_json: str | None, fields: tuple[str, ...]) -> Any:
    """The input of the strategy, from `--ctx`, `--set` and `--task`; the later of these win."""
    ctx = parse_json(ctx_json, "--ctx") if ctx_json is not None else None
    own = {**_parse_fields(fields), **({} if task is None else {"task": task})}
    if not own:
        return ctx
    if ctx is not None and not isinstance(ctx, dict):
        raise InputError("--task and --set add fields to --ctx, so --ctx has to be a JSON object")
    return {**(ctx or {}), **own}


def _parse_fields(pairs: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key.strip() or not equals:
            raise InputError(f"--set {pair}: expected KEY=VALUE")
        try:
            fields[key.strip()] = parse_json(text, "--set") if not text.startswith("@") else text
        except InputError:
            fields[key.strip()] = text
    return fields


def parse_env(variables: tuple[str, ...]) -> dict[str, str]:
    """The values of `--env`."""
    pairs = [each.partition("=") for each in variables]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InputError(f"--env {key}: expected KEY=VALUE")
    return {key: value for key, _, value in pairs}


def parse_budget(options: tuple[str, ...]) -> dict[str, Any] | None:
    """The limits of `--budget`, or None if there are none."""
    from holdfast.core.budget import Budget

    known = Budget.__struct_fields__
    limits: dict[str, Any] = {}
    for option in options:
        if option.lstrip().startswith("{"):
            limits |= parse_json(option, "--budget")
        else:
            key, _, value = option.partition("=")
            try:
                limits[key.strip()] = json.loads(value)
            except (ValueError, RecursionError):
                raise InputError(
                    f"--budget {option[:100]}: expected KEY=NUMBER, with one of {', '.join(known)}"
                ) from None
    for key in limits:
        if key not in known:
            raise InputError(f"--budget: there is no limit '{key}'; there are {', '.join(known)}")
    return limits or None
