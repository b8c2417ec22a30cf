"""Trials that another evaluation has run already: the same arm on the same input, in the same repeat.

Whole trials are taken over, never single replies, so that repeats stay independent of each other. The row of such a
trial names the session that ran it.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.store.contract import Store
from holdfast.strategies.evaluation.arms import Arm
from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.plan import FrozenPlan
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.stored_terms import read_terms
from holdfast.strategies.evaluation.trials import TrialRow

_CHARS = 24
"""Hex digits of the digests that say what is the same: 96 bits, because a false match would be a wrong result."""


class ReusableTrial(NamedTuple):
    """A trial with a result, and the session that ran it."""

    session_id: str
    row: TrialRow


class ReusableTrials:
    """The trials of other evaluations, by what was run."""

    def __init__(self) -> None:
        self._trials: dict[tuple[str, str, int], ReusableTrial] = {}
        self._arms: dict[str, str] = {}

    def add(self, arm: Arm, case: Case, repeat: int, trial: ReusableTrial) -> None:
        """Add a trial; of two that are the same, the first is kept."""
        self._trials.setdefault((self._arm_digest(arm), _input_digest(case), repeat), trial)

    def find(self, arm: Arm, case: Case, repeat: int) -> ReusableTrial | None:
        """The trial that ran the same, or None."""
        if not self._trials:
            return None
        return self._trials.get((self._arm_digest(arm), _input_digest(case), repeat))

    def _arm_digest(self, arm: Arm) -> str:
        found = self._arms.get(arm.digest)
        if found is None:
            found = self._arms[arm.digest] = digest(arm.identity, _CHARS)
        return found


def _input_digest(case: Case) -> str:
    """Of what a strategy is given; what is expected of the answer decides only its grade."""
    return digest(case.ctx({}), _CHARS)


async def find_reusable(store: Store, plan: FrozenPlan) -> ReusableTrials:
    """The trials with a result of the evaluations that a plan may reuse, the first named first.

    Raises `EvaluationNotFoundError`.
    """
    found = ReusableTrials()
    for evaluation in plan.reuse:
        terms, cases, _ = await read_terms(store, evaluation)
        rows = await TrialRows.load(store, evaluation)
        arms = {arm.name: arm for arm in terms.plan.arms}
        for key, row in rows.trials():
            if row.status == "done" and key.arm in arms and key.case < len(cases):
                trial = ReusableTrial(row.session_id(evaluation, key), row)
                found.add(arms[key.arm], cases[key.case], key.repeat, trial)
    return found
