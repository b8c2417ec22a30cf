"""Sessions, as both families of tools need them: started, answered, cancelled, with progress reported to the host."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import mcp_types as types
import msgspec

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import (
    AnswerConflictError,
    FeedError,
    HoldfastError,
    InvalidIdError,
    SessionNotFoundError,
    TransitionError,
)
from holdfast.core.events import AcceptedEvent, Event, PausedEvent
from holdfast.core.ids import new_session_id
from holdfast.core.queries import Answer, answer_preview, says_the_same
from holdfast.core.records import AnsweredRecord, Entry, Program, ProgressedRecord
from holdfast.core.values import Json
from holdfast.programs.api.python_stubs import PYTHON_STUB_NAME
from holdfast.programs.kinds import get_language, language_names, language_of_file
from holdfast.programs.language import ProgramOptions, StepLimits
from holdfast.programs.lookup import find_program
from holdfast.programs.names import invalid_name_reason
from holdfast.serve.mcp.catalog import native_strategies
from holdfast.serve.mcp.directories import directory, file_below
from holdfast.serve.mcp.host_events import event_for_host
from holdfast.serve.mcp.required_input import answers_in, can_pause, required_input
from holdfast.serve.mcp.runs import AD_HOC
from holdfast.serve.mcp.tools import McpCall, McpToolError, Object

BY = "mcp"
"""Who answered, in the journal, where the host does not say."""

_SOON_S = 0.05
"""Seconds before a session is looked at for its progress. Most calls are over by then, and tell it at their end."""


PYTHON_STUBS_URI = f"holdfast://types/{PYTHON_STUB_NAME}"
"""Where hosts read what a strategy in sandboxed Python may call."""

_TEXT_LANGUAGE = "lua"
"""What a text is taken for, if nothing else is said: what algocline's hosts send."""

Language: TypeAlias = Annotated[
    str | None,
    msgspec.Meta(
        description="The language of the code; if left out, that of the file's name, and of text Lua.",
        extra_json_schema={"enum": [*language_names(), None]},
    ),
]


def program_of_code(
    code: str | None,
    file: str | None,
    project: str | None,
    language: str | None = None,
    *,
    directories: Sequence[Path] = (),
    options: ProgramOptions | None = None,
) -> Program:
    """The program in a text, or in a file below one of these directories, of which exactly one is given. Text is Lua,
    if nothing else is said; the language of a file is told by the end of its name."""
    if code is not None and file is not None:
        raise McpToolError("Provide either `code` or `code_file`, not both.")
    if language is not None and language not in language_names():
        known = " and ".join(f"'{name}'" for name in language_names())
        raise McpToolError(f"`language` is '{language}', and only {known} run here.")
    made: ProgramOptions = {**(options or {}), "project": project_root(project)}
    if code is not None:
        return get_language(language or _TEXT_LANGUAGE).program(code, name=AD_HOC, file="code.py", **made)
    if file is not None:
        found = language_of_file(file) if language is None else get_language(language)
        path = file_below(file, directories, "code_file")
        return (found or get_language(_TEXT_LANGUAGE)).read_program(path, **made)
    raise McpToolError("Either `code` or `code_file` must be provided.")


def program_named(strategy: str, project: str | None, options: ProgramOptions | None = None) -> Program:
    """The native strategy, Lua package or strategy in sandboxed Python of that name.

    By name only: a path or `module:name` would make the server import any Python file, outside every sandbox.
    """
    if strategy not in native_strategies() and (why := invalid_name_reason(strategy)) is not None:
        raise McpToolError(f"`strategy` is not a name: {why}; a list of strategies has the names")
    made: ProgramOptions = {**(options or {}), "project": project_root(project)}
    return find_program(strategy, **made)


def limits_of(call: McpCall, deadline_s: float | None, memory_mib: int | None) -> StepLimits | None:
    """The limits that a call asks for, if the operator allows them; None if it asks for none."""
    if deadline_s is memory_mib is None:
        return None
    return call.allowed.limits(StepLimits(deadline_s=deadline_s, memory_mib=memory_mib))


def project_root(given: str | None) -> Path | None:
    """A project that is named and not there is an error: no other one is taken for it."""
    return None if given is None else directory(given, "project")


async def run(
    call: McpCall,
    program: Callable[[], Program],
    ctx: Json,
    budget: Mapping[str, Any] | None = None,
    *,
    show: Callable[[Event], Object] = event_for_host,
) -> Object | types.InputRequiredResult:
    """Start a session, or continue the one that an earlier round of this call started, which has its program.

    `show` makes the reply of what the session says.
    """
    if call.state is not None:
        event = await _next_round(call, call.state)
    else:
        session_id = new_session_id()
        async with _under_way(call, session_id, 0):
            try:
                event = await call.holdfast.start(program(), ctx=ctx, budget=budget, id=session_id)
            except HoldfastError as error:
                raise _not_started(error) from None
    if isinstance(event, PausedEvent) and can_pause(call, event):
        return required_input(call, event)
    return show(event)


