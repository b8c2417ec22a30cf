"""A strategy run with answers that were written beforehand: for its tests, and to see what it would ask."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from holdfast.core.events import CompletedEvent, Event, PausedEvent, RunningEvent
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, Query, Value
from holdfast.core.records import LoggedRecord, Program
from holdfast.core.values import Json
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.lookup import find_program
from holdfast.programs.registry import Function, Strategy

MAX_CALLS = 2_000
"""Questions of one rehearsal: a strategy that asks more is in a loop."""

WAIT_S = 60.0
"""Seconds to wait for a strategy between two questions."""

DEFAULT_ANSWER = "An answer."
"""Said where nothing else fits."""

Answers: TypeAlias = Sequence[Any] | Mapping[str, Any] | Callable[[Query], Any]
"""What is said: in the order of the questions, by words that occur in them, or by a function of the query. An answer is
a value, or a `Failure`."""


class RehearsedCall(msgspec.Struct, frozen=True):
    """A question of a rehearsal, and its answer."""

    pause: int
    """Which pause it was asked in, counted from 1."""
    query: Query
    answer: Json

    @property
    def prompt(self) -> str:
        """What was asked."""
        query = self.query
        return query.prompt if isinstance(query, LlmQuery | HumanQuery) else getattr(query, "name", "")


class Rehearsal(msgspec.Struct, frozen=True):
    """How a rehearsal went."""

    calls: list[RehearsedCall]
    result: Json = None
    error: str | None = None
    """Why there is no result."""
    logs: list[str] = []

    @property
    def pauses(self) -> int:
        """How often the strategy waited."""
        return max((call.pause for call in self.calls), default=0)

    @property
    def prompts(self) -> list[str]:
        """What was asked, in order."""
        return [call.prompt for call in self.calls]


def rehearse(program: Strategy | Function | Program | str, ctx: Json = None, answers: Answers = ()) -> Rehearsal:
    """Run a strategy to its end with these answers, on a store in memory. `program` is what `Holdfast.start` takes."""
    return asyncio.run(rehearsed(program, ctx, answers))


async def rehearsed(
    program: Strategy | Function | Program | str, ctx: Json = None, answers: Answers = (), **options: Any
) -> Rehearsal:
    """As `rehearse`, inside a running event loop. `options` are those of `Holdfast.start`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-rehearsal-") as home:
        return await _rehearsed(find_program(program), ctx, answers, Path(home), options)


async def _rehearsed(
    program: Program, ctx: Json, answers: Answers, home: Path, options: Mapping[str, Any]
) -> Rehearsal:
    async with open_holdfast("memory:") as hf:
        hf.drive_own_tools(home)  # not the cards of whoever rehearses
        event = await hf.start(program, ctx=ctx, wait=WAIT_S, **options)
        calls: list[RehearsedCall] = []
        pause = 0
        while isinstance(event, PausedEvent):
            pause += 1
            said = {}
            for query in event.queries:
                answer = _answer(answers, query, len(calls))
                calls.append(RehearsedCall(pause, query, answer))
                said[query.id] = answer if isinstance(answer, Failure) else Value(value=answer)
            if len(calls) >= MAX_CALLS:
                return Rehearsal(calls, error=f"it asked {MAX_CALLS} questions and has not ended; it may be in a loop")
            event = await hf.feed(event.session_id, said, wait=WAIT_S)
        return Rehearsal(calls, event.result, _error(event), await _logs(hf, event.session_id))


def _answer(answers: Answers, query: Query, number: int) -> Any:
    if callable(answers):
        return answers(query)
    if isinstance(answers, Mapping):
        asked = f"{getattr(query, 'system', None) or ''}\n{getattr(query, 'prompt', '')}"
        return next((answer for words, answer in answers.items() if words in asked), DEFAULT_ANSWER)
    return answers[number] if number < len(answers) else DEFAULT_ANSWER


def _error(event: Event) -> str | None:
    match event:
        case CompletedEvent():
            return None
        case RunningEvent(waits_for=kinds):
            return f"it waits for {', '.join(kinds) or 'itself'}; a rehearsal waits for {WAIT_S:g} s at most"
        case _:
            return event.error or f"it has {event.status}"


async def _logs(hf: Holdfast, session_id: str) -> list[str]:
    records = [entry.record async for entry in hf.store.journal(session_id)]
    return [record.message for record in records if isinstance(record, LoggedRecord)]
