"""`fork`: a new session from the beginning of another, and what is said to it first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.errors import InputError
from holdfast.cli.lookup import SessionType, engine, find_session, opened
from holdfast.cli.models import model_options
from holdfast.cli.options import common, read_stdin, settings
from holdfast.cli.output import plain, print_json, print_table
from holdfast.cli.run import BY
from holdfast.core.errors import ExitCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.chat.setup import Asked
    from holdfast.core.events import Event


@click.command("fork")
@click.argument("session", type=SessionType())
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="The last record to keep.  [default: all]")
@click.option("--before", metavar="QUERY", help="Just before a query was asked, such as q-7: it is asked anew.")
@click.option("--turn", metavar="TURN", help="A chat: before the input of a turn.")
@click.option("--node", metavar="NODE", help="A chat: at a message, such as n-12; before it, if it is an input.")
@click.option("--points", is_flag=True, help="List the places where the session can be forked, and fork nothing.")
@click.option("--input", "text", metavar="TEXT", help="A chat: say this next. Else: answer with it. - reads it.")
@model_options("A chat with --input: the model that answers.  [default: the session's]")
@click.option("--id", "session_id", metavar="ID", help="The id of the new session.")
@common()
def fork_command(
    *,
    session: str,
    at: int | None,
    before: str | None,
    turn: str | None,
    node: str | None,
    points: bool,
    text: str | None,
    model: str | None,
    base_url: str | None,
    session_id: str | None,
) -> int:
    """Make a new session from the beginning of another, and print what it says.

    The other session is not touched, and what both have in common is kept once. `holdfast diff` compares them.
    """
    place: dict[str, Any] = {"at": at, "before": before, "turn": turn, "node": node}
    chosen = [f"--{word}" for word, value in place.items() if value is not None]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other", click.get_current_context())
    if points:
        if chosen or text is not None or session_id is not None:
            raise click.UsageError("--points forks nothing: leave the other options out", click.get_current_context())
        return _list_points(session)
    if text is None and (model is not None or base_url is not None):
        raise click.UsageError("--model and --base-url go with --input", click.get_current_context())
    if text is not None and not (text := read_stdin("the input") if text == "-" else text).strip():
        raise InputError("--input is empty; say something")

    async def fork() -> tuple[Event, bool]:
        async with engine() as hf:
            event = await hf.fork(await find_session(hf.store, session), **place, id=session_id)
            return event, (await hf.store.session(event.session_id)).summary.program_kind == "agent"

    event, is_chat = asyncio.run(fork())
    if text is None:
        return _tell(event)
    click.echo(f"Forked as {event.session_id}.", err=True)
    return _say(event, text, model, base_url) if is_chat else _answer(event.session_id, text)


def _tell(event: Event) -> int:
    from holdfast.cli.event_text import tell

    return tell(event)


def _list_points(session: str) -> int:
    from holdfast.engine.forks import fork_points

    async def find() -> list[Any]:
        async with opened() as store:
            return await fork_points(store, await find_session(store, session))

    found = asyncio.run(find())
    if settings().json:
        print_json(found)
    else:
        rows = [(str(each.position), each.kind, each.id, plain(each.text)) for each in found]
        print_table(("at", "place", "id", "what"), rows)
    return ExitCode.OK


def _answer(session_id: str, text: str) -> int:
    """Answer the question of a strategy."""

    async def feed() -> Event:
        async with engine(minding=True) as hf:
            return await hf.feed(session_id, text, by=BY)

    return _tell(asyncio.run(feed()))


# --- chats -----------------------------------------------------------------------------------------


def _say(event: Event, text: str, model: str | None, base_url: str | None) -> int:
    """Begin a turn of a chat, and let its model answer; where that is not to be had, the turn waits for it."""
    from holdfast.cli.chat.setup import Asked, find_chat, runtime_for

    found = asyncio.run(find_chat(event.session_id))
    if found.conversation.input is None:
        waits = ", ".join(sorted(found.conversation.asked)) or "nothing"
        why = f"session '{event.session_id}' was forked in the middle of a turn, and waits for {waits} first"
        raise InputError(f"{why}; nothing was said to it. Fork at a --turn, or go on with `holdfast chat`")
    asked = Asked(session_id=event.session_id, found=found, tools=[], instructions=None, model=model, base_url=base_url)
    try:
        runtime = runtime_for(asked)
    except HoldfastError as error:
        if model is not None or base_url is not None:
            raise
        click.echo(f"holdfast: nobody answers here: {plain(str(error))}", err=True)
        return _begin_turn(asked, text)
    from holdfast.cli.chat.command import talk

    return talk(runtime, asked, text, again=f"holdfast chat {event.session_id}")


def _begin_turn(asked: Asked, text: str) -> int:
    import msgspec

    from holdfast.agent.machine.messages import TextBlock
    from holdfast.agent.machine.turn_input import TurnInput
    from holdfast.core.ids import new_turn_id
    from holdfast.core.queries import Value

    assert asked.found is not None
    given = TurnInput(turn=new_turn_id(), content=[TextBlock(text)])
    answers = {asked.found.conversation.input: Value(value=msgspec.to_builtins(given))}

    async def feed() -> Event:
        async with engine() as hf:
            return await hf.feed(asked.session_id, answers, by=BY, wait=0)

    return _tell(asyncio.run(feed()))