def _not_started(error: HoldfastError) -> HoldfastError:
    """The error; and where it is the author's source that is at fault, what the author can look it up in. By its kind:
    importing its class would load the interpreter's client with the server."""
    if error.kind != "invalid_source":
        return error
    return McpToolError(f"{error}\nCorrect these and run it again. What it may call: the resource {PYTHON_STUBS_URI}")


async def _next_round(call: McpCall, session_id: str) -> Event:
    """Feed the host's answers to the session. Answers to queries that do not wait are ignored, as the protocol demands:
    they are left over, or were taken when the host sent them before. Other ones than those taken are a conflict."""
    answers = answers_in(call.responses or {})
    async with _under_way(call, session_id, await call.holdfast.store.position(session_id)):
        event = await call.holdfast.resume(session_id)
        asked = {query.id for query in event.queries}
        wanted = {query_id: given for query_id, given in answers.items() if query_id in asked}
        for query_id in answers.keys() - wanted.keys():
            await _check_same(call, session_id, query_id, answers[query_id].answer)
        if wanted:
            event = await call.holdfast.feed(session_id, wanted, by=BY)
        if isinstance(event, AcceptedEvent):
            event = await call.holdfast.resume(session_id)
        return event


async def _check_same(call: McpCall, session_id: str, query_id: str, given: Answer) -> None:
    """Raise `AnswerConflictError` if a query of a session, or of a child of it, has been answered otherwise."""
    below, _, asked = query_id.rpartition(".")
    answered = f"{session_id}.{below}" if below else session_id
    with contextlib.suppress(SessionNotFoundError, InvalidIdError):  # no such query was ever asked
        async for entry in call.holdfast.store.journal(answered):
            record = entry.record
            if isinstance(record, AnsweredRecord) and record.query_id == asked:
                if not says_the_same(record.answer, given):
                    previews = answer_preview(record.answer), answer_preview(given)
                    raise AnswerConflictError(session_id, query_id, *previews)
                return


async def answer(call: McpCall, session_id: str, answers: Mapping[str, GivenAnswer] | GivenAnswer) -> Event:
    """Feed a session, and wait for what it says next."""
    async with _under_way(call, session_id, await call.holdfast.store.position(session_id)):
        return await call.holdfast.feed(session_id, answers, by=BY)


@contextlib.asynccontextmanager
async def _under_way(call: McpCall, session_id: str, position: int) -> AsyncIterator[None]:
    """Report a session's progress from a position on; if the host cancels the call meanwhile, cancel the session."""
    progress = _Progress(call, session_id, position)
    telling = asyncio.create_task(progress.tell())
    try:
        yield
        async with progress.turn:  # not in the middle of a step
            telling.cancel()
        await progress.tell_the_rest()
    except asyncio.CancelledError:
        if call.cancelled():
            await asyncio.shield(_cancel(call, session_id))
        raise
    finally:
        telling.cancel()


async def _cancel(call: McpCall, session_id: str) -> None:
    with contextlib.suppress(HoldfastError):
        await call.holdfast.cancel(session_id, "the host cancelled the call", by=BY)


class _Progress:
    """Tells the host each step that the program says it has taken, once."""

    def __init__(self, call: McpCall, session_id: str, position: int) -> None:
        self._call = call
        self._session_id = session_id
        self._position = position
        self.turn = asyncio.Lock()

    async def tell(self) -> None:
        """Tell the steps as they are taken. A session that is not there yet is waited for."""
        await asyncio.sleep(_SOON_S)
        with contextlib.suppress(HoldfastError):
            while True:
                try:
                    async for entry in self._call.holdfast.watch(self._session_id, self._position):
                        await self._tell(entry)
                    return
                except SessionNotFoundError:
                    await asyncio.sleep(_SOON_S)

    async def tell_the_rest(self) -> None:
        """Report the remaining steps: a result must not overtake the steps that led to it."""
        with contextlib.suppress(HoldfastError):
            for entry in await self._call.holdfast.store.read(self._session_id, self._position):
                await self._tell(entry)

    async def _tell(self, entry: Entry) -> None:
        async with self.turn:
            if isinstance(entry.record, ProgressedRecord):
                await self._call.progress(entry.record.step, entry.record.total, entry.record.message)
            self._position = entry.position


def continue_failed(error: HoldfastError) -> McpToolError:
    """Why an answer was not taken, as algocline's clients know it."""
    if isinstance(error, FeedError | SessionNotFoundError | TransitionError):
        return McpToolError(f"Continue failed: {error}")
    return McpToolError(str(error))
