"""What every command takes: the store, and whether to print JSON. Also values given as JSON or `@file`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


class Settings:
    """The common options of one invocation, given before the command or after it."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.json = False

    def url(self, *, create: bool = False) -> str:
        """The store's URL. A named SQLite file has to exist, unless the command may make a new one."""
        if self.store is None:
            data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
            return f"sqlite:///{Path(data).expanduser().absolute() / 'holdfast' / 'holdfast.db'}"
        if self.store.startswith("memory:"):
            raise InputError("a store in memory is gone when the command ends; use sqlite:///path")
        path = self.store.removeprefix("sqlite:///")
        if not create and path not in ("", self.store) and not os.path.exists(path):
            from holdfast.store.errors import StoreUnavailableError

            raise StoreUnavailableError(self.store, "there is no such file; `holdfast run` makes one")
        return self.store


def common(*, from_environment: bool = False) -> Callable[[F], F]:
    """Add `--store` and `--json`; `settings()` has their values."""

    def keep_store(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
        kept = ctx.ensure_object(Settings)
        kept.store = url or kept.store

    def keep_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        kept = ctx.ensure_object(Settings)
        kept.json = wanted or kept.json

    def add(function: F) -> F:
        store = click.option(
            "--store",
            metavar="URL",
            help="sqlite:///path or postgresql://…  [env: HOLDFAST_STORE; default: a file in your data directory]",
            envvar="HOLDFAST_STORE" if from_environment else None,
            expose_value=False,
            callback=keep_store,
        )
        as_json = click.option(
            "--json", is_flag=True, help="Print the wire JSON.", expose_value=False, callback=keep_json
        )
        return store(as_json(function))

    return add


def json_option(function: F) -> F:
    """Add `--json` alone, for commands that need no store."""

    def keep(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        kept = ctx.ensure_object(Settings)
        kept.json = wanted or kept.json

    return click.option("--json", is_flag=True, help="Print JSON.", expose_value=False, callback=keep)(function)


def project_option(about: str) -> Callable[[F], F]:
    """Add `--project`, with what is looked for there."""
    return click.option(
        "--project", type=click.Path(file_okay=False, exists=True, path_type=Path), metavar="DIR", help=about
    )


def settings() -> Settings:
    """The common options of the command that runs now."""
    return click.get_current_context().ensure_object(Settings)


def parse_json(given: str, option: str) -> Any:
    """A value given as JSON, or as `@file` that holds JSON."""
    text, where = given, option
    if given.startswith("@"):
        where = f"{option} {given}"
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"{where}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{where}: not a text file in UTF-8") from None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply") from None


def read_stdin(what: str) -> str:
    """The text on standard input, without its last newline."""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise InputError(f"{what} on standard input is not text in UTF-8") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
