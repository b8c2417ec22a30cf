"""The pages about the bundled strategies: made from the strategies, and committed as they are made."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.programs.sandbox.library import BUNDLED
from holdfast.strategies.catalog import find_entry
from holdfast.strategies.pages import INDEX, render_pages, write_pages

DOCS = Path(__file__).parents[2] / "docs" / "strategies"
NAMES = sorted(path.stem for path in BUNDLED.glob("*.py") if not path.stem.startswith("_"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return asyncio.run(render_pages())


def test_the_committed_pages_are_what_the_strategies_say(pages: dict[str, str]) -> None:
    committed = {path.name: path.read_text() for path in DOCS.iterdir()}
    assert committed == pages, "run `make docs`"


def test_every_bundled_strategy_has_a_page_and_a_row_of_the_list(pages: dict[str, str]) -> None:
    assert set(pages) == {INDEX, *(f"{name}.md" for name in NAMES)}
    rows = [line for line in pages[INDEX].splitlines() if line.startswith("| [")]
    assert sorted(row.split("`")[1] for row in rows) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_what_somebody_needs_who_chooses(pages: dict[str, str], name: str) -> None:
    page, listed = pages[f"{name}.md"], find_entry(str(BUNDLED / f"{name}.py"))
    assert listed.meta is not None
    assert listed.cost is not None
    assert listed.meta.paper is not None
    assert listed.meta.paper.url in page
    assert f"`{listed.cost.formula}`" in page
    assert listed.meta.result in page
    for parameter in listed.meta.parameters:
        assert f"\n| `{parameter}` | " in page
    for line in listed.doc.splitlines():
        assert line.split("`")[0] in page
    assert "pause 1   " in page
    assert "\nresult    " in page


def test_pages_do_not_depend_on_what_else_is_there(
    pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "cot.py").write_text("1")
    (tmp_path / "packages" / "cot").mkdir(parents=True)
    (tmp_path / "packages" / "cot" / "init.lua").write_text("return {}")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    command = [sys.executable, "-m", "holdfast.strategies.pages", "made"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "made").iterdir()} == pages


def test_the_page_of_a_strategy_that_is_gone_goes_too(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("old")
    (tmp_path / "other.txt").write_text("not ours")
    write_pages(tmp_path, {"kept.md": "new\n"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.md", "other.txt"]


def test_the_module_asks_where_to_write() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.strategies.pages"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "docs/strategies" in done.stderr
