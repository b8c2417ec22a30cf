"""The processes of the durable tests: one that answers a single pause and is killed for it, and one that replays."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from holdfast.core.events import CompletedEvent, FailedEvent, PausedEvent
from holdfast.core.queries import LlmQuery
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.testing.patience import HANG_S
from tests.alc.lua.generated import scripted
from tests.alc.lua.sessions import converse, echo, engine

SESSION = "s"


def answer_once(url: str, ledger: str, dies: str) -> None:
    """Go on with the session, note what it asks or came to, answer, and die `before feed` is durable, or after."""

    async def seam(name: str) -> None:
        if name == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    async def work() -> None:
        async with asyncio.timeout(HANG_S), open_holdfast(url, upkeep=Upkeep(on=False), seam=seam) as hf:
            event = await hf.resume(SESSION)
            if isinstance(event, PausedEvent):
                prompts = [query.prompt for query in event.queries if isinstance(query, LlmQuery)]
                _note(ledger, {"asked": prompts, "ids": [query.id for query in event.queries]})
                await hf.feed(SESSION, {query.id: echo(query) for query in event.queries})
            elif isinstance(event, CompletedEvent | FailedEvent):
                _note(ledger, {"result": event.result, "error": event.error})

    _run(work(), ledger)


def replay_each(url: str, ledger: str, work: list[tuple[str, int]]) -> None:
    """Go on with each session from a position of its journal, and note what it asked and came to."""

    async def replay() -> None:
        async with engine(url, hot_vms=1) as hf:
            for session, position in work:
                pauses, event = await converse(hf, await hf.fork(session, position, id=f"{session}-again"), scripted)
                _note(ledger, {"asked": pauses, "result": event.result, "error": event.error})

    _run(replay(), ledger)


def _note(ledger: str, what: dict[str, Any]) -> None:
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _run(work: Coroutine[Any, Any, None], ledger: str) -> None:
    try:
        asyncio.run(work)
    except BaseException:
        _note(ledger, {"broken": traceback.format_exc()})
        raise
