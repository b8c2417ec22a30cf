"""The process that `holdfast demo` kills: it drives the session's tools and answers its questions from a script.

Every question put to the host and every effect executed is a line in a log, written before anything else, so that the
demo can count them afterwards.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from holdfast.core.decide import GivenAnswer
from holdfast.core.events import AcceptedEvent, Event, PausedEvent
from holdfast.core.queries import HumanQuery, LlmQuery, Query, Value
from holdfast.engine.holdfast import Holdfast, open_holdfast

PACE_S = 0.3
"""Seconds before each answer, so that a person can follow; the kill falls into one of these."""

_SCRIPT = {
    "Which coast": "The North Yorkshire coast.",
    "Whitby?": "Climb the 199 steps to the abbey",
    "Robin Hood's Bay?": "Look for ammonites at low tide",
    "Staithes?": "Walk the Cleveland Way to Runswick Bay",
    "one sentence": "On Saturday we look for ammonites at low tide, in Robin Hood's Bay.",
}


class _Log:
    """Lines of JSON, each written whole, whatever happens to the process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, which: str) -> None:
        os.write(self._file, (json.dumps({"pid": os.getpid(), what: which}) + "\n").encode())


def scripted_answer(query: Query) -> str:
    """The answer of the scripted host."""
    match query:
        case LlmQuery(prompt=prompt):
            return next(answer for key, answer in _SCRIPT.items() if key in prompt)
        case HumanQuery(choices=choices):
            return choices[1]
        case _:
            raise ValueError(f"the host has no answer to {query}")


async def serve(what: str, url: str, session_id: str, log: _Log) -> None:
    """Start (or resume) the session, and answer until it has ended."""
    async with open_holdfast(url) as hf:
        _drive(hf, log)
        event = await _begin(hf, what, session_id)
        while isinstance(event, (PausedEvent, AcceptedEvent)):
            if isinstance(event, AcceptedEvent):
                event = await hf.resume(session_id)
                continue
            await asyncio.sleep(PACE_S)
            query = event.queries[0]
            log.write("asked", query.id)
            event = await hf.feed(session_id, GivenAnswer(Value(value=scripted_answer(query)), query.id), by="host")


async def _begin(hf: Holdfast, what: str, session_id: str) -> Event:
    from holdfast.cli.demo.strategy import weekend

    if what == "resume":
        return await hf.resume(session_id)
    return await hf.start(weekend, ctx={"task": "Plan a weekend by the sea."}, id=session_id)


def _drive(hf: Holdfast, log: _Log) -> None:
    def pay_deposit(coast: str, pounds: int) -> str:
        log.write("effect", "pay_deposit")
        return f"£{pounds} paid"

    def send_invitation(town: str, plan: str) -> str:
        log.write("effect", "send_invitation")
        return "sent"

    hf.drive("pay_deposit", pay_deposit)
    hf.drive("send_invitation", send_invitation)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], _Log(sys.argv[4])))
