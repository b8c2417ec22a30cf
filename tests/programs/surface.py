"""Native sessions for tests of `ctx`: small strategies, and a host that answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.events import CompletedEvent, Event, PausedEvent
from holdfast.core.queries import LlmQuery
from holdfast.core.records import LoggedRecord
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Function, strategy
from holdfast.testing.patience import soon

T = TypeVar("T")
Answer = Callable[[str], Any]


def quiet(folder: Path) -> Holdfast:
    return open_holdfast(f"sqlite:///{folder}/sessions.db", upkeep=Upkeep(on=False))


def asked(event: Event) -> list[LlmQuery]:
    assert isinstance(event, PausedEvent), event
    return [query for query in event.queries if isinstance(query, LlmQuery)]


def result(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


async def logged(hf: Holdfast, session_id: str) -> list[tuple[str, str]]:
    entries = [entry.record async for entry in hf.store.journal(session_id)]
    return [(record.level, record.message) for record in entries if isinstance(record, LoggedRecord)]


async def converse(hf: Holdfast, event: Event, answer: Answer) -> tuple[list[list[str]], Event]:
    """Answer all that is asked: the prompts of each pause, and how it ended."""
    pauses = []
    while isinstance(event, PausedEvent):
        pauses.append([query.prompt for query in asked(event)])
        event = await soon(hf.feed(event.session_id, {query.id: answer(query.prompt) for query in asked(event)}))
    return pauses, event


async def run(hf: Holdfast, program: Function, answer: Answer = "<{}>".format, **options: Any) -> Any:
    """The result of a strategy, its questions answered."""
    _, event = await converse(hf, await soon(hf.start(program, **options)), answer)
    return result(event)


@strategy(name="surface-shout")
async def shout(ctx: Context) -> dict[str, Any]:
    return {**ctx.data, "result": await ctx.llm(f"shout {ctx.task}")}


@strategy(name="surface-breaks")
async def breaks(ctx: Context) -> None:
    raise ValueError(f"broken by {ctx.task}")


@strategy(name="surface-silent")
async def silent(ctx: Context) -> dict[str, Any]:
    return {"result": {"b": [True, None], "a": 2.0}}
