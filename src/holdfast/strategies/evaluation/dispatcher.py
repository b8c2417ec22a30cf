"""`Dispatcher`: the driver of an evaluation's work. It starts trials, grades what they answer, and keeps the rows.

Which trials there are follows from the plan, and whether one has run from its session: carrying out an order again
after a crash starts what is missing and repeats nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from holdfast.agent.runtime import Runtime
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt
from holdfast.engine.holdfast import Holdfast
from holdfast.strategies.evaluation.asked_graders import AskedGraders
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.graders.grade import Grade, GradedAnswer, answer_text
from holdfast.strategies.evaluation.graders.spec import GraderSpec, grade_here
from holdfast.strategies.evaluation.models import ModelTable, add_models
from holdfast.strategies.evaluation.orders import Terms, next_attempt, terms_of
from holdfast.strategies.evaluation.outcomes import TrialOutcome, outcome_of
from holdfast.strategies.evaluation.programs import WORK
from holdfast.strategies.evaluation.reuse import ReusableTrials, find_reusable
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.scores import trial_score
from holdfast.strategies.evaluation.shares import SharedBudget, Spent
from holdfast.strategies.evaluation.starts import TrialStarts, start_or_resume
from holdfast.strategies.evaluation.stored_terms import read_plan
from holdfast.strategies.evaluation.trials import GradeRow, TrialAttempt, TrialKey, TrialRow, all_trials

WRITE_ROWS = 512
"""Rows after which they are written: what is lost with a process is made again from as many sessions."""

WRITE_S = 1.0
"""Seconds after which rows are written in any case: as late as whoever watches an evaluation sees its scores."""


class WorkProgress(msgspec.Struct, frozen=True):
    """How far the work on an order is."""

    done: int
    total: int
    failed: int
    """Trials without a result."""
    cost: float | None
    running: int


Listener: TypeAlias = Callable[[WorkProgress], None]


class Jobs(msgspec.Struct, frozen=True):
    """How much is done at once."""

    trials: int = 16
    model_calls: dict[str, int] = {}
    """Calls of single models at once; of others, as many as there are trials at once."""


class Dispatcher:
    """Carries out the orders of one evaluation in this process."""

    def __init__(self, hf: Holdfast, runtime: Runtime | None, jobs: Jobs, listener: Listener | None = None) -> None:
        self._hf = hf
        self._runtime = runtime
        self._jobs = jobs
        self._listener = listener

    def install(self) -> None:
        """Let this process carry out orders."""
        self._hf.drive(WORK, self.work, recovery="safe")

    async def work(self, orders: list[Json], attempt: Attempt) -> Json:
        """Carry out the last order; what it returns is recorded in the evaluation."""
        session = await self._hf.session(attempt.session_id)
        assert session.started is not None
        plan, cases = read_plan(session.started.ctx)
        terms = terms_of(plan, orders)
        rows = await TrialRows.load(self._hf.store, attempt.session_id)
        table = ModelTable(terms.plan.prices, self._jobs.trials, self._jobs.model_calls)
        if self._runtime is not None:
            judges = [judge for spec in terms.all_graders for judge in spec.judges]
            add_models(self._runtime, table, terms.plan.arms, judges)
        run = _OrderRun(attempt.session_id, self._hf, terms, cases, rows)
        run.starts = TrialStarts(self._runtime, table, terms.plan)
        run.reusable = await find_reusable(self._hf.store, terms.plan)
        run.listener = self._listener
        try:
            return await run.carry_out(self._jobs.trials)
        finally:
            await asyncio.shield(rows.write(self._hf.store))


class _OrderRun:
    """The work on one order."""

    starts: TrialStarts
    reusable: ReusableTrials
    listener: Listener | None = None

    def __init__(self, evaluation: str, hf: Holdfast, terms: Terms, cases: list[Case], rows: TrialRows) -> None:
        self.evaluation = evaluation
        self._hf = hf
        self._terms = terms
        self._cases = cases
        self._rows = rows
        self._again: list[tuple[TrialKey, int]] = []
        self._running = 0
        self._done = self._failed = 0
        self._writing = asyncio.Lock()
        self._waiting = 0
        """Trials and grades that wait for a person or a host."""
        self._budget = SharedBudget(None, Spent(), 1)

    async def carry_out(self, slots: int) -> Json:
        before = self._rows.totals()
        self._done, self._failed = before.trials, before.failed
        spent = Spent(before.cost, before.tokens, before.calls)
        self._budget = SharedBudget(self._terms.plan.budget, spent, slots)
        self._asked_graders = AskedGraders(self._hf, self.evaluation, self._terms.plan, self.starts, self._budget)
        over = asyncio.Event()
        writing = asyncio.create_task(self._write_regularly(over))
        try:
            todo = self._todo()
            await self._in_parallel([self._run_trials(todo) for _ in range(slots)])
            graded = self._ungraded()
            await self._in_parallel([self._grade_rest(graded) for _ in range(slots)])
        finally:
            over.set()
            await writing
        await self._rows.write(self._hf.store)
        self._tell()
        return self._summary()

    @staticmethod
    async def _in_parallel(tasks: Sequence[Any]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(task)
        except* Exception as several:
            raise several.exceptions[0] from None  # the others are of the same kind, or cancelled because of it

    def _summary(self) -> Json:
        total = len(self._terms.plan.arms) * len(self._cases) * self._terms.plan.repeat
        totals = self._rows.totals()
        run = totals.trials - totals.over_budget
        is_short = self._budget.is_exhausted or totals.over_budget > 0
        state = "stopped" if is_short else "waiting" if self._waiting else "done"
        summary: dict[str, Json] = {"state": state, "trials": total, "run": run, "not_run": total - run}
        if state == "stopped":
            summary["why"] = "the budget is used up; resume with a larger one"
        if self._waiting:
            summary["waiting"] = self._waiting
        return summary

    # --- trials ------------------------------------------------------------------------------------------

    def _todo(self) -> Iterator[tuple[TrialKey, int]]:
        order, number = self._terms.last, self._terms.number
        for key in all_trials(self._terms.plan, len(self._cases)):
            row = self._rows.trial(key)
            passed = order.which == "failed" and row is not None and self._score(key, row) == 1.0
            attempt = next_attempt(order, number, row, passed=passed)
            if attempt is not None:
                yield key, attempt

    def _score(self, key: TrialKey, row: TrialRow) -> float | None:
        return trial_score(self._rows, self._terms.gradings[-1], key, row)

    async def _run_trials(self, todo: Iterator[tuple[TrialKey, int]]) -> None:
        while (trial := next(todo, None) or (self._again.pop() if self._again else None)) is not None:
            key, attempt = trial
            if attempt == 1 and await self._reuse(key):
                continue
            share = await self._budget.take()
            if share is None:
                return
            used, was_short = Spent(), False
            self._running += 1
            try:
                outcome = await self._run_trial(key, attempt, share)
                if outcome is None:
                    self._waiting += 1
                    continue
                used, was_short = outcome.spent, outcome.status == "over_budget"
                if was_short:
                    self._again.append((key, attempt + 1))
                used = used.plus(await self._keep(key, attempt, outcome, share))
            finally:
                self._running -= 1
                await self._budget.give_back(share, used, was_short=was_short)

    async def _reuse(self, key: TrialKey) -> bool:
        """Take over the same trial of another evaluation, if there is one; graders that ask come later."""
        source = self.reusable.find(self._terms.plan.arm(key.arm), self._cases[key.case], key.repeat)
        if source is None:
            return False
        row = msgspec.structs.replace(source.row, case=key.case, attempt=1, order=self._terms.number)
        self._rows.add_trial(key, msgspec.structs.replace(row, earlier=(0.0, 0, 0), reused=source.session_id))
        self._done += 1
        await self._write_many()
        self._tell()
        return True

    async def _run_trial(self, key: TrialKey, attempt: int, share: Spent) -> TrialOutcome | None:
        """Run a trial, or find what became of it; None if it waits for somebody."""
        arm, case = self._terms.plan.arm(key.arm), self._cases[key.case]
        event = await start_or_resume(
            self._hf,
            key.session_id(self.evaluation, attempt),
            self.starts.trial(arm, case, self._budget.budget_of(share)),
        )
        return await outcome_of(self._hf.store, event)

    async def _keep(self, key: TrialKey, attempt: int, outcome: TrialOutcome, share: Spent) -> Spent:
        """Keep the row of a trial and grade its result; gives what that cost."""
        before = self._rows.trial(key)
        is_priced = self.starts.is_priced(self._terms.plan.arm(key.arm)) or outcome.cost > 0 or not outcome.calls
        row = TrialRow(
            case=key.case,
            attempt=attempt,
            order=self._terms.number,
            status=outcome.status,
            calls=outcome.calls,
            prompt_tokens=outcome.prompt_tokens,
            completion_tokens=outcome.completion_tokens,
            cost=outcome.cost if is_priced else None,
            own_ms=outcome.own_ms,
            waiting_ms=outcome.waiting_ms,
            error=outcome.error,
            earlier=before.spent if before is not None and before.attempt < attempt else (0.0, 0, 0),
        )
        is_new = before is None
        self._rows.add_trial(key, row)
        self._done += is_new
        self._failed += is_new and row.status != "done"
        spent = Spent()
        if row.status == "done":
            answer = self._answer(key, outcome)
            for spec in self._terms.all_graders:
                if spec.grader == "pairwise":
                    continue  # once all trials are there
                spent = spent.plus(await self._grade(spec, key, attempt, answer, share.plus(outcome.spent, -1)))
        await self._write_many()
        self._tell()
        return spent

    def _answer(self, key: TrialKey, outcome: TrialOutcome) -> GradedAnswer:
        return GradedAnswer(answer_text(outcome.result), outcome.result, self._cases[key.case], outcome.latency_ms)

    # --- grades ------------------------------------------------------------------------------------------

    def _ungraded(self) -> Iterator[tuple[TrialKey, TrialRow, list[GraderSpec]]]:
        """Trials with a result that a grader has not graded."""
        specs = {spec.digest: spec for spec in self._terms.all_graders}
        for key, row, missing in self._rows.ungraded(list(specs)):
            yield key, row, [specs[each] for each in missing]

    async def _grade_rest(self, todo: Iterator[tuple[TrialKey, TrialRow, list[GraderSpec]]]) -> None:
        for key, row, specs in todo:
            share = await self._budget.take()
            if share is None:
                return
            used = Spent()
            try:
                event = await self._hf.event(row.session_id(self.evaluation, key))
                outcome = await outcome_of(self._hf.store, event)
                if outcome is None or outcome.status != "done":
                    continue
                answer = self._answer(key, outcome)
                for spec in specs:
                    left = share.plus(used, -1)
                    used = used.plus(await self._grade(spec, key, row.attempt, answer, left))
                await self._write_many()
            finally:
                await self._budget.give_back(share, used, was_short=False)

    async def _grade(self, spec: GraderSpec, key: TrialKey, attempt: int, answer: GradedAnswer, share: Spent) -> Spent:
        """Grade an answer, unless it waits for somebody; gives what that cost."""
        if not answer.text.strip() and answer.value in (None, ""):
            self._add_grade(spec, key, attempt, Grade(0.0, None, "the answer is empty"), None)
            return Spent()
        if not spec.is_asked:
            self._add_grade(spec, key, attempt, grade_here(spec, answer), None)
            return Spent()
        other = await self._baseline_text(spec, key) if spec.grader == "pairwise" else None
        asked = await self._asked_graders.ask(spec, TrialAttempt(key, attempt), answer, other, share)
        if asked is None:
            self._waiting += 1
            return Spent()
        self._add_grade(spec, key, attempt, asked.grade, asked.cost)
        return asked.spent

    def _add_grade(self, spec: GraderSpec, key: TrialKey, attempt: int, grade: Grade, cost: float | None) -> None:
        row = GradeRow(case=key.case, attempt=attempt, score=grade.score, grade=grade.grade, why=grade.why, cost=cost)
        self._rows.add_grade(spec.digest, key, row)

    async def _baseline_text(self, spec: GraderSpec, key: TrialKey) -> str | None:
        """What the arm that a grader compares with has answered in the same repeat."""
        other = key._replace(arm=str(spec.options["baseline"]))
        row = self._rows.trial(other)
        if row is None or row.status != "done":
            return None
        event = await self._hf.event(row.session_id(self.evaluation, other))
        return answer_text(event.result)

    # --- rows and news -----------------------------------------------------------------------------------

    async def _write_many(self) -> None:
        """Write rows if there are many of them."""
        if self._rows.unwritten >= WRITE_ROWS and not self._writing.locked():
            async with self._writing:
                await self._rows.write(self._hf.store)

    async def _write_regularly(self, over: asyncio.Event) -> None:
        """Write rows as they come, also while all other trials wait, until the work is over."""
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), WRITE_S)
            if self._rows.unwritten and not over.is_set():
                with contextlib.suppress(HoldfastError):  # what could not be written is written at the end, or told
                    async with self._writing:
                        await self._rows.write(self._hf.store)

    def _tell(self) -> None:
        if self.listener is not None:
            total = len(self._terms.plan.arms) * len(self._cases) * self._terms.plan.repeat
            self.listener(WorkProgress(self._done, total, self._failed, self._budget.spent.cost or None, self._running))
