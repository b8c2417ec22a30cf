"""Native programs: trusted `async def` strategies, run in this process and rebuilt by replay."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import msgspec

from holdfast.core.budget import RemainingBudget, remaining
from holdfast.core.errors import HoldfastError
from holdfast.core.ids import query_id
from holdfast.core.queries import Answer, Failure, LlmQuery, Query, TimerQuery, Value, check_query
from holdfast.core.records import LoggedRecord, PatchedRecord, Program
from holdfast.core.values import check_value, own_copy, own_copy_of
from holdfast.core.wake import Wake
from holdfast.programs.contract import AskStep, Fold, Note, RaiseStep, ReturnStep, Step
from holdfast.programs.errors import ProgramNotFoundError, QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.native.loop import EventLoop, Timer, run_coroutine
from holdfast.programs.native.place import closure_of, place_of, task_awaiting
from holdfast.programs.registry import Strategy, resolve
from holdfast.store.patience import patience

PROMPT_MS = round(patience(20))
"""Milliseconds within which a step should pause again. A strategy that takes longer is run in a thread for a while, so
that it cannot hold up the others, and its answers are committed before it continues."""

_PATIENCE = 50
"""For how many times as long as a slow step took its strategy is run in a thread. So slow steps hold up the others for
a fiftieth of the time at most, and a prompt strategy that the machine stalled once does not pay for ever: with a
thread, a round trip costs nearly twice the CPU."""

_APART = 10
"""Prompt steps of a run after which it is the machine that stalls, and not the strategy, if it used no processor
time: a busy machine takes the processor away for longer than a step may take, and a replay has thousands of steps."""

_THREADS = 4
"""Strategies that may compute at the same time: they share one interpreter, so more would not be faster."""


QueryFuture: TypeAlias = asyncio.Future[Any]
"""The answer to one query, awaited by the strategy. A class of our own would make every await slower."""


class NativeKind:
    """The kind `native`."""

    kind = "native"

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` measures how many seconds a step takes."""
        self.clock = clock
        self._slow_until: dict[str, float] = {}
        self.stalled: set[str] = set()
        """Names of strategies of which a step has taken long. The others are not slow."""
        self._threads: ThreadPoolExecutor | None = None

    def check(self, program: Program) -> None:
        """Raise `ProgramNotFoundError`, with the reason, if the program cannot be run here."""
        resolve(program)

    def knows(self, program: Program) -> bool:
        try:
            self.check(program)
        except ProgramNotFoundError:
            return False
        return True

    async def admit(self, program: Program) -> None:
        resolve(program)

    def create(self, fold: Fold) -> NativeInstance:
        session = fold.session
        if session.started is None:
            raise ValueError(f"session '{session.id}' has not started")
        return NativeInstance(resolve(session.started.program), fold, self)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def is_slow(self, strategy: Strategy) -> bool:
        until = self._slow_until.get(strategy.name)
        return until is not None and self.clock() < until

    def note_stall(self, strategy: Strategy, seconds: float, before: float | None, prompt_steps: int) -> None:
        """A step took so long that the next ones are run in a thread, unless it seems to be the machine's fault.

        `before` is the processor time at its beginning, if the strategy has stalled before; `prompt_steps` came before
        this one in the same run.
        """
        self.stalled.add(strategy.name)
        has_computed = before is not None and time.thread_time() - before > seconds / 2
        if has_computed or prompt_steps < _APART:
            self._slow_until[strategy.name] = self.clock() + _PATIENCE * seconds

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "holdfast-strategy")
        return self._threads


