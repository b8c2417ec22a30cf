"""Strategies whose questions to models are answered by one: what drives them, and what is shown meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.lookup import find_modules_here
from holdfast.cli.models import close_provider, find_model, hint_for
from holdfast.cli.options import settings
from holdfast.cli.output import dim, duration, one_line, plain, say, shortened, width
from holdfast.cli.tail import Pen, Tail, can_move
from holdfast.engine.sync import SyncHoldfast

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime
    from holdfast.core.queries import Failure, LlmQuery
    from holdfast.engine.drivers import Attempt, Reply
    from holdfast.engine.holdfast import Holdfast

CLOCK_S = 0.25
"""Seconds between two drawings of what is under way."""

_LEAST = 24
"""Columns for a prompt: fewer tell nothing."""


class Driven:
    """A model for one session and its children."""

    def __init__(self, model: str, base_url: str | None, session_id: str) -> None:
        self._provider, self._model = find_model(model, base_url)
        self.url = settings().url(create=True)
        self.session_id = session_id
        self.calls = Calls(self._model)

    @contextlib.asynccontextmanager
    async def engine(self) -> AsyncIterator[Holdfast]:
        """The engine, with the model as a driver."""
        clock = asyncio.create_task(self.calls.clock())
        try:
            async with self._runtime() as runtime:
                yield self._equipped(runtime)
        finally:
            clock.cancel()
            await asyncio.gather(clock, return_exceptions=True)
            await close_provider(self._provider)  # after the engine: a call that breaks off would be an answer

    def sync_engine(self) -> SyncHoldfast:
        """The same without `await`."""
        return _SyncEngine(self)

    def _runtime(self) -> Runtime:
        from holdfast.agent.runtime import Runtime
        from holdfast.engine.minder import Minder

        find_modules_here()
        return Runtime(
            self.url,
            provider=self._provider,
            model=self._model,
            minder=Minder(only=self.session_id),  # what others wait for is not to be answered by this model
        )

    def _equipped(self, runtime: Runtime) -> Holdfast:
        from holdfast.agent.model_driver import ModelDriver

        hf = runtime.mount.holdfast
        hf.drive("llm", self.calls.told(ModelDriver(runtime, runtime.mount)))
        return hf


class _SyncEngine(SyncHoldfast):
    """`Driven.engine` without `await`."""

    def __init__(self, driven: Driven) -> None:
        super().__init__(driven.url)
        self._driven = driven
        self._open_parts = contextlib.AsyncExitStack()

    async def _open(self) -> Holdfast:
        return await self._open_parts.enter_async_context(self._driven.engine())

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


class Calls:
    """The calls of a run: counted, and shown as they are answered. On a terminal also those that are under way."""

    def __init__(self, model: str) -> None:
        self.last_fault: str | None = None
        """The class of the error of the call that failed last."""
        self._model = model
        self._count = 0
        self._open: dict[int, _Call] = {}
        self._shows = not settings().json
        # With a person at the terminal, all is told on standard output; else that is for the result.
        self._is_live = can_move() and sys.stdin.isatty()
        self._tail = Tail()
        self._pen = Pen()
        self._held: list[str] | None = None
        self._drawing = threading.Lock()
        """A person is asked by another thread than that of the calls."""

    def told(self, driver: Any) -> Any:
        """The driver, told of while it works."""

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
                    self._tell(call, outcome)

        return ask

    @property
    def has_begun(self) -> bool:
        """Whether anything was asked yet."""
        return self._count > 0

    def hint(self) -> str:
        """What to do about the call that failed last."""
        return hint_for(self.last_fault)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Say nothing for a while: a person types."""
        with self._drawing:
            self._tail.show([]) if self._is_live else None
            self._tail.keep()
            self._held = []
        yield
        with self._drawing:
            held, self._held = self._held, None
            for line in held:
                self._print(line)

    async def clock(self) -> None:
        """Time passes, until this is cancelled."""
        try:
            while self._is_live and self._shows:
                await asyncio.sleep(CLOCK_S)
                self._draw()
        finally:
            self._open.clear()
            self._draw()

    # --- showing -----------------------------------------------------------------------------------

    def _tell(self, call: _Call, outcome: Reply | Failure) -> None:
        from holdfast.core.queries import Failure

        took = duration(int((time.monotonic() - call.since) * 1000))
        mark, colour, facts = "✓", "green", [took]
        if isinstance(outcome, Failure):
            self.last_fault = outcome.code
            mark, colour, facts = "✗", "red", [one_line(outcome.message, width()), took]
        elif outcome.usage is not None:
            used = outcome.usage
            facts.append(f"{(used.prompt_tokens or 0) + (used.completion_tokens or 0):,} tokens")
        told = " · ".join(facts)
        role = f"{call.role}: " if call.role else ""
        room = max(_LEAST, width() - len(told) - len(role) - 12)
        prompt = shortened(one_line(call.prompt, 10_000), room)
        line = f"{click.style(mark, fg=colour)} call {call.number}  {role}{prompt}  {dim(told)}"
        with self._drawing:
            if self._held is not None:
                self._held.append(line)
            else:
                self._print(line)
        self._draw()

    def _print(self, line: str) -> None:
        if not self._shows:
            return
        if self._is_live:
            self._tail.show([])
            self._tail.keep()
        say(line, err=not self._is_live)

    def _draw(self) -> None:
        if not self._is_live or not self._shows:
            return
        with self._drawing:
            if self._held is None:
                self._tail.show(self._pen.lines(self._status(), is_cut=True) if self._open else [])

    def _status(self) -> Any:
        from rich.text import Text

        calls = list(self._open.values())
        which = f"call {calls[0].number}" if len(calls) == 1 else f"calls {calls[0].number} to {calls[-1].number}"
        took = time.monotonic() - calls[0].since
        done = self._count - len(calls)
        return Text(f"⋯ {plain(self._model)} · {which} under way · {done} done · {took:.0f} s", style="dim")
