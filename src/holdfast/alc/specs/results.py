"""The results of a test run: counts, and each failure with the test's full name. No running and no printing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class TestFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One test that failed, or one thing that went wrong outside any test."""

    __test__ = False

    name: str
    """The groups around it and its own name, or what else it was."""
    message: str
    position: str | None = None
    """The line of the spec that was running, where that is known."""


class LiveCounts(msgspec.Struct, frozen=True):
    """What went through the engine in a live run."""

    pauses: int = 0
    llm_calls: int = 0


class FileResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The result of one spec file."""

    path: str
    """Relative to the root of the run."""
    passed: int = 0
    failed: int = 0
    pending: int = 0
    duration_ms: int = 0
    failures: list[TestFailure] = []
    output: list[str] = []
    """The last lines that the file printed; kept only if something failed."""
    live: LiveCounts | None = None

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.pending

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "path": self.path,
            "passed": self.passed,
            "failed": self.failed,
            "pending": self.pending,
            "total": self.total,
            "duration_ms": self.duration_ms,
            "failures": msgspec.to_builtins(self.failures),
        }
        if self.output:
            shown["output"] = self.output
        if self.live is not None:
            shown["live"] = msgspec.to_builtins(self.live)
        return shown


class TestReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all spec files."""

    __test__ = False

    files: list[FileResult]
    duration_ms: int
    live: bool = False

    @property
    def passed(self) -> int:
        return sum(file.passed for file in self.files)

    @property
    def failed(self) -> int:
        return sum(file.failed for file in self.files)

    @property
    def pending(self) -> int:
        return sum(file.pending for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """The line that `holdfast pkg test` ends with."""
        shown: dict[str, Any] = {
            "passed": self.passed,
            "failed": self.failed,
            "pending": self.pending,
            "total": self.passed + self.failed + self.pending,
            "duration_ms": self.duration_ms,
            "spec_files": [file.to_json() for file in self.files],
        }
        if self.live:
            shown["live"] = msgspec.to_builtins(_sum(file.live for file in self.files))
        return shown


def _sum(counts: Iterable[LiveCounts | None]) -> LiveCounts:
    there = [each for each in counts if each is not None]
    return LiveCounts(sum(each.pauses for each in there), sum(each.llm_calls for each in there))
