"""`SandboxCells`: steps cells in the workers of sandboxed Python, and finds the values that they read."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Collection, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

from pydantic_monty import MontyCrashedError, MontyError, MontySession

from holdfast.agent.errors import ProjectionNotBoundError
from holdfast.agent.live_events import CellFinishedEvent, CellPrintedEvent, CellStartedEvent
from holdfast.agent.machine.records import BoundRecord, LeavesRecord
from holdfast.agent.rlm import feedback
from holdfast.agent.rlm.cell_run import CellMeans
from holdfast.agent.rlm.cell_state import CellProgress, CellState
from holdfast.agent.rlm.check import names_in
from holdfast.agent.rlm.functions import HISTORY, CellFunctions
from holdfast.agent.rlm.inside import AGENT_BATCH
from holdfast.agent.rlm.limits import CELL_S, LEAF_CACHE_BYTES, MEMORY_MIB, PROJECTION_FACTOR
from holdfast.agent.rlm.live_cell import LiveCell
from holdfast.agent.rlm.projections import Projection
from holdfast.agent.rlm.variables import SEED, Bindings, Definition, VariableTable, with_classes
from holdfast.core.records import Entry, StartedRecord
from holdfast.core.values import Json, encode
from holdfast.programs.contract import JournalReader
from holdfast.programs.errors import InstanceLostError, SnapshotUnusableError
from holdfast.programs.sandbox.cell import prelude_for
from holdfast.programs.sandbox.limits import MAX_DEATHS, MAX_MEMORY_MIB
from holdfast.programs.sandbox.values import Payload
from holdfast.programs.sandbox.workers import Workers

MIB = 1024 * 1024

CellEvent: TypeAlias = CellStartedEvent | CellPrintedEvent | CellFinishedEvent


class CellServices(Protocol):
    """What the host has for the cells of its sessions."""

    def projections(self, session_id: str) -> dict[str, Projection]:
        """The projections that are bound here, by name."""
        ...

    async def publish(self, session_id: str, event: CellEvent) -> None:
        """Show an event to watchers."""
        ...

    async def history(self, session_id: str, position: int) -> list[Json]:
        """What was said up to a position of the journal, the oldest first."""
        ...


class SandboxCells:
    """The cells of one engine."""

    def __init__(self, reader: JournalReader | None, services: CellServices | None) -> None:
        self._reader = reader
        self._services = services
        self._leaves: OrderedDict[str, str] = OrderedDict()
        """The JSON of values, by digest."""
        self._held = 0
        self._is_closed = False
        self._deaths: dict[tuple[str, str], int] = {}
        """How often in a row a worker died in a cell."""

    @cached_property
    def _workers(self) -> Workers:
        return Workers()

    def prepare(self) -> None:
        """Start a worker before there is a cell to run."""
        if not self._is_closed:
            self._workers.prepare()

    def close(self) -> None:
        """Stop the workers, for good."""
        self._is_closed = True
        if "_workers" in vars(self):
            self._workers.close()

    async def step(
        self, state: CellState, means: CellMeans, payload: Payload | dict[int, Payload] | None
    ) -> CellProgress:
        """Begin the cell, or go on with what its calls have come to."""
        if self._is_closed:
            raise InstanceLostError("the workers were closed")
        scope = await self._scope(state, means)
        if payload is None:
            await self._publish(means, CellStartedEvent(turn=means.turn, cell=state.number, code=state.code))
        before = state.printed_chars
        stepped: Awaitable[CellProgress | MontyCrashedError] = self._workers.threads.submit(
            self._take, state, means, payload, scope, then=lambda done: done
        )
        outcome = await stepped
        key = (means.session_id, state.code)
        if isinstance(outcome, MontyCrashedError):
            return self._crashed(outcome, state, key)
        self._deaths.pop(key, None)
        if printed := state.printed_chars - before:
            text = state.printed[-printed:]
            await self._publish(means, CellPrintedEvent(turn=means.turn, cell=state.number, text=text))
        if outcome.bindings is not None:
            await self._publish(means, CellFinishedEvent(turn=means.turn, cell=state.number, told=outcome.remark))
            for leaf in outcome.bindings.set.values():
                self._keep(leaf.digest, leaf.json)
        return outcome

    async def _publish(self, means: CellMeans, event: CellEvent) -> None:
        if self._services is not None:
            await self._services.publish(means.session_id, event)

    def _take(
        self, state: CellState, means: CellMeans, payload: Payload | dict[int, Payload] | None, scope: _CellScope
    ) -> CellProgress | MontyCrashedError:
        """In a thread: one step."""
        live = LiveCell(state, means.table, CellFunctions(state, means.table, means.budget, means.seed), scope)
        try:
            if payload is None:
                with self._workers.checkout(
                    deadline_s=CELL_S, memory_mib=scope.memory_mib, seed=means.seed + state.number
                ) as session:
                    return live.begin(session)
            with self._workers.for_snapshot(deadline_s=CELL_S, memory_mib=scope.memory_mib) as session:
                return self._resumed(live, session, payload)
        except MontyCrashedError as error:
            return error

    @staticmethod
    def _resumed(live: LiveCell, session: MontySession, payload: Payload | dict[int, Payload]) -> CellProgress:
        try:
            live.load(session)
        except (MontyError, RuntimeError, ValueError, TypeError) as error:
            raise SnapshotUnusableError(f"the interpreter cannot load its snapshot: {error}") from None
        return live.resume(session, payload)

    def _crashed(self, error: MontyCrashedError, state: CellState, key: tuple[str, str]) -> CellProgress:
        """A worker died. If it did so for lack of time, or again and again, the cell is to blame."""
        deaths = self._deaths[key] = self._deaths.get(key, 0) + 1
        if not error.timed_out and deaths < MAX_DEATHS:
            raise InstanceLostError(f"its worker died: {error}", is_suspect=True)
        del self._deaths[key]
        why = f"it computed for more than {CELL_S:g} s" if error.timed_out else "the interpreter died of it"
        parts = [feedback.output(state.printed_text)] if state.printed_text.strip() else []
        policy = feedback.policy(f"The cell was stopped: {why}. Variables are as they were before the cell.")
        return CellProgress([], Bindings(), feedback.joined([*parts, policy]))

    # --- values ------------------------------------------------------------------------------------

    async def _scope(self, state: CellState, means: CellMeans) -> _CellScope:
        """Where the names of a cell come from, with the values of those that it mentions at hand."""
        table = means.table
        definitions, mentioned = with_classes(table, table.needed(state.code)[1], state.code)
        sources = [prelude_for({"parallel"})] if "parallel" in mentioned else []
        sources += [AGENT_BATCH] if "agent_batch" in mentioned else []
        sources += [each.source for each in definitions]
        own = names_in(state.code)
        wanted = {name for name in mentioned if name in table.variables}
        wanted |= {name for group in table.aliases if not wanted.isdisjoint(group) for name in group[:1]}
        leaves = await self.leaves(means.session_id, sorted(wanted), table)
        bound = self._services.projections(means.session_id) if self._services is not None else {}
        size = sum(each.size for name, each in bound.items() if name in mentioned)
        memory_mib = min(MAX_MEMORY_MIB, MEMORY_MIB + PROJECTION_FACTOR * -(-size // MIB))
        loop = asyncio.get_running_loop()
        names = (mentioned, own.assigned, own.definitions)
        return _CellScope(self, state, means, leaves, bound, memory_mib, loop, sources, *names)

    async def leaves(self, session_id: str, names: Iterable[str], table: VariableTable) -> dict[str, str]:
        """The JSON of variables' values by name, from memory or from the journal."""
        found: dict[str, str] = {}
        missing: list[str] = []
        for name in names:
            digest = table.variables[name].digest
            if (kept := self._leaves.get(digest)) is None:
                missing.append(name)
            else:
                self._leaves.move_to_end(digest)
                found[name] = kept
        positions = sorted({table.variables[name].position for name in missing})
        if not positions:
            return found
        if self._reader is None:
            raise InstanceLostError(f"the value of '{missing[0]}' cannot be read: this engine has no journal")
        held = _names_by_position(table, positions)
        wanted = {*missing}
        for first, last in _runs(positions):
            for entry in await self._reader.read(session_id, first - 1, last - first + 1):
                values = _values_in(entry)
                for name in held[entry.position]:
                    variable = table.variables[name]
                    text = values.get(variable.leaf or name)
                    if text is None:
                        raise ValueError(f"session '{session_id}': position {entry.position} has no value of '{name}'")
                    if name in wanted:
                        found[name] = text
                    if name in wanted or self._held + variable.size <= LEAF_CACHE_BYTES:  # it is read already
                        self._keep(variable.digest, text)
        return found

    def _keep(self, digest: str, text: str) -> None:
        if digest in self._leaves:
            return
        self._leaves[digest] = text
        self._held += len(text)
        while self._held > LEAF_CACHE_BYTES and len(self._leaves) > 1:
            _, gone = self._leaves.popitem(last=False)
            self._held -= len(gone)

    def history(self, session_id: str, position: int) -> Awaitable[list[Json]]:
        async def nothing() -> list[Json]:
            return []

        return nothing() if self._services is None else self._services.history(session_id, position)


