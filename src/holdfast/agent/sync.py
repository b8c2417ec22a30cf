"""Agent sessions without `await`: an event loop runs in a thread of its own, and every method blocks until it is done.

Names, arguments, results and errors are those of `Runtime`, `SessionBuilder`, `AgentSession` and `TurnBuilder`. They
can be used from several threads. If a call is interrupted, as by Ctrl-C, a turn that has begun continues, and
`turn(…).id(…)` joins it again. There is no `conversation()`, because it changes while it is read. `cancel_on` and
`code_execution_context()` belong to an event loop; `cancel` and `stop` work from any thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Self, TypeVar

from holdfast.agent.cancellation import CancelReceipt
from holdfast.agent.envelopes.conversation import export_envelope, import_envelope
from holdfast.agent.envelopes.store import SessionEnvelope
from holdfast.agent.live_events import LiveEvent
from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.inbox import Delivery, Item, Slot
from holdfast.agent.machine.policy import Emission, Policy, Spec
from holdfast.agent.machine.prompt import Contribution, PromptLayer
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.provider import Provider
from holdfast.agent.queue import EnqueueBuilder, ItemOutcome, ItemReceipt, QueuedTurns
from holdfast.agent.results import ReadView, TurnResult, UsageReport
from holdfast.agent.runtime import Runtime
from holdfast.agent.runtime_options import DEFAULT_STORE
from holdfast.agent.session import AgentSession
from holdfast.agent.session_builder import AgentState, SessionBuilder
from holdfast.agent.settings_report import SettingsReport
from holdfast.agent.subagents.tree import SessionNode
from holdfast.agent.sync_parts import SyncPart
from holdfast.agent.sync_streams import SyncObserver, SyncTurnStream
from holdfast.agent.tools.catalog import Catalog, Toolish
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.agent.turn_builder import BeginReceipt, Input, TurnBuilder
from holdfast.agent.turn_phases import PhaseProbe
from holdfast.core.budget import Budget
from holdfast.core.values import Json
from holdfast.engine.loop_thread import LoopThread
from holdfast.store.contract import Store

T = TypeVar("T")


class SyncRuntime:
    """`Runtime` for programs that do not use asyncio: `with SyncRuntime("sqlite:///chat.db", model="…") as runtime: …`.

    The options are those of `Runtime`. Tools, providers and store factories may be async, as there.
    """

    def __init__(self, store: str | Store = DEFAULT_STORE, **options: Any) -> None:
        self._inner = Runtime(store, **options)
        self._loop = LoopThread()

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.wait(self._inner.__aenter__())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.stop(lambda: self._inner.__aexit__(None, None, None))

    def session(self, session_id: str) -> SyncSessionBuilder:
        return SyncSessionBuilder(self, self._inner.session(session_id), self._loop)

    def import_envelope(
        self, session_id: str, envelope: SessionEnvelope, *, spec: Spec | None = None
    ) -> SyncAgentSession:
        opened = self._loop.wait(import_envelope(self._inner, session_id, envelope, spec=spec))
        return SyncAgentSession(self, opened, self._loop)

    def observe(self, session_id: str, *, entries: bool = False) -> SyncObserver:
        return SyncObserver(self._inner.observe(session_id, entries=entries), self._loop)

    @property
    def processes(self) -> SyncPart:
        return SyncPart(self._inner.processes, self._loop)

    @property
    def triggers(self) -> SyncPart:
        return SyncPart(self._inner.triggers, self._loop)

    def describe(self) -> SettingsReport:
        return self._inner.describe()

    def add_provider(self, provider: Provider) -> None:
        self._inner.add_provider(provider)

    def install(self, plugin: Plugin, config: Any = None) -> list[str]:
        return self._loop.wait(self._inner.plugins.install(plugin, config))

    @property
    def policy(self) -> Policy:
        return self._inner.policy

    @property
    def tools(self) -> Catalog:
        return self._inner.tools


class SyncSessionBuilder:
    """`SessionBuilder` without `await`."""

    def __init__(self, runtime: SyncRuntime, inner: SessionBuilder, loop: LoopThread) -> None:
        self._runtime = runtime
        self._inner = inner
        self._loop = loop

    def standard(self) -> Self:
        self._inner.standard()
        return self

    def rlm(self, *, emission: Emission | None = None) -> Self:
        self._inner.rlm(emission=emission)
        return self

    def mode(self, mode: str) -> Self:
        self._inner.mode(mode)
        return self

    def provider(self, provider: Provider, model: str | None = None) -> Self:
        self._inner.provider(provider, model)
        return self

    def spec(self, spec: Spec | None = None, **fields: Any) -> Self:
        self._inner.spec(spec, **fields)
        return self

    def rlm_final_answer_format(self, guidance: str) -> Self:
        self._inner.rlm_final_answer_format(guidance)
        return self

    def bind(self, name: str, value: Any) -> Self:
        self._inner.bind(name, value)
        return self

    def budget(self, budget: Budget | None = None, **limits: float) -> Self:
        self._inner.budget(budget, **limits)
        return self

    def prompt(self, layer: str | PromptLayer) -> Self:
        self._inner.prompt(layer)
        return self

    def approval(self, approval: Approval) -> Self:
        self._inner.approval(approval)
        return self

    def plugin(self, plugin: Plugin, config: Json = None) -> Self:
        self._inner.plugin(plugin, config)
        return self

    def parent(self, session_id: str) -> Self:
        self._inner.parent(session_id)
        return self

    def store(self, store: Store) -> Self:
        self._inner.store(store)
        return self

    def open(self) -> SyncAgentSession:
        return self._opened(self._inner.open())

    def open_fresh(self) -> SyncAgentSession:
        return self._opened(self._inner.open_fresh())

    def open_with_state(self, state: AgentState) -> SyncAgentSession:
        return self._opened(self._inner.open_with_state(state))

    def _opened(self, opening: Coroutine[Any, Any, AgentSession]) -> SyncAgentSession:
        return SyncAgentSession(self._runtime, self._loop.wait(opening), self._loop)


class SyncAgentSession:
    """`AgentSession` without `await`."""

    def __init__(self, runtime: SyncRuntime, inner: AgentSession, loop: LoopThread) -> None:
        self.runtime = runtime
        self._inner = inner
        self._loop = loop

    def turn(self, content: Input) -> SyncTurnBuilder:
        return SyncTurnBuilder(self._inner.turn(content), self._loop)

    def command(self, name: str, /, **arguments: Json) -> SyncTurnBuilder:
        return SyncTurnBuilder(self._inner.command(name, **arguments), self._loop)

    def compact(self, instructions: str = "", *, keep: int | None = None) -> TurnResult:
        return self._loop.wait(self._inner.compact(instructions, keep=keep))

    def set_context(
        self, tools: Sequence[Toolish] = (), prompt: Sequence[Contribution] = (), *, include_base: bool = True
    ) -> None:
        self._loop.wait(self._inner.set_context(tools, prompt, include_base=include_base))

    def catalog(self) -> SessionCatalog:
        return self._loop.wait(self._inner.catalog())

    def refresh_catalog(self) -> None:
        self._loop.wait(self._inner.refresh_catalog())

    def answer(self, query_id: str, value: Any) -> None:
        self._loop.wait(self._inner.answer(query_id, value))

    def cancel(
        self, turn: str | None = None, *, item: str | None = None, reason: str | None = None, by: str | None = None
    ) -> CancelReceipt:
        return self._loop.wait(self._inner.cancel(turn, item=item, reason=reason, by=by))

    def cancel_running_turns(self, reason: str = "stopped by the user") -> int:
        return self._loop.wait(self._inner.cancel_running_turns(reason))

    def enqueue(self, content: Input) -> SyncEnqueueBuilder:
        return SyncEnqueueBuilder(self._inner.enqueue(content), self._loop)

    def enqueue_command(self, name: str, /, **arguments: Json) -> SyncEnqueueBuilder:
        return SyncEnqueueBuilder(self._inner.enqueue_command(name, **arguments), self._loop)

    def admin(self) -> SyncPart:
        return SyncPart(self._inner.admin(), self._loop)

    def commands(self) -> SyncPart:
        return SyncPart(self._inner.commands(), self._loop)

    def plugin_actions(self) -> SyncPart:
        return SyncPart(self._inner.plugin_actions(), self._loop)

    def processes(self) -> SyncPart:
        return SyncPart(self._inner.processes(), self._loop)

    def triggers(self) -> SyncPart:
        return SyncPart(self._inner.triggers(), self._loop)

    def queued_turn(self, batch_ids: Sequence[str] | None = None, *, drain_id: str | None = None) -> SyncQueuedTurns:
        return SyncQueuedTurns(self._inner.queued_turn(batch_ids, drain_id=drain_id), self._loop)

    def turn_result(self, turn_id: str, timeout: float | None = None) -> TurnResult:
        return self._loop.wait(self._inner.turn_result(turn_id, timeout))

    def tree(self) -> SessionNode:
        return self._loop.wait(self._inner.tree())

    def queued_work(self) -> list[Item]:
        return self._loop.wait(self._inner.queued_work())

    def cancel_queued_work(self, item_id: str, reason: str | None = None, *, by: str | None = None) -> ItemOutcome:
        return self._loop.wait(self._inner.cancel_queued_work(item_id, reason, by=by))

    def outcome(self, item_id: str) -> ItemOutcome:
        return self._loop.wait(self._inner.outcome(item_id))

    def wait_for(self, item_id: str, timeout: float | None = None) -> ItemOutcome:
        return self._loop.wait(self._inner.wait_for(item_id, timeout))

    def stop(self, reason: str = "stopped by the user") -> bool:
        return self._loop.wait(self._inner.stop(reason))

    def fork(
        self,
        *,
        at: int | None = None,
        before: str | None = None,
        node: str | None = None,
        turn: str | None = None,
        id: str | None = None,
    ) -> SyncAgentSession:
        forked = self._inner.fork(at=at, before=before, node=node, turn=turn, id=id)
        return SyncAgentSession(self.runtime, self._loop.wait(forked), self._loop)

    def observe(self) -> SyncObserver:
        return SyncObserver(self._inner.observe(), self._loop)

    def read_view(self) -> ReadView:
        return self._loop.wait(self._inner.read_view())

    def usage_report(self) -> UsageReport:
        return self._loop.wait(self._inner.usage_report())

    def export_envelope(self) -> SessionEnvelope:
        return self._loop.wait(export_envelope(self._inner))

    def configure(
        self,
        patch: Spec | None = None,
        *,
        prompt: str | PromptLayer | Sequence[PromptLayer] | None = None,
        by: str | None = None,
        **changes: Any,
    ) -> Policy:
        return self._loop.wait(self._inner.configure(patch, prompt=prompt, by=by, **changes))

    def set_turn_phase_probe(self, probe: PhaseProbe | None) -> None:
        """The probe is called in the thread of the event loop, and must not use the runtime."""
        self._inner.set_turn_phase_probe(probe)

    def close(self) -> None:
        self._loop.wait(self._inner.close())

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    @property
    def parent_session_id(self) -> str | None:
        return self._inner.parent_session_id

    @property
    def policy(self) -> Policy:
        return self._inner.policy

    @property
    def mode(self) -> str:
        return self._inner.mode


class SyncEnqueueBuilder:
    """`EnqueueBuilder` without `await`: `send` sends the item."""

    def __init__(self, inner: EnqueueBuilder, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def id(self, item_id: str) -> Self:
        self._inner.id(item_id)
        return self

    def delivery(self, delivery: Delivery) -> Self:
        self._inner.delivery(delivery)
        return self

    def slot(self, slot: Slot, merge_key: str = "") -> Self:
        self._inner.slot(slot, merge_key)
        return self

    def available_at(self, at: float) -> Self:
        self._inner.available_at(at)
        return self

    def after(self, seconds: float) -> Self:
        self._inner.after(seconds)
        return self

    def output(self, wanted: Any) -> Self:
        self._inner.output(wanted)
        return self

    def plugin_input(self, plugin_id: str, value: Any) -> Self:
        self._inner.plugin_input(plugin_id, value)
        return self

    def by(self, sender: str) -> Self:
        self._inner.by(sender)
        return self

    def send(self) -> ItemReceipt:
        return self._loop.wait(self._inner.send())


class SyncQueuedTurns:
    """`QueuedTurns` without `await`."""

    def __init__(self, inner: QueuedTurns, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def run(self, *, limit: int | None = None, wait: float | None = None) -> list[TurnResult]:
        return self._loop.wait(self._inner.run(limit=limit, wait=wait))


class SyncTurnBuilder:
    """`TurnBuilder` without `await`."""

    def __init__(self, inner: TurnBuilder, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def id(self, turn_id: str) -> Self:
        self._inner.id(turn_id)
        return self

    def output(self, wanted: Any) -> Self:
        self._inner.output(wanted)
        return self

    def prompt(self, layer: str | PromptLayer) -> Self:
        self._inner.prompt(layer)
        return self

    def plugin_input(self, plugin_id: str, value: Any) -> Self:
        self._inner.plugin_input(plugin_id, value)
        return self

    def model(self, model: str) -> Self:
        self._inner.model(model)
        return self

    def provider(self, provider: Provider, model: str | None = None) -> Self:
        self._inner.provider(provider, model)
        return self

    def spec(self, **fields: Any) -> Self:
        self._inner.spec(**fields)
        return self

    def begin(self) -> BeginReceipt:
        return self._loop.wait(self._inner.begin())

    def run(self, *, wait: float | None = None) -> TurnResult:
        return self._loop.wait(self._inner.run(wait=wait))

    def stream_to(self, sink: Callable[[LiveEvent], object], *, wait: float | None = None) -> TurnResult:
        """Like `run`, and pass the turn's events to a function, in the thread that waits.

        An exception of the function is raised here, and the turn continues.
        """
        stream = self.stream()
        until = None if wait is None else time.monotonic() + wait
        with contextlib.closing(stream.events(until)) as events:
            for event in events:
                sink(event)
        return stream.result()

    def stream(self) -> SyncTurnStream:
        """Run the turn, and yield its events as they come: `for event in turn.stream(): …`."""
        return SyncTurnStream(self._inner, self._loop)
