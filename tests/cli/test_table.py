"""Tables of plain text: as wide as the terminal, with a first column that can always be copied."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import table
from holdfast.cli.table import print_table

ID = "s-c9w0t5fh9ez2zbtjc7mfm3s0hv"


def test_columns_are_as_wide_as_what_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["SESSION", "STATE"], [[ID, "paused"], ["s-1", "done"]], states=1)
    assert capsys.readouterr().out.splitlines() == [
        "SESSION" + " " * (len(ID) - 7) + "  STATE",
        f"{ID}  paused",
        "s-1" + " " * (len(ID) - 3) + "  done",
    ]


def test_the_widest_column_is_cut_first_and_the_first_one_never(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "width", lambda: 44)
    print_table(["SESSION", "STATE", "ABOUT"], [[ID, "paused", "a rather long text"]])
    assert capsys.readouterr().out.splitlines()[1] == f"{ID}  paused  a rat…"


def test_characters_that_take_two_columns_are_counted_as_two(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "width", lambda: 10)
    print_table(["A", "B"], [["一", "二三四五"], ["x", "e\u0301"]])
    assert capsys.readouterr().out.splitlines() == ["A   B", "一  二三…", "x   e\u0301"]


def test_control_characters_and_line_ends_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [["x\x1b[2J", "two\nlines"]])
    assert capsys.readouterr().out.splitlines()[1] == "x�[2J  two lines"


def test_listing_sessions_imports_neither_agents_nor_rich(tmp_path: Path) -> None:
    program = (
        "import sys; from holdfast.cli.group import cli\n"
        f"try: cli.main(['--store', 'sqlite:///{tmp_path}/s.db', 'sessions'])\n"
        "except SystemExit: print([name for name in sys.modules if name.split('.')[0] == 'rich' or 'agent' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
