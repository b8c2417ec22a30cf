"""The processes of the kill tests: each brings every session of a store to its next pause, says so, and is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import traceback
from pathlib import Path
from typing import Any

from holdfast.core.events import PausedEvent
from holdfast.core.queries import Query
from holdfast.engine.holdfast import Holdfast
from holdfast.strategies.catalog import find_entry
from holdfast.strategies.dry_run import AnswerScript
from tests.programs.sandbox.helpers import asked, engine, outcome

WAIT_S = 20.0
"""Seconds that a session may take to its next pause, while nineteen others go on beside it."""


def answer(strategy: str, query: Query) -> Any:
    """What the author of a strategy wrote for its rehearsals."""
    meta = find_entry(strategy).meta
    assert meta is not None
    return AnswerScript(meta.script)(query)


def go_on_and_die(url: str, ledger: str, waiting: list[str], fresh: bool) -> None:
    """Bring each session to its next pause (to its first, if they are `fresh`); once that is printed, be killed."""

    async def one(hf: Holdfast, strategy: str) -> dict[str, Any]:
        event = await hf.resume(strategy, wait=WAIT_S)
        if isinstance(event, PausedEvent) and not fresh:
            event = await hf.feed(strategy, {each.id: answer(strategy, each) for each in event.queries}, wait=WAIT_S)
        if isinstance(event, PausedEvent):
            return {"strategy": strategy, "asked": asked(event), "ids": [query.id for query in event.queries]}
        return {"strategy": strategy, "end": outcome(event)}

    async def work() -> None:
        async with engine(url) as hf:
            for told in await asyncio.gather(*(one(hf, strategy) for strategy in waiting)):
                note(ledger, told)
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        asyncio.run(work())
    except BaseException:
        note(ledger, {"broken": traceback.format_exc()})
        raise


def note(ledger: str, what: dict[str, Any]) -> None:
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")
        file.flush()
        os.fsync(file.fileno())
