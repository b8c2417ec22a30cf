"""One run of a sandboxed program, as the engine knows it: resumed in a worker, only a snapshot in between."""

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
from holdfast.programs.contract import AskStep, Fold, RaiseStep, Step
from holdfast.programs.errors import InstanceLostError, SnapshotUnusableError
from holdfast.programs.sandbox.calls import StepContext
from holdfast.programs.sandbox.cell import cell_source
from holdfast.programs.sandbox.limits import DEADLINE_S, MAX_DEATHS, MAX_REPLAY_DEATHS, MEMORY_MIB
from holdfast.programs.sandbox.live_program import LiveProgram, ProgramSpec, StepRequest
from holdfast.programs.sandbox.paused_state import PausedState, decode_state, encode_state
from holdfast.programs.sandbox.source import source_of

if TYPE_CHECKING:
    from holdfast.programs.sandbox.kind import PythonKind

T = TypeVar("T")


class _LoadFailedError(Exception):
    """A worker died while it loaded a snapshot."""


class PythonInstance:
    """One run of a sandboxed program. Between two steps it is nothing but its snapshot."""

    def __init__(self, fold: Fold, kind: PythonKind) -> None:
        self.fold = fold
        self._session_id = fold.session.id
        self.state: PausedState | bytes | None = None
        """The program as it waits; None before it begins, and after memory ran short."""
        self._spec = _spec(fold.session)
        self._kind = kind
        self.has_begun = False
        self._in_order = asyncio.Lock()

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Awaitable[Step]:
        return self._begin([self.step_request(Waking(at, list(answers)))], self._stepped)

    def refuse(self, at: int, failure: Failure) -> Awaitable[Step]:
        return self._begin([self.step_request(Waking(at, [], failure))], self._stepped)

    @property
    def size(self) -> int:
        """Bytes that it holds while it waits."""
        state = self.state
        return 0 if state is None else len(state if isinstance(state, bytes) else state.dump)

    def close(self) -> None:
        self._kind.let_go(self)

    # --- replay ------------------------------------------------------------------------------------

    def step_request(self, waking: Waking) -> StepRequest:
        """What to resume the program with, and what it may know at this moment."""
        session = self.fold.session
        started, spent = session.started, session.metrics
        assert started is not None
        left = remaining(started.budget, spent, waking.at) if started.budget else None
        namespace = started.ctx.get("_ns") if isinstance(started.ctx, dict) else None
        context = StepContext(
            at=waking.at,
            seed=started.seed,
            llm_calls=spent.llm_calls,
            left=left,
            namespace=namespace if isinstance(namespace, str) else "default",
        )
        answers = sorted(waking.answers, key=_number)
        return StepRequest(context=context, first_id=session.queries_asked, answers=answers, refusal=waking.refusal)

    async def replay(self, requests: list[StepRequest]) -> list[Step]:
        """Take many steps in one go, in one worker."""
        async with self._in_order:
            return await self._begin(requests, self._replayed)

    # --- inside ------------------------------------------------------------------------------------

    def _begin(
        self, requests: list[StepRequest], then: Callable[[list[Step] | MontyCrashedError], T]
    ) -> asyncio.Future[T]:
        if self.has_begun and self.state is None:
            raise InstanceLostError("its state is no longer in memory")
        # The state as it is now: before the thread's turn comes, the kind may have dropped it.
        return self._kind.workers.threads.submit(self._take, self.state, requests, then=then)

    def _stepped(self, steps: list[Step] | MontyCrashedError) -> Step:
        if isinstance(steps, MontyCrashedError):
            return self._stuck() if steps.timed_out else self._lost(steps, self._kind.deaths, MAX_DEATHS)
        self._kind.deaths.pop(self._session_id, None)
        return self._replayed(steps)[0]

    def _replayed(self, steps: list[Step] | MontyCrashedError) -> list[Step]:
        if isinstance(steps, MontyCrashedError):
            lost = self._kind.replay_deaths
            return [self._stuck() if steps.timed_out else self._lost(steps, lost, MAX_REPLAY_DEATHS)]
        self._kind.replay_deaths.pop(self._session_id, None)
        self.has_begun = True
        self._kind.hold(self)
        return steps

    def _take(self, state: PausedState | bytes | None, requests: list[StepRequest]) -> list[Step] | MontyCrashedError:
        """In a thread: take steps, and keep the program's state after the last of them."""
        try:
            return self._run(state, requests)
        except MontyCrashedError as error:
            return error

    def _run(self, state: PausedState | bytes | None, requests: list[StepRequest]) -> list[Step]:
        state = decode_state(state) if isinstance(state, bytes) else state
        try:
            return self._steps(state, requests)
        except _LoadFailedError:
            # The worker may have died while idle. A snapshot that kills two workers is itself to blame.
            try:
                return self._steps(state, requests)
            except _LoadFailedError as error:
                raise SnapshotUnusableError(f"the interpreter gave up on its snapshot: {error}") from None

    def _steps(self, state: PausedState | None, requests: list[StepRequest]) -> list[Step]:
        steps: list[Step] = []
        with self._worker(state, requests[0].context.seed) as session:
            try:
                live = LiveProgram(self._spec, session, state)
            except MontyCrashedError as error:
                raise _LoadFailedError(str(error)) from None
            except (MontyError, RuntimeError, ValueError, TypeError) as error:
                raise SnapshotUnusableError(f"the interpreter cannot load its snapshot: {error}") from None
            for request in requests:
                steps.append(live.wake(request))
                if not isinstance(steps[-1], AskStep):
                    self.state = None
                    return steps
            halted = live.halt()
        if isinstance(halted, RaiseStep):
            self.state = None
            return [*steps[:-1], msgspec.structs.replace(halted, notes=steps[-1].notes)]
        self.state = halted
        steps[-1] = msgspec.structs.replace(steps[-1], snapshot=encode_state(halted))
        return steps

    def _worker(self, state: PausedState | None, seed: int) -> AbstractContextManager[MontySession]:
        workers, spec = self._kind.workers, self._spec
        if state is not None:
            return workers.for_snapshot(deadline_s=spec.deadline_s, memory_mib=spec.memory_mib)
        return workers.checkout(deadline_s=spec.deadline_s, memory_mib=spec.memory_mib, seed=seed)

    def _stuck(self) -> RaiseStep:
        message = f"the strategy ran for more than {self._spec.deadline_s:g} s without asking anything: the deadline"
        return RaiseStep(error=f"{message} of one step. Its worker was stopped", kind="deadline")

    def _lost(self, error: MontyCrashedError, before: dict[str, int], most: int) -> RaiseStep:
        """Raise, so that the program is rebuilt; unless it has killed its worker too often."""
        deaths = before[self._session_id] = before.get(self._session_id, 0) + 1
        if deaths < most:
            raise InstanceLostError(f"its worker died: {error}", is_suspect=True)
        del before[self._session_id]
        return RaiseStep(
            error=f"the worker died {deaths} times while it ran this step of the strategy", kind="worker_died"
        )


def _spec(session: Session) -> ProgramSpec:
    started = session.started
    if started is None:
        raise ValueError(f"session '{session.id}' has not started")
    source = source_of(started.program)
    return ProgramSpec(
        cells=cell_source(source.code),
        file=source.file,
        ctx=started.ctx,
        env=source.env,
        deadline_s=source.deadline_s or DEADLINE_S,
        memory_mib=source.memory_mib or MEMORY_MIB,
    )


def _number(answered: tuple[str, Answer]) -> int:
    return int(answered[0].removeprefix(query_id(0)[:-1]))
