"""An evaluation as people look at it: its figures, its cases by arm, and two arms compared. Made from its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.strategies.evaluation.overview import EvaluationOverview
from holdfast.strategies.evaluation.report.arm_figures import ArmFigures, FailureGroup, TrialScore
from holdfast.strategies.evaluation.report.comparison import ArmComparison, compare_arms
from holdfast.strategies.evaluation.report.report import EvaluationReport

INPUT_CHARS = 160
"""Characters of a case's input that a list shows."""

MOST_COMPARED = 500
"""Cases that a comparison names of each of its four groups."""


class EvaluationArm(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of an arm: a subject with its options and a model."""

    arm: str
    model: str | None
    score: float | None
    """The mean over cases; None if nothing was scored."""
    low: float | None
    """Where the 95 % interval of the score begins."""
    high: float | None
    method: str | None
    """How the interval was made."""
    n: int
    """Cases with a score."""
    pass_rate: float | None
    trials: int
    not_run: int
    errors: int
    missing: int
    ungraded: int
    reused: int
    calls: int
    tokens: int
    cost: float | None
    cost_per_pass: float | None
    wait_p50_ms: float | None
    wait_p95_ms: float | None
    failures: list[FailureGroup]


class EvaluationPair(msgspec.Struct, frozen=True, kw_only=True):
    """Two arms on the same cases, the first minus the second."""

    first: str
    second: str
    mean: float
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    mcnemar: float | None
    common: int
    better: int
    worse: int
    is_comparable: bool
    sentence: str


class EvaluationFigures(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation with its figures by now."""

    overview: EvaluationOverview
    total: int = 0
    """Trials of the plan."""
    done: int = 0
    running: int = 0
    clusters: int | None = None
    graders: list[str] = []
    grading_cost: float | None = None
    arms: list[EvaluationArm] = []
    pairs: list[EvaluationPair] = []
    notes: list[str] = []


class EvaluationCell(msgspec.Struct, frozen=True, kw_only=True):
    """What an arm made of a case."""

    arm: str
    score: float | None
    """The mean over its tries; None if there is none yet."""
    tries: int
    passes: int
    running: int
    trouble: str
    """Why there is no score, or why a try failed."""
    session_id: str
    """The session of its last try; empty before the first."""


class EvaluationCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case, and what each arm made of it."""

    number: int
    id: str
    input: str
    cells: list[EvaluationCell]


class EvaluationCases(msgspec.Struct, frozen=True):
    """Cases of an evaluation."""

    data: list[EvaluationCase]
    next: int | None
    total: int


class CaseGroup(msgspec.Struct, frozen=True):
    """Cases that came out alike."""

    count: int
    cases: list[str]
    """Their ids, the first ones."""


class ComparedArms(msgspec.Struct, frozen=True, kw_only=True):
    """Two arms, paired by case: passed by both, by one of them, by neither."""

    pair: EvaluationPair
    both: CaseGroup
    only_left: CaseGroup
    only_right: CaseGroup
    neither: CaseGroup
    left_out: int
    """Cases that only one of them has, or that are not the same in both."""


def figures_of(overview: EvaluationOverview, report: EvaluationReport | None, running: int) -> EvaluationFigures:
    """The figures by now; None stands for the report of an evaluation that has none yet."""
    if report is None:
        return EvaluationFigures(overview=overview)
    return EvaluationFigures(
        overview=overview,
        total=len(report.cases) * len(report.plan.arms) * report.plan.repeat,
        done=sum(each.trials for each in report.arms),
        running=running,
        clusters=len({case.cluster for case in report.cases}) if report.is_clustered else None,
        graders=[spec.name for spec in report.grading],
        grading_cost=report.grading_cost,
        arms=[_arm(each) for each in report.arms],
        pairs=[_pair(each) for each in report.comparisons],
        notes=report.notes,
    )


def numbers_in_order(report: EvaluationReport, order: str, differing: bool) -> list[int]:
    """The numbers of the cases: as they are, or the `hardest` first; all, or those on which arms differ."""
    means = [report.case_means(arm.name) for arm in report.plan.arms]
    numbers = list(range(len(report.cases)))
    if differing:
        numbers = [each for each in numbers if len({column[each] for column in means} - {None}) > 1]
    if order == "hardest":
        numbers.sort(key=lambda each: _mean_over(means, each))
    return numbers


def compared_arms(left: EvaluationReport, left_arm: str, right: EvaluationReport, right_arm: str) -> ComparedArms:
    """Two arms on the cases that both have. Raises `ComparisonError` if there are none."""
    found = compare_arms(left, left_arm, right, right_arm)
    groups = _grouped(_passes(left, left_arm), _passes(right, right_arm))
    left_out = found.only_first + found.only_second + found.changed
    return ComparedArms(pair=_pair(found), left_out=left_out, **groups)


def case_of(
    report: EvaluationReport, number: int, under_way: Mapping[tuple[str, int], Sequence[str]]
) -> EvaluationCase:
    """A case, and what each arm made of it; `under_way` are the sessions of trials that run, by arm and case."""
    case = report.cases[number]
    text = " ".join(case.task.split())
    return EvaluationCase(
        number=number,
        id=case.id,
        input=text if len(text) <= INPUT_CHARS else text[: INPUT_CHARS - 1] + "…",
        cells=[_cell(report, arm.name, number, under_way.get((arm.name, number), [])) for arm in report.plan.arms],
    )


def _arm(figures: ArmFigures) -> EvaluationArm:
    interval, wait = figures.interval, figures.waiting_ms
    return EvaluationArm(
        arm=figures.arm,
        model=figures.model,
        score=None if figures.score is None else figures.score.mean,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        method=None if interval is None else interval.method,
        n=0 if figures.score is None else figures.score.n,
        pass_rate=figures.pass_rate,
        trials=figures.trials,
        not_run=figures.not_run,
        errors=figures.errors,
        missing=figures.missing,
        ungraded=figures.ungraded,
        reused=figures.reused,
        calls=figures.calls,
        tokens=figures.prompt_tokens + figures.completion_tokens,
        cost=figures.cost,
        cost_per_pass=figures.cost_per_pass,
        wait_p50_ms=None if wait is None else wait.p50,
        wait_p95_ms=None if wait is None else wait.p95,
        failures=figures.failures,
    )


def _pair(found: ArmComparison) -> EvaluationPair:
    difference, test = found.paired.difference, found.paired.test
    interval = difference.interval
    return EvaluationPair(
        first=found.first,
        second=found.second,
        mean=difference.mean,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        p=None if test is None else test.p,
        p_holm=found.p_holm,
        mcnemar=found.paired.mcnemar,
        common=found.common,
        better=found.paired.better,
        worse=found.paired.worse,
        is_comparable=found.is_comparable,
        sentence=found.sentence,
    )


def _cell(report: EvaluationReport, arm: str, number: int, running: Sequence[str]) -> EvaluationCell:
    tries = report.trials[arm][number]
    scores = [each.score for each in tries if each.score is not None]
    last = report.session_of(arm, number, len(tries) - 1) if tries else ""
    return EvaluationCell(
        arm=arm,
        score=sum(scores) / len(scores) if scores else None,
        tries=len(tries),
        passes=sum(score == 1.0 for score in scores),
        running=len([each for each in running if each != last]),
        trouble=next((_trouble(each) for each in tries if _trouble(each)), ""),
        session_id=last or (running[0] if running else ""),
    )


def _trouble(tried: TrialScore) -> str:
    if tried.row.status != "done":
        return f"{tried.row.status}: {tried.row.error}" if tried.row.error else tried.row.status
    return "ungraded" if tried.score is None else ""


def _mean_over(means: Sequence[Sequence[float | None]], number: int) -> float:
    """The mean of a case over all arms; cases without a score come last."""
    values = [value for column in means if (value := column[number]) is not None]
    return sum(values) / len(values) if values else 2.0


def _passes(report: EvaluationReport, arm: str) -> dict[str, bool]:
    """Whether all tries of a case passed, by its id."""
    means = report.case_means(arm)
    return {case.id: mean == 1.0 for case, mean in zip(report.cases, means, strict=True) if mean is not None}


def _grouped(left: dict[str, bool], right: dict[str, bool]) -> dict[str, CaseGroup]:
    names = {(True, True): "both", (True, False): "only_left", (False, True): "only_right", (False, False): "neither"}
    groups: dict[str, list[str]] = {name: [] for name in names.values()}
    for case, passed in left.items():
        if case in right:
            groups[names[passed, right[case]]].append(case)
    return {name: CaseGroup(len(cases), cases[:MOST_COMPARED]) for name, cases in groups.items()}
