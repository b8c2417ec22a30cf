"""What a language of programs offers before a program runs: finding, reading, checking and listing its programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias, TypedDict, Unpack

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.names import name_of_file

MAX_SOURCE_BYTES = 4 * 1024 * 1024
"""Bytes of a file of code: it is recorded with every session that runs it."""

Trust: TypeAlias = Literal["sandbox", "trusted"]


NullForm: TypeAlias = Literal["nil", "userdata"]
"""What JSON's null is in a program in Lua: nothing, or a value of its own, which is true in a condition."""


class ProgramOptions(TypedDict, total=False):
    """How a program is run, as its caller says it. A language ignores what it has no use for."""

    trust: Trust
    project: Path | None
    """Where the project's files are; else the nearest above the working directory."""
    env: Mapping[str, str] | None
    deadline_s: float | None
    memory_mib: int | None
    null: NullForm | None
    trusted: Sequence[Path]
    """Directories whose programs run trusted, and require nothing from elsewhere."""


class StepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one step of a program may use. None leaves a limit as it is."""

    deadline_s: float | None = None
    """Seconds of computing between two questions."""
    memory_mib: int | None = None


class ProgramText(msgspec.Struct, frozen=True):
    """A recorded program as a person reads it before it runs."""

    text: str
    is_unconfined: bool = False
    """Whether it asks to run outside of the sandbox."""


class SourceText(msgspec.Struct, frozen=True):
    """A source to check."""

    file: str
    """How messages name it: a path, or `<stdin>`."""
    language: str
    code: str

    @property
    def name(self) -> str | None:
        """The name under which it would be run, if it is a file of Python."""
        return Path(self.file).stem if self.file.endswith(".py") else None


class ProgramEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A program in a list of those that can be run by name. What it does not say about itself is None."""

    name: str
    kind: str
    description: str = ""
    category: str | None = None
    version: str | None = None
    calls: str | None = None
    """How many questions it asks models at most, in its parameters."""
    parameters: list[str] | None = None
    keywords: str = ""
    """More words by which it can be found: its paper, its result."""


class Language:
    """A language whose programs are source text. Its name is that of the kind that runs them.

    Only `program` has to be overridden; the other methods say by default that there is nothing.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    """How the names of its files end, with the dot."""
    reserved: ClassVar[frozenset[str]] = frozenset()
    """Names that no new program should have."""

    def program(self, code: str, *, name: str, file: str, **options: Unpack[ProgramOptions]) -> Program:
        """The program that a source text is. The text is recorded: the session does not change when a file does."""
        raise NotImplementedError

    def read_program(self, path: Path, **options: Unpack[ProgramOptions]) -> Program:
        """The program in a file."""
        return self.program(read_code(path), name=name_of_file(path), file=path.name, **options)

    def find_program(self, name: str, **options: Unpack[ProgramOptions]) -> Program:
        """The program of a name; `ProgramNotFoundError`, with the places searched, if there is none."""
        raise ProgramNotFoundError(name, f"programs in {self.name} have no names")

    def find_file(self, name: str, project: Path | None = None) -> Path | None:
        """The file of the program of a name, or None if there is none."""
        return None

    def find_child(self, name: str, parent: Program) -> Program | None:
        """The program that `parent`, a program in this language, means by a name; None if it has no search of its own
        or finds nothing."""
        return None

    def with_limits(self, program: Program, limits: StepLimits) -> Program:
        """A recorded program in this language with other limits; it does the same otherwise."""
        raise InvalidValueError("limits", f"programs in {self.name} have none")

    def serve_trusted(self, directories: Sequence[Path]) -> None:
        """Let this process continue programs of these directories that were started outside of the sandbox."""

    def text_of(self, program: Program) -> ProgramText:
        """A recorded program in this language, for a person."""
        return ProgramText(program.source or "")

    def project_of(self, program: Program) -> Path | None:
        """The project that a program in this language belongs to, or None."""
        return None

    def list_names(self, project: Path | None = None) -> dict[str, str]:
        """The names of its programs, each with a word on its origin. Quick: nothing is run."""
        return {}

    async def list_programs(self, project: Path | None = None) -> list[ProgramEntry]:
        """Its programs that can be run by name."""
        return []

    async def describe(self, name: str, project: Path | None = None) -> dict[str, Json]:
        """What a program says about itself: its `text`, its `meta`, its `path`."""
        return {"text": ""}

    async def check(self, sources: Sequence[SourceText]) -> list[list[SourceFinding]]:
        """What is wrong with each of these sources. None of them is run."""
        return [[] for _ in sources]


def read_code(path: Path) -> str:
    """The text of a file of code; `ProgramNotFoundError` if it cannot be read."""
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            raise ProgramNotFoundError(str(path), f"the file is larger than {MAX_SOURCE_BYTES} bytes")
        return path.read_bytes().decode()
    except OSError as error:
        raise ProgramNotFoundError(str(path), f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProgramNotFoundError(str(path), "it is not text in UTF-8") from None
