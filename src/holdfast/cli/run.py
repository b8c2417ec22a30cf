"""`run` and `answer`: commands that let a session go on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.errors import InputError
from holdfast.cli.lookup import (
    ProgramType,
    SessionType,
    check_runs_here,
    engine,
    find_modules_here,
    find_session,
    opened,
)
from holdfast.cli.models import model_options
from holdfast.cli.options import common, parse_json, project_option, read_stdin, settings
from holdfast.cli.output import plain
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.run_model import Driven
    from holdfast.cli.run_program import Language
    from holdfast.core.decide import Given
    from holdfast.core.events import Event
    from holdfast.core.records import Program
    from holdfast.engine.holdfast import Holdfast

BY = "cli"
"""Who answered, in the journal."""

_wait = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait at most so long while the session goes on by itself (timers, children, another process).",
)


def is_terminal() -> bool:
    """Whether a person sits at both ends, and is to be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not settings().json


# --- run -------------------------------------------------------------------------------------------


@click.command("run")
@click.argument("program", type=ProgramType(), required=False)
@click.option("--task", metavar="TEXT", help="The task: ctx.task in the strategy.")
@click.option("--ctx", "ctx_json", metavar="JSON|@FILE", help="What the strategy is started with.")
@click.option(
    "--set",
    "fields",
    multiple=True,
    metavar="KEY=VALUE",
    help="One parameter of the strategy: a field of ctx. VALUE is JSON, else text. Repeatable.",
)
@click.option(
    "--budget", multiple=True, metavar="KEY=VALUE|JSON", help="A limit, such as max_llm_calls=10. Repeatable."
)
@click.option("--id", "session_id", metavar="ID", help="The id of the new session.")
@click.option(
    "--trusted",
    is_flag=True,
    help="Lua: allow files, processes and the environment. FILE.py: run it natively, with all of Python.",
)
@project_option("Where the project is, whose packages and strategies are found.  [default: the nearest around here]")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Sandbox: computing time between two questions.  [default: 10]",
)
@click.option(
    "--memory", type=click.IntRange(min=1), metavar="MIB", help="Sandbox: what the strategy may hold.  [default: 64]"
)
@click.option(
    "--env", "variables", multiple=True, metavar="KEY=VALUE", help="Sandbox: a value of env (Lua: alc.env). Repeatable."
)
@click.option(
    "--language",
    type=click.Choice(["lua", "python"]),
    help="What - or the file is written in.  [default: by the file's ending; lua for -]",
)
@click.option("--dry-run", is_flag=True, help="Show what it would ask, with scripted answers. Nothing is stored.")
@click.option("--full", is_flag=True, help="With --dry-run: prompts and answers in full.")
@model_options("The model that answers what the strategy asks one, such as openai:gpt-5; or URL#MODEL.")
@click.option("--resume", type=SessionType(), metavar="SESSION", help="Go on with a session instead of a new one.")
@_wait
@common()
def run_command(
    *,
    program: str | None,
    task: str | None,
    ctx_json: str | None,
    fields: tuple[str, ...],
    budget: tuple[str, ...],
    session_id: str | None,
    trusted: bool,
    project: Path | None,
    deadline: float | None,
    memory: int | None,
    variables: tuple[str, ...],
    language: Language | None,
    dry_run: bool,
    full: bool,
    model: str | None,
    base_url: str | None,
    resume: str | None,
    wait: float | None,
) -> int:
    """Start a strategy, or go on with a session.

    PROGRAM is the name of a strategy (`holdfast strategies`) or of a Lua package (`holdfast pkg list`); FILE.py or
    FILE.lua, run in a sandbox; FILE.py:name or module:name, which are native Python; the name of a strategy that this
    store has run before; or - for standard input.

    On a terminal you are asked what the strategy asks. Leave with Ctrl-C or Ctrl-D and go on later: nothing is lost.
    Elsewhere the first event is printed, and the session waits.
    """
    from holdfast.cli.run_program import budget_of_new, ctx_of_new, env_of_new, file_of_new, program_of_new

    if base_url is not None and model is None:
        raise click.UsageError("--base-url goes with --model", click.get_current_context())
    if (program is None) == (resume is None):
        raise click.UsageError("Give a program to start, or --resume SESSION.", click.get_current_context())
    if resume is not None:
        of_a_new_one = (task, ctx_json, session_id, project, deadline, memory, language)
        if any(each is not None for each in of_a_new_one) or any((budget, trusted, variables, fields, dry_run, full)):
            why = "with --resume only --model, --base-url and --wait go; the other options belong to a new session"
            raise click.UsageError(why, click.get_current_context())
        return _resume(resume, wait, model, base_url)
    if dry_run and model is not None:
        raise click.UsageError("a dry run asks nobody: leave --model out", click.get_current_context())
    if dry_run and (session_id is not None or wait is not None):
        raise click.UsageError("a dry run makes no session: leave --id and --wait out", click.get_current_context())
    if full and not dry_run:
        raise click.UsageError("--full belongs to --dry-run", click.get_current_context())
    assert program is not None
    ctx, limits = ctx_of_new(task, ctx_json, fields), budget_of_new(budget)
    found = program_of_new(
        program,
        language,
        is_dry=dry_run,
        trust="trusted" if trusted else "sandbox",
        project=project,
        env=env_of_new(variables),
        deadline_s=deadline,
        memory_mib=memory,
    )
    try:
        if dry_run:
            from holdfast.cli.dry_run import show_dry_run

            return show_dry_run(found, ctx, limits, is_full=full)
        options: dict[str, Any] = {"ctx": ctx, "budget": limits, "id": session_id}
        return _start(found, wait, options) if model is None else _start_driven(found, wait, options, model, base_url)
    except HoldfastError as error:
        if error.kind != "invalid_source" or settings().json:
            raise
        from holdfast.cli.source_faults import tell_refused

        return tell_refused(error, found, file_of_new(program, project))


