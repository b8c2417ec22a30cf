"""The entry point: what `holdfast --help` lists is what there is, and it is printed without what commands need."""

from __future__ import annotations

import subprocess
import sys

import click

from holdfast import __version__
from holdfast.cli.front_page import COMMANDS, OPTIONS, front_page
from holdfast.cli.group import cli
from tests.cli.helpers import Home


def run(*words: str, after: str = "") -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.argv[1:] = {list(words)!r}\nfrom holdfast.cli import main\n"
    program = f"{start}try: main()\nfinally: {after or 'pass'}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_the_options_that_are_listed_are_those_that_are_parsed() -> None:
    with click.Context(cli, info_name="holdfast", **cli.context_settings) as ctx:
        parsed = dict(filter(None, (each.get_help_record(ctx) for each in cli.get_params(ctx))))
    assert parsed == OPTIONS


def test_every_command_that_is_listed_can_be_run() -> None:
    with click.Context(cli) as ctx:
        assert {name: cli.get_command(ctx, name) is not None for name in COMMANDS} == dict.fromkeys(COMMANDS, True)


def test_lines_are_no_longer_than_the_page_is_wide() -> None:
    for columns in (50, 64, 78):
        assert max(map(len, front_page(columns).splitlines())) <= columns
        assert " ".join(front_page(columns).split()) == " ".join(front_page(78).split())


def test_help_is_the_same_whichever_way_it_is_asked_for() -> None:
    shown = [run(*words).stdout for words in (["--help"], ["-h"], ["--json", "--help"])]
    assert shown == [f"{front_page(78)}\n"] * 3


def test_help_and_version_import_neither_the_parser_nor_the_store() -> None:
    heavy = (
        "print([each for each in ('click', 'asyncio', 'msgspec', 'typing', 'holdfast.core') if each in sys.modules])"
    )
    for words, first in {("--help",): "Usage: holdfast", ("--version",): f"holdfast {__version__}"}.items():
        done = run(*words, after=heavy)
        assert done.returncode == 0
        assert done.stdout.startswith(first)
        assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_that_is_named_as_a_module_of_python_hides_it_from_nobody(home: Home) -> None:
    home.ok("run", f"{home.file}:greet")
    done = home.process("gc")
    assert (done.returncode, done.stderr) == (0, "")
