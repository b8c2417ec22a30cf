"""`chat`: the command, its options, and the dialogue with a person or a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from holdfast.agent.machine.errors import InvalidDecisionError
from holdfast.cli.agent_runtime import agents_options, find_agents
from holdfast.cli.approval import ask_decision, attention
from holdfast.cli.bindings import parse_bindings, rlm_options
from holdfast.cli.display.calls import call_lines
from holdfast.cli.errors import InputError, usage_error
from holdfast.cli.models import MODEL_VARIABLE, model_options
from holdfast.cli.options import common, options_as, read_file, read_stdin, service_option, settings
from holdfast.cli.output import dim, plain
from holdfast.cli.parameter_types import SessionType
from holdfast.cli.tools import find_commands, find_servers, find_tools
from holdfast.core.errors import ExitCode, HoldfastError

if TYPE_CHECKING:
    from holdfast.agent.machine.queries import ApprovalQuery
    from holdfast.agent.results import TurnResult
    from holdfast.agent.runtime import Runtime
    from holdfast.cli.chat.session import ChatSession
    from holdfast.cli.chat.setup import ChatRequest
    from holdfast.engine.loop_thread import LoopThread

_COMMAND = re.compile(r"(/[a-z][a-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)
_BLOCK = '"""'


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """What was given to `chat` on the command line."""

    session: str | None
    model: str | None
    base_url: str | None
    system: str | None
    tools: tuple[str, ...]
    servers: tuple[str, ...]
    commands: tuple[str, ...]
    agents: tuple[str, ...]
    no_agents: bool
    allow: tuple[str, ...]
    confirm: tuple[str, ...]
    deny: tuple[str, ...]
    message: str | None
    session_id: str | None
    rlm: bool
    files: tuple[Path, ...]
    bindings: tuple[str, ...]

    @property
    def continue_words(self) -> list[str]:
        """The options to repeat when the session is continued, because they are not recorded with it."""
        words = []
        if self.base_url is not None:
            words += ["--base-url", self.base_url]
        elif self.model is not None and self.model.startswith("http"):
            words += ["--model", self.model]
        for file in self.files:
            words += ["--file", str(file)]
        for binding in self.bindings:
            words += ["--bind", binding]
        for tool in self.tools:
            words += ["--tool", tool]
        for server in self.servers:
            words += ["--mcp", server]
        for command in self.commands:
            words += ["--command", command]
        for agents in self.agents:
            words += ["--agents", agents]
        words += ["--no-agents"] if self.no_agents else []
        if (store := settings().store) is not None and store != os.environ.get("HOLDFAST_STORE"):
            words += ["--store", store]
        return words


@click.command("chat")
@click.argument("session", type=SessionType(), required=False)
@model_options(
    "The model, such as openai:gpt-5, anthropic:claude-… or ollama:qwen3; or URL#MODEL."
    f"  [default: the session's; for a new one env {MODEL_VARIABLE}, else that of holdfast.toml]"
)
@click.option("--system", metavar="TEXT|@FILE", help="Instructions for the model.  [default: the session's]")
@click.option(
    "--tool",
    "tools",
    multiple=True,
    metavar="MODULE:NAME",
    help="A function that the model can call; also FILE.py:NAME. Repeatable.",
)
@click.option(
    "--mcp",
    "servers",
    multiple=True,
    metavar="NAME=COMMAND|URL",
    help="An MCP server whose tools the model can call, as 'files=mcp-files .' or 'wiki=https://…'. Repeatable.",
)
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="MODULE:NAME",
    help="A function that you can call as /NAME in the chat; also FILE.py:NAME. Repeatable.",
)
@agents_options
@click.option("--allow", multiple=True, metavar="PATTERN", help="Tools that the model may call. Repeatable.")
@click.option("--confirm", multiple=True, metavar="PATTERN", help="Tools whose calls you are asked about. Repeatable.")
@click.option("--deny", multiple=True, metavar="PATTERN", help="Tools that the model may not call. Repeatable.")
@click.option("-m", "--message", metavar="TEXT", help="Take one turn and exit; - reads the text from standard input.")
@click.option("--id", "session_id", metavar="ID", help="The id of the new session.")
@rlm_options
@service_option
@common()
@options_as(ChatOptions)
def chat_command(options: ChatOptions) -> int:
    """Talk with a model. Every turn is kept: leave at any time, and continue with `holdfast chat SESSION`.

    Ctrl-C stops a turn and keeps the session; Ctrl-D leaves. A line that ends with \\ continues on the next line, and
    \"\"\" begins and ends a text of several lines. /help lists the commands.

    PATTERN is the name of a tool, in which * stands for any text. --deny beats the others; between --allow and
    --confirm, the more specific pattern wins. Tools that match no pattern are run. The rules are kept with the session
    until you give others.

    If standard input is not a terminal, every line of it is a turn. If standard output is not a terminal, only what the
    model says goes there, and everything else to standard error. With --json, standard output has one event per line.
    """
    if options.session is not None and options.session_id is not None:
        raise usage_error("--id names a new session; leave out either --id or SESSION")
    if options.message is not None and not options.message.strip():
        raise InputError("--message is empty; give a text")
    from holdfast.cli.chat.setup import ChatRequest, approval_rules, find_chat, runtime_for
    from holdfast.core.ids import new_session_id

    recorded = asyncio.run(find_chat(options.session)) if options.session is not None else None
    request = ChatRequest(
        session_id=recorded.session_id if recorded is not None else options.session_id or new_session_id(),
        recorded=recorded,
        tools=[*find_tools(options.tools), *find_servers(options.servers)],
        commands=find_commands(options.commands),
        agents=find_agents(options.agents, none=options.no_agents),
        instructions=_read_instructions(options.system) if options.system is not None else None,
        model=options.model,
        base_url=options.base_url,
        mode="rlm" if options.rlm else None,
        bindings=parse_bindings(options.files, options.bindings),
        rules=approval_rules(options.allow, options.confirm, options.deny),
    )
    again = shlex.join(["holdfast", "chat", request.session_id, *options.continue_words])
    message = read_stdin("the message") if options.message == "-" else options.message
    return talk(runtime_for(request), request, message, again)


