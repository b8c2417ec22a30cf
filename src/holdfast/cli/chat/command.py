"""`chat`: talk with a model in a durable session. Here: who says what when, at a terminal and elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.errors import InvalidDecisionError
from holdfast.cli.approval import ask, attention, call_lines, rules_of
from holdfast.cli.errors import InputError
from holdfast.cli.lookup import SessionType
from holdfast.cli.models import MODEL_VARIABLE, find_tools, model_options
from holdfast.cli.options import common, read_stdin, settings
from holdfast.cli.output import dim, plain
from holdfast.core.errors import ExitCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.agent.machine.queries import ApprovalQuery
    from holdfast.agent.results import TurnResult
    from holdfast.agent.runtime import Runtime
    from holdfast.cli.chat.conversation import Chat
    from holdfast.cli.chat.setup import Asked
    from holdfast.engine.loop_thread import LoopThread

_COMMAND = re.compile(r"(/[a-z]+)(?:\s+(.*))?", re.DOTALL)
_BLOCK = '"""'


@click.command("chat")
@click.argument("session", type=SessionType(), required=False)
@model_options(
    "The model, such as openai:gpt-5, anthropic:claude-… or ollama:qwen3; or URL#MODEL."
    f"  [default: the session's; for a new one env {MODEL_VARIABLE}]"
)
@click.option("--system", metavar="TEXT|@FILE", help="Instructions for the model.  [default: the session's]")
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="MODULE:NAME",
    help="A function that the model can call; FILE.py:NAME, too. Repeatable.",
)
@click.option(
    "--mcp",
    "servers",
    multiple=True,
    metavar="NAME=COMMAND|URL",
    help="An MCP server whose tools the model can call, as 'files=mcp-files .' or 'wiki=https://…'. Repeatable.",
)
@click.option("--allow", multiple=True, metavar="PATTERN", help="Tools that the model may call. Repeatable.")
@click.option("--confirm", multiple=True, metavar="PATTERN", help="Tools whose calls you are asked about. Repeatable.")
@click.option("--deny", multiple=True, metavar="PATTERN", help="Tools that are not run. Repeatable.")
@click.option("-m", "--message", metavar="TEXT", help="Take one turn and leave; - reads the text from standard input.")
@click.option("--id", "session_id", metavar="ID", help="The id of the new session.")
@common()
def chat_command(
    *,
    session: str | None,
    model: str | None,
    base_url: str | None,
    system: str | None,
    tools: tuple[str, ...],
    servers: tuple[str, ...],
    allow: tuple[str, ...],
    confirm: tuple[str, ...],
    deny: tuple[str, ...],
    message: str | None,
    session_id: str | None,
) -> int:
    """Talk with a model. Every turn is kept: leave at any time, and go on with `holdfast chat SESSION`.

    Ctrl-C stops a turn and keeps the session; Ctrl-D leaves. A line that ends with \\ goes on in the next one, and
    \"\"\" begins and ends a text of several lines. /help lists the commands.

    PATTERN is a name of a tool, in which * is any text. --deny beats the others; of those, the pattern that says most
    counts, and what none speaks of is run. The rules are kept with the session until you give others.

    Where standard input is no terminal, every line of it is a turn. Where standard output is none, what the model says
    goes there, and everything else to standard error. With --json, one event a line goes to standard output.
    """
    if session is not None and session_id is not None:
        raise click.UsageError("--id names a new session; leave it out, or SESSION", click.get_current_context())
    if message is not None and not message.strip():
        raise InputError("--message is empty; say something")
    from holdfast.cli.chat.setup import Asked, find_chat, find_servers, runtime_for
    from holdfast.core.ids import new_session_id

    found = asyncio.run(find_chat(session)) if session is not None else None
    asked = Asked(
        session_id=found.session_id if found is not None else session_id or new_session_id(),
        found=found,
        tools=[*find_tools(tools), *find_servers(servers)],
        instructions=_text(system) if system is not None else None,
        model=model,
        base_url=base_url,
        rules=rules_of(allow, confirm, deny),
    )
    again = _command_to_go_on(asked, tools, servers)
    return talk(runtime_for(asked), asked, read_stdin("the message") if message == "-" else message, again)


def _text(given: str) -> str:
    """A text, or what is in `@file`."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InputError(f"--system {given}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"--system {given}: not a text file in UTF-8") from None


def _command_to_go_on(asked: Asked, tools: Iterable[str], servers: Iterable[str]) -> str:
    """What to type to go on with the session: its id, and what is not recorded with it."""
    words = ["holdfast", "chat", asked.session_id]
    if asked.base_url is not None:
        words += ["--base-url", asked.base_url]
    elif asked.model is not None and asked.model.startswith("http"):
        words += ["--model", asked.model]
    for tool in tools:
        words += ["--tool", tool]
    for server in servers:
        words += ["--mcp", server]
    if (store := settings().store) is not None and store != os.environ.get("HOLDFAST_STORE"):
        words += ["--store", store]
    return shlex.join(words)


def talk(runtime: Runtime, asked: Asked, message: str | None, again: str) -> int:
    """Open the session, and talk: a message and no more, or what is typed or piped in."""
    from holdfast.cli.chat.screen import screen_for
    from holdfast.cli.chat.setup import close_chat, open_chat, start
    from holdfast.engine.loop_thread import LoopThread

    as_json = settings().json
    is_person = message is None and sys.stdin.isatty() and not as_json
    screen = screen_for(as_json=as_json, echoes=not is_person)
    loop = LoopThread()
    loop.start()
    try:
        loop.wait(start(runtime, asked))
        chat = loop.wait(open_chat(runtime, asked, screen, asks=is_person))
        if is_person:
            return _converse(chat, loop, again, is_new=asked.found is None)
        return _feed(chat, loop, _lines() if message is None else [message])
    finally:
        loop.stop(lambda: close_chat(runtime))


# --- programs ----------------------------------------------------------------------------------------


def _feed(chat: Chat, loop: LoopThread, texts: Iterable[str]) -> int:
    """A turn for each text; the first that comes to nothing is the last."""
    _taken(chat, loop, chat.left_turn(leaves_waiting=True))
    if chat.waiting:
        return ExitCode.ENDED_BADLY
    for text in texts:
        result = _taken(chat, loop, chat.turn(text, leaves_waiting=True))
        if chat.is_cut_off:
            raise BrokenPipeError
        if result is None or not result.is_success:
            is_stopped = result is not None and result.stopped is not None and result.stopped.reason == "cancelled"
            return ExitCode.INTERRUPTED if is_stopped else ExitCode.ENDED_BADLY
    return ExitCode.OK


def _lines() -> Iterator[str]:
    """The lines of standard input that say something."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            raise InputError(f"line {number} of standard input is not text in UTF-8") from None
        if text:
            yield text