class _CellScope(NamedTuple):
    """The names of one cell, for the thread that runs it."""

    cells: SandboxCells
    state: CellState
    means: CellMeans
    leaves: dict[str, str]
    """The JSON of variables that are at hand."""
    projections: dict[str, Projection]
    memory_mib: int
    loop: asyncio.AbstractEventLoop
    sources: list[str]
    mentioned: set[str]
    assigned: frozenset[str]
    definitions: tuple[Definition, ...]

    def leaf(self, name: str) -> str:
        """The JSON of a variable's value; read from the journal if the cell does not mention it in so many words."""
        if name not in self.leaves:
            reading = self.cells.leaves(self.means.session_id, [name], self.means.table)
            self.leaves.update(asyncio.run_coroutine_threadsafe(reading, self.loop).result())
        return self.leaves[name]

    def has_projection(self, name: str) -> bool:
        return name == HISTORY or name in self.means.policy.projections

    def projection(self, name: str) -> Any:
        """The value of a projection. Raises `LookupError` if it is not bound in this process, and
        `ProjectionNotBoundError` if it was when the cell was first run."""
        if name == HISTORY:
            reading = self.cells.history(self.means.session_id, self.state.position)
            return asyncio.run_coroutine_threadsafe(_awaited(reading), self.loop).result()
        found = self.projections.get(name)
        if found is None and self.means.is_replay:
            raise ProjectionNotBoundError(self.means.session_id, name, self.means.policy.projections[name])
        if found is None:
            raise LookupError(f"'{name}' is not bound in this process; whoever runs the session has to bind it again")
        return found.resolve()


async def _awaited(reading: Awaitable[list[Json]]) -> list[Json]:
    return await reading


def _names_by_position(table: VariableTable, positions: Collection[int]) -> dict[int, list[str]]:
    """The variables whose values are in the records at these positions."""
    names: dict[int, list[str]] = {position: [] for position in positions}
    for name, variable in table.variables.items():
        if variable.position in names:
            names[variable.position].append(name)
    return names


def _runs(positions: list[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each row of positions that follow on each other: they are read together."""
    first = last = positions[0]
    for position in positions[1:]:
        if position != last + 1:
            yield first, last
            first = position
        last = position
    yield first, last


def _values_in(entry: Entry) -> dict[str, str]:
    """The JSON of the values that a record has, by the names that they were left under."""
    match entry.record:
        case LeavesRecord(values=values):
            return values
        case BoundRecord(bindings=bindings):
            return {name: leaf.json for name, leaf in bindings.set.items() if not leaf.back}
        case StartedRecord(ctx=dict(ctx)) if isinstance(seed := ctx.get(SEED), dict):
            return {name: encode(value).decode() for name, value in seed.items()}
        case _:
            return {}
