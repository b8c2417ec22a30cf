"""Runs that break a law: `shrink` makes a small one of a large one, and `check` raises an error that shows it."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.testing.simulation.run import Run, simulate
from holdfast.testing.simulation.trace import side_by_side

SHOWN_FAULTS = 20
"""Faults of a run that are listed in a report."""


class BrokenLawError(AssertionError):
    """A run has broken a law."""


def shrink(run: Run) -> Run:
    """The same problem with as little as possible: parts of the scenario are left out, then faults, then parts again.

    What is left out once may be needed again for what remains, so this finds a small run, not the smallest.
    """
    return _with_fewer_parts(_with_fewer_faults(_with_fewer_parts(run)))


def _again(run: Run, only: Collection[int] | None, left_out: Collection[str]) -> Run | None:
    """The run with less in it, if it still breaks one of the same laws."""
    laws = {problem.law for problem in run.problems}
    again = simulate(run.scenario, run.seed, run.faults, only=only, leave_out=left_out)
    return again if laws & {problem.law for problem in again.problems} else None


def _with_fewer_parts(run: Run) -> Run:
    """Without each part that is not needed, the largest first: leaving out a session leaves out its steps."""
    best, tried = run, set(run.left_out)
    while (part := next((each for each in best.parts if each not in tried), None)) is not None:
        tried.add(part)
        best = _again(best, best.only, best.left_out | {part}) or best
    return best


def _with_fewer_faults(run: Run) -> Run:
    """Without each fault that is not needed: they are left out by halves, and then one by one."""
    best, size = run, max(1, len(run.happened) // 2)
    while True:
        kept = best.happened
        for start in range(0, len(kept), size):
            if (smaller := _again(best, [*kept[:start], *kept[start + size :]], best.left_out)) is not None:
                best = smaller
                break
        else:
            if size == 1:
                return best
            size = max(1, size // 2)


def report(run: Run, *, shrunk: bool = True) -> str:
    """What is wrong with a run, how to make it again, and what happened in it to the session concerned."""
    small = shrink(run) if shrunk and run.problems else run
    happened = [small.struck[number] for number in small.happened]
    session_id = next((problem.session_id for problem in small.problems if problem.session_id), "")
    lines = [
        f"{run.scenario.name} {run.seed} breaks {len(run.problems)} laws: {run.problems[0] if run.problems else ''}",
        f"faults: {run.faults}",
        f"make it again: {small.command}",
        f"keep it in the corpus: {small.corpus_line}",
        *(f"  {problem}" for problem in small.problems[:10]),
        f"without {', '.join(sorted(small.left_out)) or 'nothing'} of the scenario",
        f"with {len(happened)} faults: {'; '.join(happened[:SHOWN_FAULTS])}",
    ]
    return "\n".join([*lines, *side_by_side(small.trace, session_id)])


def check(run: Run) -> None:
    """Raise `BrokenLawError`, with all that helps to find out why, if a run has broken a law."""
    if run.problems:
        raise BrokenLawError(report(run))
