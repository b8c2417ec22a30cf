"""Strategies by name: how a function becomes one, and how another process finds it again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import InvalidIdError
from holdfast.core.records import Program
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import Strategy, find, resolve, strategy
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
    assert made.name == "at_the_top"
    assert made.__doc__ == "It says what it does."
    assert find("at_the_top") is made
    assert find(made) is made


def test_a_strategy_may_have_another_name() -> None:
    assert renamed.name == "registry-renamed"
    assert find("registry-renamed") is renamed
    assert resolve(renamed.program) is renamed


def test_a_name_that_is_no_id_is_refused() -> None:
    with pytest.raises(InvalidIdError):
        strategy(name="no spaces")(at_the_top)


def test_a_strategy_at_the_top_of_a_module_is_found_by_its_address_in_another_process(tmp_path: Path) -> None:
    path = write_module(tmp_path, PLAIN, "registry_mod")
    source = "import registry_mod; print(registry_mod.greet.program.source)"
    printed = run(source, path.parent)
    assert printed == "registry_mod:greet"
    again = f"from holdfast.programs.registry import resolve; from holdfast.core.records import Program;\
        print(resolve(Program('native', 'greet', '{printed}')).name)"
    assert run(again, path.parent) == "greet"


def run(source: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, check=True, timeout=HANG_S
    )
    return done.stdout.strip()


@pytest.mark.parametrize("arguments", [["main_program.py"], ["-m", "main_program"]], ids=["script", "module"])
def test_a_strategy_in_the_main_program_has_an_address_that_others_can_use(
    tmp_path: Path, arguments: list[str]
) -> None:
    write_module(tmp_path, PLAIN + "\n\nprint(greet.program.source)\n", "main_program")
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=HANG_S
    )
    assert not done.stdout.startswith("__main__")


def test_a_strategy_is_found_in_a_file_by_its_name(tmp_path: Path) -> None:
    path = write_module(tmp_path, PLAIN)
    found = find(f"{path}:greet")
    assert found.name == "greet"
    assert found.program.source == f"{path.resolve()}:greet"
    assert resolve(found.program) is found


def test_the_only_strategy_of_a_file_needs_no_name(tmp_path: Path) -> None:
    assert find(str(write_module(tmp_path, PLAIN, "single"))).name == "greet"


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
    assert find(f"{path}:greet").name == "greet"


def test_a_program_that_was_defined_in_a_process_that_is_gone_says_so() -> None:
    with pytest.raises(ProgramNotFoundError, match="process that is gone"):
        resolve(Program("native", "registry-local-elsewhere"))


def test_a_program_with_an_address_is_not_mistaken_for_another_of_its_name(tmp_path: Path) -> None:
    mine = find(f"{write_module(tmp_path, PLAIN, 'first')}:greet")
    other = find(f"{write_module(tmp_path, PLAIN, 'second')}:greet")
    assert resolve(mine.program).program.source == mine.program.source
    assert resolve(other.program).program.source == other.program.source


def test_a_strategy_inside_a_class_is_found_again() -> None:
    made = strategy(name="registry-shelf")(Shelf.on_a_shelf)
    strategy(name="registry-shelf")(at_the_top)
    assert resolve(made.program).function is Shelf.on_a_shelf


def test_a_function_that_is_not_async_is_refused_when_it_becomes_a_strategy() -> None:
    def ordinary(ctx: Context) -> Any:
        return 1

    with pytest.raises((TypeError, ProgramNotFoundError), match="async"):
        strategy(ordinary)