class NativeInstance:
    """One run of a strategy on a loop of its own."""

    def __init__(self, strategy: Strategy, fold: Fold, kind: NativeKind) -> None:
        self.fold = fold
        self.loop = EventLoop(self._set_timer, self._drop)
        self.notes: list[Note] = []
        self._strategy = strategy
        started = fold.session.started
        self._budget = started.budget if started else None
        self._kind = kind
        self._main: asyncio.Task[Any] | None = None
        self._asked = 0
        self._prompt_steps = 0
        """Steps since one took long."""
        self._new: dict[QueryFuture | Timer, Query] = {}
        self._open: dict[str, QueryFuture | Timer] = {}
        self._last: list[Query] = []
        self._last_withdrawn: list[str] = []
        self._withdrawn: list[str] = []
        self.remaining: RemainingBudget | None = None
        """What was left of the budget when the program was last resumed: the same in every replay."""
        self._place = AskingPlace(self)
        self.recorded_patches: Collection[str] | None = None
        self._patches: dict[str, bool] = {}

    @property
    def version(self) -> str:
        return self._strategy.version

    @property
    def file(self) -> str:
        return self._strategy.file

    # --- the engine's side -----------------------------------------------------------------------

    def resume(self, at: int, answers: Sequence[tuple[str, Answer]]) -> Step | Awaitable[Step]:
        self.loop.now_ms = at
        if self._budget is not None:
            self._note_remaining(at)
        if self._main is None:
            self._main = run_coroutine(self.loop, self._strategy.function(Context(self)))
        for asked, answer in answers:
            self._settle(self._open.pop(asked, None), answer)
        return self._go_on()

    def refuse(self, at: int, failure: Failure) -> Step | Awaitable[Step]:
        self.loop.now_ms = at
        if self._budget is not None:
            self._note_remaining(at)
        refused, self._last = self._last, []
        self._asked -= len(refused)
        self._withdrawn = self._last_withdrawn + self._withdrawn
        for query in refused:
            target = self._open.pop(query.id, None)
            if isinstance(target, Timer):
                self._new[target] = query  # time goes on: it is set with the next pause
            else:
                self._settle(target, failure)
        return self._go_on()

    def _note_remaining(self, at: int) -> None:
        assert self._budget is not None
        self.remaining = remaining(self._budget, self.fold.session.metrics, at)

    def close(self) -> None:
        self.loop.discard()
        if self._main is not None and not self._main.done():
            # Let `finally` blocks run, but hear no more questions.
            self._main.cancel()
            self.loop.step()
            self.loop.discard()

    def _settle(self, target: QueryFuture | Timer | None, answer: Answer) -> None:
        if isinstance(target, asyncio.Future):
            if target.done():
                return
            if type(answer) is Value:
                value = answer.value
                target.set_result(value if type(value) is str else own_copy(value))
            elif isinstance(answer, Failure):
                target.set_exception(QueryFailedError(answer.message, answer.code))
        elif target is not None and not target.cancelled():
            self.loop.fire(target)

    def _go_on(self) -> Step | Awaitable[Step]:
        kind = self._kind
        has_stalled = self._strategy.name in kind.stalled
        if has_stalled and kind.is_slow(self._strategy):
            running = asyncio.get_running_loop()
            return running.run_in_executor(kind.threads, self._run)
        clock = kind.clock
        before, began = time.thread_time() if has_stalled else None, clock()
        step = self._run()
        seconds = clock() - began
        if seconds * 1000 > PROMPT_MS:
            kind.note_stall(self._strategy, seconds, before, self._prompt_steps)
            self._prompt_steps = 0
        else:
            self._prompt_steps += 1
        return step

    def _run(self) -> Step:
        self.loop.step()
        for target in (*self._new, *self._open.values()):
            if target.cancelled():  # nobody waits for the answer any more, so the query is withdrawn
                self._drop(target)
        if self.loop.unhandled is not None:
            context, self.loop.unhandled = self.loop.unhandled, None
            error = context.get("exception")
            message = f"{context.get('message')}: {error!r}" if error else str(context.get("message"))
            self.notes.append(LoggedRecord(message=message, level="warning", source="asyncio"))
        notes, self.notes = self.notes, []
        main = self._main
        if main is not None and main.done():
            return _ending(main, notes, self._strategy.function.__code__.co_filename)
        if not self._new and not self._open:
            return RaiseStep(error=_explain_block(main), kind="not_a_query", notes=notes)
        return self._ask(notes)

    def _ask(self, notes: list[Note]) -> AskStep:
        new, waiting = self._new, self._open
        wake = "all" if len(waiting) + len(new) == 1 else self._wake()
        queries: list[Query] = []
        for target, query in new.items():
            asked = query_id(self._asked)
            self._asked += 1
            waiting[asked] = target
            queries.append(msgspec.structs.replace(query, id=asked))
        self._new, self._last = {}, queries
        self._last_withdrawn, self._withdrawn = self._withdrawn, []
        return AskStep(queries=queries, wake=wake, withdrawn=self._last_withdrawn, notes=notes, where=self._place)

    def _wake(self) -> Wake:
        """Wait for all answers if nothing could continue before the last of them, otherwise for the first."""
        waiting = [*self._open.values(), *self._new]
        joints = {_joint(target) for target in waiting}
        if len(joints) != 1 or None in joints:
            return "first"
        return "all" if _takes_failures(joints.pop()) else "all_or_failure"

    # --- the strategy's side ---------------------------------------------------------------------

    def ask(self, query: Query) -> QueryFuture:
        """A future of the answer. The query is asked, as it is now, when the strategy blocks."""
        is_fixed = not query.options if type(query) is LlmQuery else type(query) is TimerQuery
        if not is_fixed:  # something in it could be changed after it was asked
            check_query(query)
            query = own_copy_of(query)
        future: QueryFuture = asyncio.Future(loop=self.loop)
        self._new[future] = query
        return future

    def patched(self, name: str) -> bool:
        """Whether the new way of a change is taken: where the journal says so, or where nothing is recorded yet."""
        if name not in self._patches:
            self._patches[name] = self.recorded_patches is None or name in self.recorded_patches
            if self._patches[name]:
                self.notes.append(PatchedRecord(name=name))
        return self._patches[name]

    def place(self) -> str:
        """The line that waits for the query asked last."""
        target = self._open.get(self._last[-1].id) if self._last else None
        task = task_awaiting(target) if isinstance(target, asyncio.Future) else None
        task = task or self._main
        return place_of(task) if task is not None else ""

    def _set_timer(self, timer: Timer) -> None:
        delay = max(0, round(timer.when() * 1000) - self.loop.now_ms)
        self._new[timer] = TimerQuery(delay_ms=delay)

    def _drop(self, target: QueryFuture | Timer) -> None:
        if self._new.pop(target, None) is not None:
            return
        for asked, waiting in self._open.items():
            if waiting is target:
                del self._open[asked]
                self._withdrawn.append(asked)
                return


