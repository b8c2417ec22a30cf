"""A program in a worker: it is resumed, makes its calls and waits again. All of this happens at once, in one thread."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from pydantic_monty import (
    FunctionSnapshot,
    MontyComplete,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
)

from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import query_id
from holdfast.core.queries import Answer, Failure, LlmQuery, Query
from holdfast.core.records import LoggedRecord
from holdfast.core.values import Json, repaired
from holdfast.core.wake import Wake
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step
from holdfast.programs.sandbox.calls import (
    AWAITABLE,
    FUNCTIONS,
    MODULE_CALLS,
    OF_MODELS,
    PRIVATE,
    TO_THE_LAST,
    CallPause,
    CallValue,
    HostCalls,
    StepContext,
    as_text,
    call_result,
    is_over,
)
from holdfast.programs.sandbox.cell import CellSource, line_at
from holdfast.programs.sandbox.faults import breach_of, failed
from holdfast.programs.sandbox.interpreter import (
    LATER,
    WRONG_CALL,
    Interpreter,
    Snapshot,
    StepOverdueError,
    refusal_of,
    stand_in,
)
from holdfast.programs.sandbox.limits import MAX_PRINTED_CHARS, MAX_PRINTED_LINES, MAX_SUSPENSIONS
from holdfast.programs.sandbox.paused_state import AwaitedCall, PausedState, WaitingCall
from holdfast.programs.sandbox.values import Payload, kept, measured, raised, returned, settled


class StepRequest(NamedTuple):
    """What to resume a program with, and what it may know during that step."""

    context: StepContext
    first_id: int
    """The number of the next query."""
    answers: Sequence[tuple[str, Answer]]
    refusal: Failure | None = None


class ProgramSpec(NamedTuple):
    """What a program is, apart from what it has done so far."""

    cells: CellSource
    file: str
    ctx: Json
    env: dict[str, str]
    deadline_s: float
    memory_mib: int


class _BrokenError(Exception):
    """A broken limit that the program cannot catch: the step is over."""

    def __init__(self, step: RaiseStep) -> None:
        super().__init__(step.error)
        self.step = step


class LiveProgram:
    """One program in one checkout of a worker."""

    def __init__(self, spec: ProgramSpec, session: MontySession, state: PausedState | None = None) -> None:
        self._spec = spec
        self._session = session
        self._interpreter = Interpreter(spec.deadline_s)
        self._state = state or PausedState(dump=b"")
        self._printed: list[str] = []
        self._printed_chars = 0
        if state is not None:
            self._interpreter.load(session, state.dump, self._print)

    def wake(self, request: StepRequest) -> Step:
        """Run until the program asks, returns or raises."""
        state, interpreter = self._state, self._interpreter
        interpreter.start_clock()
        host = HostCalls(request.context, state.figures, state.suspensions)
        calls = _StepCalls(self, interpreter, state, host, request.first_id)
        try:
            if interpreter.snapshot is None:
                self._begin()
            else:
                self._take(request)
                if state.waiting_call is not None:
                    if not is_over(state.waiting_call):
                        return self._asked([], host)
                    call, state.waiting_call = state.waiting_call, None
                    state.unwanted += [query for query in call.queries if query not in call.arrived]
                    interpreter.resume(call_result(call, host))
                elif state.arrived:
                    interpreter.resume(calls.settled_calls())
            done = interpreter.run(calls)
            return self._asked(calls.queries, host) if done is None else self._returned(done, calls.queries, host)
        except StepOverdueError:
            return msgspec.structs.replace(self._too_long(), notes=self._notes(host))
        except _BrokenError as broken:
            return msgspec.structs.replace(broken.step, notes=self._notes(host))
        except (MontyRuntimeError, MontySyntaxError) as error:
            return self._failed(error, self._notes(host))

    def halt(self) -> PausedState | RaiseStep:
        """The program as it waits; or its end, if it holds too much to be written down."""
        dump = self._interpreter.dump()
        if dump is None:
            most = self._spec.memory_mib
            message = (
                "the strategy holds too much data to be stored while it waits: the limit is about a quarter of its"
                f" {most} MiB"
            )
            return RaiseStep(error=message, kind="memory")
        self._state.dump = dump
        return self._state

    # --- going on ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        spec = self._spec
        if spec.cells.prelude:
            self._session.feed_run(spec.cells.prelude)
        inputs = {"ctx": {} if spec.ctx is None else spec.ctx, "env": spec.env}
        self._interpreter.begin(self._session, spec.cells.main, inputs, self._print)

    def _take(self, request: StepRequest) -> None:
        """Take in the answers, or that the last queries could not be asked."""
        state = self._state
        refusal = request.refusal
        if refusal is None:
            state.unwanted = []
        answers = list(request.answers) if refusal is None else [(asked, refusal) for asked in state.fresh]
        waiting = state.waiting_call
        for query, answer in answers:
            if waiting is not None and query in waiting.queries:
                waiting.arrived[query] = as_text(answer) if waiting.function in OF_MODELS else answer
            elif (awaited := state.awaited.pop(query, None)) is not None:
                state.arrived[awaited.call] = as_text(answer) if awaited.is_llm else answer
        state.fresh = []

    # --- what it comes to --------------------------------------------------------------------------

    def _asked(self, queries: list[Query], host: HostCalls) -> AskStep:
        state = self._state
        state.fresh = [query.id for query in queries]
        return AskStep(
            queries=queries,
            wake=self._wake(),
            withdrawn=list(state.unwanted),
            notes=self._notes(host),
            where=self._where(),
        )

    def _wake(self) -> Wake:
        """When the program is resumed. Its tasks are opaque, so it waits for all models it asked, in one pause. If it
        also waits for a person, a tool or the clock, the first answer resumes it."""
        call, awaited = self._state.waiting_call, self._state.awaited
        if call is not None:
            if awaited:
                return "first"
            return "all" if len(call.queries) == 1 or call.function in TO_THE_LAST else "all_or_failure"
        return "all_or_failure" if all(each.is_llm for each in awaited.values()) else "first"

    def is_prelude(self, call: FunctionSnapshot) -> bool:
        """Whether our prelude makes a call, and not the author's code or code that the program made up."""
        return bool(self._spec.cells.prelude) and call.position.filename == "<python-input-0>"

    def _where(self) -> str:
        position = getattr(self._interpreter.snapshot, "position", None)
        main = "<python-input-1>" if self._spec.cells.prelude else "<python-input-0>"
        if position is None or position.filename != main:
            return ""
        return f"{self._spec.file}:{line_at(self._spec.cells.main, position.start)}"

    def _returned(self, done: MontyComplete, queries: list[Query], host: HostCalls) -> Step:
        if queries:
            warning = f"{len(queries)} awaitable call(s) were never awaited, so not asked: the first was {queries[0]}"
            host.notes.append(LoggedRecord(message=warning[:500], level="warn", source="holdfast"))
        try:
            output = done.output
            measured(output, "result")
            result = kept(output, "result")
        except (InvalidValueError, RecursionError) as error:
            why = error if isinstance(error, InvalidValueError) else "result: it is nested too deeply"
            message = f"{why}; a strategy returns JSON: texts, numbers, lists, and dicts whose keys are texts"
            return RaiseStep(error=message, kind="invalid_result", notes=self._notes(host))
        return ReturnStep(result=result, notes=self._notes(host))

    def _failed(self, error: MontyRuntimeError | MontySyntaxError, notes: list[Note]) -> RaiseStep:
        breach = breach_of(error, self._spec.cells) if isinstance(error, MontyRuntimeError) else None
        if breach == "deadline":
            return msgspec.structs.replace(self._too_long(), notes=notes)
        if breach == "memory":
            message = f"the strategy needs more than {self._spec.memory_mib} MiB: the memory limit of one session"
            return RaiseStep(error=message, kind="memory", notes=notes)
        return failed(error, self._spec.cells, self._spec.file, notes)

    def _too_long(self) -> RaiseStep:
        message = f"the strategy ran for more than {self._spec.deadline_s:g} s without asking anything: the deadline"
        return RaiseStep(error=f"{message} of one step", kind="deadline")

    def _notes(self, host: HostCalls) -> list[Note]:
        printed, self._printed, self._printed_chars = "".join(self._printed), [], 0
        lines = printed[:MAX_PRINTED_CHARS].split("\n", MAX_PRINTED_LINES)
        if len(printed) > MAX_PRINTED_CHARS or len(lines) > MAX_PRINTED_LINES:
            cut = f"… and more; {MAX_PRINTED_LINES} lines and {MAX_PRINTED_CHARS} characters of one step are kept"
            lines[MAX_PRINTED_LINES:] = [cut]
        elif not lines[-1]:
            lines.pop()
        return [*host.notes, *(LoggedRecord(message=repaired(line), source="print") for line in lines)]

    def _print(self, stream: str, text: str) -> None:
        if self._printed_chars <= MAX_PRINTED_CHARS:
            self._printed_chars += len(text)
            self._printed.append(text)


