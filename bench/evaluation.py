"""The benchmark of evaluations: what Holdfast adds to a trial beside calling the model, in processor time and bytes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from bench import Figure, Plan, Round, Target
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest
from holdfast.agent.runtime import Runtime
from holdfast.core.queries import Usage
from holdfast.engine.upkeep import Upkeep
from holdfast.strategies.evaluation.evaluation import evaluate
from holdfast.strategies.evaluation.plan import Plan as EvaluationPlan
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


BENCHMARKS: dict[str, Callable[[Plan], Awaitable[list[Figure]]]] = {"eval": trials}