def _joint(target: QueryFuture | Timer) -> object | None:
    """The `gather` that an answer belongs to, if nothing else awaits it: it continues once it has all its answers."""
    callbacks = [] if isinstance(target, Timer) else target._callbacks or []
    joints = {callback for callback, _ in callbacks}
    only = joints.pop() if len(joints) == 1 else None
    return only if getattr(only, "__qualname__", "") == "gather.<locals>._done_callback" else None


def _takes_failures(joint: object) -> bool:
    """Whether a `gather` gives failures as values, and so waits for all answers whatever they are."""
    return bool(closure_of(joint).get("return_exceptions"))


class AskingPlace:
    """Where a strategy asked last, as long as it waits for that. It is found out by `str`: nearly nobody wants it."""

    __slots__ = ("_run",)

    def __init__(self, run: NativeInstance) -> None:
        self._run = run

    def __str__(self) -> str:
        return self._run.place()


def _ending(main: asyncio.Task[Any], notes: list[Note], source: str) -> ReturnStep | RaiseStep:
    if main.cancelled():
        return RaiseStep(error="the strategy cancelled itself", kind="cancelled", notes=notes)
    error = main.exception()
    if error is None:
        try:
            check_value(main.result(), "result")
        except HoldfastError as bad:
            return RaiseStep(error=f"{bad}; a strategy returns JSON", kind="invalid_result", notes=notes)
        return ReturnStep(result=own_copy(main.result()), notes=notes)
    kind = getattr(error, "code", None) or getattr(error, "kind", None) or type(error).__name__
    return RaiseStep(error=_tell(error) + _place_of_error(error, source), kind=str(kind), notes=notes)


def _tell(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}: {'; '.join(_tell(each) for each in error.exceptions)}"
    return f"{type(error).__name__}: {error}"


def _place_of_error(error: BaseException, source: str) -> str:
    """The innermost line of the strategy's own file that the error passed through."""
    place, found = error.__traceback__, None
    while place is not None:
        if found is None or place.tb_frame.f_code.co_filename == source:
            found = place
        place = place.tb_next
    return f" ({found.tb_frame.f_code.co_filename}:{found.tb_lineno})" if found is not None else ""


def _explain_block(main: asyncio.Task[Any] | None) -> str:
    frames = main.get_stack() if main is not None else []
    where = f" at {frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else ""
    return (
        f"the strategy waits{where} for something that is not a query, so nobody can ever answer it. Use ctx.llm,"
        " ctx.ask, ctx.tool, ctx.sleep or ctx.child, and wait for tasks that do"
    )
