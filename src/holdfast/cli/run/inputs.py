"""What `run` starts a strategy with: its input, its environment and its budget, from the options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.errors import InputError
from holdfast.cli.options import is_person_here, parse_json

if TYPE_CHECKING:
    from holdfast.core.budget import Price
    from holdfast.core.records import Program

_ALWAYS_KNOWN = ("task", "budget")
"""Fields of ctx that mean something for every strategy."""


def parse_ctx(task: str | None, ctx_json: str | None, fields: tuple[str, ...], texts: dict[str, Any]) -> Any:
    """The input of the strategy, from `--ctx`, the texts of files, `--set` and `--task`; the later of these win."""
    ctx = parse_json(ctx_json, "--ctx") if ctx_json is not None else None
    own = {**texts, **_parse_fields(fields), **({} if task is None else {"task": task})}
    if not own:
        return ctx
    if ctx is not None and not isinstance(ctx, dict):
        raise InputError("--task, --set, --file and --bind add fields to --ctx, so --ctx has to be a JSON object")
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


def checked_ctx(program: Program, ctx: Any, fields: tuple[str, ...], *, is_dry: bool) -> Any:
    """The input of a program that says what it reads, checked before anything is stored.

    A person is asked for a task that is missing. A dry run makes up what is missing by itself.
    """
    from holdfast.programs.names import did_you_mean
    from holdfast.programs.parameters import filled
    from holdfast.strategies.dry_run import meta_of

    meta = meta_of(program)
    if meta is None or not meta.parameters:
        return ctx
    known = [*meta.parameters, *(each for each in _ALWAYS_KNOWN if each not in meta.parameters)]
    for name in _parse_fields(fields):
        if name not in known:
            hint = did_you_mean(name, known) or f"its parameters are {', '.join(meta.parameters)}"
            raise InputError(f"--set {name}: '{meta.name}' has no such parameter; {hint}")
    if is_dry:
        return ctx
    task, given = meta.parameters.get("task"), {} if ctx is None else ctx
    if task is not None and task.required and is_person_here() and isinstance(given, dict) and "task" not in given:
        ctx = {**given, "task": click.prompt("Task")}
    try:
        filled(meta, ctx)
    except ValueError as error:
        raise InputError(f"{error}; give parameters with --task, --set KEY=VALUE or --ctx") from None
    return ctx


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


def parse_prices(options: tuple[str, ...]) -> dict[str, Price]:
    """The prices of `--price`: MODEL=PROMPT,COMPLETION for a million tokens; `default` stands for all other models."""
    from holdfast.core.budget import Price

    found: dict[str, Price] = {}
    for option in options:
        model, _, numbers = option.rpartition("=")
        try:
            prompt, completion = (float(each) for each in numbers.split(","))
        except ValueError:
            raise InputError(f"--price {option[:100]}: expected MODEL=PROMPT,COMPLETION for a million tokens") from None
        if not model:
            raise InputError(f"--price {option[:100]}: name the model before '='")
        found[model] = Price(prompt, completion)
    return found
