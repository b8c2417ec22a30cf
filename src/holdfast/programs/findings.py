"""What is wrong with a source, found before it is run."""

from __future__ import annotations

from typing import Literal

import msgspec


class SourceFinding(msgspec.Struct, frozen=True):
    """A fault of a source, or a doubt about it."""

    line: int
    column: int
    level: Literal["error", "warning"]
    rule: str
    message: str

    def to_line(self, file: str) -> str:
        """The finding on one line, in the format of compilers."""
        return f"{file}:{self.line}:{self.column}: {self.level}: {self.message} [{self.rule}]"
