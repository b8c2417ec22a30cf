"""The outcome of a step in a VM: what its driver gives, as a message to the engine, which reads it as a step.

Messages are msgpack arrays that begin with their kind, one class a kind. Nested values are JSON text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_never, final

import msgspec

from holdfast.core.ids import query_id
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery
from holdfast.core.records import LoggedRecord, ProgressedRecord, StatRecord
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step

# --- queries -------------------------------------------------------------------------------------------


@final
class _LlmMessage(msgspec.Struct, array_like=True, frozen=True, tag="llm"):
    id: str
    prompt: str
    system: str | None
    max_tokens: int
    grounded: bool
    underspecified: bool
    options: str | None


class _ToolMessage(msgspec.Struct, array_like=True, frozen=True, tag="tool"):
    id: str
    name: str
    arguments: str | None


class _HumanMessage(msgspec.Struct, array_like=True, frozen=True, tag="human"):
    id: str
    prompt: str
    choices: str | None
    timeout_ms: int | None


class _TimerMessage(msgspec.Struct, array_like=True, frozen=True, tag="timer"):
    id: str
    delay_ms: int


class _ChildMessage(msgspec.Struct, array_like=True, frozen=True, tag="child"):
    id: str
    program: str
    ctx: str | None


_QueryMessage: TypeAlias = _LlmMessage | _ToolMessage | _HumanMessage | _TimerMessage | _ChildMessage


# --- steps ---------------------------------------------------------------------------------------------


class _AskedMessage(msgspec.Struct, array_like=True, frozen=True, tag="asked"):
    queries: list[_QueryMessage]
    where: str
    repaired: list[str]
    """What was not valid UTF-8: `a prompt`."""
    notes: str | None
    """A list of records, as JSON."""


class _ReturnedMessage(msgspec.Struct, array_like=True, frozen=True, tag="returned"):
    result: str
    notes: str | None


class _RaisedMessage(msgspec.Struct, array_like=True, frozen=True, tag="raised"):
    error: str
    kind: str
    notes: str | None


_decoder = msgspec.msgpack.Decoder(_AskedMessage | _ReturnedMessage | _RaisedMessage)
_notes_decoder = msgspec.json.Decoder(list[LoggedRecord | ProgressedRecord | StatRecord])
_encoder = msgspec.msgpack.Encoder()


# --- in the engine -------------------------------------------------------------------------------------


def step_of(message: bytes) -> Step:
    """The step that a message describes."""
    try:
        step = _decoder.decode(message)
        notes: list[Note] = list(_notes_decoder.decode(step.notes)) if step.notes else []
        if type(step) is _AskedMessage:  # as nearly always; the others are found by more expensive tests
            if step.repaired:
                notes += [_warning(what) for what in step.repaired]
            return AskStep(queries=[_query(each) for each in step.queries], notes=notes, where=step.where)
        match step:
            case _ReturnedMessage(result=result):
                return ReturnStep(result=msgspec.json.decode(result), notes=notes)
            case _RaisedMessage(error=error, kind=kind):
                return RaiseStep(error=error, kind=kind, notes=notes)
            case _:
                assert_never(step)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        return RaiseStep(error=f"the strategy's step cannot be stored: {problem}", kind="invalid_value")


def _query(message: _QueryMessage) -> Query:
    if type(message) is _LlmMessage:  # as nearly always
        return LlmQuery(
            id=message.id,
            prompt=message.prompt,
            system=message.system,
            max_tokens=message.max_tokens,
            grounded=message.grounded,
            underspecified=message.underspecified,
            options=_json(message.options) or {},
        )
    match message:
        case _ToolMessage():
            return ToolQuery(id=message.id, name=message.name, arguments=_json(message.arguments) or {})
        case _HumanMessage():
            choices = _json(message.choices) or []
            return HumanQuery(id=message.id, prompt=message.prompt, choices=choices, timeout_ms=message.timeout_ms)
        case _TimerMessage():
            return TimerQuery(id=message.id, delay_ms=message.delay_ms)
        case _ChildMessage():
            return ChildQuery(id=message.id, program=message.program, ctx=_json(message.ctx), program_kind="any")
        case _:
            assert_never(message)


def _warning(what: str) -> Note:
    message = f"{what} was not valid UTF-8 and was repaired"
    return LoggedRecord(message=message, level="warn", source="holdfast")


def _json(text: str | None) -> Any:
    return msgspec.json.decode(text) if text else None


# --- in a worker ---------------------------------------------------------------------------------------

Values: TypeAlias = tuple[Any, ...]
"""What Lua hands over; its texts are bytes."""

_WIDTH = 7
"""Values of each query, as `runtime/query_fields.lua` gives them: its kind, and its fields."""


def message_of(outcome: Values, first_id: int) -> bytes:
    """The message of a step, from what its driver gives: how it ended, its notes as JSON, and what belongs to that."""
    how, notes = outcome[0], _optional(outcome[1])
    if how == b"asked":
        queries: list[_QueryMessage] = []
        repaired: list[str] = []
        for at in range(3, len(outcome), _WIDTH):
            asked = query_id(first_id + len(queries))
            queries.append(_QUERIES[outcome[at]](asked, outcome[at + 1 : at + _WIDTH], repaired))
        return _encoder.encode(_AskedMessage(queries, _readable(outcome[2]), repaired, notes))
    if how == b"returned":
        return _encoder.encode(_ReturnedMessage(outcome[2].decode(), notes))
    error, kind = outcome[2:]
    return _encoder.encode(_RaisedMessage(_readable(error), kind.decode(), notes))


def deadline_text(deadline_s: float) -> str:
    """Why a step was stopped that computed for too long, and what helps."""
    return (
        f"the strategy ran for more than {deadline_s:g} s without asking anything: the deadline of one step"
        " (`holdfast fork SESSION --deadline SECONDS` continues it with a longer one)"
    )


def memory_text(memory_mib: int) -> str:
    """Why a step was stopped that needed too much memory, and what helps."""
    return (
        f"the strategy needs more than {memory_mib} MiB of memory"
        " (`holdfast fork SESSION --memory MIB` continues it with more)"
    )


def raised(error: str, kind: str) -> bytes:
    """The message of a step that failed."""
    return _encoder.encode(_RaisedMessage(error, kind, None))


def _llm(asked: str, values: Values, repaired: list[str]) -> _QueryMessage:
    prompt, system, max_tokens, grounded, underspecified, options = values
    return _LlmMessage(
        asked,
        _text(prompt, "a prompt", repaired),
        _text(system, "a system prompt", repaired) if system is not None else None,
        max_tokens,
        grounded is True,
        underspecified is True,
        _optional(options),
    )


def _tool(asked: str, values: Values, repaired: list[str]) -> _QueryMessage:
    return _ToolMessage(asked, _text(values[0], "a tool's name", repaired), _optional(values[1]))


def _human(asked: str, values: Values, repaired: list[str]) -> _QueryMessage:
    return _HumanMessage(asked, _text(values[0], "a prompt", repaired), _optional(values[1]), values[2])


def _timer(asked: str, values: Values, _: list[str]) -> _QueryMessage:
    return _TimerMessage(asked, values[0])


def _child(asked: str, values: Values, repaired: list[str]) -> _QueryMessage:
    return _ChildMessage(asked, _text(values[0], "a program's name", repaired), _optional(values[1]))


_QUERIES: dict[bytes, Callable[[str, Values, list[str]], _QueryMessage]] = {
    b"llm": _llm,
    b"tool": _tool,
    b"human": _human,
    b"timer": _timer,
    b"child": _child,
}


def _text(value: bytes, what: str, repaired: list[str]) -> str:
    """A text of the program's, and a note of what it is if it has to be repaired."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        if what not in repaired:
            repaired.append(what)
        return _readable(value)


def _readable(value: bytes) -> str:
    return value.decode(errors="replace")


def _optional(json: bytes | None) -> str | None:
    return json.decode() if json is not None else None
