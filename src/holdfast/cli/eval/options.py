"""Options that the commands of `eval` share, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from holdfast.cli.errors import InputError
from holdfast.cli.options import parse_json
from holdfast.cli.served import serve_option

F = TypeVar("F", bound=Callable[..., Any])


class RunTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How trials are run, and when the command ends with exit code 1."""

    jobs: int
    model_jobs: tuple[str, ...]
    base_url: str | None
    tools: tuple[str, ...]
    accept_drift: bool
    min_score: float | None
    no_worse_than: str | None
    margin: float


def run_options(function: F) -> F:
    """Add the options of commands that run trials; `run_terms` takes them."""
    for add in reversed(
        [
            click.option("--jobs", type=click.IntRange(1, 1000), default=16, show_default=True, help="Trials at once."),
            click.option(
                "--model-jobs", multiple=True, metavar="MODEL=N", help="Calls of one model at once. Repeatable."
            ),
            click.option("--base-url", metavar="URL", help="The server of the models, as with `holdfast run`."),
            click.option(
                "--tool", "tools", multiple=True, metavar="MODULE:NAME", help="A tool that agents can call. Repeatable."
            ),
            click.option("--accept-drift", is_flag=True, help="Go on although something differs from the frozen plan."),
            click.option(
                "--min-score",
                type=float,
                metavar="SCORE",
                help="Exit with 1 if the interval of an arm's score begins below this.",
            ),
            click.option(
                "--no-worse-than",
                metavar="[EVAL:]ARM",
                help="Exit with 1 if an arm may be worse than this one by more than --margin.",
            ),
            click.option("--margin", type=click.FloatRange(min=0), default=0.02, show_default=True),
            serve_option,
        ]
    ):
        function = add(function)
    return function


def run_terms(given: dict[str, Any]) -> RunTerms:
    """The terms in a command's options, which are taken out of them."""
    return RunTerms(**{name: given.pop(name) for name in RunTerms.__struct_fields__})


def parse_model_jobs(pairs: tuple[str, ...]) -> dict[str, int]:
    """The values of `--model-jobs`."""
    found: dict[str, int] = {}
    for pair in pairs:
        model, _, count = pair.rpartition("=")
        if not model or not count.isdigit() or int(count) < 1:
            raise InputError(f"--model-jobs {pair}: expected MODEL=N, with N at least 1")
        found[model] = int(count)
    return found


def parse_fields(pairs: tuple[str, ...]) -> dict[str, str]:
    """The values of `--field`: ours=theirs, several separated by commas."""
    found: dict[str, str] = {}
    for pair in [each for given in pairs for each in given.split(",")]:
        ours, equals, theirs = pair.partition("=")
        if not ours.strip() or not equals or not theirs.strip():
            raise InputError(f"--field {pair}: expected OURS=THEIRS, such as input=question")
        found[ours.strip()] = theirs.strip()
    return found


def parse_graders(values: tuple[str, ...], judges: tuple[str, ...]) -> list[Any]:
    """The values of `--grader`: names, or tables as JSON; `--judge` is for those that ask a model."""
    from holdfast.strategies.evaluation.graders.spec import JUDGES

    graders: list[Any] = []
    for value in [each for given in values for each in ([given] if given[:1] in "{@" else given.split(","))]:
        table = parse_json(value, "--grader") if value[:1] in "{@" else {"grader": value}
        if judges and table.get("grader") in JUDGES:
            table = {"judge": list(judges), **table}
        graders.append(table)
    return graders


def split_names(values: tuple[str, ...]) -> list[str]:
    """Names that were given one at a time, or several separated by commas."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def output_option(function: F) -> F:
    """Add `-o FILE`."""
    return click.option(
        "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="The file to write."
    )(function)
