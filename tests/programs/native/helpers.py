"""What the tests of native strategies share: reading events, and an engine that does nothing by itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import HumanQuery, LlmQuery, Query
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep

T = TypeVar("T")


def ponder(seconds: float) -> None:
    """Compute for a while."""
    time.sleep(seconds)


def quiet(folder: Path) -> Holdfast:
    return open_holdfast(f"sqlite:///{folder}/sessions.db", upkeep=Upkeep(on=False))


def asked(event: Event) -> list[Query]:
    assert isinstance(event, PausedEvent), event
    return event.queries


def prompts(event: Event) -> list[str]:
    return [query.prompt for query in asked(event) if isinstance(query, (LlmQuery, HumanQuery))]


def result(event: Event) -> Any:
    assert isinstance(event, CompletedEvent), event
    return event.result


def failed(event: Event) -> FailedEvent:
    assert isinstance(event, FailedEvent), event
    return event


async def of_type(hf: Holdfast, session_id: str, kind: type[T]) -> list[T]:
    return [entry.record async for entry in hf.store.journal(session_id) if isinstance(entry.record, kind)]
