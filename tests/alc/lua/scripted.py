"""A Lua program run to its end in one VM of this process, its questions answered by a function of the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lupa.lua54 as lua
import msgspec

from holdfast.alc.lua.frames import VmSpec, VmWaking
from holdfast.alc.lua.outcomes import step_of
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.vm import RUNTIME, Vm
from holdfast.core.records import LoggedRecord
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step

Query = dict[str, Any]
AT = 1_700_000_000_000


@dataclass(frozen=True)
class Fails:
    """An answer that says why there is none."""

    message: str


@dataclass
class Ended:
    """How a program ended, what it asked and what it noted."""

    step: Step
    asked: list[list[Query]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def result(self) -> Any:
        assert isinstance(self.step, ReturnStep), self.step
        return self.step.result

    @property
    def error(self) -> str:
        assert isinstance(self.step, RaiseStep), self.step
        return self.step.error

    def logged(self, level: str) -> list[str]:
        return [note.message for note in self.notes if isinstance(note, LoggedRecord) and note.level == level]


def unasked(query: Query) -> Any:
    raise AssertionError(f"an unexpected question: {query}")


def run(
    code: str,
    answer: Callable[[Query], Any] = unasked,
    *,
    ctx: Any = None,
    left: Mapping[str, int | None] | None = None,
    packages: Path | None = None,
    null_is_nil: bool = True,
) -> Ended:
    """Run it. `answer` gives a text or any other JSON value, or `Fails`; `left` is what remains of the budget."""
    vm = Vm(
        VmSpec(
            config=msgspec.json.encode(
                {"name": "test", "code": code, "ctx": ctx, "seed": 7, "at": AT, "deadline_s": 10.0, "memory_mib": 64}
            ),
            roots=Roots(roots=[str(packages)] if packages else []),
            is_trusted=False,
            memory_mib=64,
            scenarios="",
            null_is_nil=null_is_nil,
        )
    )
    budget = None if left is None else msgspec.json.encode(left)
    asked: list[list[Query]] = []
    notes: list[Note] = []
    answers: list[tuple[bytes, bytes]] = []
    count = 0
    while True:
        forms, bodies = b"".join(form for form, _ in answers), [body for _, body in answers]
        step = step_of(vm.step(VmWaking(AT, count, count, left=budget, answers=bodies, forms=forms)))
        notes += step.notes
        if not isinstance(step, AskStep):
            return Ended(step, asked, notes)
        asked.append(msgspec.to_builtins(step.queries))
        count += len(step.queries)
        answers = [_encoded(answer(query)) for query in asked[-1]]


def call(expression: str, **ctx: Any) -> Any:
    """The value of a Lua expression, with `ctx` to take its arguments from."""
    return run(f"return {expression}", ctx=ctx).result


def module(name: str, host: str = "{}") -> Any:
    """The table that a value module of the runtime returns, in a VM of its own."""
    runtime = lua.LuaRuntime(encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    source = (RUNTIME / f"{name}.lua").read_bytes()
    return runtime.execute(f"return load(..., '={name}', 't')({host})".encode(), source)


def _encoded(answer: Any) -> tuple[bytes, bytes]:
    if isinstance(answer, str):
        return b"s", answer.encode()
    if isinstance(answer, Fails):
        return b"f", msgspec.json.encode({"message": answer.message, "code": "failed"})
    return b"j", msgspec.json.encode(answer)
