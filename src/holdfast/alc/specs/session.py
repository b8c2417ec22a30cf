"""Running one spec file: a session of its own, on an engine with one Lua worker, answered by the spec's own mocks."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

import msgspec

from holdfast.alc.lua.kind import LuaKind
from holdfast.alc.lua.packages import Roots, find_roots
from holdfast.alc.lua.source import LuaSource, null_form, recorded_program
from holdfast.alc.specs.discovery import Specs
from holdfast.alc.specs.results import FileResult, LiveCounts, TestFailure
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.queries import Failure, LlmQuery, Query, ToolQuery, Value
from holdfast.core.records import Program
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs.language import MAX_SOURCE_BYTES

MEMORY_MIB = 512
"""MiB that one spec file may hold: specs build larger things than strategies do."""

_GRACE_S = 10.0
"""Seconds past the deadline after which a file is given up even if its worker seems to be well: a live file may go on
asking for ever, each step within its time."""

_FILE = "(the file itself)"


@dataclass(frozen=True)
class SpecPlan:
    """What all files of a run have in common."""

    specs: Specs
    roots: Roots
    live: bool
    deadline_s: float
    is_confined: bool
    """Whether the files run in the sandbox, as strategies do: without files, processes and the environment."""

    @classmethod
    def of(cls, specs: Specs, *, live: bool, deadline_s: float, is_confined: bool) -> SpecPlan:
        return cls(specs, _roots(specs), live, deadline_s, is_confined)

    def program(self) -> Program:
        source = LuaSource(
            code=_texts()["spec"],
            roots=self.roots,
            is_unconfined=not self.is_confined,
            variables={"PWD": str(self.specs.root)},
            null=null_form(),
        )
        return recorded_program("pkg-test", source)

    def ctx(self, file: Path, number: int, trail: Path) -> dict[str, Any]:
        return {
            "_ns": f"spec-{number}",  # `alc.state` of one file is not seen by the others
            "name": self.specs.name(file),
            **({"text": _text(file)} if self.is_confined else {"path": str(file), "trail": str(trail)}),
            "root": str(self.specs.root),
            "live": self.live,
            "package_path": ";".join(f"{root}/?.lua;{root}/?/init.lua" for root in self.roots.roots),
            "sources": {name: text for name, text in _texts().items() if name != "spec"},
        }


class Lane:
    """An engine that runs one spec file after the other. A worker that is killed is replaced by a new one."""

    def __init__(self, plan: SpecPlan) -> None:
        self._plan = plan
        self._engine: Holdfast | None = None
        self._count = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def run(self, file: Path) -> FileResult:
        """The result of a file. Any error in it is a failure in the result."""
        began = time.monotonic()
        self._count += 1
        name = self._plan.specs.name(file)
        with tempfile.TemporaryDirectory() as folder:
            trail = Path(folder) / "trail"
            try:
                async with asyncio.timeout(self._plan.deadline_s + _GRACE_S):
                    result = await self._run(file, name, trail)
            except TimeoutError:
                await self._close()
                result = _lost(name, self._too_late(), trail)
        return msgspec.structs.replace(result, duration_ms=round((time.monotonic() - began) * 1000))

    async def _run(self, file: Path, name: str, trail: Path) -> FileResult:
        hf = await self._open()
        # Cards of a test go to a directory of their own, which is gone afterwards.
        hf.drive_own_tools(trail.parent)
        event: Event = await hf.start(self._plan.program(), ctx=self._plan.ctx(file, self._count, trail))
        while isinstance(event, PausedEvent):
            event = await hf.feed(event.session_id, {query.id: _answer(query) for query in event.queries})
        status = await hf.status(event.session_id)
        match event:
            case CompletedEvent():
                result = _file_result(name, event.result, trail)
            case FailedEvent():
                result = _lost(name, self._why(event), trail)
            case _:
                result = _lost(name, f"its session ended as '{event.status}'", trail)
        await hf.delete(event.session_id)
        live = LiveCounts(event.stats["auto"]["pauses"], event.stats["auto"]["llm_calls"]) if self._plan.live else None
        printed = [entry["message"] for entry in status["metrics"].get("recent_logs", [])] if result.failed else []
        return msgspec.structs.replace(result, live=live, output=printed)

    def _why(self, event: FailedEvent) -> str:
        match event.error_kind:
            case "deadline":
                return self._too_late()
            case "memory":
                return f"the file needs more than {MEMORY_MIB} MiB of memory, and was stopped"
            case "worker_died":
                return "the process that ran the file died, each time that it was run"
            case _:
                return event.error

    def _too_late(self) -> str:
        return f"the file did not finish within {self._plan.deadline_s:g} s, and was stopped"

    async def _open(self) -> Holdfast:
        if self._engine is None:
            engine = open_holdfast("memory:")
            engine.add_kind(LuaKind(workers=1, deadline_s=self._plan.deadline_s, memory_mib=MEMORY_MIB))
            self._engine = await engine.__aenter__()
        return self._engine

    async def _close(self) -> None:
        if self._engine is not None:
            engine, self._engine = self._engine, None
            await engine.__aexit__(None, None, None)


def _answer(query: Query) -> Value | Failure:
    """What the host answers in a test: what the mock said."""
    match query:
        case LlmQuery(options={"mock_error": str(why)}):
            return Failure(why)
        case LlmQuery(options={"mock_answer": str(answer)}):
            return Value(value=answer)
        case ToolQuery():
            return Failure(f"the tool '{query.name}' is not there in a test")
        case _:
            return Failure("nobody answers this in a test; give it a mock")


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class _Counts(msgspec.Struct):
    """What `spec.lua` returns."""

    passed: _Count
    failed: _Count
    pending: _Count
    failures: list[TestFailure]


def _file_result(name: str, result: Any, trail: Path) -> FileResult:
    try:
        counts = msgspec.convert({**result, "failures": result["failures"] or []}, _Counts)
    except msgspec.ValidationError as error:
        return _lost(name, f"the file has changed what `lust` reports, so that it cannot be read: {error}", trail)
    return FileResult(path=name, **msgspec.structs.asdict(counts))


def _lost(name: str, why: str, trail: Path) -> FileResult:
    """The result of a file that did not finish. What passed counts; the rest is one failure, of the last test."""
    passed, during = 0, _FILE
    with contextlib.suppress(OSError, ValueError):  # its process may have been killed before it wrote a whole line
        *_, last, _ = trail.read_text("utf-8", "replace").split("\n")
        count, _, test = last.partition("\t")
        passed, during = int(count), test
    return FileResult(path=name, passed=passed, failed=1, failures=[TestFailure(during, why)])


def _roots(specs: Specs) -> Roots:
    """Where specs require from: their own root first, whatever a project says about packages that are in it."""
    around = find_roots()

    def elsewhere(places: dict[str, str]) -> dict[str, str]:
        return {name: place for name, place in places.items() if not (specs.root / name).exists()}

    first = [str(path) for path in specs.search_path]
    return msgspec.structs.replace(
        around,
        variants=elsewhere(around.variants),
        pinned=elsewhere(around.pinned),
        unmet=elsewhere(around.unmet),
        roots=list(dict.fromkeys([*first, *around.roots])),
        strict=False,
    )


def _text(file: Path) -> str:
    """A spec file that the sandbox cannot open by itself."""
    try:
        if file.stat().st_size > MAX_SOURCE_BYTES:
            raise InvalidValueError("spec", f"{file} is larger than {MAX_SOURCE_BYTES} bytes")
        return file.read_text("utf-8", "replace")
    except OSError as error:
        raise InvalidValueError("spec", f"{file} cannot be read: {error.strerror}") from None


@cache
def _texts() -> dict[str, str]:
    """The Lua side, by name."""
    here = files("holdfast.alc.specs") / "lua"
    texts = {name: (here / f"{name}.lua").read_text("utf-8") for name in ("spec", "live", "doubles")}
    texts["lust"] = (files("holdfast.alc.lua") / "runtime" / "lust.lua").read_text("utf-8")
    return texts
