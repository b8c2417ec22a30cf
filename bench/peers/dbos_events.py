"""DBOS: a workflow that sets an event and waits with `recv`; whoever answers reads the event and sends.

On SQLite it looks for messages every second; here every 5 ms.
"""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers import TORN, Pending, Shown, digest, question, ran

POLL_S = 0.005
"""Seconds between looks at what was sent."""

WAIT_S = 30 * 86_400.0
"""Seconds that the workflow waits for an answer."""

LOOKS = 2_000
"""Looks, 5 ms apart, at whether a workflow that is run again after a restart has come to its question."""


class DbosPeer:
    """See `Peer`. A paused session is a task of this process; at a restart, all of them are run again."""

    def __init__(self) -> None:
        logging.getLogger("dbos").setLevel(logging.ERROR)
        self._dbos: Any = import_module("dbos")
        self._handles: dict[str, Any] = {}
        self._pauses: dict[str, int] = {}
        dbos = self._dbos.DBOS

        @dbos.workflow()  # type: ignore[untyped-decorator]
        async def program(session: str, pauses: int) -> str:
            answers = []
            for number in range(pauses):
                ran(session, number)
                await dbos.set_event_async(f"q{number}", question(session, number))
                answers.append(await dbos.recv_async("answer", timeout_seconds=WAIT_S))
            return digest(answers)

        self._program = program

    async def open(self, db: Path) -> None:
        config = {
            "name": "bench",
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": "1",
            "system_database_url": f"sqlite:///{db}",
            "notification_listener_polling_interval_sec": POLL_S,
        }
        self._dbos.DBOS(config=config)
        self._dbos.DBOS.launch()

    async def close(self) -> None:
        self._dbos.DBOS.destroy(workflow_completion_timeout_sec=0)

    async def start(self, session: str, pauses: int) -> Shown:
        self._pauses[session] = pauses
        with self._dbos.SetWorkflowID(session):
            self._handles[session] = await self._dbos.DBOS.start_workflow_async(self._program, session, pauses)
        return await self._event(session, 0)

    async def feed(self, session: str, number: int, answer: str) -> Shown:
        dbos = self._dbos.DBOS
        if session not in self._pauses:
            self._pauses[session] = (await dbos.get_workflow_status_async(session)).input["args"][1]
        await dbos.send_async(session, answer, topic="answer", idempotency_key=f"{session}-{number}")
        if number + 1 < self._pauses[session]:
            return await self._event(session, number + 1)
        handle = self._handles.pop(session, None)
        if handle is not None:
            return "done", await handle.get_result()
        handle = await dbos.retrieve_workflow_async(session)
        return "done", await handle.get_result(polling_interval_sec=POLL_S)

    async def _event(self, session: str, number: int) -> str:
        said: str = await self._dbos.DBOS.get_event_async(session, f"q{number}", timeout_seconds=120)
        return said

    async def pending(self, session: str) -> Pending:
        """The newest event, once it stays the same: workflows are run again in the background."""
        dbos = self._dbos.DBOS
        if (await dbos.get_workflow_status_async(session)).status == "SUCCESS":
            return None
        last = None
        for _ in range(LOOKS):
            events = await dbos.get_all_events_async(session)
            newest = max((int(name[1:]) for name in events), default=None)
            if newest is not None and newest == last:
                return newest
            last = newest
            await asyncio.sleep(POLL_S)
        return TORN

    async def mend(self, session: str) -> None:
        """It goes on by itself."""


def peer() -> DbosPeer:
    return DbosPeer()
