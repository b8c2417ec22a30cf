"""The figures of an evaluation on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import settings
from holdfast.cli.output import dim, duration, heading, plain, print_json
from holdfast.cli.table import print_table

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.report.arm_figures import ArmFigures
    from holdfast.strategies.evaluation.report.report import EvaluationReport

_MOST_PAIRS = 15
"""Pairs of arms that are printed; the page has all of them."""


def money(amount: float | None) -> str:
    """An amount in US dollars, or a dash if nobody knows it."""
    return "—" if amount is None else f"${amount:.4f}" if amount < 1 else f"${amount:,.2f}"


def print_report(report: EvaluationReport, failed: Sequence[str] = ()) -> None:
    """Print all figures: of each arm, of the pairs, and what one has to know to read them."""
    if settings().json:
        print_json({**report.to_json(), "failed_gates": list(failed)})
        return
    clusters = len({case.cluster for case in report.cases}) if report.is_clustered else 0
    facts = [f"{len(report.cases):,} cases", f"{report.plan.repeat} × each", f"{clusters} clusters" if clusters else ""]
    click.echo(f"{heading(plain(report.id))}  {report.state}  {dim(' · '.join(filter(None, facts)))}")
    columns = [
        "arm",
        "score",
        "95 % interval",
        "pass",
        "n",
        "errors",
        "missing",
        "ungraded",
        "calls",
        "tokens",
        "cost",
        "p50",
        "p95",
    ]
    print_table(columns, [_row(figures) for figures in report.arms])
    methods = sorted({figures.interval.method for figures in report.arms if figures.interval is not None})
    if methods:
        click.echo(dim(f"intervals: {', '.join(methods)}, level 95 %; score and pass rate over cases"))
    for figures in report.arms:
        extra = [f"pass@{k} {value:.3f}" for k, value in figures.pass_at.items() if k != "1"]
        extra += [f"pass^{k} {value:.3f}" for k, value in figures.pass_all.items() if k != "1"]
        if figures.spread is not None:
            extra.append(f"variance within cases {figures.spread.within:.4f}, between {figures.spread.between:.4f}")
        if extra:
            click.echo(f"{plain(figures.arm)}: {', '.join(extra)}")
    if report.comparisons:
        click.echo("")
        for each in report.comparisons[:_MOST_PAIRS]:
            click.echo(plain(each.sentence))
        if len(report.comparisons) > _MOST_PAIRS:
            click.echo(
                dim(f"{len(report.comparisons) - _MOST_PAIRS} more pairs are on the page: `holdfast eval report`")
            )
    failures = [(figures.arm, group) for figures in report.arms for group in figures.failures]
    if failures:
        click.echo("")
        for arm, group in failures:
            case = report.cases[group.example].id
            click.echo(f"{plain(arm)}: {group.count} × {plain(group.why)}  {dim(f'such as case {case}')}")
    for note in report.notes:
        click.echo(dim(f"note: {plain(note)}"))


def _row(figures: ArmFigures) -> list[str]:
    interval = figures.interval
    waiting = figures.waiting_ms
    return [
        figures.arm,
        "—" if figures.score is None else f"{figures.score.mean:.3f}",
        "—" if interval is None else f"{interval.low:.3f} … {interval.high:.3f}",
        "—" if figures.pass_rate is None else f"{figures.pass_rate:.3f}",
        "0" if figures.score is None else str(figures.score.n),
        str(figures.errors),
        str(figures.missing),
        str(figures.ungraded),
        f"{figures.calls:,}",
        f"{figures.prompt_tokens + figures.completion_tokens:,}",
        money(figures.cost),
        "—" if waiting is None else duration(round(waiting.p50)),
        "—" if waiting is None else duration(round(waiting.p95)),
    ]
