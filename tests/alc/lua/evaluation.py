"""For the tests of `alc.eval`: one Lua VM in this process, with given packages, scenarios and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.lua.frames import VmSpec, VmWaking
from holdfast.alc.lua.outcomes import step_of
from holdfast.alc.lua.packages import Roots
from holdfast.alc.lua.vm import Vm
from holdfast.core.records import LoggedRecord
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step

Json = dict[str, Any]


@dataclass
class Failure:
    """An answer that says why there is none."""

    message: str
    code: str = "failed"


@dataclass
class Refusal(Failure):
    """The engine does not let the questions through, as when a budget is used up."""

    code: str = "budget_exceeded"


Reply = str | Json | Failure
Answering = Callable[[Json], Reply]


@dataclass
class Run:
    """What became of a program: how it ended, what it asked, what it noted."""

    end: Step
    asked: list[list[Json]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def result(self) -> Any:
        assert isinstance(self.end, ReturnStep), self.end
        return self.end.result

    @property
    def error(self) -> str:
        assert isinstance(self.end, RaiseStep), self.end
        return self.end.error

    @property
    def prompts(self) -> list[str]:
        return [query["prompt"] for queries in self.asked for query in queries if query["kind"] == "llm"]

    def logged(self, level: str) -> list[str]:
        return [note.message for note in self.notes if isinstance(note, LoggedRecord) and note.level == level]


def no_answer(query: Json) -> Reply:
    raise AssertionError(f"an unexpected question: {query}")


class Lab:
    """A directory with packages and scenarios, in which programs are run."""

    def __init__(self, directory: Path) -> None:
        self.packages = directory / "packages"
        self.scenarios = directory / "scenarios"
        self.packages.mkdir()
        self.scenarios.mkdir()

    def package(self, name: str, source: str) -> None:
        (self.packages / name).mkdir()
        (self.packages / name / "init.lua").write_text(source, encoding="utf-8")

    def scenario(self, name: str, source: str) -> None:
        (self.scenarios / f"{name}.lua").write_text(source, encoding="utf-8")

    def run(self, code: str, answer: Answering = no_answer, *, trusted: bool = False, step_ms: int = 0) -> Run:
        """Run to the end. Each pause lasts `step_ms` of the program's time."""
        config: Mapping[str, Any] = {
            "name": "test",
            "code": code,
            "ctx": {},
            "seed": 7,
            "at": 1_700_000_000_000,
            "deadline_s": 10.0,
            "memory_mib": 64,
            "dirs": {"scenarios": str(self.scenarios)},
        }
        spec = VmSpec(
            config=msgspec.json.encode(config),
            roots=Roots(roots=[str(self.packages)]),
            is_trusted=trusted,
            memory_mib=64,
            scenarios=str(self.scenarios),
        )
        vm = Vm(spec)
        at, count = 1_700_000_000_000, 0
        asked: list[list[Json]] = []
        notes: list[Note] = []
        step = step_of(vm.step(VmWaking(at, 0, 0)))
        while isinstance(step, AskStep):
            notes += step.notes
            queries = msgspec.to_builtins(step.queries)
            asked.append(queries)
            count += len(queries)
            at += step_ms
            replies = [answer(query) for query in queries]
            refusal = next((reply for reply in replies if isinstance(reply, Refusal)), None)
            answers = [] if refusal else [_encoded(reply) for reply in replies]
            waking = VmWaking(
                at,
                count,
                count,
                refusal=_told(refusal) if refusal else None,
                answers=[body for _, body in answers],
                forms=b"".join(form for form, _ in answers),
            )
            step = step_of(vm.step(waking))
        return Run(step, asked, [*notes, *step.notes])

    def evaluate(self, arguments: str, answer: Answering = no_answer, *, step_ms: int = 0) -> Any:
        """The report of `alc.eval(arguments)`."""
        return self.run(f"return alc.eval({arguments})", answer, step_ms=step_ms).result

    def error(self, arguments: str) -> str:
        """What `alc.eval(arguments)` raises."""
        return self.run(f"return alc.eval({arguments})").error


def _told(failure: Failure) -> bytes:
    return msgspec.json.encode({"message": failure.message, "code": failure.code})


def _encoded(reply: Reply) -> tuple[bytes, bytes]:
    match reply:
        case str():
            return b"s", reply.encode()
        case Failure():
            return b"f", _told(reply)
        case _:
            return b"j", msgspec.json.encode(reply)
