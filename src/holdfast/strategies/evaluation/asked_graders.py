"""`AskedGraders`: the graders that ask a judge or a person, each in a session of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.events import Event
from holdfast.engine.holdfast import Holdfast
from holdfast.strategies.evaluation.graders.grade import Grade, GradedAnswer, answer_text, excerpt
from holdfast.strategies.evaluation.graders.judges import (
    agreed,
    human_question,
    judge_prompt,
    pairwise_prompts,
    read_human,
    read_pairwise,
    read_verdict,
)
from holdfast.strategies.evaluation.graders.spec import GraderSpec
from holdfast.strategies.evaluation.outcomes import TrialOutcome, outcome_of
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.shares import SharedBudget, Spent
from holdfast.strategies.evaluation.starts import TrialStarts, start_or_resume
from holdfast.strategies.evaluation.trials import TrialAttempt


class AskedGrade(msgspec.Struct, frozen=True):
    """What a grader said, and what asking it cost."""

    grade: Grade
    spent: Spent = Spent()

    @property
    def cost(self) -> float | None:
        return self.spent.cost or None


class AskedGraders:
    """The judges and people of one evaluation."""

    def __init__(
        self, hf: Holdfast, evaluation: str, plan: FrozenPlan, starts: TrialStarts, budget: SharedBudget
    ) -> None:
        self._hf = hf
        self._evaluation = evaluation
        self._plan = plan
        self._starts = starts
        self._budget = budget

    async def ask(
        self, spec: GraderSpec, attempt: TrialAttempt, answer: GradedAnswer, other: str | None, share: Spent
    ) -> AskedGrade | None:
        """The grade of an answer; None while a person or a host has not answered. `other` is the baseline's answer."""
        try:
            if spec.grader == "pairwise":
                if attempt.key.arm == spec.options["baseline"]:
                    return AskedGrade(Grade(0.5, "tie", "it is the baseline itself"))
                if other is None:
                    return AskedGrade(Grade(None, None, "the baseline has no answer to this case"))
                prompts = pairwise_prompts(spec.options, answer, other)
            elif spec.grader in ("human", "strategy"):
                return await self._ask_one(spec, attempt, answer, share)
            else:
                prompts = [judge_prompt(spec.grader, spec.options, answer)]
        except ValueError as error:
            return AskedGrade(Grade(None, None, excerpt(str(error))))
        grades: list[Grade] = []
        spent = Spent()
        for number, model in enumerate(spec.judges or [None]):
            start = self._starts.judge(prompts, model, self._budget.budget_of(share, spent))
            outcome = await self._run(attempt.grading_id(self._evaluation, spec.digest, number), start)
            if outcome is None:
                return None
            spent = spent.plus(outcome.spent)
            grades.append(self._judged(spec, outcome))
        return AskedGrade(_averaged(grades) if spec.grader == "pairwise" else agreed(spec.grader, grades), spent)

    @staticmethod
    def _judged(spec: GraderSpec, outcome: TrialOutcome) -> Grade:
        replies = outcome.result
        if outcome.status != "done" or not isinstance(replies, list):
            return Grade(None, None, excerpt(f"the judge failed: {outcome.error}"))
        texts = [str(reply) for reply in replies]
        if spec.grader == "pairwise":
            return read_pairwise(texts)
        grade = read_verdict(spec.grader, spec.options, texts[0])
        if spec.scorer is None or grade.score is None:
            return grade
        return msgspec.structs.replace(grade, score=spec.score(grade.grade))

    async def _ask_one(
        self, spec: GraderSpec, attempt: TrialAttempt, answer: GradedAnswer, share: Spent
    ) -> AskedGrade | None:
        if spec.grader == "human":
            start = self._starts.person(human_question(spec.options, answer))
        else:
            ctx = {"task": answer.case.task, "answer": answer.text, "case": msgspec.to_builtins(answer.case)}
            start = self._starts.strategy(spec.program or "", ctx, self._budget.budget_of(share))
        outcome = await self._run(attempt.grading_id(self._evaluation, spec.digest, 0), start)
        if outcome is None:
            return None
        if outcome.status != "done":
            return AskedGrade(Grade(None, None, outcome.error), outcome.spent)
        if spec.grader == "human":
            return AskedGrade(read_human(outcome.result), outcome.spent)
        result = outcome.result
        if not isinstance(result, (bool, int, float)):
            why = f"the grading strategy returned {excerpt(answer_text(result), 80)} instead of true, false or a number"
            return AskedGrade(Grade(None, None, why), outcome.spent)
        return AskedGrade(Grade(spec.score(result), result), outcome.spent)

    async def _run(self, session_id: str, start: dict[str, object]) -> TrialOutcome | None:
        event: Event = await start_or_resume(self._hf, session_id, start)
        return await outcome_of(self._hf.store, event)


def _averaged(grades: Sequence[Grade]) -> Grade:
    scores = [grade.score for grade in grades if grade.score is not None]
    if len(grades) == 1 or not scores:
        return grades[0]
    return Grade(
        sum(scores) / len(scores), None, f"{len(scores)} judges: {', '.join(str(each.grade) for each in grades)}"
    )
