"""The inspection of a run that is over: every session can still be shown, exported, forked, ended and deleted."""

from __future__ import annotations

import contextlib

from holdfast.core.errors import HoldfastError, SessionDeletedError, TransitionError
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast
from holdfast.store.export import export_lines, parse_export
from holdfast.testing.simulation.evidence import Problem, journal_rows
from holdfast.testing.simulation.world import SimulatedProcess


class Inspector:
    """Goes through all sessions in a healthy process, and notes what cannot be done with them."""

    def __init__(self, process: SimulatedProcess, hf: Holdfast) -> None:
        self._process = process
        self._hf = hf
        self.problems: list[Problem] = []

    async def inspect(self) -> None:
        """Inspect all sessions."""
        rows = journal_rows(self._process.world.server)
        for row in rows:
            session_id = row.session_id
            last = (self._delete,) if row is rows[0] else ()
            for what in (self._show, self._export, self._fork, self._end, *last):
                try:
                    await what(session_id)
                except HoldfastError as error:
                    self._note(session_id, f"{what.__name__.strip('_')} raised {type(error).__name__}: {error}")

    def _note(self, session_id: str, text: str) -> None:
        self.problems.append(Problem("no bricks", session_id, f"{session_id}: {text}"))

    async def _show(self, session_id: str) -> None:
        shown = await self._hf.status(session_id, history=True)
        if shown["position"] != (await self._hf.store.session(session_id)).position:
            self._note(session_id, "it is not shown as it is")

    async def _export(self, session_id: str) -> None:
        lines = [line async for line in export_lines(self._hf.store, session_id)]
        journal = [entry async for entry in self._hf.store.journal(session_id)]
        if parse_export(lines) != (session_id, journal, None):
            self._note(session_id, "what was exported is not its journal")

    async def _fork(self, session_id: str) -> None:
        points = await self._hf.fork_points(session_id)
        point = points[self._process.random.randrange(len(points))]
        fork = f"{session_id}.fork"
        await self._hf.fork(session_id, point.position, id=fork, wait=0)
        await self._end(fork)

    async def _end(self, session_id: str) -> None:
        if (await self._hf.store.session(session_id)).summary.state.is_terminal:
            return
        with contextlib.suppress(TransitionError):  # it may come to its own end first
            await self._hf.cancel(session_id, "inspected")
        state = (await self._hf.store.session(session_id)).summary.state
        if not state.is_terminal:
            self._note(session_id, f"it was cancelled, and is {State(state).value}")

    async def _delete(self, session_id: str) -> None:
        """What is deleted stays deleted, its id is not used again, and its fork stays."""
        fork = f"{session_id}.fork"
        journal = [entry async for entry in self._hf.store.journal(fork)]
        await self._hf.delete(session_id)
        for again in (lambda: self._hf.status(session_id), lambda: self._hf.fork(fork, 1, id=session_id, wait=0)):
            try:
                await again()
                self._note(session_id, "it was deleted, and is there again")
            except SessionDeletedError:
                pass
        if [entry async for entry in self._hf.store.journal(fork)] != journal:
            self._note(fork, "it is not what it was before the session was deleted that it was forked from")
