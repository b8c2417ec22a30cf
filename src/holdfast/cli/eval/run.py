"""`eval run`: evaluate a plan, or strategies with models on data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.errors import usage_error
from holdfast.cli.eval.options import (
    parse_fields,
    parse_graders,
    run_options,
    run_terms,
    split_names,
)
from holdfast.cli.options import common, project_option, service_option, settings
from holdfast.cli.output import dim, print_json
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.plan import Plan


@click.command("run")
@click.argument("plan_file", metavar="[PLAN.toml]", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--strategy", "strategies", multiple=True, metavar="NAME,…", help="Strategies; `model` is the model alone."
)
@click.option("--model", "models", multiple=True, metavar="SERVICE:MODEL,…", help="Models that answer.")
@click.option("--data", metavar="FILE", help="The cases: JSONL, JSON, YAML, CSV or TSV.")
@click.option("--grader", "graders", multiple=True, metavar="NAME,…|JSON", help="Graders.  [default: exact_match]")
@click.option("--judge", "judges", multiple=True, metavar="SERVICE:MODEL", help="The model of graders that ask one.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="K", help="Tries of each case.  [default: 1]")
@click.option("--field", "fields", multiple=True, metavar="OURS=THEIRS,…", help="Where rows have what we need.")
@click.option("--cluster", metavar="FIELD", help="The field that says which cases belong together.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N cases.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Only N cases, drawn at random.")
@click.option("--seed", type=int, metavar="S", help="Where random numbers begin.  [default: 0]")
@click.option("--budget", multiple=True, metavar="KEY=VALUE", help="A limit, such as max_cost=5. Repeatable.")
@click.option(
    "--price", "prices", multiple=True, metavar="MODEL=PROMPT,COMPLETION", help="US dollars per million tokens."
)
@click.option(
    "--reuse",
    multiple=True,
    metavar="EVAL",
    help="Take over the trials of this evaluation that ran the same. Repeatable.",
)
@click.option("--id", "evaluation", metavar="ID", help="The id of the evaluation. Tried again, it is resumed.")
@click.option("--trials-service", metavar="NAME", help="Leave trials to the workers that serve this service.")
@click.option("--dry-run", is_flag=True, help="Check everything, show what it would cost, and run nothing.")
@project_option("The project whose packages and strategies are used.")
@run_options
@service_option
@common()
def run_command(**given: Any) -> int:
    """Evaluate the plan in a file, or what the options say; options win over the file.

    Everything is checked before the first trial. The id that is printed resumes the evaluation after any crash.
    """
    from holdfast.cli.eval.work import carry_out

    terms, is_dry, evaluation = run_terms(given), given.pop("dry_run"), given.pop("evaluation")
    plan = _plan(given)
    return _show_estimate(plan) if is_dry else carry_out(evaluation, plan, None, terms)


def _plan(given: dict[str, Any]) -> Plan:
    from holdfast.cli.run.inputs import parse_budget, parse_prices
    from holdfast.cli.served import load_served
    from holdfast.strategies.evaluation.plan import Plan

    load_served()
    changes: dict[str, Any] = {
        "strategies": split_names(given["strategies"]) or None,
        "models": split_names(given["models"]) or None,
        "data": given["data"],
        "graders": parse_graders(given["graders"], given["judges"]) or None,
        "budget": parse_budget(given["budget"]),
        "prices": parse_prices(given["prices"]) or None,
        "fields": parse_fields(given["fields"]) or None,
        "service": given["trials_service"],
        "reuse": split_names(given["reuse"]) or None,
        **{name: given[name] for name in ("repeat", "cluster", "limit", "sample", "seed", "project")},
    }
    if given["plan_file"] is not None:
        return Plan.load(given["plan_file"], **changes)
    named = {name: value for name, value in changes.items() if value is not None}
    for name, option in (("strategies", "--strategy"), ("data", "--data")):
        if name not in named:
            raise usage_error(f"Give a PLAN.toml, or {option}.")
    return Plan(**named)


def _show_estimate(plan: Plan) -> int:
    from holdfast.cli.eval.figures import money
    from holdfast.strategies.evaluation.estimates import plan_estimate

    frozen, cases = plan.freeze()
    estimates = plan_estimate(frozen, cases)
    if settings().json:
        print_json({"cases": len(cases), "dataset_digest": frozen.dataset_digest, "arms": estimates})
        return ExitCode.OK
    rows = [
        [each.arm, each.digest, f"{each.trials:,}", "?" if each.calls is None else f"{each.calls:,}", money(each.cost)]
        for each in estimates
    ]
    print_table(["arm", "digest", "trials", "calls at most", "cost at most"], rows)
    graders = ", ".join(f"{spec.name} ({spec.digest})" for spec in frozen.graders)
    click.echo(dim(f"{len(cases):,} cases ({frozen.dataset_digest}) · graders: {graders} · nothing was run"))
    for warning in frozen.warnings:
        click.echo(dim(f"note: {warning}"))
    return ExitCode.OK
