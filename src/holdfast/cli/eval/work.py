"""Carrying out an order of an evaluation: its runtime, its progress on the terminal, and its figures at the end."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.display.live_block import LiveBlock, can_redraw
from holdfast.cli.eval.figures import print_report
from holdfast.cli.eval.gates import failed_gates
from holdfast.cli.eval.options import RunTerms, parse_model_jobs
from holdfast.cli.models import close_provider, find_model
from holdfast.cli.options import settings
from holdfast.cli.output import plain, width
from holdfast.cli.served import load_served
from holdfast.cli.tools import find_tools
from holdfast.core.errors import ExitCode

if TYPE_CHECKING:
    from holdfast.strategies.evaluation.dispatcher import WorkProgress
    from holdfast.strategies.evaluation.evaluation import Evaluation
    from holdfast.strategies.evaluation.orders import WorkOrder
    from holdfast.strategies.evaluation.plan import FrozenPlan, Plan

_DRAW_S = 0.1
"""Seconds between two drawings of the progress."""

_BAR = 30
"""Columns of the progress bar."""


class ProgressBar:
    """How far an evaluation is, on a terminal; elsewhere it says so at every tenth, on standard error."""

    def __init__(self) -> None:
        self._is_live = can_redraw() and not settings().json
        self._block = LiveBlock()
        self._drawn_at = 0.0
        self._tenths = 0

    def __call__(self, progress: WorkProgress) -> None:
        now = time.monotonic()
        if self._is_live and (now - self._drawn_at > _DRAW_S or progress.done == progress.total):
            self._drawn_at = now
            self._block.show([progress_line(progress)[: width() - 1]])
        tenths = progress.done * 10 // max(1, progress.total)
        if not self._is_live and not settings().json and tenths > self._tenths:
            self._tenths = tenths
            click.echo(progress_line(progress), err=True)

    def close(self) -> None:
        if self._is_live:
            self._block.show([])


def progress_line(progress: WorkProgress) -> str:
    """One line that says how far the work is."""
    share = progress.done / max(1, progress.total)
    filled = round(share * _BAR)
    parts = [f"{'█' * filled}{'░' * (_BAR - filled)} {progress.done:,} of {progress.total:,} trials"]
    if progress.failed:
        parts.append(f"{progress.failed:,} failed")
    if progress.cost is not None:
        parts.append(f"${progress.cost:.4g}")
    if progress.running:
        parts.append(f"{progress.running} running")
    return " · ".join(parts)


def carry_out(id: str | None, plan: Plan | None, order: WorkOrder | None, terms: RunTerms) -> int:
    """Carry out an order here, print the figures, and give the exit code."""
    load_served()
    progress = ProgressBar()
    try:
        evaluation = asyncio.run(_work(id, plan, order, terms, progress))
    finally:
        progress.close()
    return asyncio.run(_tell(evaluation, terms))


async def _work(
    id: str | None, plan: Plan | None, order: WorkOrder | None, terms: RunTerms, progress: ProgressBar
) -> Evaluation:
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.tools.catalog import DeclaredTool
    from holdfast.engine.upkeep import Upkeep
    from holdfast.strategies.evaluation.dispatcher import Jobs
    from holdfast.strategies.evaluation.evaluation import Evaluation, evaluate, new_evaluation_id

    url = settings().url(create=plan is not None)
    evaluation_id = id or new_evaluation_id()
    runtime = Runtime(
        url,
        tools=[tool for tool in find_tools(terms.tools) if not isinstance(tool, DeclaredTool)],
        upkeep=Upkeep(only=evaluation_id),  # these models must not answer for other sessions
        service=settings().services,
    )
    providers: dict[str, Any] = {}
    async with runtime:
        try:
            for model in await _models(runtime, evaluation_id, plan, order):
                provider, name = find_model(model, terms.base_url)
                providers[model] = provider
                runtime.add_model(model, provider, name)
            if sys.stderr.isatty() and not settings().json:
                click.echo(f"evaluation {evaluation_id}", err=True)
            await evaluate(
                plan,
                id=evaluation_id,
                on=runtime,
                jobs=Jobs(terms.jobs, parse_model_jobs(terms.model_jobs)),
                order=order,
                accept_drift=terms.accept_drift,
                listener=progress,
            )
        finally:
            for provider in providers.values():
                await close_provider(provider)
    return Evaluation(evaluation_id, url)


async def _models(runtime: Any, id: str, plan: Plan | None, order: WorkOrder | None) -> list[str]:
    """All models that the evaluation names: under test, and as judges."""
    from holdfast.strategies.evaluation.stored_terms import read_terms

    plans: list[FrozenPlan] = []
    graders = list(order.graders) if order is not None else []
    arms = list(order.arms) if order is not None else []
    if plan is not None:
        plans.append(plan.freeze()[0])
    else:
        terms, _, _ = await read_terms(runtime.mount.holdfast.store, id)
        plans.append(terms.plan)
        graders += terms.all_graders
    for each in plans:
        arms += each.arms
        graders += each.graders
    named = [arm.model for arm in arms if arm.model is not None] + [judge for spec in graders for judge in spec.judges]
    return list(dict.fromkeys(named))


async def _tell(evaluation: Evaluation, terms: RunTerms) -> int:
    report = await evaluation.report()
    gates = await failed_gates(evaluation, report, terms)
    print_report(report, gates)
    for gate in gates:
        click.echo(f"holdfast: {plain(gate)}", err=True)
    if gates:
        return ExitCode.ENDED_BADLY
    return ExitCode.OK if report.state in ("done", "waiting") else ExitCode.ENDED_BADLY
