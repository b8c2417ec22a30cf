"""A cell in a worker: it is begun or resumed, makes its calls, and waits or ends. All of this happens in one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pydantic_monty import (
    FunctionSnapshot,
    MontyComplete,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    NameLookupSnapshot,
)

from holdfast.agent.errors import ProjectionNotBoundError
from holdfast.agent.machine.turn import CellOutcome
from holdfast.agent.rlm import feedback
from holdfast.agent.rlm.cell_state import CallRequest, CellProgress, CellState
from holdfast.agent.rlm.functions import CellEndsError, CellFunctions
from holdfast.agent.rlm.inside import JSON, UNPACK
from holdfast.agent.rlm.limits import CELL_S, KEPT_CHARS, MAX_CALLS
from holdfast.agent.rlm.remains import leave_cell
from holdfast.agent.rlm.values import bounded_repr, is_tagged, value_in
from holdfast.agent.rlm.variables import Bindings, Definition, VariableTable
from holdfast.core.values import encode, repaired
from holdfast.programs.sandbox.calls import CallValue
from holdfast.programs.sandbox.cell import CellSource
from holdfast.programs.sandbox.faults import breach_of, explained
from holdfast.programs.sandbox.interpreter import (
    LATER,
    WRONG_CALL,
    Interpreter,
    Snapshot,
    StepOverdueError,
    refusal_of,
    stand_in,
)
from holdfast.programs.sandbox.values import Payload, raised, returned

_EXIT: Payload = {"exc_type": "SystemExit", "message": ""}
"""How a call that ends the cell ends: `finally` runs, and `except Exception` does not catch it."""


class Scope(Protocol):
    """Where the values of names come from that the cell itself does not assign.

    Everything that takes reading the cell's text is there already: Python must not parse in several threads at once.
    """

    @property
    def memory_mib(self) -> int:
        """The memory that the cell may use."""
        ...

    @property
    def sources(self) -> list[str]:
        """The definitions that are made before the cell is run."""
        ...

    @property
    def mentioned(self) -> set[str]:
        """All names that the cell and these definitions mention."""
        ...

    @property
    def assigned(self) -> frozenset[str]:
        """Names that the cell assigns, and may do so before it reads them."""
        ...

    @property
    def definitions(self) -> tuple[Definition, ...]:
        """What the cell itself defines."""
        ...

    def leaf(self, name: str) -> str:
        """The JSON of a variable of the table."""
        ...

    def projection(self, name: str) -> Any:
        """The value of a projection. Raises `LookupError`, in words, if it cannot be had."""
        ...

    def has_projection(self, name: str) -> bool: ...


class _LimitBrokenError(Exception):
    """A limit that the cell cannot catch; in words."""


class LiveCell:
    """One cell in one checkout of a worker."""

    def __init__(self, state: CellState, table: VariableTable, functions: CellFunctions, scope: Scope) -> None:
        self._state = state
        self._table = table
        self._functions = functions
        self._scope = scope
        self._interpreter = Interpreter(CELL_S)
        self._requests: list[CallRequest] = []
        self._fed = 0
        self._pieces: list[str] = []
        """What was printed and is not among what is kept yet."""
        self._pieces_chars = 0

    def begin(self, session: MontySession) -> CellProgress:
        """Run a cell until it waits or ends."""
        return self._guarded(session, lambda: self._begin(session))

    def load(self, session: MontySession) -> None:
        """Make the interpreter what it was when the cell began to wait."""
        self._interpreter.load(session, self._state.dump, self._print)

    def resume(self, session: MontySession, payload: Payload | dict[int, Payload]) -> CellProgress:
        """Go on with what its calls have come to."""
        return self._guarded(session, lambda: self._interpreter.resume(payload))

    def _guarded(self, session: MontySession, go_on: Callable[[], None]) -> CellProgress:
        self._interpreter.start_clock()
        try:
            return self._stepped(session, go_on)
        finally:
            self._keep_printed()

    def _stepped(self, session: MontySession, go_on: Callable[[], None]) -> CellProgress:
        state = self._state
        try:
            go_on()
            done = self._interpreter.run(self)
            shown = None if done is None else _value_text(done)
        except StepOverdueError:
            return self._broken(_BREACHES["deadline"])
        except _LimitBrokenError as broken:
            return self._broken(str(broken))
        except (MontyRuntimeError, MontySyntaxError) as error:
            breach = breach_of(error, _source(state.code)) if isinstance(error, MontyRuntimeError) else None
            if breach is not None:
                return self._broken(_BREACHES[breach].format(mib=self._scope.memory_mib))
            if not (state.end.is_called and isinstance(error.exception(), SystemExit)):
                return self._ended(session, feedback.error(self._trace(error)))
            shown = ""
        self._keep_printed()
        if shown is None:
            dump = self._interpreter.dump()
            if dump is None:
                return self._broken(_HOLDS_TOO_MUCH)
            state.dump = dump
            return CellProgress(self._requests)
        return self._ended(session, shown)

    # --- beginning ---------------------------------------------------------------------------------

    def _begin(self, session: MontySession) -> None:
        state, table = self._state, self._table
        sources, mentioned = self._scope.sources, self._scope.mentioned
        self._bind_plain(session)
        if sources:
            self._feed(session, "\n".join(sources))
        special = [name for name in table.variables if name in mentioned and table.variables[name].is_special]
        if special:
            self._bind_special(session, special)
        state.main = f"<python-input-{self._fed}>"
        self._interpreter.begin(session, state.code, self._shared(mentioned), self._print)

    def _bind_plain(self, session: MontySession) -> None:
        """Make the variables that JSON can hold as they are, if the cell mentions them and does not assign them.

        The interpreter reads JSON in a tenth of the time that it takes to pass the value in. A variable that the cell
        assigns is perhaps never read, and is passed in when it is.
        """
        aliased = {name for group in self._table.aliases for name in group}
        lines, texts = [JSON], list[str]()
        for name in sorted(self._scope.mentioned - self._scope.assigned - aliased):
            variable = self._table.variables.get(name)
            if variable is None or variable.is_special or is_tagged(text := self._scope.leaf(name)):
                continue
            texts.append(text)
            lines.append(f"{name} = _holdfast_json.loads(_holdfast_texts.pop())")
        if texts:
            self._feed(session, "\n".join(lines), {"_holdfast_texts": texts[::-1]})

    def _bind_special(self, session: MontySession, names: list[str]) -> None:
        """Make the variables that cannot be passed in as they are; all names of one object together."""
        defined = [name for each in self._table.definitions for name in each.names]
        classes = f"{{{', '.join(f'{name!r}: {name}' for name in defined)}}}"
        lines, texts, bound = [UNPACK], dict[str, object](), set[str]()
        for name in names:
            if name not in bound:
                group = self._table.group_of(name)
                bound |= {*group}
                texts[f"_holdfast_{len(texts)}"] = self._scope.leaf(name)
                target = " = ".join(group)
                lines.append(f"{target} = _holdfast_made(_holdfast_json.loads(_holdfast_{len(texts) - 1}), {classes})")
        self._feed(session, "\n".join(lines), texts)

    def _feed(self, session: MontySession, source: str, inputs: Mapping[str, object] | None = None) -> None:
        """Run something before the cell. It may read variables, and call nothing."""
        snapshot: Any = session.feed_start(source, inputs=dict(inputs or {}))
        while not isinstance(snapshot, MontyComplete):
            if isinstance(snapshot, NameLookupSnapshot):
                snapshot = self._looked_up(snapshot)
            elif isinstance(snapshot, FunctionSnapshot):
                why = f"{snapshot.function_name} cannot be called while a definition is made again"
                snapshot = snapshot.resume({"exc_type": "RuntimeError", "message": why})
            else:
                raise _LimitBrokenError("A definition of an earlier cell awaits something, and cannot be made again.")
        self._fed += 1

    def _shared(self, mentioned: set[str]) -> dict[str, object]:
        """Variables that are one object under several names: passed in together, so that they stay one."""
        inputs: dict[str, object] = {}
        for group in self._table.aliases:
            first = self._table.variables.get(group[0])
            if first is not None and not first.is_special and not mentioned.isdisjoint(group):
                value = value_in(self._scope.leaf(group[0]))
                inputs.update(dict.fromkeys(group, value))
        return inputs

    # --- running -----------------------------------------------------------------------------------

    def settled_calls(self) -> dict[int, Payload]:
        settled, self._state.settled = self._state.settled, {}
        if not settled:
            self._state.waiting = None
        return {call: dict(payload) for call, payload in settled.items()}

    def look_up(self, lookup: NameLookupSnapshot) -> Snapshot:
        self._count()
        return self._looked_up(lookup)

    def _looked_up(self, lookup: NameLookupSnapshot) -> Snapshot:
        name, table = lookup.variable_name, self._table
        if name in table.variables and not table.variables[name].is_special:
            return lookup.resume(value=value_in(self._scope.leaf(name)))
        if self._scope.has_projection(name):
            try:
                value = self._scope.projection(name)
            except ProjectionNotBoundError:
                raise
            except Exception as error:  # whatever a resolver of the host raises is the cell's error, and nobody else's
                why = str(error) if isinstance(error, LookupError) else f"'{name}' cannot be read: {error}"
                raise _LimitBrokenError(f"The cell was stopped: {repaired(why)}.") from error
            self._state.read_bytes += len(value) if isinstance(value, str | bytes) else len(encode(value))
            return lookup.resume(value=value)
        if self._functions.is_function(name):
            return lookup.resume(value=stand_in(name))
        return lookup.resume()

    def call(self, call: FunctionSnapshot) -> bool:
        """Make a call of the host; whether the cell waits for it."""
        self._count()
        name, state, interpreter = str(call.function_name), self._state, self._interpreter
        if call.is_os_function:
            instead = interpreter.answer_system(call, state.at, _SLEEPS)
            if instead is None:
                return False
            name = instead
        try:
            outcome = self._functions.call(name, call.call_id, call.args, call.kwargs)
        except CellEndsError:
            interpreter.resume(_EXIT)
            return False
        except NameError as error:
            interpreter.resume(raised("NameError", str(error)))
            return False
        except WRONG_CALL as error:
            interpreter.resume(refusal_of(name, error))
            return False
        if isinstance(outcome, CallValue):
            interpreter.resume(returned(outcome.value))
            return False
        self._requests.append(outcome)
        if outcome.is_awaited:
            interpreter.resume(LATER)
            return False
        state.waiting = call.call_id
        return True

    def _count(self) -> None:
        self._state.suspensions += 1
        self._functions.host.suspensions = self._state.suspensions
        if self._state.suspensions > MAX_CALLS:
            raise _LimitBrokenError(
                f"The cell was stopped: it has made more than {MAX_CALLS:,} calls. Use fewer, or several cells."
            )

    def _print(self, stream: str, text: str) -> None:
        """Keep what is printed: its beginning and its end, if it is long."""
        state = self._state
        state.printed_chars += len(text)
        self._pieces.append(text)
        self._pieces_chars += len(text)
        if self._pieces_chars > KEPT_CHARS:
            self._keep_printed()

    def _keep_printed(self) -> None:
        """Put what was printed since the last time to what is kept."""
        state, half = self._state, KEPT_CHARS // 2
        kept = state.printed + "".join(self._pieces)
        state.printed = kept if len(kept) <= KEPT_CHARS else kept[:half] + kept[-half:]
        self._pieces, self._pieces_chars = [], 0

    # --- ending ------------------------------------------------------------------------------------

    def _ended(self, session: MontySession, shown: str) -> CellProgress:
        """The cell is over: look at what it has left behind."""
        self._keep_printed()
        state = self._state
        left = leave_cell(session, state, self._table, self._scope)
        unasked = len([each for each in self._requests if each.is_awaited])
        notes = [feedback.policy(f"{unasked} calls were never awaited, so not made.")] if unasked else []
        if isinstance(left, str):
            return self._broken(left)
        is_error = shown.startswith("[ERROR]")
        text = state.printed_text if is_error or not shown else f"{state.printed_text}{shown}"
        parts = [feedback.output(text)] if text.strip() else ([] if is_error else [feedback.NOTHING])
        remark = feedback.joined([*parts, shown if is_error else "", *notes, feedback.bound(self._table, left)])
        return CellProgress([], left, remark)

    def _broken(self, why: str) -> CellProgress:
        """A limit ended the cell: nothing that it did to variables stays, and it has not finished its turn."""
        self._keep_printed()
        state = self._state
        state.end = CellOutcome()
        parts = [feedback.output(state.printed_text)] if state.printed_text.strip() else []
        undone = "Variables are as they were before the cell."
        return CellProgress([], Bindings(), feedback.joined([*parts, feedback.policy(f"{why} {undone}")]))

    def _trace(self, error: MontyRuntimeError | MontySyntaxError) -> str:
        """An exception as the model reads it: with the lines of its own cell and definitions."""
        name = type(error.exception()).__name__
        message = repaired(explained(error.display("msg")))
        frames = error.traceback() if isinstance(error, MontyRuntimeError) else []
        own = [frame for frame in frames if frame.filename == self._state.main]
        lines = [f"  line {frame.line}: {(frame.source_line or '').strip()[:160]}" for frame in own[-6:]]
        return "\n".join([f"{name}: {message}", *lines])


_SLEEPS = {"asyncio.sleep": "sleep_async", "time.sleep": "sleep"}

_BREACHES = {
    "deadline": f"The cell was stopped: it computed for more than {CELL_S:g} s without asking anything.",
    "memory": "The cell was stopped: it needed more than {mib} MiB of memory.",
}

_HOLDS_TOO_MUCH = "The cell was stopped: it holds too much data to be kept while it waits for a call."


def _source(code: str) -> CellSource:
    return CellSource("", code, "last expression", code.count("\n") + 1)


def _value_text(done: MontyComplete) -> str:
    """The value of the last expression, as it is shown; empty if there is none."""
    value = done.output
    if value is None:
        return ""
    return repaired(value if isinstance(value, str) else bounded_repr(value, KEPT_CHARS))
