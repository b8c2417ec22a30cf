"""A dry run: every question that a program would ask, pause by pause, with answers that its author wrote beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Literal

import msgspec

from holdfast.core.budget import prompt_estimate
from holdfast.core.events import query_json
from holdfast.core.queries import HumanQuery, LlmQuery, Query, ToolQuery
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.programs.parameters import MetaError, ScriptLine, StrategyMeta, calls_of, filled, read_description
from holdfast.programs.sandbox.source import KIND as PYTHON
from holdfast.programs.sandbox.source import source_of
from holdfast.strategies.catalog import samples
from holdfast.strategies.rehearsal import DEFAULT_ANSWER, rehearsed

AnsweredBy = Literal["script", "default"]


class DryRunQuery(msgspec.Struct, frozen=True):
    """A question, and its answer."""

    query: Query
    answer: Json
    by: AnsweredBy

    @property
    def role(self) -> str | None:
        """What the question is for, as the strategy says it."""
        role = self.query.options.get("role") if isinstance(self.query, LlmQuery) else None
        return role if isinstance(role, str) and role else None

    @property
    def text(self) -> str:
        """What was asked, without its system text."""
        match self.query:
            case LlmQuery(prompt=prompt) | HumanQuery(prompt=prompt):
                return prompt
            case ToolQuery(name=name, arguments=arguments):
                return f"{name} {msgspec.json.encode(arguments).decode()}"
            case query:
                return str(query_json(query))

    @property
    def prompt_tokens(self) -> int:
        """Estimated; 0 for what is not asked of a model."""
        return prompt_estimate(self.query) if isinstance(self.query, LlmQuery) else 0

    def to_json(self) -> dict[str, Any]:
        shown = {"id": self.query.id, "kind": self.query.kind, **query_json(self.query)}
        tokens = {"prompt_tokens": self.prompt_tokens} if isinstance(self.query, LlmQuery) else {}
        return {**shown, **tokens, "answer": self.answer, "answered_by": self.by}


class DryRunPause(msgspec.Struct, frozen=True):
    """The questions that were asked together."""

    number: int
    asked: list[DryRunQuery]


class DryRun(msgspec.Struct, frozen=True):
    """How a dry run went."""

    program: Program
    ctx: Json
    assumed: dict[str, Json]
    """What was put into `ctx`, because the strategy needs it and it was not given."""
    pauses: list[DryRunPause]
    result: Json = None
    error: str | None = None
    """Why there is no result."""
    logs: list[str] = []
    most_calls: int | None = None
    """How many calls the strategy itself says that it makes at most, with these parameters."""

    @property
    def llm_calls(self) -> int:
        return sum(isinstance(each.query, LlmQuery) for pause in self.pauses for each in pause.asked)

    @property
    def other_calls(self) -> int:
        """Questions to persons and tools."""
        return sum(len(pause.asked) for pause in self.pauses) - self.llm_calls

    @property
    def prompt_tokens(self) -> int:
        return sum(each.prompt_tokens for pause in self.pauses for each in pause.asked)

    def to_json(self) -> dict[str, Any]:
        pauses = [{"pause": each.number, "queries": [asked.to_json() for asked in each.asked]} for each in self.pauses]
        shown: dict[str, Any] = {
            "dry_run": True,
            "program": self.program.name,
            "kind": self.program.kind,
            "ctx": self.ctx,
            "assumed": self.assumed,
            "pauses": pauses,
            "logs": self.logs,
            "totals": {
                "pauses": len(self.pauses),
                "llm_calls": self.llm_calls,
                "other_calls": self.other_calls,
                "prompt_tokens": self.prompt_tokens,
                "most_llm_calls": self.most_calls,
            },
        }
        return {**shown, "error": self.error} if self.error is not None else {**shown, "result": self.result}


class AnswerScript:
    """The host of a dry run: says what the strategy's author wrote, and something harmless to everything else."""

    def __init__(self, lines: list[ScriptLine]) -> None:
        self._lines = lines
        self.by: dict[str, AnsweredBy] = {}
        """Where each answer is from, by the id of its query."""

    def __call__(self, query: Query) -> Json:
        asked = f"{getattr(query, 'system', None) or ''}\n{getattr(query, 'prompt', '')}"
        line = next((line for line in self._lines if line.when in asked), None)
        self.by[query.id] = "default" if line is None else "script"
        if line is not None:
            return line.answer
        return query.choices[0] if isinstance(query, HumanQuery) and query.choices else DEFAULT_ANSWER


async def dry_run(program: Program, ctx: Json = None, *, budget: Mapping[str, Any] | None = None) -> DryRun:
    """Run a program to its end with the answers of its `META["script"]`. Nothing of it is kept."""
    meta = meta_of(program)
    assumed = samples(meta, ctx) if meta is not None and (ctx is None or isinstance(ctx, dict)) else {}
    if assumed:
        ctx = {**(ctx or {}), **assumed}
    script = AnswerScript(meta.script if meta is not None else [])
    run = await rehearsed(program, ctx, script, budget=budget)
    pauses = [
        DryRunPause(number, [DryRunQuery(call.query, call.answer, script.by[call.query.id]) for call in calls])
        for number, calls in groupby(run.calls, key=lambda call: call.pause)
    ]
    return DryRun(
        program=program,
        ctx=ctx,
        assumed=assumed,
        pauses=pauses,
        result=run.result,
        error=run.error,
        logs=run.logs,
        most_calls=_most(meta, ctx),
    )


def meta_of(program: Program) -> StrategyMeta | None:
    """What a program says about itself; None if it says nothing that can be used."""
    if program.kind != PYTHON:
        return None
    try:
        described = read_description(source_of(program).code)
    except MetaError:
        return None
    return described.meta if described is not None else None


def _most(meta: StrategyMeta | None, ctx: Json) -> int | None:
    if meta is None:
        return None
    try:
        return calls_of(meta, filled(meta, ctx if isinstance(ctx, dict) else None))
    except ValueError:
        return None  # a wrong parameter: the strategy itself says so
