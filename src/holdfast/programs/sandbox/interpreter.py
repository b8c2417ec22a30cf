"""`Interpreter`: code in one checkout of a worker, resumed until it waits or ends, with one deadline for the step.

What its names and calls mean is for the caller to say: strategies and the cells of agents have different ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, assert_never

from pydantic_monty import (
    FunctionSnapshot,
    FutureSnapshot,
    MontyComplete,
    MontyRuntimeError,
    MontySession,
    NameLookupSnapshot,
)

from holdfast.core.errors import InvalidValueError
from holdfast.programs.sandbox.calls import clock
from holdfast.programs.sandbox.values import Payload, raised, refused, returned

Snapshot: TypeAlias = FunctionSnapshot | NameLookupSnapshot | FutureSnapshot | MontyComplete

Printer: TypeAlias = Callable[[str, str], None]
"""Takes what is printed: the stream, and the text."""

LATER: Payload = {"future": ...}
"""The call gives an awaitable; its value comes later."""


class StepOverdueError(Exception):
    """The time of the step is up."""


class Callees(Protocol):
    """What the code can call and read."""

    def settled_calls(self) -> dict[int, Payload]:
        """What awaited calls have come to and the code does not know yet, by the number of the call."""
        ...

    def look_up(self, lookup: NameLookupSnapshot) -> Snapshot:
        """Go on with the value of a name that the code has not defined."""
        ...

    def call(self, call: FunctionSnapshot) -> bool:
        """Carry out a call, or begin it; whether the code waits for it."""
        ...


class Interpreter:
    """Code that runs, for one step."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._until = 0.0
        """When the time of the step is up."""
        self.snapshot: Snapshot | None = None
        """Where the code is; None before it has begun."""

    def load(self, session: MontySession, dump: bytes, printer: Printer) -> None:
        """Be where the code was when `dump` was called."""
        self.snapshot = session.load_snapshot(dump, print_callback=printer)

    def start_clock(self) -> None:
        """The step begins."""
        self._until = time.perf_counter() + self._deadline_s

    def begin(self, session: MontySession, code: str, inputs: Mapping[str, object], printer: Printer) -> None:
        self.compute(lambda: session.feed_start(code, inputs=dict(inputs), print_callback=printer))

    def compute(self, go_on: Callable[[], Any]) -> None:
        """Let the code compute. A step has one deadline, however often it calls the host and whatever that costs.

        Raises `StepOverdueError`.
        """
        self.snapshot = go_on()
        if time.perf_counter() > self._until:
            raise StepOverdueError

    def resume(self, payload: Payload | dict[int, Payload]) -> None:
        """Go on with the outcome of the call that the code waits in, or of those that it awaits."""
        snapshot: Any = self.snapshot
        self.compute(lambda: snapshot.resume(payload))

    def run(self, callees: Callees) -> MontyComplete | None:
        """Carry out what needs no answer; how the code has ended, or None if it waits."""
        while True:
            match self.snapshot:
                case MontyComplete() as done:
                    return done
                case FutureSnapshot():
                    settled = callees.settled_calls()
                    if not settled:
                        return None
                    self.resume(settled)
                case NameLookupSnapshot() as lookup:
                    self.compute(lambda lookup=lookup: callees.look_up(lookup))  # type: ignore[misc]
                case FunctionSnapshot() as call:
                    if callees.call(call):
                        return None
                case None:
                    raise AssertionError("the code has not begun")
                case _ as unknown:
                    assert_never(unknown)

    def answer_system(self, call: FunctionSnapshot, at: int, names: Mapping[str, str]) -> str | None:
        """Carry out a call of the interpreter's modules, at a time; or give the function of the host in its place."""
        name = str(call.function_name)
        if (now := clock(name, call.args, at)) is not None:
            self.resume(returned(now))
        elif name not in names:
            self.compute(call.resume_not_handled)
        else:
            return names[name]
        return None

    def dump(self) -> bytes | None:
        """All that is needed to go on later; None if the code holds too much for that."""
        snapshot = self.snapshot
        assert snapshot is not None
        assert not isinstance(snapshot, MontyComplete)
        try:
            return snapshot.dump()
        except MontyRuntimeError:
            return None


def refusal_of(name: str, error: TypeError | ValueError | InvalidValueError | RecursionError) -> Payload:
    """What the code sees of a call whose arguments are wrong."""
    if isinstance(error, RecursionError):
        return raised("ValueError", f"{name}: the arguments are nested too deeply")
    return refused(error)


WRONG_CALL = (TypeError, ValueError, InvalidValueError, RecursionError)
"""What a function of the host raises if it cannot be called like that."""


def stand_in(name: str) -> Callable[..., Any]:
    """A function of the host as a value: the interpreter needs no more of it than its name."""

    def function(*_: object) -> None: ...

    function.__name__ = function.__qualname__ = name
    return function