def _read_instructions(text_or_file: str) -> str:
    return read_file(text_or_file, "--system").strip() if text_or_file.startswith("@") else text_or_file


def talk(runtime: Runtime, request: ChatRequest, message: str | None, again: str) -> int:
    """Open the session, and take turns: one with the message, or one for each text that is typed or piped in.

    `again` is the command that continues the session.
    """
    from holdfast.cli.chat.screen import screen_for
    from holdfast.cli.chat.setup import close_chat, open_chat, start
    from holdfast.engine.loop_thread import LoopThread

    as_json = settings().json
    is_person = message is None and sys.stdin.isatty() and not as_json
    screen = screen_for(as_json=as_json, echoes=not is_person)
    loop = LoopThread()
    loop.start()
    try:
        loop.wait(start(runtime, request))
        chat = loop.wait(open_chat(runtime, request, screen, asks=is_person))
        if is_person:
            return _converse(chat, loop, again, is_new=request.recorded is None)
        return _take_piped_turns(chat, loop, _piped_lines() if message is None else [message])
    finally:
        loop.stop(lambda: close_chat(runtime))


# --- pipes -------------------------------------------------------------------------------------------


def _take_piped_turns(chat: ChatSession, loop: LoopThread, texts: Iterable[str]) -> int:
    """Take a turn for each text, until one gets no answer."""
    _wait_for_turn(chat, loop, chat.left_turn(leaves_waiting=True))
    if chat.waiting:
        return ExitCode.ENDED_BADLY
    for text in texts:
        result = _wait_for_turn(chat, loop, chat.turn(text, leaves_waiting=True))
        if chat.is_cut_off:
            raise BrokenPipeError
        if result is None or not result.is_success:
            is_stopped = result is not None and result.stopped is not None and result.stopped.reason == "cancelled"
            return ExitCode.INTERRUPTED if is_stopped else ExitCode.ENDED_BADLY
    return ExitCode.OK


