"""One run of a sandboxed program, as the engine knows it: woken in a worker, and nothing but a snapshot in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

import msgspec
from pydantic_monty import MontyCrashedError, MontyError, MontySession

from holdfast.core.budget import remaining
from holdfast.core.ids import query_id
from holdfast.core.queries import Answer, Failure
from holdfast.core.replay import Waking
from holdfast.core.state import Session
from holdfast.programs.contract import AskStep, RaiseStep, Step
from holdfast.programs.errors import InstanceLostError, SnapshotUnusableError
from holdfast.programs.sandbox.calls import Known
from holdfast.programs.sandbox.cell import cells_of
from holdfast.programs.sandbox.frame import Frame, freeze, thaw
from holdfast.programs.sandbox.limits import DEADLINE_S, MAX_DEATHS, MAX_REPLAY_DEATHS, MEMORY_MIB
from holdfast.programs.sandbox.live import Brief, Live, Spec
from holdfast.programs.sandbox.source import source_of

if TYPE_CHECKING:
    from holdfast.programs.sandbox.kind import PythonKind

T = TypeVar("T")


class _LoadFailedError(Exception):
    """A worker died while it loaded a snapshot."""


class PythonInstance:
    """One run of a sandboxed program. Between two steps it is nothing but its snapshot."""

    def __init__(self, session: Session, kind: PythonKind) -> None:
        self.session = session
        """The session as it was when the program was last resumed: what it may know about itself."""
        self.state: Frame | bytes | None = None
        """The program as it waits; None before it has begun, and when it had to be let go of."""
        self._spec = _spec(session)
        self._kind = kind
        self.has_begun = False
        self._in_order = asyncio.Lock()

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Awaitable[Step]:
        return self._begin([self.brief(Waking(at, list(answers)))], self._stepped)

    def refuse(self, at: int, failure: Failure) -> Awaitable[Step]:
        return self._begin([self.brief(Waking(at, [], failure))], self._stepped)

    @property
    def size(self) -> int:
        """Bytes that it holds while it waits."""
        state = self.state
        return 0 if state is None else len(state if isinstance(state, bytes) else state.dump)

    def close(self) -> None:
        self._kind.let_go(self)

    # --- replay ------------------------------------------------------------------------------------

    def brief(self, waking: Waking) -> Brief:
        """A waking, with what the program may know at this moment."""
        started, spent = self.session.started, self.session.metrics
        assert started is not None
        left = remaining(started.budget, spent, waking.at) if started.budget else None
        namespace = started.ctx.get("_ns") if isinstance(started.ctx, dict) else None
        known = Known(
            at=waking.at,
            seed=started.seed,
            llm_calls=spent.llm_calls,
            left=left,
            namespace=namespace if isinstance(namespace, str) else "default",
        )
        answers = sorted(waking.answers, key=_number)
        return Brief(known=known, first_id=self.session.queries_asked, answers=answers, refusal=waking.refusal)

    async def replay(self, briefs: list[Brief]) -> list[Step]:
        """Take many steps in one go, in one worker."""
        async with self._in_order:
            return await self._begin(briefs, self._replayed)

    # --- inside ------------------------------------------------------------------------------------

    def _begin(self, briefs: list[Brief], then: Callable[[list[Step] | MontyCrashedError], T]) -> asyncio.Future[T]:
        if self.has_begun and self.state is None:
            raise InstanceLostError("its state is not in memory any more")
        # The state as it is now: before the thread's turn comes, the kind may have let go of it.
        return self._kind.workers.threads.submit(self._take, self.state, briefs, then=then)

    def _stepped(self, steps: list[Step] | MontyCrashedError) -> Step:
        if isinstance(steps, MontyCrashedError):
            return self._stuck() if steps.timed_out else self._lost(steps, self._kind.deaths, MAX_DEATHS)
        self._kind.deaths.pop(self.session.id, None)
        return self._replayed(steps)[0]

    def _replayed(self, steps: list[Step] | MontyCrashedError) -> list[Step]:
        if isinstance(steps, MontyCrashedError):
            lost = self._kind.replay_deaths
            return [self._stuck() if steps.timed_out else self._lost(steps, lost, MAX_REPLAY_DEATHS)]
        self._kind.replay_deaths.pop(self.session.id, None)
        self.has_begun = True
        self._kind.hold(self)
        return steps

    def _take(self, state: Frame | bytes | None, briefs: list[Brief]) -> list[Step] | MontyCrashedError:
        """In a thread: take steps, and keep what the program is after the last of them."""
        try:
            return self._run(state, briefs)
        except MontyCrashedError as error:
            return error

    def _run(self, state: Frame | bytes | None, briefs: list[Brief]) -> list[Step]:
        frame = thaw(state) if isinstance(state, bytes) else state
        try:
            return self._steps(frame, briefs)
        except _LoadFailedError:
            # The worker may have died while it stood ready. A snapshot that kills two of them is to blame itself.
            try:
                return self._steps(frame, briefs)
            except _LoadFailedError as error:
                raise SnapshotUnusableError(f"the interpreter gave up on its snapshot: {error}") from None

    def _steps(self, frame: Frame | None, briefs: list[Brief]) -> list[Step]:
        steps: list[Step] = []
        with self._worker(frame, briefs[0].known.seed) as session:
            try:
                live = Live(self._spec, session, frame)
            except MontyCrashedError as error:
                raise _LoadFailedError(str(error)) from None
            except (MontyError, RuntimeError, ValueError, TypeError) as error:
                raise SnapshotUnusableError(f"the interpreter cannot load its snapshot: {error}") from None
            for brief in briefs:
                steps.append(live.wake(brief))
                if not isinstance(steps[-1], AskStep):
                    self.state = None
                    return steps
            halted = live.halt()
        if isinstance(halted, RaiseStep):
            self.state = None
            return [*steps[:-1], msgspec.structs.replace(halted, notes=steps[-1].notes)]
        self.state = halted
        steps[-1] = msgspec.structs.replace(steps[-1], snapshot=freeze(halted))
        return steps

    def _worker(self, frame: Frame | None, seed: int) -> AbstractContextManager[MontySession]:
        workers, spec = self._kind.workers, self._spec
        if frame is not None:
            return workers.for_snapshot(deadline_s=spec.deadline_s, memory_mib=spec.memory_mib)
        return workers.checkout(deadline_s=spec.deadline_s, memory_mib=spec.memory_mib, seed=seed)

    def _stuck(self) -> RaiseStep:
        told = f"the strategy ran for more than {self._spec.deadline_s:g} s without asking anything: the deadline"
        return RaiseStep(error=f"{told} of one step. Its worker was stopped", kind="deadline")

    def _lost(self, error: MontyCrashedError, before: dict[str, int], most: int) -> RaiseStep:
        """Raise, so that the program is rebuilt; unless it has killed its worker too often."""
        deaths = before[self.session.id] = before.get(self.session.id, 0) + 1
        if deaths < most:
            raise InstanceLostError(f"its worker died: {error}", is_suspect=True)
        del before[self.session.id]
        return RaiseStep(
            error=f"the worker died {deaths} times while it ran this step of the strategy", kind="worker_died"
        )


def _spec(session: Session) -> Spec:
    started = session.started
    if started is None:
        raise ValueError(f"session '{session.id}' has not started")
    source = source_of(started.program)
    return Spec(
        cells=cells_of(source.code),
        file=source.file,
        ctx=started.ctx,
        env=source.env,
        deadline_s=source.deadline_s or DEADLINE_S,
        memory_mib=source.memory_mib or MEMORY_MIB,
    )


def _number(answered: tuple[str, Answer]) -> int:
    return int(answered[0].removeprefix(query_id(0)[:-1]))
