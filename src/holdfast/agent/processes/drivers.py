"""The effects of processes: tool calls in the background, turns, tokens of their owners, wakes, and settlements."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from holdfast.agent.machine.inbox import Item
from holdfast.agent.machine.kind import KIND as AGENT
from holdfast.agent.machine.mailbox import EnqueueMessage, SpentMessage, WithdrawMessage
from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.processes.machine import (
    SETTLE_TOOL,
    TOKEN_TOOL,
    TURN_TOOL,
    WAKE_TOOL,
    WorkQuery,
    process_fold,
)
from holdfast.agent.processes.terms import TurnWork, agent_session_id
from holdfast.agent.queue import outcome_of
from holdfast.agent.tools.runner import ToolRunner
from holdfast.agent.tools.tool import Tool
from holdfast.core.errors import HoldfastError, SessionNotFoundError
from holdfast.core.queries import Failure, Query, ToolQuery, Usage
from holdfast.core.values import Json
from holdfast.engine.drivers import Attempt, Driver, Recovery
from holdfast.engine.slots import SharedSlots, Slots

if TYPE_CHECKING:
    from holdfast.agent.mounted_store import MountedStore
    from holdfast.agent.results import TurnResult
    from holdfast.agent.runtime import Runtime
    from holdfast.engine.holdfast import Holdfast

WAITING = 100_000
"""Effects at once that do nothing but wait for something: as good as no limit."""

RETRY_S = 0.05
"""Seconds before a wake that was refused is tried again, at first; each time twice as long."""

MAX_RETRY_S = 60.0

MAX_OWNERS = 16
"""Sessions that are asked whom they belong to, until one is found that counts what a process has spent."""

WAKE_TRIES = 20
"""How often a wake is tried: for about a quarter of an hour. An inbox that is full for longer is not drained."""


class WorkDrivers:
    """The drivers of tool calls in the background: each runs a tool within the limits that all calls share."""

    def __init__(self, runner: ToolRunner, slots: Slots) -> None:
        self._runner = runner
        self._slots = slots
        self._drivers: WeakKeyDictionary[Tool, dict[bool, _WorkDriver]] = WeakKeyDictionary()

    def of(self, tool: Tool, query: WorkQuery) -> Driver:
        """The driver of a call of a tool."""
        known = self._drivers.setdefault(tool, {})
        if query.bound not in known:
            known[query.bound] = _WorkDriver(tool, self._runner, self._slots, bound=query.bound)
        return known[query.bound]


class _WorkDriver(Driver):
    """Runs one tool; whether it is run again after a death is up to the process."""

    def __init__(self, tool: Tool, runner: ToolRunner, slots: Slots, *, bound: bool) -> None:
        recovery: Recovery = "never" if bound else "idempotent"
        super().__init__(
            f"tool:{tool.name}", runner.effect(tool), recovery=recovery, probe=None, concurrency=tool.concurrency
        )
        self.slots = SharedSlots(tool.concurrency, slots)
        self._tool = tool
        self._runner = runner

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        return await self._runner.run(self._tool, attempt, query.arguments)


class BackgroundDriver(Driver):
    """An effect of background work that does not call a tool. Most of its time it waits."""

    is_harmless = True

    def __init__(self, name: str, holdfast: Holdfast, recovery: Recovery = "idempotent") -> None:
        super().__init__(f"tool:{name}", self.execute, recovery=recovery, probe=None, concurrency=WAITING)
        self._holdfast = holdfast


class TokenDriver(BackgroundDriver):
    """Lasts as long as this OS process serves the session."""

    def __init__(self, holdfast: Holdfast) -> None:
        super().__init__(TOKEN_TOOL, holdfast, "never")

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        with self._holdfast.engine.watch(attempt.session_id) as changes:
            while not self._holdfast.engine.owner.callers.is_closed:
                await changes.changed()
        return Failure("the OS process that it is bound to was shut down", "abandoned")


class WakeDriver(BackgroundDriver):
    """Puts an item into the inbox of the session that waits for a process. The same wake again is the same item."""

    def __init__(self, holdfast: Holdfast) -> None:
        super().__init__(WAKE_TOOL, holdfast)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        given = query.arguments
        item = Item(id=given["item"], content=[TextBlock(given["text"])], delivery="boundary")
        delay = RETRY_S
        for _ in range(WAKE_TRIES):
            try:
                await self._holdfast.send(given["session"], EnqueueMessage(item, attempt.session_id))
                return item.id
            except HoldfastError as error:
                if error.kind != "inbox_full":
                    raise
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_S)
        return Failure(f"the inbox of '{given['session']}' was full for too long", "inbox_full")


class TurnDriver(BackgroundDriver):
    """Has a turn run, and waits for its outcome. Run again, it finds the same turn."""

    def __init__(self, runtime: Runtime, mount: MountedStore) -> None:
        super().__init__(TURN_TOOL, mount.holdfast)
        self._runtime = runtime
        self._mount = mount

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        assert isinstance(query, ToolQuery)
        work = msgspec.convert({"kind": "turn", **query.arguments}, TurnWork)
        if work.session is not None:
            return await self._in_session(work.session, work.input, attempt)
        agent = agent_session_id(attempt.session_id)
        session = await self._runtime.session(agent).parent(attempt.session_id).spec(**work.spec).open()
        try:
            result = await session.turn(work.input).id(f"turn-{attempt.query_id}").run()
        finally:
            await session.close()
        await self._holdfast.cancel(agent, f"process {attempt.session_id} is over", by="process")
        return _outcome(result)

    async def _in_session(self, session_id: str, text: str, attempt: Attempt) -> Json | Failure:
        """Send the input to a session's inbox, and wait for whoever takes it from there."""
        item_id = f"run-{attempt.session_id}"
        item = Item(id=item_id, content=[TextBlock(text)])
        await self._holdfast.send(session_id, EnqueueMessage(item, attempt.session_id))
        session = await self._runtime.session(session_id).open()
        try:
            outcome = await session.wait_for(item_id)
        except asyncio.CancelledError:
            await asyncio.shield(self._withdraw(session_id, item_id, attempt.session_id))
            raise
        finally:
            await session.close()
        if outcome.result is None:
            why = outcome.cancelled.reason if outcome.cancelled is not None else None
            return Failure(f"its input was withdrawn: {why or 'no reason was given'}", "cancelled")
        return _outcome(outcome.result)

    async def _withdraw(self, session_id: str, item_id: str, process: str) -> None:
        """Take the input back if the process is over; if this OS process ends, the next one waits on."""
        if (await self._holdfast.session(process)).pending:
            return
        found = outcome_of(await self._holdfast.session(session_id), item_id)
        if found.status == "waiting":
            message = WithdrawMessage(item_id, f"process {process} is over", by="process")
            await self._holdfast.send(session_id, message)


