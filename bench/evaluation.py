"""The benchmarks of evaluations: what Holdfast adds to a trial beside calling the model, and how a long one resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import Figure, Plan, Round, Target
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.core.queries import Usage
from holdfast.engine.upkeep import Upkeep
from holdfast.store import open_store
from holdfast.strategies.evaluation.evaluation import evaluate
from holdfast.strategies.evaluation.plan import Plan as EvaluationPlan
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.trials import GradeRow, TrialRow, all_trials
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply

CASES = 500
REPEAT = 2
TRIALS = CASES * REPEAT
MODEL = "openai:gpt-4o"


def _answer(request: ModelRequest) -> ScriptStep:
    return reply("42", usage=Usage(prompt_tokens=12, completion_tokens=2))


async def _direct() -> float:
    """Milliseconds of processor time of a call of the provider alone."""
    provider = ScriptedProvider([_answer], loop=True)
    began = time.process_time()
    for number in range(TRIALS):
        request = ModelRequest(model="m", messages=[AgentMessage("user", [TextBlock(f"Question {number}?")])])
        items = [item async for item in provider.stream(request)]
        assert isinstance(items[-1], ModelReply)
    return 1000 * (time.process_time() - began) / TRIALS


async def trials(plan: Plan) -> list[Figure]:
    """A trial with one query, graded, 16 and 50 at a time on SQLite; without what the provider itself takes."""
    figures = []
    sizes: list[Round] = []
    for jobs in (16, 50):
        rounds = []
        for number in range(plan.repeat):
            file = plan.directory / f"eval-{jobs}-{number}.db"
            provider = ScriptedProvider([_answer], loop=True)
            async with Runtime(f"sqlite:///{file}", upkeep=Upkeep(only="e-1")) as runtime:
                runtime.add_model(MODEL, provider, "gpt-4o")
                data = [{"input": f"Question {case}?", "expected": "42"} for case in range(CASES)]
                wanted = EvaluationPlan(
                    strategies=["model"], models=[MODEL], data=data, graders=["contains"], repeat=REPEAT
                )
                began = time.process_time()
                await evaluate(wanted, id="e-1", on=runtime, jobs=jobs)
                spent = 1000 * (time.process_time() - began) / TRIALS
            rounds.append(Round(spent - await _direct()))
            sizes.append(Round(file.stat().st_size / TRIALS))
        bound = 5.0 if jobs == 16 else 4.0
        figures.append(Figure(f"eval-trial-{jobs}", "ms CPU", rounds, targets=[Target("value", "<=", bound)]))
    figures.append(Figure("eval-trial-bytes", "bytes", sizes, targets=[Target("value", "<=", 2_500.0)]))
    return figures


RESUMED = 100_000
"""Trials that have run when an evaluation is resumed."""


async def resume(plan: Plan) -> list[Figure]:
    """An evaluation with 100,000 trials done is resumed: processor time until it knows that nothing is left."""
    times, memory = [], []
    for number in range(plan.repeat):
        url = f"sqlite:///{plan.directory / f'eval-resume-{number}.db'}"
        data = [{"input": f"Question {case}?", "expected": "42"} for case in range(1_000)]
        wanted = EvaluationPlan(
            strategies=["model"], models=[MODEL], data=data, graders=["contains"], repeat=RESUMED // 1_000
        )
        await _write_rows(url, wanted)
        before = _resident_mib()
        async with Runtime(url, upkeep=Upkeep(only="e-1")) as runtime:
            runtime.add_model(MODEL, ScriptedProvider([_answer], loop=True), "gpt-4o")
            began = time.process_time()
            await evaluate(wanted, id="e-1", on=runtime, jobs=16)
            times.append(Round(time.process_time() - began))
        memory.append(Round(_resident_mib() - before))
    return [
        Figure("eval-resume-100k", "s CPU", times, targets=[Target("value", "<=", 2.0)]),
        Figure("eval-resume-100k-memory", "MiB", memory, targets=[Target("value", "<=", 200.0)]),
    ]


async def _write_rows(url: str, wanted: EvaluationPlan) -> None:
    """What an evaluation keeps of its trials and grades, as if all had run."""
    frozen, cases = wanted.freeze()
    async with open_store(url) as store:
        rows = TrialRows("e-1")
        for key in all_trials(frozen, len(cases)):
            rows.add_trial(key, TrialRow(case=key.case, attempt=1, order=1, status="done", calls=1, cost=0.001))
            rows.add_grade(frozen.graders[0].digest, key, GradeRow(case=key.case, attempt=1, score=1.0))
        await rows.write(store)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {"eval": trials, "eval-resume": resume}
