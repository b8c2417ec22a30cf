"""The model that answers a strategy's llm queries, and how its calls are shown."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.display.live_block import LiveBlock, Renderer, can_redraw
from holdfast.cli.engine import BY
from holdfast.cli.models import close_provider, find_model, hint_for
from holdfast.cli.options import settings
from holdfast.cli.output import dim, duration, one_line, plain, say, shortened, width
from holdfast.cli.served import load_served
from holdfast.engine.sync import SyncHoldfast

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime
    from holdfast.core.queries import Failure, LlmQuery
    from holdfast.engine.drivers import Attempt, Reply
    from holdfast.engine.holdfast import Holdfast

CLOCK_S = 0.25
"""Seconds between two drawings of the running calls."""

_LEAST_PROMPT = 24
"""Columns for a prompt: with fewer it says nothing."""


class SessionModel:
    """The model that answers the llm queries of one session and its children."""

    def __init__(self, model: str, base_url: str | None, session_id: str, *, is_resumed: bool = False) -> None:
        load_served()
        self._provider, self._model = find_model(model, base_url)
        self.name = model
        self._is_resumed = is_resumed
        self._services = settings().services
        self.url = settings().url(create=True)
        self.session_id = session_id
        self.calls = _CallDisplay(self._model)

    @contextlib.asynccontextmanager
    async def engine(self) -> AsyncIterator[Holdfast]:
        """The engine, with the model as a driver."""
        clock = asyncio.create_task(self.calls.clock())
        try:
            async with self._runtime() as runtime:
                hf = self._add_driver(runtime)
                if self._is_resumed:
                    await self._assign(hf)
                yield hf
        finally:
            clock.cancel()
            await asyncio.gather(clock, return_exceptions=True)
            await close_provider(self._provider)  # after the engine, which would record a broken call

    async def _assign(self, hf: Holdfast) -> None:
        """Whoever resumes a strategy with a model wants that model to answer. An agent has its own."""
        session = await hf.session(self.session_id)
        if not session.is_terminal and session.program_kind != "agent":
            await hf.assign(self.session_id, self.name, by=BY)

    def sync_engine(self) -> SyncHoldfast:
        """The same for callers without an event loop."""
        return _SyncEngine(self)

    def _runtime(self) -> Runtime:
        from holdfast.agent.runtime import Runtime
        from holdfast.engine.upkeep import Upkeep

        runtime = Runtime(
            self.url,
            provider=self._provider,
            model=self._model,
            upkeep=Upkeep(only=self.session_id),  # this model must not answer for other sessions
            service=self._services,
        )
        runtime.add_model(self.name, self._provider, self._model)
        return runtime

    def _add_driver(self, runtime: Runtime) -> Holdfast:
        from holdfast.agent.model_driver import ModelDriver

        hf = runtime.mount.holdfast
        hf.drive("llm", self.calls.shown(ModelDriver(runtime, runtime.mount)))
        return hf


class _SyncEngine(SyncHoldfast):
    """`SessionModel.engine` for callers without an event loop."""

    def __init__(self, model: SessionModel) -> None:
        super().__init__(model.url)
        self._session_model = model
        self._open_parts = contextlib.AsyncExitStack()

    async def _open(self) -> Holdfast:
        return await self._open_parts.enter_async_context(self._session_model.engine())

    async def _close(self) -> None:
        await self._open_parts.aclose()


class _Call:
    """One call of the model."""

    def __init__(self, number: int, query: LlmQuery) -> None:
        self.number = number
        role = query.options.get("role")
        self.role = plain(role) if isinstance(role, str) else ""
        self.prompt = query.prompt
        self.since = time.monotonic()


class _CallDisplay:
    """The calls of a run: counted, and printed as they are answered. A terminal also shows those that are running."""

    def __init__(self, model: str) -> None:
        self.last_fault: str | None = None
        """The error class of the last call that failed."""
        self._model = model
        self._count = 0
        self._open: dict[int, _Call] = {}
        self._shows = not settings().json
        # With a person at the terminal, calls go to standard output; otherwise that is for the result.
        self._is_live = can_redraw() and sys.stdin.isatty()
        self._block = LiveBlock()
        self._renderer = Renderer()
        self._held: list[str] | None = None
        self._drawing = threading.Lock()
        """The person is asked by another thread than that of the calls."""

    def shown(self, driver: Any) -> Any:
        """The driver, with its calls shown."""

        async def ask(query: LlmQuery, attempt: Attempt) -> Reply | Failure:
            self._count += 1
            call = self._open[self._count] = _Call(self._count, query)
            self._draw()
            outcome: Reply | Failure | None = None
            try:
                outcome = await driver(query, attempt)
                return outcome
            finally:
                del self._open[call.number]
                if outcome is not None:
                    self._print_call(call, outcome)

        return ask

    @property
    def has_begun(self) -> bool:
        """Whether a call has begun."""
        return self._count > 0

    def hint(self) -> str:
        """What to do about the last call that failed."""
        return hint_for(self.last_fault)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Print nothing while a person types."""
        with self._drawing:
            self._block.show([]) if self._is_live else None
            self._block.keep()
            self._held = []
        yield
        with self._drawing:
            held, self._held = self._held, None
            for line in held:
                self._print_line(line)

    async def clock(self) -> None:
        """Redraw the running calls with their times, until this is cancelled."""
        try:
            while self._is_live and self._shows:
                await asyncio.sleep(CLOCK_S)
                self._draw()
        finally:
            self._open.clear()
            self._draw()

    # --- showing -----------------------------------------------------------------------------------

    def _print_call(self, call: _Call, outcome: Reply | Failure) -> None:
        from holdfast.core.queries import Failure

        took = duration(int((time.monotonic() - call.since) * 1000))
        mark, colour, facts = "✓", "green", [took]
        if isinstance(outcome, Failure):
            self.last_fault = outcome.code
            mark, colour, facts = "✗", "red", [one_line(outcome.message, width()), took]
        elif outcome.usage is not None:
            used = outcome.usage
            facts.append(f"{(used.prompt_tokens or 0) + (used.completion_tokens or 0):,} tokens")
        facts_text = " · ".join(facts)
        role = f"{call.role}: " if call.role else ""
        room = max(_LEAST_PROMPT, width() - len(facts_text) - len(role) - 12)
        prompt = shortened(one_line(call.prompt, 10_000), room)
        line = f"{click.style(mark, fg=colour)} call {call.number}  {role}{prompt}  {dim(facts_text)}"
        with self._drawing:
            if self._held is not None:
                self._held.append(line)
            else:
                self._print_line(line)
        self._draw()

    def _print_line(self, line: str) -> None:
        if not self._shows:
            return
        if self._is_live:
            self._block.show([])
            self._block.keep()
        say(line, err=not self._is_live)

    def _draw(self) -> None:
        if not self._is_live or not self._shows:
            return
        with self._drawing:
            if self._held is None:
                self._block.show(self._renderer.lines(self._status_text(), is_cut=True) if self._open else [])

    def _status_text(self) -> Any:
        from rich.text import Text

        calls = list(self._open.values())
        which = f"call {calls[0].number}" if len(calls) == 1 else f"calls {calls[0].number} to {calls[-1].number}"
        took = time.monotonic() - calls[0].since
        done = self._count - len(calls)
        return Text(f"⋯ {plain(self._model)} · {which} running · {done} done · {took:.0f} s", style="dim")
