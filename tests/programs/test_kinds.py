"""The registry of kinds: a kind of one's own is run, found, checked and listed as those of the house are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

import pytest

from holdfast.core.queries import LlmQuery
from holdfast.core.records import Program
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs import kinds
from holdfast.programs.contract import AskStep, Fold, ReturnStep, Step
from holdfast.programs.errors import ProgramNotFoundError, UnknownLanguageError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.language import Language, ProgramEntry, ProgramOptions, SourceText
from holdfast.programs.lookup import child_program, find_program
from holdfast.serve.mcp import catalog
from holdfast.strategies.checks import check, find_source


class EchoInstance:
    """Asks its own text, and returns the answer."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold

    def resume(self, at: int, answers: Any) -> Step:
        started = self.fold.session.started
        assert started is not None
        if not answers:
            return AskStep(queries=[LlmQuery(id="q-0", prompt=started.program.source or "")])
        return ReturnStep(result=answers[0][1].value)

    def refuse(self, at: int, failure: Any) -> Step:
        raise AssertionError(failure)

    def close(self) -> None:
        return


class EchoKind:
    kind = "echo"

    def knows(self, program: Program) -> bool:
        return True

    async def admit(self, program: Program) -> None:
        return

    def create(self, fold: Fold) -> EchoInstance:
        return EchoInstance(fold)

    def close(self) -> None:
        return


class EchoLanguage(Language):
    name = "echo"
    suffix = ".echo"

    def program(self, code: str, *, name: str, file: str, **options: Unpack[ProgramOptions]) -> Program:
        return Program(kind="echo", name=name, source=code)

    def find_program(self, name: str, **options: Unpack[ProgramOptions]) -> Program:
        if name != "hello":
            raise ProgramNotFoundError(name, "the only echo is hello")
        return self.program("hello?", name=name, file="hello.echo")

    async def list_programs(self, project: Path | None = None) -> list[ProgramEntry]:
        return [ProgramEntry(name="hello", kind="echo", description="Says hello.")]

    def list_names(self, project: Path | None = None) -> dict[str, str]:
        return {"hello": "echo"}

    async def check(self, sources: Any) -> list[list[SourceFinding]]:
        return [[SourceFinding(1, 1, "error", "loud", "too loud")] if "!" in source.code else [] for source in sources]


@pytest.fixture(autouse=True)
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_kinds", dict(kinds._kinds))
    kinds.register_kind("echo", f"{__name__}:EchoKind", language=f"{__name__}:EchoLanguage")


async def test_a_registered_kind_is_found_by_name_and_run() -> None:
    async with open_holdfast("memory:") as hf:
        event = await hf.start("hello")
        assert [getattr(query, "prompt", None) for query in event.queries] == ["hello?"]
        done = await hf.feed(event.session_id, "hi")
        assert done.result == "hi"


async def test_a_registered_kind_reads_files_of_its_ending(tmp_path: Path) -> None:
    (tmp_path / "loud.echo").write_text("HELLO!")
    program = find_program(str(tmp_path / "loud.echo"))
    assert (program.kind, program.name, program.source) == ("echo", "loud", "HELLO!")


async def test_sources_of_a_registered_kind_are_checked_beside_others(tmp_path: Path) -> None:
    (tmp_path / "loud.echo").write_text("HELLO!")
    (tmp_path / "a.lua").write_text("return 1 +")
    files = [find_source(str(tmp_path / "a.lua")), find_source(str(tmp_path / "loud.echo"))]
    reports = await check([*files, SourceText("<stdin>", "echo", "hello")])
    assert [[each.rule for each in report.findings] for report in reports] == [["syntax"], ["loud"], []]


async def test_a_child_of_any_program_may_be_of_a_registered_kind() -> None:
    for parent in ("native", "echo", "lua", "python"):
        source = {"lua": '{"code":"return 1"}', "python": '{"code":"1"}'}.get(parent)
        assert child_program("hello", Program(kind=parent, name="parent", source=source)).kind == "echo"


async def test_a_registered_kind_is_in_the_catalog_of_mcp_hosts() -> None:
    assert {each.view.name: each.view.kind for each in await catalog.runnables()}["hello"] == "echo"
    assert "hello" in catalog.names()


def test_what_no_language_has_is_refused_with_every_reason() -> None:
    with pytest.raises(ProgramNotFoundError, match=r"pkg list.*holdfast strategies.*the only echo is hello"):
        find_program("no-such-program")
    with pytest.raises(UnknownLanguageError, match=r"no language 'cobol'.*lua, python, echo"):
        kinds.get_language("cobol")
