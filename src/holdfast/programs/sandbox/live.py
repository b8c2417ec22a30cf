"""A program in a worker: it is woken, makes its calls, and waits again. All of this happens in one thread, at once."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from pydantic_monty import (
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
)

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import query_id
from holdfast.core.queries import Answer, Failure, LlmQuery, Query
from holdfast.core.records import LoggedRecord, Wake
from holdfast.core.values import Json, repaired
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step
from holdfast.programs.sandbox.calls import (
    AWAITABLE,
    FUNCTIONS,
    MODULE_CALLS,
    OF_MODELS,
    PRIVATE,
    TO_THE_LAST,
    Give,
    Host,
    Known,
    Wait,
    as_text,
    clock,
    is_over,
    joined,
)
from holdfast.programs.sandbox.cell import Cells, line_at
from holdfast.programs.sandbox.faults import breach_of, failed
from holdfast.programs.sandbox.frame import Frame, Future, Joint
from holdfast.programs.sandbox.limits import MAX_PRINTED_CHARS, MAX_PRINTED_LINES, MAX_SUSPENSIONS
from holdfast.programs.sandbox.values import Payload, kept, measured, raised, refused, returned, settled

Snapshot: TypeAlias = FunctionSnapshot | NameLookupSnapshot | FutureSnapshot | MontyComplete


_LATER: Payload = {"future": ...}
"""The call gives an awaitable; its value comes later."""


class Brief(NamedTuple):
    """A waking, with what the program may know then."""

    known: Known
    first_id: int
    """Number of the first query that the step may ask."""
    answers: Sequence[tuple[str, Answer]]
    refusal: Failure | None = None


class Spec(NamedTuple):
    """What a program is, apart from what it has done so far."""

    cells: Cells
    file: str
    ctx: Json
    env: dict[str, str]
    deadline_s: float
    memory_mib: int


class _BrokenError(Exception):
    """A limit that the program cannot be asked about: the step is over."""

    def __init__(self, step: RaiseStep) -> None:
        super().__init__(step.error)
        self.step = step


class Live:
    """One program in one checkout of a worker."""

    def __init__(self, spec: Spec, session: MontySession, frame: Frame | None = None) -> None:
        self._spec = spec
        self._session = session
        self._snapshot: Snapshot | None = None
        self._frame = frame or Frame(dump=b"")
        self._printed: list[str] = []
        self._printed_chars = 0
        self._until = 0.0
        """When the step has taken too long."""
        if frame is not None:
            self._snapshot = session.load_snapshot(frame.dump, print_callback=self._print)

    def wake(self, brief: Brief) -> Step:
        """Go on until the program asks, returns or raises."""
        frame = self._frame
        self._until = time.perf_counter() + self._spec.deadline_s
        host = Host(brief.known, frame.figures, frame.suspensions)
        try:
            if self._snapshot is None:
                self._begin()
            else:
                self._take(brief)
                if frame.joint is not None:
                    if not is_over(frame.joint):
                        return self._asked([], host)
                    frame.unwanted += [asked for asked in frame.joint.queries if asked not in frame.joint.arrived]
                    joint, frame.joint = frame.joint, None
                    self._resume(joined(joint, host))
                elif frame.arrived:
                    self._settle()
            return self._run(brief, host)
        except _BrokenError as broken:
            return msgspec.structs.replace(broken.step, notes=self._notes(host))
        except (MontyRuntimeError, MontySyntaxError) as error:
            return self._failed(error, self._notes(host))

    def halt(self) -> Frame | RaiseStep:
        """The program as it waits; or how it is over, if what it holds leaves no room to write that down."""
        snapshot = self._snapshot
        assert snapshot is not None
        assert not isinstance(snapshot, MontyComplete)
        try:
            self._frame.dump = snapshot.dump()
        except MontyRuntimeError:
            most = self._spec.memory_mib
            told = (
                f"the strategy holds too much to be kept while it waits: about a quarter of its {most} MiB is the limit"
            )
            return RaiseStep(error=told, kind="memory")
        return self._frame

    # --- going on ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        spec = self._spec
        if spec.cells.prelude:
            self._session.feed_run(spec.cells.prelude)
        inputs = {"ctx": {} if spec.ctx is None else spec.ctx, "env": spec.env}
        self._timed(lambda: self._session.feed_start(spec.cells.main, inputs=inputs, print_callback=self._print))

    def _take(self, brief: Brief) -> None:
        """Note the answers of a waking, or that nothing could be asked."""
        frame = self._frame
        refusal = brief.refusal
        if refusal is None:
            frame.unwanted = []
        answers = list(brief.answers) if refusal is None else [(asked, refusal) for asked in frame.fresh]
        for asked, answer in answers:
            if frame.joint is not None and asked in frame.joint.queries:
                frame.joint.arrived[asked] = as_text(answer) if frame.joint.function in OF_MODELS else answer
            elif (future := frame.futures.pop(asked, None)) is not None:
                frame.arrived[future.call] = as_text(answer) if future.is_llm else answer
        frame.fresh = []

    def _run(self, brief: Brief, host: Host) -> Step:
        """Answer what needs nobody, until the program waits or is over."""
        queries: list[Query] = []
        while True:
            match self._snapshot:
                case MontyComplete() as done:
                    return self._returned(done, queries, host)
                case FutureSnapshot():
                    if not self._frame.arrived:
                        return self._asked(queries, host)
                    self._settle()
                case NameLookupSnapshot(variable_name=name) as lookup:
                    self._count(host)
                    if name in FUNCTIONS and not name.startswith(PRIVATE):
                        self._timed(lambda lookup=lookup, name=name: lookup.resume(value=_stand_in(name)))  # type: ignore[misc]
                    else:
                        self._timed(lookup.resume)
                case FunctionSnapshot() as call:
                    joint = self._call(call, host, queries, brief.first_id)
                    if joint is not None:
                        self._frame.joint = joint
                        return self._asked(queries, host)
                case None:
                    raise AssertionError("the program has not begun")

    def _call(self, call: FunctionSnapshot, host: Host, queries: list[Query], first_id: int) -> Joint | None:
        """Make a call of the host; the joint that the program now waits in, if it does."""
        self._count(host)
        name = str(call.function_name)
        if call.is_os_function:
            if (time_now := clock(name, call.args, host.known.at)) is not None:
                self._resume(returned(time_now))
                return None
            if name not in MODULE_CALLS:
                self._timed(call.resume_not_handled)
                return None
            name = MODULE_CALLS[name]
        elif name not in FUNCTIONS or (name.startswith(PRIVATE) and not self._is_prelude(call)):
            self._resume(raised("NameError", _unknown(name)))
            return None
        try:
            came = host.call(name, call.args, call.kwargs)
        except (TypeError, ValueError, InvalidValueError) as error:
            self._resume(refused(error))
            return None
        except RecursionError:
            self._resume(raised("ValueError", f"{name}: the arguments are nested too deeply"))
            return None
        if isinstance(came, Give):
            self._resume(returned(came.value))
            return None
        asked = self._numbered(came, queries, first_id)
        if not name.endswith(AWAITABLE):
            return Joint(function=name, queries=[query.id for query in asked], detail=came.detail)
        is_llm = isinstance(asked[0], LlmQuery)
        self._frame.futures[asked[0].id] = Future(call=call.call_id, is_llm=is_llm)
        self._resume(_LATER)
        return None

    def _numbered(self, came: Wait, queries: list[Query], first_id: int) -> list[Query]:
        asked: list[Query] = [
            msgspec.structs.replace(query, id=query_id(first_id + len(queries) + number))
            for number, query in enumerate(came.queries)
        ]
        queries += asked
        return asked

    def _settle(self) -> None:
        """Give the program the answers to what it awaits."""
        arrived, self._frame.arrived = self._frame.arrived, {}
        self._resume({call: settled(answer) for call, answer in arrived.items()})

    def _resume(self, payload: Payload | dict[int, Payload]) -> None:
        snapshot: Any = self._snapshot
        self._timed(lambda: snapshot.resume(payload))

    def _timed(self, go_on: Callable[[], Any]) -> None:
        """Let the program compute. A step has one deadline, however often it calls the host, and whatever that does."""
        self._snapshot = go_on()
        if time.perf_counter() > self._until:
            raise _BrokenError(self._too_long())

    def _count(self, host: Host) -> None:
        self._frame.suspensions += 1
        host.suspensions = self._frame.suspensions
        if host.suspensions > MAX_SUSPENSIONS:
            told = f"the strategy has called the host {MAX_SUSPENSIONS} times: the limit of one session"
            raise _BrokenError(RaiseStep(error=told, kind="suspensions"))

    # --- what it comes to --------------------------------------------------------------------------

    def _asked(self, queries: list[Query], host: Host) -> AskStep:
        frame = self._frame
        frame.fresh = [query.id for query in queries]
        return AskStep(
            queries=queries,
            wake=self._wake(),
            withdrawn=list(frame.unwanted),
            notes=self._notes(host),
            where=self._where(),
        )

    def _wake(self) -> Wake:
        """When the program can go on. Its tasks cannot be looked into, so models are waited for together: that is one
        pause for all they ask. Where a person, a tool or the clock is waited for, too, nobody waits for anybody."""
        joint, futures = self._frame.joint, self._frame.futures
        if joint is not None:
            if futures:
                return "first"
            return "all" if len(joint.queries) == 1 or joint.function in TO_THE_LAST else "all_or_failure"
        return "all_or_failure" if all(future.is_llm for future in futures.values()) else "first"

    def _is_prelude(self, call: FunctionSnapshot) -> bool:
        """Whether a call stands in our prelude, and not in what the author wrote or the program made up."""
        return bool(self._spec.cells.prelude) and call.position.filename == "<python-input-0>"

    def _where(self) -> str:
        position = getattr(self._snapshot, "position", None)
        main = "<python-input-1>" if self._spec.cells.prelude else "<python-input-0>"
        if position is None or position.filename != main:
            return ""
        return f"{self._spec.file}:{line_at(self._spec.cells.main, position.start)}"

    def _returned(self, done: MontyComplete, queries: list[Query], host: Host) -> Step:
        if queries:
            told = f"{len(queries)} awaitable call(s) were never awaited, and not asked: the first was {queries[0]}"
            host.notes.append(LoggedRecord(message=told[:500], level="warn", source="holdfast"))
        try:
            output = done.output
            measured(output, "result")
            result = kept(output, "result")
        except (InvalidValueError, RecursionError) as error:
            why = error if isinstance(error, InvalidValueError) else "result: it is nested too deeply"
            told = f"{why}; a strategy returns JSON: texts, numbers, lists, and dicts whose keys are texts"
            return RaiseStep(error=told, kind="invalid_result", notes=self._notes(host))
        return ReturnStep(result=result, notes=self._notes(host))

    def _failed(self, error: MontyRuntimeError | MontySyntaxError, notes: list[Note]) -> RaiseStep:
        breach = breach_of(error, self._spec.cells) if isinstance(error, MontyRuntimeError) else None
        if breach == "deadline":
            return msgspec.structs.replace(self._too_long(), notes=notes)
        if breach == "memory":
            told = f"the strategy needs more than {self._spec.memory_mib} MiB: the memory limit of one session"
            return RaiseStep(error=told, kind="memory", notes=notes)
        return failed(error, self._spec.cells, self._spec.file, notes)

    def _too_long(self) -> RaiseStep:
        told = f"the strategy ran for more than {self._spec.deadline_s:g} s without asking anything: the deadline"
        return RaiseStep(error=f"{told} of one step", kind="deadline")

    def _notes(self, host: Host) -> list[Note]:
        printed, self._printed, self._printed_chars = "".join(self._printed), [], 0
        lines = printed[:MAX_PRINTED_CHARS].split("\n", MAX_PRINTED_LINES)
        if len(printed) > MAX_PRINTED_CHARS or len(lines) > MAX_PRINTED_LINES:
            told = f"… and more; {MAX_PRINTED_LINES} lines and {MAX_PRINTED_CHARS} characters of one step are kept"
            lines[MAX_PRINTED_LINES:] = [told]
        elif not lines[-1]:
            lines.pop()
        return [*host.notes, *(LoggedRecord(message=repaired(line), source="print") for line in lines)]

    def _print(self, stream: str, text: str) -> None:
        if self._printed_chars <= MAX_PRINTED_CHARS:
            self._printed_chars += len(text)
            self._printed.append(text)


def _stand_in(name: str) -> Callable[..., Any]:
    """A function of the host as a value: the interpreter needs no more of it than its name."""

    def stand_in(*_: object) -> None: ...

    stand_in.__name__ = stand_in.__qualname__ = name
    return stand_in


def _unknown(name: str) -> str:
    public = [each for each in FUNCTIONS if not each.startswith(PRIVATE)]
    near = difflib.get_close_matches(name, public, 1)
    return f"name '{name}' is not defined" + (f"; did you mean '{near[0]}'?" if near else "")