def _start_driven(found: Program, wait: float | None, options: dict[str, Any], model: str, base_url: str | None) -> int:
    """Start a session for which a model answers."""
    from holdfast.cli.run_model import Driven
    from holdfast.core.ids import check_id, new_session_id

    given = options["id"]
    session_id = check_id(given, "session id") if given is not None else new_session_id()
    return _start(found, wait, {**options, "id": session_id}, Driven(model, base_url, session_id))


def _start(found: Program, wait: float | None, options: dict[str, Any], driven: Driven | None = None) -> int:
    if is_terminal():
        from holdfast.cli.interactive import ask_all

        find_modules_here()
        return ask_all(lambda hf: hf.start(found, **options, wait=0), driven)

    async def start() -> Event:
        async with driven.engine() if driven else engine(minding=True, create=True) as hf:
            return await hf.start(found, **options, wait=wait)

    from holdfast.cli.interactive import tell_driven

    return tell_driven(asyncio.run(start()), driven)


def _resume(given: str, wait: float | None, model: str | None = None, base_url: str | None = None) -> int:
    async def find() -> str:
        async with opened() as store:
            return await find_session(store, given)

    session_id = asyncio.run(find())
    driven: Driven | None = None
    if model is not None:
        from holdfast.cli.run_model import Driven

        driven = Driven(model, base_url, session_id)
    if is_terminal():
        from holdfast.cli.interactive import ask_all

        find_modules_here()
        return ask_all(lambda hf: hf.resume(session_id, wait=0), driven)

    async def resume() -> Event:
        async with driven.engine() if driven else engine(minding=True) as hf:
            return await _explained(hf, await hf.resume(session_id, wait=wait))

    from holdfast.cli.interactive import tell_driven

    return tell_driven(asyncio.run(resume()), driven)


# --- answer ----------------------------------------------------------------------------------------


