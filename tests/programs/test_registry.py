"""Strategies by name: how a function becomes one, and how another process finds it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.core.errors import InvalidIdError
from holdfast.core.events import CompletedEvent
from holdfast.core.records import Program
from holdfast.programs import registry
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Strategy, find, resolve, serve, strategy
from holdfast.serve.mcp.catalog import native_strategies
from holdfast.testing.patience import HANG_S
from tests.tables import each_row


async def at_the_top(ctx: Context) -> int:
    """It says what it does."""
    return 1


@strategy(name="registry-renamed")
async def renamed(ctx: Context) -> int:
    return 2


class Shelf:
    @staticmethod
    async def on_a_shelf(ctx: Context) -> int:
        return 3


def write_module(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.py"
    path.write_text("import holdfast\n\n\n" + text)
    return path


PLAIN = "@holdfast.strategy\nasync def greet(ctx):\n    return await ctx.llm('name?')\n"


def test_a_decorated_function_is_a_strategy_with_its_name_and_doc() -> None:
    made = strategy(at_the_top)
    assert isinstance(made, Strategy)
    assert made.name == "tests.programs.test_registry:at_the_top"
    assert made.__doc__ == "It says what it does."
    assert find("tests.programs.test_registry:at_the_top") is made
    assert find("at_the_top") is made
    assert find(made) is made


def test_a_name_that_several_modules_have_needs_its_module(tmp_path: Path) -> None:
    for module in ("registry_one", "registry_two"):
        find(f"{write_module(tmp_path, PLAIN.replace('greet', 'registry_twice'), module)}:registry_twice")
    assert find("registry_one:registry_twice").name == "registry_one:registry_twice"
    with pytest.raises(ProgramNotFoundError, match="registry_one:registry_twice, registry_two:registry_twice"):
        find("registry_twice")


def test_a_strategy_may_have_another_name() -> None:
    assert renamed.name == "registry-renamed"
    assert find("registry-renamed") is renamed
    assert resolve(renamed.program) is renamed


def test_a_name_that_is_no_id_is_refused() -> None:
    with pytest.raises(InvalidIdError):
        strategy(name="no spaces")(at_the_top)


def test_a_strategy_has_the_same_name_however_its_module_is_loaded(tmp_path: Path) -> None:
    path = write_module(tmp_path, PLAIN, "registry_mod")
    imported = run("import registry_mod; print(registry_mod.greet.name)", tmp_path)
    by_path = run(f"from holdfast.programs.registry import find; print(find('{path}:greet').name)", tmp_path)
    assert imported == by_path == "registry_mod:greet"


def run(source: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, check=True, timeout=HANG_S
    )
    return done.stdout.strip()


@pytest.mark.parametrize("arguments", [["main_program.py"], ["-m", "main_program"]], ids=["script", "module"])
def test_a_strategy_in_the_main_program_has_the_name_that_it_would_have_if_imported(
    tmp_path: Path, arguments: list[str]
) -> None:
    write_module(tmp_path, PLAIN + "\n\nprint(greet.name)\n", "main_program")
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert done.stdout.strip() == "main_program:greet"


def test_a_strategy_is_found_in_a_file_by_its_name(tmp_path: Path) -> None:
    found = find(f"{write_module(tmp_path, PLAIN)}:greet")
    assert found.name == "mine:greet"
    assert found.program == Program("native", "mine:greet", version=found.version)
    assert resolve(found.program) is found


def test_the_only_strategy_of_a_file_needs_no_name(tmp_path: Path) -> None:
    assert find(str(write_module(tmp_path, PLAIN, "single"))).name == "single:greet"


def test_a_file_with_several_strategies_asks_which_one(tmp_path: Path) -> None:
    path = write_module(tmp_path, PLAIN + PLAIN.replace("greet", "part"), "several")
    with pytest.raises(ProgramNotFoundError, match="greet, part"):
        find(str(path))


@each_row(
    ("given", "why"),
    [
        ("registry-unknown", "no strategy has that name"),
        ("nowhere.py:x", "no such file"),
        ("no_such_module:x", "No module named"),
        ("json:no_such_name", "has no 'no_such_name'"),
    ],
)
def test_what_cannot_be_found_says_why(given: str, why: str) -> None:
    with pytest.raises(ProgramNotFoundError, match=why):
        find(given)


@each_row("given", ["json:dumps", "json:__doc__", "json:JSONDecoder"])
def test_what_is_no_strategy_is_said_to_be_none(given: str) -> None:
    with pytest.raises(ProgramNotFoundError):
        find(given)


def test_a_file_that_cannot_be_run_says_so_and_can_be_mended(tmp_path: Path) -> None:
    path = write_module(tmp_path, "raise ValueError('half written')\n", "broken")
    with pytest.raises(ProgramNotFoundError, match="half written"):
        find(f"{path}:greet")
    write_module(tmp_path, PLAIN, "broken")
    assert find(f"{path}:greet").name == "broken:greet"


def test_a_program_that_is_not_registered_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_module(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n" + PLAIN, "registry_elsewhere")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ProgramNotFoundError, match="not registered in this process"):
        resolve(Program("native", "registry_elsewhere:greet"))
    assert not (tmp_path / "ran").exists()


def test_a_program_is_found_whatever_its_version() -> None:
    made = strategy(at_the_top)
    assert resolve(Program("native", made.name, version="an older one")) is made


def test_a_strategy_inside_a_class_has_the_class_in_its_name() -> None:
    assert strategy(Shelf.on_a_shelf).name == "tests.programs.test_registry:Shelf.on_a_shelf"


def test_serving_a_file_registers_all_of_its_strategies(tmp_path: Path) -> None:
    path = write_module(tmp_path, PLAIN + "\n\n" + PLAIN.replace("greet", "part"), "registry_all")
    assert [each.name for each in serve(str(path))] == ["registry_all:greet", "registry_all:part"]
    assert find("registry_all:part").name == "registry_all:part"


def test_serving_other_code_under_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    for folder, text in (("a", PLAIN), ("b", PLAIN.replace("name?", "who?"))):
        (tmp_path / folder).mkdir()
        write_module(tmp_path / folder, text, "registry_same")
    serve(f"{tmp_path}/a/registry_same.py")
    with pytest.raises(
        ProgramNotFoundError, match=r"a/registry_same\.py and, with other code, in .*b/registry_same\.py"
    ):
        serve(f"{tmp_path}/b/registry_same.py")
    assert str(tmp_path / "a") in find("registry_same:greet").file


def test_serving_a_file_without_a_strategy_says_so(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFoundError, match="no strategy is in it"):
        serve(str(write_module(tmp_path, "", "registry_empty")))


def test_a_function_that_is_not_async_is_refused_when_it_becomes_a_strategy() -> None:
    def ordinary(ctx: Context) -> Any:
        return 1

    with pytest.raises((TypeError, ProgramNotFoundError), match="async"):
        strategy(ordinary)


def test_a_strategy_that_is_not_listed_is_found_and_named_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_registered", {})

    @registry.strategy(name="own.quiet", is_listed=False)
    async def quiet(ctx: Context) -> None: ...

    assert registry.find("own.quiet") is quiet
    assert registry.resolve(quiet.program) is quiet
    assert "own.quiet" not in native_strategies()
    with pytest.raises(ProgramNotFoundError) as refused:
        registry.find("nobody")
    assert "own.quiet" not in str(refused.value)


def test_the_programs_of_evaluations_are_not_listed() -> None:
    from holdfast.strategies.evaluation import programs

    own = {each.name for each in vars(programs).values() if isinstance(each, registry.Strategy)}
    assert len(own) == 4
    assert own.isdisjoint(native_strategies())


async def test_a_strategy_that_is_given_itself_runs_though_another_has_its_name() -> None:
    made = list[Strategy]()
    for said in ("the first", "the second"):

        async def say(ctx: Context, said: str = said) -> str:
            return said

        made.append(strategy(name="same-name")(say))
    async with holdfast.open("memory:") as hf:
        ended = [await hf.start(each) for each in made]
    assert [event.result for event in ended if isinstance(event, CompletedEvent)] == ["the first", "the second"]