class _StepCalls:
    """What a strategy calls during one step."""

    def __init__(
        self, program: LiveProgram, interpreter: Interpreter, state: PausedState, host: HostCalls, first_id: int
    ) -> None:
        self._program = program
        self._interpreter = interpreter
        self._state = state
        self._host = host
        self._first_id = first_id
        """The number of the next query."""
        self.queries: list[Query] = []
        """What was asked."""

    def settled_calls(self) -> dict[int, Payload]:
        arrived, self._state.arrived = self._state.arrived, {}
        return {call: settled(answer) for call, answer in arrived.items()}

    def look_up(self, lookup: NameLookupSnapshot) -> Snapshot:
        self._count()
        name = lookup.variable_name
        is_function = name in FUNCTIONS and not name.startswith(PRIVATE)
        return lookup.resume(value=stand_in(name)) if is_function else lookup.resume()

    def call(self, call: FunctionSnapshot) -> bool:
        self._count()
        name, host = str(call.function_name), self._host
        if call.is_os_function:
            instead = self._interpreter.answer_system(call, host.context.at, MODULE_CALLS)
            if instead is None:
                return False
            name = instead
        elif name not in FUNCTIONS or (name.startswith(PRIVATE) and not self._program.is_prelude(call)):
            self._interpreter.resume(raised("NameError", _unknown(name)))
            return False
        try:
            outcome = host.call(name, call.args, call.kwargs)
        except WRONG_CALL as error:
            self._interpreter.resume(refusal_of(name, error))
            return False
        if isinstance(outcome, CallValue):
            self._interpreter.resume(returned(outcome.value))
            return False
        asked = self._numbered(outcome)
        if not name.endswith(AWAITABLE):
            queries = [query.id for query in asked]
            self._state.waiting_call = WaitingCall(function=name, queries=queries, detail=outcome.detail)
            return True
        is_llm = isinstance(asked[0], LlmQuery)
        self._state.awaited[asked[0].id] = AwaitedCall(call=call.call_id, is_llm=is_llm)
        self._interpreter.resume(LATER)
        return False

    def _numbered(self, pause: CallPause) -> list[Query]:
        first = self._first_id + len(self.queries)
        asked: list[Query] = [
            msgspec.structs.replace(query, id=query_id(first + number)) for number, query in enumerate(pause.queries)
        ]
        self.queries += asked
        return asked

    def _count(self) -> None:
        self._state.suspensions += 1
        self._host.suspensions = self._state.suspensions
        if self._host.suspensions > MAX_SUSPENSIONS:
            message = f"the strategy has called the host {MAX_SUSPENSIONS} times: the limit of one session"
            raise _BrokenError(RaiseStep(error=message, kind="suspensions"))


def _unknown(name: str) -> str:
    public = [each for each in FUNCTIONS if not each.startswith(PRIVATE)]
    near = difflib.get_close_matches(name, public, 1)
    return f"name '{name}' is not defined" + (f"; did you mean '{near[0]}'?" if near else "")