@click.command("answer")
@click.argument("session", type=SessionType())
@click.argument("text", required=False)
@click.option("--query", metavar="ID", help="Which query, where several wait.")
@click.option("--fail", metavar="MESSAGE", help="Answer that there is no answer: the strategy sees an error.")
@click.option("--responses", metavar="JSON|@FILE", help='[{"query_id": …, "response": …}, …] or {"q-0": …, …}.')
@_wait
@common()
def answer_command(
    *,
    session: str,
    text: str | None,
    query: str | None,
    fail: str | None,
    responses: str | None,
    wait: float | None,
) -> int:
    """Answer what a session asks, and print what it says next.

    TEXT is the answer; `-` reads it from standard input. Without TEXT you are asked, on a terminal.
    """
    if sum(given is not None for given in (text, fail, responses)) > 1:
        raise click.UsageError("Give one of TEXT, --fail and --responses.", click.get_current_context())
    if responses is not None and query is not None:
        raise click.UsageError("--responses names its queries; leave --query out.", click.get_current_context())
    if text is None and fail is None and responses is None:
        if query is None and is_terminal():
            return _resume(session, None)
        raise click.UsageError(
            "Give TEXT (or - for standard input), --fail or --responses.", click.get_current_context()
        )
    answers = _answers(text, fail, responses, query)

    async def feed() -> Event:
        async with engine(minding=True) as hf:
            session_id = await find_session(hf.store, session)
            return await _explained(hf, await hf.feed(session_id, answers, by=BY, wait=wait))

    from holdfast.cli.event_text import tell

    return tell(asyncio.run(feed()))


async def _explained(hf: Holdfast, event: Event) -> Event:
    """The event; with a word on stderr if the session goes on, but not here."""
    if event.status == "running":
        try:
            await check_runs_here(hf.store, event.session_id)
        except HoldfastError as error:
            click.echo(f"holdfast: {plain(str(error))}", err=True)
    return event


def _answers(text: str | None, fail: str | None, responses: str | None, query: str | None) -> Given | dict[str, Given]:
    from holdfast.core.decide import Given
    from holdfast.core.queries import Failure, Value

    if responses is not None:
        return _responses(parse_json(responses, "--responses"))
    if query is not None:
        _check_query_id(query)
    if fail is not None:
        return Given(Failure(fail), query)
    if text == "-":
        text = read_stdin("the answer")
    return Given(Value(value=text), query)


def _responses(given: Any) -> Given | dict[str, Given]:
    """Answers from their JSON: algocline's array, or an object from query id to answer."""
    from holdfast.core.decide import Given
    from holdfast.core.queries import Value

    match given:
        case {} if not given:
            raise InputError("--responses is empty; give at least one answer")
        case dict():
            for query in given:
                _check_query_id(query)
            return {query: Given(Value(value=value), query) for query, value in given.items()}
        case [only] if isinstance(only, dict) and "query_id" not in only:
            return _response(only)
        case list():
            answers: dict[str, Given] = {}
            for item in given:
                if not isinstance(item, dict) or "query_id" not in item:
                    raise InputError("--responses: each answer is an object with query_id and response")
                query = _check_query_id(item["query_id"])
                if query in answers:
                    raise InputError(f"--responses answers {query} twice; answer it once")
                answers[query] = _response(item)
            if not answers:
                raise InputError("--responses is empty; give at least one answer")
            return answers
        case _:
            raise InputError("--responses: expected an array of answers, or an object from query id to answer")


def _response(item: dict[str, Any]) -> Given:
    import msgspec

    from holdfast.core.decide import Given
    from holdfast.core.queries import Answer, Failure, Usage, Value

    query = item.get("query_id")
    unknown = sorted(set(item) - {"query_id", "response", "error", "usage"})
    if unknown:
        raise InputError(f"--responses: unknown key '{unknown[0]}'; there are query_id, response, error and usage")
    if ("response" in item) == ("error" in item):
        raise InputError(f"--responses: the answer to {query or 'the query'} needs one of response and error")
    try:
        usage = msgspec.convert(item["usage"], Usage) if item.get("usage") is not None else None
        answer: Answer
        if "response" in item:
            answer = Value(value=item["response"])
        elif isinstance(item["error"], str):
            answer = Failure(item["error"])
        else:
            answer = msgspec.convert({"is": "failure", **item["error"]}, Failure)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"--responses: the answer to {query or 'the query'}: {error}") from None
    return Given(answer, query, usage)


def _check_query_id(query: object) -> str:
    from holdfast.engine.host_view import is_query_path

    if not isinstance(query, str) or not is_query_path(query):
        raise InputError(f"{json.dumps(query)} is not a query id; they look like q-0, those of children like q-3.q-0")
    return query
