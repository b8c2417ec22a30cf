"""`holdfast pkg test`, on the command line: what it prints for people and for programs, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.alc.cli import pkg_test
from holdfast.cli.errors import report_error

COLLECTION = Path(__file__).parents[2] / "fixtures" / "lua_collection"


def run(*args: str) -> Result:
    return CliRunner().invoke(pkg_test.test_command, [*args, "--jobs", "2"], standalone_mode=False)


def last_line(result: Result) -> Any:
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    spec = tmp_path / "broken" / "spec" / "broken_spec.lua"
    spec.parent.mkdir(parents=True)
    (tmp_path / "broken" / "init.lua").write_text("return { boom = function() error({ code = 5 }) end }")
    spec.write_text("""
print("a hint")
lust.describe("broken", function()
  lust.it("works", function() end)
  lust.it("adds", function() lust.expect(1 + 1).to.equal(3) end)
  lust.it("calls", function() require("broken").boom() end)
  lust.it("waits")
end)
""")
    return tmp_path / "broken"


def test_a_good_run_ends_with_the_counts_as_json_and_code_0() -> None:
    result = run(str(COLLECTION))
    assert result.return_value == 0, result.output
    assert "38 passed, 1 pending in 6 files" in result.stdout
    told = last_line(result)
    assert {key: told[key] for key in ("passed", "failed", "pending", "total")} == {
        "passed": 38,
        "failed": 0,
        "pending": 1,
        "total": 39,
    }
    assert len(told["spec_files"]) == 6


def test_with_json_the_line_is_all_there_is_on_stdout() -> None:
    result = run(str(COLLECTION), "--json")
    assert len(result.stdout.splitlines()) == 1
    assert last_line(result)["passed"] == 38


def test_a_live_run_says_what_went_through_the_engine() -> None:
    result = run(str(COLLECTION), "--live")
    assert result.return_value == 0, result.output
    assert "live: 21 model calls in 17 pauses" in result.stdout
    assert last_line(result)["live"] == {"pauses": 17, "llm_calls": 21}


def test_failures_are_told_with_name_message_and_place_and_end_with_code_1(broken: Path) -> None:
    result = run(str(broken))
    assert result.return_value == 1
    assert result.stdout.splitlines()[:-2] == [
        "broken/spec/broken_spec.lua",
        "  ✗ broken > adds",
        "      broken/spec/broken_spec.lua:5: expected 2 to equal 3",
        "  ✗ broken > calls",
        "      error value { code = 5 }",
        "      at broken/spec/broken_spec.lua:6",
        "  last lines printed:",
        "  | a hint",
        "",
    ]
    assert "1 passed, 2 failed, 1 pending in 1 file" in result.stdout
    assert last_line(result)["failed"] == 2


def test_a_filter_chooses_files() -> None:
    told = last_line(run(str(COLLECTION), "--filter", "tracer"))
    assert [file["path"] for file in told["spec_files"]] == ["tracer/spec/tracer_spec.lua"]


def test_a_file_past_its_deadline_is_a_failure(broken: Path) -> None:
    (broken / "spec" / "broken_spec.lua").write_text("lust.it('hangs', function() while true do end end)")
    result = run(str(broken), "--deadline", "0.5")
    assert result.return_value == 1
    assert "the file did not finish within 0.5 s, and was stopped" in result.stdout


def test_a_directory_without_specs_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(str(tmp_path))
    assert isinstance(result.exception, Exception)
    assert report_error(result.exception, as_json=False) == 2
    assert "no spec files in it" in capsys.readouterr().err
    assert result.stdout == ""
