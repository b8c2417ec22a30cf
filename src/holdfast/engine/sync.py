"""The same door without `await`: an event loop in a thread of its own, and every method waits for its answer."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from holdfast.core.compare import Comparison
from holdfast.core.events import Event
from holdfast.core.fork_points import ForkPoint
from holdfast.core.records import Entry, Program
from holdfast.core.values import Json
from holdfast.engine.adoption import AdoptionReport
from holdfast.engine.drivers import Effect
from holdfast.engine.given_answers import Answers
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.loop_thread import LoopThread
from holdfast.engine.questions import QuestionPage
from holdfast.engine.replay_check import ReplayOutcome
from holdfast.programs.registry import Function, Strategy
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter, SessionPage

T = TypeVar("T")


class SyncHoldfast:
    """`Holdfast` for programs that do not use asyncio. Methods, arguments and results are the same."""

    def __init__(self, url: str | Store, **options: Any) -> None:
        self._url = url
        self._options = options
        self._loop = LoopThread()
        self._inner: Holdfast | None = None

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._inner = self._wait(self._open())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.stop(self._close)

    async def _open(self) -> Holdfast:
        return await open_holdfast(self._url, **self._options).__aenter__()

    async def _close(self) -> None:
        await self._hf.__aexit__(None, None, None)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.wait(work)

    @property
    def _hf(self) -> Holdfast:
        if self._inner is None:
            raise RuntimeError("use it as a context manager: `with holdfast.open_sync(url) as hf: …`")
        return self._inner

    def start(self, program: Strategy | Function | Program | str, **options: Any) -> Event:
        return self._wait(self._hf.start(program, **options))

    def feed(self, session_id: str, answers: Answers, **options: Any) -> Event:
        return self._wait(self._hf.feed(session_id, answers, **options))

    def cancel(self, session_id: str, reason: str | None = None, *, by: str | None = None) -> Event:
        return self._wait(self._hf.cancel(session_id, reason, by=by))

    def assign(self, session_id: str, llm: str, *, by: str | None = None) -> Event:
        return self._wait(self._hf.assign(session_id, llm, by=by))

    def label(self, session_id: str, **changes: Any) -> Event:
        return self._wait(self._hf.label(session_id, **changes))

    def questions(self, where: SessionFilter | None = None, **options: Any) -> QuestionPage:
        return self._wait(self._hf.questions(where, **options))

    def adopt(self, session_id: str, *, by: str | None = None, wait: float | None = None) -> Event:
        return self._wait(self._hf.adopt(session_id, by=by, wait=wait))

    def adoption(self, session_id: str) -> AdoptionReport:
        return self._wait(self._hf.adoption(session_id))

    def status(self, session_id: str, **options: Any) -> dict[str, Any]:
        return self._wait(self._hf.status(session_id, **options))

    def sessions(self, where: SessionFilter | None = None, **options: Any) -> SessionPage:
        return self._wait(self._hf.sessions(where, **options))

    def result(self, session_id: str, timeout: float | None = None) -> Json:
        return self._wait(self._hf.result(session_id, timeout))

    def watch(self, session_id: str, from_: int = 0) -> Iterator[Entry]:
        entries = self._hf.watch(session_id, from_)
        try:
            while True:
                try:
                    yield self._wait(anext(entries))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            self._wait(entries.aclose())  # type: ignore[attr-defined]

    def fork(self, session_id: str, at: int | None = None, **options: Any) -> Event:
        return self._wait(self._hf.fork(session_id, at, **options))

    def fork_points(self, session_id: str) -> list[ForkPoint]:
        return self._wait(self._hf.fork_points(session_id))

    def compare(self, left: str, right: str) -> Comparison:
        return self._wait(self._hf.compare(left, right))

    def check_replay(self, history: str | Path) -> ReplayOutcome:
        return self._wait(self._hf.check_replay(history))

    def resume(self, session_id: str, **options: Any) -> Event:
        return self._wait(self._hf.resume(session_id, **options))

    def clean(self) -> tuple[list[str], list[str]]:
        return self._wait(self._hf.clean())

    def delete(self, session_id: str) -> None:
        self._wait(self._hf.delete(session_id))

    def drive(self, what: str, effect: Effect, **options: Any) -> None:
        async def register() -> None:
            self._hf.drive(what, effect, **options)

        self._wait(register())


def open_sync(url: str | Store, **options: Any) -> SyncHoldfast:
    """Sessions on the store behind a URL, without asyncio: `with holdfast.open_sync(url) as hf: …`."""
    return SyncHoldfast(url, **options)