class SettleDriver(BackgroundDriver):
    """Ends what is left of the session that did the work of a process, and has its owner count what that has spent.

    Told again, the owner counts it once. One that is over leaves it to the session that it belongs to.
    """

    def __init__(self, holdfast: Holdfast) -> None:
        super().__init__(SETTLE_TOOL, holdfast)

    async def execute(self, query: Query, attempt: Attempt) -> Json | Failure:
        terms = process_fold(await self._holdfast.session(attempt.session_id)).terms
        assert terms is not None
        worker = terms.works_in(attempt.session_id)
        assert worker is not None
        usage = await self._spent_by(worker, attempt.session_id)
        payer = await self._payer(terms.owner) if usage is not None else None
        if payer is not None:
            assert usage is not None
            await self._holdfast.send(payer, SpentMessage(attempt.session_id, usage))
        return payer

    async def _spent_by(self, worker: str, process: str) -> Usage | None:
        with self._holdfast.engine.watch(worker) as changes:
            while True:
                try:
                    session = await self._holdfast.session(worker)
                    if session.is_terminal:
                        return session.metrics.usage(session.kind_fold.usage_by_model())
                    await self._holdfast.cancel(worker, f"process {process} is over", by="process")
                except SessionNotFoundError:
                    return None  # it has not begun, or was deleted
                if not (await self._holdfast.session(worker)).is_terminal:
                    await changes.changed()  # another OS process holds it

    async def _payer(self, owner: str | None) -> str | None:
        """The agent that counts what was spent: the owner, or the one that it belongs to."""
        for _ in range(MAX_OWNERS):
            if owner is None:
                return None
            try:
                session = await self._holdfast.session(owner)
            except SessionNotFoundError:
                return None
            if session.program_kind == AGENT and not session.is_terminal:
                return owner
            asker = session.started.parent if session.started is not None else None
            owner = asker.session_id if asker is not None else session.kind_fold.parent
        return None


def _outcome(result: TurnResult) -> Json | Failure:
    match result.outcome:
        case StoppedOutcome(reason=reason, detail=detail):
            return Failure(f"the turn was stopped ({reason}): {detail}", str(reason))
        case _:
            return result.output if result.output is not None else result.text


def process_drivers(runtime: Runtime, mount: MountedStore) -> dict[str, Driver]:
    """The drivers of everything that a process asks beside tools, by the names of the queries."""
    holdfast = mount.holdfast
    return {
        TOKEN_TOOL: TokenDriver(holdfast),
        TURN_TOOL: TurnDriver(runtime, mount),
        WAKE_TOOL: WakeDriver(holdfast),
        SETTLE_TOOL: SettleDriver(holdfast),
    }
