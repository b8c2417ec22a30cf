"""`new`: what is written works as it is, and nothing is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing.patience import HANG_S
from tests.cli.helpers import Home


def test_a_new_strategy_passes_its_check_its_test_and_a_dry_run(home: Home) -> None:
    home.serve_nothing()
    made = home.process("new", "my-idea")
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[:3] == [
        "written  strategies/my_idea.py",
        "written  strategies/test_my_idea.py",
        "written  __builtins__.pyi",
    ]
    checked = home.process("check", "strategies/my_idea.py")
    assert (checked.returncode, checked.stdout) == (0, "1 file, no faults\n")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "strategies/test_my_idea.py"],
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout
    assert "4 passed" in tested.stdout
    dry = home.process("run", "my_idea", "--dry-run", "--json")
    assert dry.returncode == 0, dry.stderr
    told = json.loads(dry.stdout)
    assert told["result"]["result"] == "A better answer."
    assert (told["totals"]["llm_calls"], told["totals"]["most_llm_calls"]) == (2, 2)
    assert not home.db.exists()


def test_the_commands_that_are_told_next_work(home: Home) -> None:
    home.serve_nothing()
    told = home.process("new", "idea").stdout
    commands = [line.partition("#")[0].strip() for line in told.splitlines() if line.startswith("  ")]
    assert commands == [
        "holdfast check strategies/idea.py",
        "pytest strategies/test_idea.py",
        "holdfast run idea --dry-run",
        'holdfast run idea --task "…"',
    ]


def test_a_new_strategy_goes_where_it_is_told_to(home: Home, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    told = home.json("new", "idea", "--dir", str(other))
    assert [str(Path(each).relative_to(other)) for each in told["written"]] == [
        "strategies/idea.py",
        "strategies/test_idea.py",
        "__builtins__.pyi",
    ]
    assert home.json("run", "idea", "--project", str(other), "--dry-run")["totals"]["llm_calls"] == 2


def test_nothing_is_overwritten(home: Home, tmp_path: Path) -> None:
    home.ok("new", "idea", "--dir", str(tmp_path))
    file = tmp_path / "strategies" / "idea.py"
    file.write_text("mine")
    again = home.call("new", "idea", "--dir", str(tmp_path))
    assert again.exit_code == 4
    assert "exists already; nothing was written" in again.stderr
    assert file.read_text() == "mine"
    file.unlink()
    assert home.call("new", "idea", "--dir", str(tmp_path)).exit_code == 4, "the test would be overwritten"
    assert not file.exists()


def test_stubs_of_somebody_else_are_left_alone_and_old_ones_of_ours_are_renewed(home: Home, tmp_path: Path) -> None:
    stubs = tmp_path / "__builtins__.pyi"
    stubs.write_text("def display(x: object) -> None: ...\n")
    assert str(stubs) not in home.json("new", "first", "--dir", str(tmp_path))["written"]
    assert stubs.read_text() == "def display(x: object) -> None: ...\n"
    stubs.unlink()
    home.ok("new", "second", "--dir", str(tmp_path))
    current = stubs.read_text()
    stubs.write_text(current.partition("\n")[0] + "\n# an older version\n")
    assert str(stubs) in home.json("new", "third", "--dir", str(tmp_path))["written"]
    assert stubs.read_text() == current
    assert str(stubs) not in home.json("new", "fourth", "--dir", str(tmp_path))["written"]


def test_a_name_of_the_library_is_taken_with_a_warning(home: Home, tmp_path: Path) -> None:
    result = home.call("new", "cot", "--dir", str(tmp_path))
    assert result.exit_code == 0
    assert "replaces the bundled strategy 'cot'" in result.stderr


@pytest.mark.parametrize("language", [[], ["--lua"]])
@pytest.mark.parametrize("name", ["Upper", "9lives", "../evil", "", "ünder", "a" * 65])
def test_a_name_that_cannot_be_is_refused(home: Home, tmp_path: Path, name: str, language: list[str]) -> None:
    before = sorted(tmp_path.iterdir())
    assert home.call("new", name, "--dir", str(tmp_path), *language).exit_code == 2
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("name", "told"), [("class", "a word of Python"), ("test_it", "a test's name")])
def test_a_name_that_python_could_not_use_is_refused(home: Home, tmp_path: Path, name: str, told: str) -> None:
    result = home.call("new", name, "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert told in result.stderr
    assert not (tmp_path / "strategies").exists()


def test_a_new_lua_package_passes_its_check_its_spec_and_a_dry_run(home: Home) -> None:
    made = home.process("new", "greeting", "--lua")
    assert made.returncode == 0, made.stderr
    assert "written  greeting/init.lua" in made.stdout
    assert home.process("check", "greeting/init.lua").stdout == "1 file, no faults\n"
    assert home.process("pkg", "test", "greeting").returncode == 0
    dry = home.process("run", "greeting/init.lua", "--task", "test", "--dry-run", "--json")
    assert json.loads(dry.stdout)["totals"]["llm_calls"] == 1
    assert home.process("pkg", "link", "greeting").returncode == 0
    assert home.process("run", "greeting", "--task", "test", "--dry-run").returncode == 0
    assert home.process("new", "greeting", "--lua").returncode == 4
