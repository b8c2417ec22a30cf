"""`scenario`: what is installed, its code, and more of it; and an evaluation of one by the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.group import cli

SCENARIO = 'return { name = "sums", cases = { { input = "2", expected = "2", name = "two" } } }\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALC_HOME", str(tmp_path / "algocline"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source" / "scenarios").mkdir(parents=True)
    (tmp_path / "source" / "scenarios" / "sums.lua").write_text(SCENARIO)
    return tmp_path / "home"


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, done.output
    return done.output


def test_scenarios_are_installed_listed_and_shown(home: Path, tmp_path: Path) -> None:
    assert "No scenarios yet" in run("scenario", "list")
    assert "1 installed: sums" in run("scenario", "install", str(tmp_path / "source"))
    assert "1 were there already: sums" in run("scenario", "install", str(tmp_path / "source"))
    assert str(home / "scenarios" / "sums.lua") in run("scenario", "list")
    assert run("scenario", "show", "sums").strip() == SCENARIO.strip()
    assert json.loads(run("scenario", "show", "sums", "--json"))["content"] == SCENARIO
    assert "not found" in run("scenario", "show", "nothing", code=3)


def test_a_collection_brings_its_scenarios(home: Path, tmp_path: Path) -> None:
    (tmp_path / "source" / "one").mkdir()
    (tmp_path / "source" / "one" / "init.lua").write_text("return { run = function(ctx) return ctx.task end }")
    told = json.loads(run("pkg", "install", str(tmp_path / "source"), "--json"))
    assert told["scenarios"] == {"installed": ["sums"], "skipped": [], "failures": []}


def test_a_scenario_that_is_broken_is_told_and_the_others_are_installed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "source" / "scenarios" / "linked.lua").symlink_to("/etc/passwd")
    told = run("scenario", "install", str(tmp_path / "source"), code=1)
    assert "1 installed: sums" in told
    assert "linked.lua" in told


def test_a_scenario_is_the_data_of_an_evaluation(home: Path, tmp_path: Path) -> None:
    (tmp_path / "echo.lua").write_text("return { run = function(ctx) return ctx.task end }")
    file = str(tmp_path / "source" / "scenarios" / "sums.lua")
    words = ("eval", "run", "--strategy", "echo.lua", "--data", file, "--id", "e-1", "--json")
    report = json.loads(run(*words, "--store", f"sqlite:///{tmp_path}/e.db"))
    assert (report["cases"], report["arms"][0]["score"]["mean"]) == (1, 1.0)