def _piped_lines() -> Iterator[str]:
    """The lines of standard input that are not blank."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            raise InputError(f"line {number} of standard input is not text in UTF-8") from None
        if text:
            yield text


# --- a person ----------------------------------------------------------------------------------------


def _converse(chat: ChatSession, loop: LoopThread, again: str, *, is_new: bool) -> int:
    """Talk with a person at a terminal, until they leave."""
    _fill_history(loop.wait(chat.inputs()))
    if not is_new:
        for line in ["", *loop.wait(chat.earlier())]:
            _echo(line)
    code = ExitCode.OK
    try:
        _take_turn(chat, loop, chat.left_turn(leaves_waiting=False))
        while _read_and_do(chat, loop):
            pass
    except EOFError:
        _echo()
    except KeyboardInterrupt:
        _echo()
        code = ExitCode.INTERRUPTED
    _echo(f"{dim('Everything is kept. Continue with')}\n  {again}")
    return code


def _read_and_do(chat: ChatSession, loop: LoopThread) -> bool:
    """Read a text or a command, and do it; whether to continue."""
    _echo()
    text, is_block = _read_text()
    command = None if is_block else _COMMAND.fullmatch(text.rstrip())
    if command is None:
        if text.strip():
            _take_turn(chat, loop, chat.turn(text.strip(), leaves_waiting=False))
        return True
    if command[1] == "/quit":
        return False
    if command[1] == "/compact":
        _take_turn(chat, loop, chat.compact((command[2] or "").strip()))
        return True
    name, rest = command[1].removeprefix("/"), (command[2] or "").strip()
    if any(each.name == name for each in loop.wait(chat.own_commands())):
        _take_turn(chat, loop, chat.run_command(name, rest))
        return True
    for line in loop.wait(chat.command(command[1], rest)):
        _echo(line)
    return True


def _take_turn(chat: ChatSession, loop: LoopThread, turn: Coroutine[Any, Any, TurnResult | None]) -> None:
    try:
        _wait_for_turn(chat, loop, turn)
    except HoldfastError as error:
        _echo(click.style(plain(str(error)), fg="red"))


def _wait_for_turn(
    chat: ChatSession, loop: LoopThread, turn: Coroutine[Any, Any, TurnResult | None]
) -> TurnResult | None:
    """Wait for a turn, and ask for approvals meanwhile. Ctrl-C stops the turn; a second one leaves it as it is."""
    from holdfast.cli.display.live_block import no_echo

    chat.approvals = SimpleQueue()
    working = loop.begin(turn)
    assert working is not None
    working.add_done_callback(lambda _: chat.approvals.put(None))
    try:
        while (query := _next_approval(chat)) is not None:
            _approve(chat, loop, query)
        return working.result()
    except KeyboardInterrupt:
        loop.begin(chat.stop(working))
    except EOFError:
        working.cancel()  # so that it is no longer shown
        raise
    with no_echo():
        try:
            return working.result()
        except KeyboardInterrupt:
            working.cancel()
            raise


def _next_approval(chat: ChatSession) -> ApprovalQuery | None:
    from holdfast.cli.display.live_block import no_echo

    with no_echo():
        return chat.approvals.get()


def _approve(chat: ChatSession, loop: LoopThread, query: ApprovalQuery) -> None:
    """Ask the person about a call, unless it is already decided."""
    call = query.approves
    if loop.wait(chat.still_asks(query)):
        for line in call_lines(call):
            _echo(line)
        is_decided_here = False
        while True:
            try:
                with attention():
                    decision = ask_decision(call, _read_line)
                is_decided_here = loop.wait(chat.decide(query, decision))
                break
            except InvalidDecisionError as error:
                _echo(click.style(plain(error.why), fg="red"))
        if not is_decided_here:
            _echo(dim("Somebody else has decided in the meantime."))
    if chat.approvals.empty():
        loop.wait(chat.show_held())


def _read_text() -> tuple[str, bool]:
    """What a person types, and whether it has several lines."""
    line = _read_line("> ")
    if line.lstrip().startswith(_BLOCK):
        return _read_block(line.lstrip().removeprefix(_BLOCK)), True
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        line = _read_line("… ")
    return "\n".join([*lines, line]), bool(lines)


def _read_block(line: str) -> str:
    lines = []
    while not line.rstrip().endswith(_BLOCK):
        lines.append(line)
        line = _read_line("… ")
    return "\n".join([*lines, line.rstrip().removesuffix(_BLOCK)]).strip("\n")


def _echo(line: str = "") -> None:
    """Print something that the model did not say: to standard error, if standard output is not a terminal."""
    click.echo(line, err=not sys.stdout.isatty())


def _read_line(prompt: str) -> str:
    if sys.stdout.isatty():
        while True:
            try:
                return input(prompt)
            except UnicodeDecodeError:
                click.echo(dim("That was not text in UTF-8; please type it again."))
    click.echo(prompt, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _fill_history(inputs: Iterable[str]) -> None:
    """Let the arrow keys bring back earlier inputs."""
    with contextlib.suppress(ImportError):
        import readline  # which also gives `input` its line editing

        for text in inputs:
            if text and "\n" not in text:
                readline.add_history(text)
