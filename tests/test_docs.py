"""The documents: links lead somewhere, names and options are those of the code, and every example runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from bench.__main__ import BENCHMARKS

from holdfast.alc.lua.source import lua_code
from holdfast.cli.group import cli
from holdfast.programs.language import SourceText
from holdfast.programs.sandbox.source import python_code
from holdfast.strategies.checks import check
from holdfast.strategies.dry_run import dry_run
from holdfast.testing.patience import HANG_S
from tests.examples import SOAK

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    ROOT / "bench" / "README.md",
]
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
STRATEGY = re.compile(r"^( *)```(python|lua) strategy\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?<![\w/])(?:src/holdfast|tests|examples)/[\w./-]*\w")
DOTTED = re.compile(r"(?<![\w./-])holdfast(?:\.[A-Za-z_]\w*)+")
NOT_PYTHON = re.compile(r"holdfast\.(?:(?:local\.)?toml|lock|db|fish)|holdfast\.(?:plugins|authorize)")
"""Files, a log and a tool whose names look like those of Python objects."""


def resolves(dotted: str) -> bool:
    """Whether a name such as `holdfast.store.contract.Store` is that of a module or of something in one."""
    found: object = importlib.import_module("holdfast")
    name = "holdfast"
    for part in dotted.split(".")[1:]:
        name = f"{name}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(name)
            except ModuleNotFoundError:
                return False
    return True


def runnable_blocks() -> list[tuple[str, str]]:
    blocks = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text()), 1):
            code = re.sub(rf"^{match[1]}", "", match[2], flags=re.MULTILINE)
            if "# doctest: not run" not in code:
                blocks.append((f"{page.relative_to(ROOT)}#{number}", code))
    return blocks


def strategies() -> list[tuple[str, str, str]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(STRATEGY.finditer(page.read_text()), 1):
            code = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
            found.append((f"{page.relative_to(ROOT)}#{number}", match[2], code))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_path_that_a_page_names_exists() -> None:
    named = {(str(page.relative_to(ROOT)), path) for page in PAGES for path in PATH.findall(page.read_text())}
    assert len(named) > 5
    assert sorted((page, path) for page, path in named if not (ROOT / path).exists()) == []


def test_every_python_name_that_a_page_mentions_exists() -> None:
    named = {(str(page.relative_to(ROOT)), name) for page in PAGES for name in DOTTED.findall(page.read_text())}
    assert len(named) > 20
    assert sorted(at for at in named if not NOT_PYTHON.fullmatch(at[1]) and not resolves(at[1])) == []


def command_options(group: click.Group, name: str = "holdfast") -> Iterator[tuple[str, str]]:
    """Each command and its long options."""
    context = click.Context(group)
    for short in group.list_commands(context):
        command = group.get_command(context, short)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                yield from ((f"{name} {short}", option) for option in parameter.opts if option.startswith("--"))
        if isinstance(command, click.Group):
            yield from command_options(command, f"{name} {short}")


def test_the_page_about_the_command_line_has_every_option() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    set(command_options(cli))  # which imports each command, and must not change what the second look sees
    options = set(command_options(cli))
    assert len(options) > 100
    assert sorted(each for each in options if not re.search(rf"{each[1]}(?![\w-])", page)) == []


def test_the_page_about_benchmarks_has_each_of_them() -> None:
    page = (ROOT / "bench" / "README.md").read_text()
    assert [name for name in BENCHMARKS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(("place", "code"), runnable_blocks(), ids=[place for place, _ in runnable_blocks()])
def test_every_example_runs(place: str, code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr


EXAMPLES = [
    (str(file.relative_to(ROOT)), file.read_text())
    for file in sorted((ROOT / "examples").rglob("*.py"))
    if not file.name.startswith("test_")
]


@pytest.mark.parametrize(("place", "code"), [*runnable_blocks(), *EXAMPLES], ids=lambda value: value.partition("\n")[0])
def test_importing_an_example_has_no_effects(place: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.dont_write_bytecode = True; import example"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [file.name for file in tmp_path.iterdir()] == ["example.py"]


def durable_examples() -> list[tuple[str, str]]:
    """Examples that keep sessions in a file: those of the README, and in a soak those of all pages."""
    return [(place, code) for place, code in runnable_blocks() if "sqlite:///" in code and (SOAK or "README" in place)]


@pytest.mark.parametrize(("place", "code"), durable_examples(), ids=[place for place, _ in durable_examples()])
def test_an_example_that_was_cut_off_at_any_line_works_when_it_is_run_again(
    place: str, code: str, tmp_path: Path
) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "tests.cut_off", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["all lines"]), done.stdout + done.stderr


async def test_every_strategy_in_python_passes_the_check() -> None:
    sources = [SourceText(place, "python", code) for place, language, code in strategies() if language == "python"]
    assert len(sources) > 5
    assert [found.to_line(done.source.file) for done in await check(sources) for found in done.findings] == []


@pytest.mark.parametrize(("place", "language", "code"), strategies(), ids=[place for place, _, _ in strategies()])
async def test_every_strategy_can_be_rehearsed(place: str, language: str, code: str) -> None:
    program = python_code(code) if language == "python" else lua_code(code)
    done = await dry_run(program, {"task": "Why is the sky blue?"})
    assert done.error is None
    assert done.llm_calls > 0
    result = done.result["result"] if isinstance(done.result, dict) else done.result
    assert result
    assert done.most_calls is None or done.most_calls == done.llm_calls
