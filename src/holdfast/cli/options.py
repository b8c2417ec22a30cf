"""Options that several commands take: the store, JSON output, the project. Also values given as JSON or `@file`."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.cli.errors import InputError
from holdfast.cli.front_page import JSON_HELP, STORE_HELP
from holdfast.core.ids import DEFAULT_SERVICE

SERVICE_VARIABLE = "HOLDFAST_SERVICE"
"""The environment variable that names the services, with commas between them, if no option does."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class CliSettings:
    """The common options of one invocation, given before the command or after it."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.json = False
        self.serve: tuple[str, ...] = ()
        """The native strategies to import, of commands that may run some."""
        self.service: tuple[str, ...] = ()
        """The values of `--service`."""

    @property
    def services(self) -> tuple[str, ...]:
        """The services that the command serves; sessions that it starts belong to the first."""
        from holdfast.cli.served import services_in_config

        return self.named_services or services_in_config() or (DEFAULT_SERVICE,)

    @property
    def named_services(self) -> tuple[str, ...]:
        """The services of the option, or else of the environment."""
        return self.service or tuple(filter(None, os.environ.get(SERVICE_VARIABLE, "").split(",")))

    def url(self, *, create: bool = False) -> str:
        """The store's URL. A named SQLite file has to exist, unless the command may create one."""
        from holdfast.cli.config import config_store

        named = self.store or config_store()
        if named is None:
            data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
            return f"sqlite:///{os.path.abspath(os.path.expanduser(data))}/holdfast/holdfast.db"
        if named.startswith("memory:"):
            raise InputError("a store in memory is gone when the command ends; use sqlite:///path")
        path = named.removeprefix("sqlite:///")
        if not create and path not in ("", named) and not os.path.exists(path):
            from holdfast.store.errors import StoreUnavailableError

            raise StoreUnavailableError(named, "there is no such file; `holdfast run` creates one")
        return named


def settings() -> CliSettings:
    """The common options of the command that runs now."""
    return click.get_current_context().ensure_object(CliSettings)


def serve_words() -> str:
    """What a command that continues the work of this one has to name, with a space before it."""
    import shlex  # as with other imports in functions here: help does without

    named = [f" --serve {shlex.quote(each)}" for each in settings().serve]
    return "".join([*named, *(f" --service {each}" for each in settings().named_services)])


def common(*, from_environment: bool = False) -> Callable[[F], F]:
    """Add `--store` and `--json`; `settings()` has their values."""

    def keep_store(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
        kept = ctx.ensure_object(CliSettings)
        kept.store = url or kept.store

    def add(function: F) -> F:
        store = click.option(
            "--store",
            metavar="URL",
            help=STORE_HELP,
            envvar="HOLDFAST_STORE" if from_environment else None,
            expose_value=False,
            callback=keep_store,
        )
        return store(json_option(function))

    return add


def service_option(function: F) -> F:
    """Add `--service`; `settings().services` has its values."""

    def keep(ctx: click.Context, _: click.Parameter, names: tuple[str, ...]) -> None:
        ctx.ensure_object(CliSettings).service = names

    return click.option(
        "--service",
        multiple=True,
        metavar="NAME",
        help="A service whose sessions are served; new ones belong to the first. Repeatable."
        f"  [default: env {SERVICE_VARIABLE}, else service in holdfast.toml, else {DEFAULT_SERVICE}]",
        expose_value=False,
        callback=keep,
    )(function)


def json_option(function: F) -> F:
    """Add `--json` alone, for commands that need no store."""

    def keep(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
        kept = ctx.ensure_object(CliSettings)
        kept.json = is_set or kept.json

    return click.option("--json", is_flag=True, help=JSON_HELP, expose_value=False, callback=keep)(function)


def project_option(about: str) -> Callable[[F], F]:
    """Add `--project`, with a description of what is looked for there."""
    from pathlib import Path

    return click.option(
        "--project", type=click.Path(file_okay=False, exists=True, path_type=Path), metavar="DIR", help=about
    )


def wait_option(function: F) -> F:
    """Add `--wait`."""
    return click.option(
        "--wait",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Wait at most this long while the session runs by itself (timers, children, another process).",
    )(function)


def options_as(kind: Callable[..., T]) -> Callable[[Callable[[T], int]], Callable[..., int]]:
    """Hand a command its options as one object of this class, which has a field for each."""

    def wrap(command: Callable[[T], int]) -> Callable[..., int]:
        @functools.wraps(command)
        def call(**values: Any) -> int:
            return command(kind(**values))

        return call

    return wrap


def is_person_here() -> bool:
    """Whether a person sits at both ends of the command, and can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not settings().json


# --- values --------------------------------------------------------------------------------------------


def parse_json(text_or_file: str, option: str) -> Any:
    """A value given as JSON, or as `@file` that holds JSON."""
    import json

    from holdfast.core.distinct_keys import distinct

    text, where = text_or_file, option
    if text_or_file.startswith("@"):
        text, where = read_file(text_or_file, option), f"{option} {text_or_file}"
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=distinct)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply") from None


def read_file(at_file: str, option: str) -> str:
    """The text in `@file`."""
    try:
        with open(at_file[1:], encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"{option} {at_file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{option} {at_file}: not a text file in UTF-8") from None


def read_stdin(what: str) -> str:
    """The text on standard input, without its last newline."""
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise InputError(f"{what} on standard input is not text in UTF-8") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
