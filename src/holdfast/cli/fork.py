"""`fork`: a new session from the beginning of another, and the first input to it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.display.events import print_event
from holdfast.cli.engine import BY, open_engine, open_store
from holdfast.cli.errors import InputError, usage_error
from holdfast.cli.models import model_options
from holdfast.cli.options import common, read_stdin, settings
from holdfast.cli.output import plain, print_json
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.served import load_served, serve_option
from holdfast.cli.session_lookup import find_session
from holdfast.cli.table import print_table
from holdfast.core.errors import ExitCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.chat.setup import ChatRequest
    from holdfast.core.events import Event


@click.command("fork")
@click.argument("session", type=SessionType())
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="The last record to keep.  [default: all]")
@click.option("--before", metavar="QUERY", help="Fork just before a query, such as q-7: it is asked again.")
@click.option("--turn", metavar="TURN", help="Chat: fork before the input of a turn.")
@click.option("--node", metavar="NODE", help="Chat: fork at a message, such as n-12; before it, if it is an input.")
@click.option("--points", is_flag=True, help="Only list the places where the session can be forked.")
@click.option(
    "--input",
    "text",
    metavar="TEXT",
    help="The next input of a chat, or the answer to a strategy; - reads it.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Sandbox: computing time between two questions. A session that was stopped continues with it.",
)
@click.option(
    "--memory",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Sandbox: memory of the strategy. A session that was stopped continues with it.",
)
@model_options("Chat with --input: the model that answers.  [default: the session's]")
@click.option("--id", "session_id", metavar="ID", help="The id of the new session.")
@serve_option
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
    deadline: float | None,
    memory: int | None,
    model: str | None,
    base_url: str | None,
    session_id: str | None,
) -> int:
    """Make a new session from the beginning of another, and print its event.

    The other session is not changed, and what both have in common is stored once. `holdfast diff` compares them.
    """
    place: dict[str, Any] = {"at": at, "before": before, "turn": turn, "node": node}
    chosen = [f"--{word}" for word, value in place.items() if value is not None]
    if len(chosen) > 1:
        raise usage_error(f"{' and '.join(chosen)} exclude each other")
    if points:
        if chosen or any(each is not None for each in (text, session_id, deadline, memory)):
            raise usage_error("--points forks nothing: leave out the other options")
        return _list_points(session)
    if text is None and (model is not None or base_url is not None):
        raise usage_error("--model and --base-url need --input")
    if text is not None and not (text := read_stdin("the input") if text == "-" else text).strip():
        raise InputError("--input is empty; give a text")

    load_served()
    from holdfast.programs.language import StepLimits

    limits = None if deadline is memory is None else StepLimits(deadline_s=deadline, memory_mib=memory)

    async def fork() -> tuple[Event, bool]:
        async with open_engine() as hf:
            event = await hf.fork(await find_session(hf.store, session), **place, limits=limits, id=session_id)
            return event, (await hf.store.session(event.session_id)).summary.program_kind == "agent"

    event, is_chat = asyncio.run(fork())
    if text is None:
        return print_event(event)
    click.echo(f"Forked as {event.session_id}.", err=True)
    return _begin_chat_turn(event, text, model, base_url) if is_chat else _answer_query(event.session_id, text)


def _list_points(session: str) -> int:
    from holdfast.engine.forks import fork_points

    async def find() -> list[Any]:
        async with open_store() as store:
            return await fork_points(store, await find_session(store, session))

    found = asyncio.run(find())
    if settings().json:
        print_json(found)
    else:
        rows = [(str(each.position), each.kind, each.id, plain(each.text)) for each in found]
        print_table(("at", "place", "id", "what"), rows)
    return ExitCode.OK


def _answer_query(session_id: str, text: str) -> int:
    """Answer the question of a strategy."""

    async def feed() -> Event:
        async with open_engine(upkeep=True) as hf:
            return await hf.feed(session_id, text, by=BY)

    return print_event(asyncio.run(feed()))


# --- chats -----------------------------------------------------------------------------------------


def _begin_chat_turn(event: Event, text: str, model: str | None, base_url: str | None) -> int:
    """Begin a turn of a chat, and let its model answer; if the model is unavailable, the turn waits for it."""
    from holdfast.cli.chat.setup import ChatRequest, find_chat, runtime_for

    found = asyncio.run(find_chat(event.session_id))
    if found.conversation.input is None:
        waits = ", ".join(sorted(found.conversation.asked)) or "nothing"
        why = f"session '{event.session_id}' was forked in the middle of a turn, and waits for {waits} first"
        raise InputError(f"{why}; the input was not sent. Fork at a --turn, or continue with `holdfast chat`")
    request = ChatRequest(
        session_id=event.session_id, recorded=found, tools=[], instructions=None, model=model, base_url=base_url
    )
    try:
        runtime = runtime_for(request)
    except HoldfastError as error:
        if model is not None or base_url is not None:
            raise
        click.echo(f"holdfast: the turn waits, as no model can answer here: {plain(str(error))}", err=True)
        return _leave_turn_waiting(request, text)
    from holdfast.cli.chat.command import talk

    return talk(runtime, request, text, again=f"holdfast chat {event.session_id}")


def _leave_turn_waiting(request: ChatRequest, text: str) -> int:
    from holdfast.agent.machine.messages import TextBlock
    from holdfast.agent.machine.turn_input import TurnInput
    from holdfast.core.ids import new_turn_id

    assert request.recorded is not None
    turn_input = TurnInput(turn=new_turn_id(), content=[TextBlock(text)])
    answers = {request.recorded.conversation.input: turn_input.to_answer()}

    async def feed() -> Event:
        async with open_engine() as hf:
            return await hf.feed(request.session_id, answers, by=BY, wait=0)

    return print_event(asyncio.run(feed()))
