"""The check of a strategy before it runs: its syntax, what the interpreter lacks, its calls of the API, its types."""

from __future__ import annotations

import ast
import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache, lru_cache
from hashlib import sha256
from typing import Literal

from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError, MontyTypingError

from holdfast.core.errors import HoldfastError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.sandbox.cell import cell_source
from holdfast.programs.sandbox.faults import explained
from holdfast.programs.sandbox.features import hidden, look_through
from holdfast.programs.sandbox.limits import CHECKED_SOURCES, DEADLINE_S, MAX_DEATHS, MAX_FINDINGS, MEMORY_MIB
from holdfast.programs.sandbox.source import PythonSource
from holdfast.programs.sandbox.workers import Workers

_STOP = "holdfast_stops_here"
"""Called before the strategy's first line, and never answered: so everything is checked, and nothing is run."""

_DOUBT = "unchecked"
"""The rule of a source that could not be checked."""

_FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[ \t]+[\w, \t()]+", re.MULTILINE)

_BUILT_IN = """
env: dict[str, str]
def map(function: Callable[..., _T], *iterables: Any) -> list[_T]: ...
def filter(function: Callable[..., Any] | None, iterable: Any) -> list[Any]: ...
def getattr(thing: object, name: str, default: Any = None) -> Any: ...
def setattr(thing: object, name: str, value: Any) -> None: ...
def hasattr(thing: object, name: str) -> bool: ...
def format(value: object, spec: str = "") -> str: ...
class ImportError(Exception): ...
class PermissionError(OSError): ...
class FileNotFoundError(OSError): ...
class UnicodeDecodeError(ValueError): ...
"""
"""What the interpreter has, but its type checker does not know."""

_CONCISE = re.compile(r"^[^\s:]+:(\d+):(\d+): (error|warning)\[([\w-]+)\] (.*)$")


class InvalidSourceError(HoldfastError):
    """A strategy that cannot be run as it is written. No session was started."""

    name: str
    file: str
    findings: Sequence[SourceFinding]
    kind = "invalid_source"

    def __str__(self) -> str:
        shown = [finding.to_line(self.file) for finding in self.findings[:MAX_FINDINGS]]
        more = len(self.findings) - len(shown)
        count = f"{len(self.findings)} fault{'s' if len(self.findings) > 1 else ''}"
        lines = [f"strategy '{self.name}' has {count}, and was not started:", *(f"  {line}" for line in shown)]
        return "\n".join([*lines, f"  … and {more} more"] if more else lines)


class Checker:
    """Checks sources in the workers, each once."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._known: OrderedDict[bytes, list[SourceFinding]] = OrderedDict()

    async def admit(self, name: str, source: PythonSource) -> None:
        """Raise `InvalidSourceError` unless a session of this source may be started."""
        faults = [finding for finding in await self.findings(source.code) if finding.level == "error"]
        if faults:
            raise InvalidSourceError(name, source.file, faults)

    async def findings(self, code: str) -> list[SourceFinding]:
        """What is wrong with a source, in the order of its lines."""
        key = sha256(code.encode("utf-8", "replace")).digest()
        if key not in self._known:
            found = await self._workers.threads.submit(self._look, code, then=lambda found: found)
            if any(finding.rule == _DOUBT for finding in found):
                return found  # it may have been bad luck
            self._known[key] = found
            if len(self._known) > CHECKED_SOURCES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    def _look(self, code: str) -> list[SourceFinding]:
        own = look_through(code)
        faulty_lines = {finding.line for finding in own if finding.level == "error"}
        # Where we explain a fault ourselves, what the interpreter and the type checker say of that line is left out.
        others = [finding for finding in self._of_interpreter(code) if finding.line not in faulty_lines]
        return sorted([*own, *others], key=lambda finding: (finding.line, finding.column))

    def _of_interpreter(self, code: str) -> list[SourceFinding]:
        for _ in range(MAX_DEATHS):
            try:
                return self._asked_once(code)
            except MontyCrashedError as error:
                if error.timed_out:
                    message = f"checking it takes more than {DEADLINE_S:g} s; make it shorter"
                    return [SourceFinding(1, 1, "error", _DOUBT, message)]
        return [SourceFinding(1, 1, "error", _DOUBT, "this source crashes the interpreter")]

    def _asked_once(self, code: str) -> list[SourceFinding]:
        cells = cell_source(code)
        with self._workers.checkout(
            deadline_s=DEADLINE_S,
            memory_mib=MEMORY_MIB,
            type_check=True,
            type_check_stubs=_stubs_without(_hidden_names(code)),
            type_check_format="concise",
        ) as session:
            try:
                session.feed_start(f"{_STOP}()\n{_without_future(cells.main)}", inputs={"ctx": {}, "env": {}})
            except MontyTypingError as error:
                return [found for line in error.display().splitlines() if (found := _typed(line, cells.lines))]
            except MontySyntaxError as error:
                return [_syntax_error(code) or _refused(error, cells.lines)]
            except MontyRuntimeError as error:
                return [_refused(error, cells.lines)]
        return []


def _without_future(main: str) -> str:
    """The cell without imports from `__future__` and a mark of its encoding: nothing may stand before them, and `_STOP`
    must."""
    return _FUTURE.sub(lambda found: f"pass{' ' * (len(found[0]) - 4)}", main.removeprefix("\ufeff"))


@cache
def _stubs() -> str:
    from holdfast.programs.api.python_stubs import render_python_stubs

    return f"{render_python_stubs()}\n{_BUILT_IN}\ndef {_STOP}() -> None: ...\n"


@lru_cache(64)
def _stubs_without(names: frozenset[str]) -> str:
    """The stubs, for a source in which these names are its own: they may be anything."""
    if not names:
        return _stubs()
    lines = _stubs().split("\n")
    for node in reversed(ast.parse(_stubs()).body):
        name = getattr(node, "name", None) or getattr(getattr(node, "target", None), "id", None)
        if name in names:
            lines[node.lineno - 1 : node.end_lineno] = [f"{name}: Any"]
    return "\n".join(lines)


def _hidden_names(code: str) -> frozenset[str]:
    try:
        return frozenset(hidden(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _typed(line: str, lines: int) -> SourceFinding | None:
    found = _CONCISE.match(line)
    if found is None:
        return None
    number, column, level, rule, message = found.groups()
    severity: Literal["error", "warning"] = "error" if level == "error" else "warning"
    return SourceFinding(min(int(number) - 1, lines), int(column), severity, rule, message.strip())


def _syntax_error(code: str) -> SourceFinding | None:
    """The fault in Python's own words, which are about the author's text and not about what we put around it."""
    try:
        ast.parse(code)
    except SyntaxError as error:
        return SourceFinding(error.lineno or 1, error.offset or 1, "error", "SyntaxError", error.msg)
    except (ValueError, RecursionError, MemoryError):
        pass
    return None


def _refused(error: MontySyntaxError | MontyRuntimeError, lines: int) -> SourceFinding:
    frames = error.traceback()
    kind = type(error.exception()).__name__
    message = explained(error.display("msg"))
    if not frames:
        return SourceFinding(1, 1, "error", kind, message)
    last = frames[-1]
    return SourceFinding(min(max(last.line - 1, 1), lines), last.column, "error", kind, message)
