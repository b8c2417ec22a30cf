"""What the tests of evaluations share: a scripted model, runtimes, and the work of processes that are killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.agent.providers.provider import ModelRequest
from holdfast.agent.providers.retry import RetryPolicy
from holdfast.agent.runtime import Runtime
from holdfast.agent.runtime_options import ModelOptions
from holdfast.core.queries import Usage
from holdfast.engine.upkeep import Upkeep
from holdfast.strategies.evaluation.evaluation import Evaluation, evaluate
from holdfast.strategies.evaluation.plan import Plan
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply

Answering: TypeAlias = Callable[[ModelRequest], ScriptStep | Awaitable[ScriptStep]]

MODEL = "openai:gpt-4o"
JUDGE = "openai:gpt-5"


def question(request: ModelRequest) -> str:
    return request.messages[-1].text


def right_on_even(request: ModelRequest) -> ScriptStep:
    """The model knows the answers to questions with an even number."""
    number = int(question(request).split()[-1])
    return reply(f"{number}" if number % 2 == 0 else "?", usage=Usage(prompt_tokens=100, completion_tokens=10))


def cases(count: int) -> list[dict[str, Any]]:
    return [{"id": f"c{number}", "input": f"Say {number}", "expected": str(number)} for number in range(count)]


def plan(count: int = 4, **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "strategies": ["model"],
        "models": [MODEL],
        "data": cases(count),
        "graders": ["exact_match"],
    }
    return Plan(**{**given, **changes})


class Bench:
    """A runtime with scripted models, and what they were asked."""

    def __init__(self, runtime: Runtime, answer: Answering) -> None:
        self.runtime = runtime
        self.provider = ScriptedProvider([answer], loop=True)
        for name in (MODEL, JUDGE, "other:model", "local:nameless"):
            runtime.add_model(name, self.provider, name.partition(":")[2])

    @property
    def calls(self) -> int:
        return len(self.provider.requests)

    async def evaluate(self, plan: Plan | None = None, **options: Any) -> Evaluation:
        return await evaluate(plan, **{"id": "e-1", "on": self.runtime, "jobs": 4, **options})


@contextlib.asynccontextmanager
async def bench(where: Path, answer: Answering = right_on_even, **engine: Any) -> AsyncIterator[Bench]:
    """A runtime on a SQLite file."""
    models = ModelOptions(retry=RetryPolicy(attempts=2, base_delay_s=0.001, delay_cap_s=0.002))
    url = f"sqlite:///{where / 'eval.db'}"
    async with Runtime(url, models=models, upkeep=Upkeep(only="e-1"), **engine) as runtime:
        yield Bench(runtime, answer)


# --- processes that are killed ---------------------------------------------------------------------------


def run_evaluation(where: str, count: int, repeat: int, jobs: int, delay_s: float) -> None:
    """The work of a process: an evaluation whose model writes down each call that it answers."""
    asyncio.run(_run(Path(where), count, repeat, jobs, delay_s))


async def _run(where: Path, count: int, repeat: int, jobs: int, delay_s: float) -> None:
    with (where / "calls").open("a", buffering=1) as ledger:

        async def answer(request: ModelRequest) -> ScriptStep:
            ledger.write(f"{request.key}\n")
            await asyncio.sleep(delay_s)
            return right_on_even(request)

        async with bench(where, answer) as here:
            await here.evaluate(plan(count, repeat=repeat), jobs=jobs)
    (where / "finished").touch()


def calls_made(where: Path) -> list[str]:
    """The keys of the calls that any process has begun."""
    file = where / "calls"
    return file.read_text().splitlines() if file.exists() else []
