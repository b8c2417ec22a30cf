"""What can go wrong with an evaluation, one class a kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError

SHOWN_CHARS = 600
"""Characters of what is wrong with a dataset that are shown: it may quote what is in a file."""


class DatasetError(HoldfastError):
    """A dataset that cannot be read, or has a row that makes no sense."""

    where: str
    why: str
    kind = "invalid_dataset"

    def __str__(self) -> str:
        why = self.why if len(self.why) <= SHOWN_CHARS else f"{self.why[:SHOWN_CHARS]}…"
        return f"dataset {self.where}: {why}"


class PlanError(HoldfastError):
    """A plan that cannot be evaluated."""

    what: str
    why: str
    kind = "invalid_plan"

    def __str__(self) -> str:
        return f"plan: {self.what}: {self.why}"


class GraderError(HoldfastError):
    """A grader that does not exist, or cannot be used as it is described."""

    grader: str
    why: str
    kind = "invalid_grader"

    def __str__(self) -> str:
        return f"grader '{self.grader}': {self.why}"


class DriftError(HoldfastError):
    """What would be evaluated now is not what the evaluation began with."""

    evaluation: str
    differences: list[str]
    kind = "drift"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        listed = "\n  ".join(self.differences)
        return (
            f"evaluation '{self.evaluation}' was frozen with something else:\n  {listed}\n"
            "Start a new evaluation, undo the change, or accept it (--accept-drift): the trials that are left then run "
            "with what was frozen, and with functions as they are now"
        )


class EvaluationNotFoundError(HoldfastError):
    """A session that is no evaluation."""

    evaluation: str
    why: str
    kind = "evaluation_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"'{self.evaluation}' is no evaluation: {self.why}; `holdfast eval list` lists them"


class ComparisonError(HoldfastError):
    """Two arms that cannot be compared."""

    why: str
    kind = "not_comparable"

    def __str__(self) -> str:
        return f"cannot compare: {self.why}"
