"""`init`: make a project, with three questions: which model answers, where sessions are kept, and which MCP host."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from holdfast.cli.config import CONFIG_FILE
from holdfast.cli.errors import InputError
from holdfast.cli.new import print_next_steps, print_written
from holdfast.cli.options import is_person_here, json_option, settings
from holdfast.cli.output import plain, print_json
from holdfast.core.errors import ExitCode

_NOBODY, _DATA_DIRECTORY, _NO_HOST = "none", "default", "none"
"""What is answered, or given as an option, to leave a setting out."""

_CONFIG = """\
# The settings of this project. Options and environment variables win over them.
{settings}
# Native strategies that commands may run, and the services that they serve:
# serve = ["jobs.py"]
# service = "default"
"""


@click.command("init")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--model", metavar="SERVICE:MODEL", help=f"The model that answers; {_NOBODY}: whoever runs a strategy.")
@click.option("--store", metavar="URL", help=f"Where sessions are kept; {_DATA_DIRECTORY}: in your data directory.")
@click.option(
    "--host", metavar="HOST", help=f"The MCP host that Holdfast is added to, such as claude-code; {_NO_HOST}."
)
@click.option("--strategy", metavar="NAME", default="first", show_default=True, help="The strategy to begin with.")
@click.option("--yes", is_flag=True, help="Ask nothing: what no option says is left out.")
@json_option
def init_command(
    *, directory: Path, model: str | None, store: str | None, host: str | None, strategy: str, yes: bool
) -> int:
    """Make a project in DIRECTORY (default: this one): holdfast.toml, a first strategy with its test, an MCP host.

    On a terminal you are asked what no option says. Nothing is overwritten.
    """
    file = directory / CONFIG_FILE
    if file.exists():
        raise InputError(f"{file} exists: this is a project already; `holdfast new` adds a strategy to it")
    asks = is_person_here() and not yes
    model = _checked_model(_answer("Which model answers? SERVICE:MODEL or URL#MODEL", model, _NOBODY, asks=asks))
    store = _checked_store(
        _answer("Where are sessions kept? A URL of SQLite or PostgreSQL", store, _DATA_DIRECTORY, asks=asks)
    )
    host = _checked_host(_answer("Which MCP host should have it? Such as claude-code", host, _NO_HOST, asks=asks))
    from holdfast.strategies.scaffold import new_strategy

    directory.mkdir(parents=True, exist_ok=True)
    report = new_strategy(strategy, directory)
    file.write_text(_CONFIG.format(settings=_settings_text(model, store)), encoding="utf-8")
    written = [str(file), *report.written]
    added = _add_to_host(host, directory) if host is not None else None
    if settings().json:
        chosen = {"model": model, "store": store, "host": added}
        print_json({"config": str(file), "strategy": report.name, "written": written, **chosen})
        return ExitCode.OK
    print_written(written)
    if added is not None:
        click.echo(f"{click.style('written', fg='green')}  {plain(added['path'])}  ({plain(added['next'])})")
    _print_next_steps(directory, report.name, report.test, model)
    return ExitCode.OK


def _answer(question: str, given: str | None, default: str, *, asks: bool) -> str:
    """What an option says, else a person, else the default."""
    if given is not None or not asks:
        return given or default
    return str(click.prompt(question, default=default)).strip()


def _checked_model(text: str) -> str | None:
    if text == _NOBODY:
        return None
    name, separator, model = text.partition("#" if text.startswith("http") else ":")
    if not (name and separator and model):
        from holdfast.agent.providers.model_names import POSSIBLE

        raise InputError(f"--model {text}: there is {POSSIBLE}; or {_NOBODY}")
    return text


def _checked_store(text: str) -> str | None:
    if text == _DATA_DIRECTORY:
        return None
    if not text.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise InputError(f"--store {text}: expected sqlite:///path, postgresql://…, or {_DATA_DIRECTORY}")
    return text


def _checked_host(text: str) -> str | None:
    if text == _NO_HOST:
        return None
    from holdfast.programs.names import did_you_mean
    from holdfast.serve.mcp.hosts import HOSTS

    if text not in HOSTS:
        hint = did_you_mean(text, HOSTS) or f"the hosts are {', '.join(HOSTS)}; or {_NO_HOST}"
        raise InputError(f"--host: unknown host '{text}'; {hint}")
    if find_spec("mcp") is None:
        raise InputError("the MCP server needs the package `mcp`: pip install 'holdfast[mcp]'")
    return text


def _settings_text(model: str | None, store: str | None) -> str:
    """The lines of the file. A setting that was left out is there as a comment."""
    model_line = f"model = {json.dumps(model, ensure_ascii=False)}" if model else '# model = "openai:gpt-5"'
    store_line = f"store = {json.dumps(store, ensure_ascii=False)}" if store else '# store = "sqlite:///sessions.db"'
    return f"{model_line}\n{store_line}"


def _add_to_host(name: str, directory: Path) -> dict[str, Any]:
    from holdfast.cli.mcp import add_to_host

    return add_to_host(name, directory)


def _print_next_steps(directory: Path, strategy: str, test: str, model: str | None) -> None:
    here = os.path.abspath(directory) == os.getcwd()
    test = os.path.relpath(test, directory)
    run = f'holdfast run {strategy} --task "Why is the sky blue?"'
    answers = "run it" if model is not None else "run it, and answer yourself; or add --model SERVICE:MODEL"
    print_next_steps(
        *([] if here else [(f"cd {shlex.quote(str(directory))}", "the project")]),
        (f"holdfast run {strategy} --dry-run", "see what it would ask"),
        (run, answers),
        (f"{os.path.basename(sys.executable)} -m pytest {shlex.quote(test)}", "test it"),
        ("holdfast sessions", "see what was run"),
    )