# --- a person ----------------------------------------------------------------------------------------


def _converse(chat: Chat, loop: LoopThread, again: str, *, is_new: bool) -> int:
    """Talk with a person at a terminal, until they leave."""
    _remember(loop.wait(chat.inputs()))
    if not is_new:
        for line in ["", *loop.wait(chat.earlier())]:
            _echo(line)
    code = ExitCode.OK
    try:
        _take(chat, loop, chat.left_turn(leaves_waiting=False))
        while _once(chat, loop):
            pass
    except EOFError:
        _echo()
    except KeyboardInterrupt:
        _echo()
        code = ExitCode.INTERRUPTED
    _echo(f"{dim('Left; all of it is kept. Go on with')}\n  {again}")
    return code


def _once(chat: Chat, loop: LoopThread) -> bool:
    """Read something, and do it; whether to go on."""
    _echo()
    text, is_block = _read()
    command = None if is_block else _COMMAND.fullmatch(text.rstrip())
    if command is None:
        if text.strip():
            _take(chat, loop, chat.turn(text.strip(), leaves_waiting=False))
        return True
    if command[1] == "/quit":
        return False
    if command[1] == "/compact":
        _take(chat, loop, chat.compact((command[2] or "").strip()))
        return True
    for line in loop.wait(chat.command(command[1], (command[2] or "").strip())):
        _echo(line)
    return True


def _take(chat: Chat, loop: LoopThread, turn: Coroutine[Any, Any, TurnResult | None]) -> None:
    try:
        _taken(chat, loop, turn)
    except HoldfastError as error:
        _echo(click.style(plain(str(error)), fg="red"))


def _taken(chat: Chat, loop: LoopThread, turn: Coroutine[Any, Any, TurnResult | None]) -> TurnResult | None:
    """Wait for a turn, and ask what has to be approved meanwhile. Ctrl-C stops it; once more leaves it as it is."""
    from holdfast.cli.tail import unechoed

    chat.asked = SimpleQueue()
    working = loop.begin(turn)
    assert working is not None
    working.add_done_callback(lambda _: chat.asked.put(None))
    try:
        while (query := _next_asked(chat)) is not None:
            _approve(chat, loop, query)
        return working.result()
    except KeyboardInterrupt:
        loop.begin(chat.stop(working))
    except EOFError:
        working.cancel()  # it is not to be shown any more
        raise
    with unechoed():
        try:
            return working.result()
        except KeyboardInterrupt:
            working.cancel()
            raise


def _next_asked(chat: Chat) -> ApprovalQuery | None:
    from holdfast.cli.tail import unechoed

    with unechoed():
        return chat.asked.get()


def _approve(chat: Chat, loop: LoopThread, query: ApprovalQuery) -> None:
    """Ask the person about a call, unless that is settled already."""
    call = query.approves
    if loop.wait(chat.still_asks(query)):
        for line in call_lines(call):
            _echo(line)
        is_first = False
        while True:
            try:
                with attention():
                    decision = ask(call, _ask)
                is_first = loop.wait(chat.decide(query, decision))
                break
            except InvalidDecisionError as error:
                _echo(click.style(plain(error.why), fg="red"))
        if not is_first:
            _echo(dim("Somebody else has decided it meanwhile."))
    if chat.asked.empty():
        loop.wait(chat.show_held())


def _read() -> tuple[str, bool]:
    """What a person types, and whether it was a block: several lines between marks."""
    line = _ask("> ")
    if line.lstrip().startswith(_BLOCK):
        return _read_block(line.lstrip().removeprefix(_BLOCK)), True
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        line = _ask("… ")
    return "\n".join([*lines, line]), bool(lines)


def _read_block(line: str) -> str:
    lines = []
    while not line.rstrip().endswith(_BLOCK):
        lines.append(line)
        line = _ask("… ")
    return "\n".join([*lines, line.rstrip().removesuffix(_BLOCK)]).strip("\n")


def _echo(line: str = "") -> None:
    """Something that the model did not say: standard output is for that alone, where it leads elsewhere."""
    click.echo(line, err=not sys.stdout.isatty())


def _ask(prompt: str) -> str:
    if sys.stdout.isatty():
        while True:
            try:
                return input(prompt)
            except UnicodeDecodeError:
                click.echo(dim("That was no text in UTF-8; once more, please."))
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _remember(inputs: Iterable[str]) -> None:
    """Let keys bring back what was said before."""
    with contextlib.suppress(ImportError):
        import readline  # which also gives `input` its line editing

        for text in inputs:
            if text and "\n" not in text:
                readline.add_history(text)
