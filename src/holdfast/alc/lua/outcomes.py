"""The outcome of a step in a VM: a message from its driver, one class a kind, turned into the steps the engine knows.

Messages are msgpack arrays that begin with their kind; `runtime/messages.lua` writes them. Nested values are JSON text.
"""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

import msgspec

from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery
from holdfast.core.records import LoggedRecord, ProgressedRecord, StatRecord
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step

# --- queries -------------------------------------------------------------------------------------------


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


# --- notes ---------------------------------------------------------------------------------------------


class _LoggedMessage(msgspec.Struct, array_like=True, frozen=True, tag="logged"):
    message: str
    level: str
    source: str


class _ProgressedMessage(msgspec.Struct, array_like=True, frozen=True, tag="progressed"):
    step: int
    total: int
    message: str | None


class _StatMessage(msgspec.Struct, array_like=True, frozen=True, tag="stat"):
    key: str
    value: str


_NoteMessage: TypeAlias = _LoggedMessage | _ProgressedMessage | _StatMessage


# --- steps ---------------------------------------------------------------------------------------------


class _AskedMessage(msgspec.Struct, array_like=True, frozen=True, tag="asked"):
    queries: list[_QueryMessage]
    where: str
    notes: list[_NoteMessage]


class _ReturnedMessage(msgspec.Struct, array_like=True, frozen=True, tag="returned"):
    result: str
    notes: list[_NoteMessage]


class _RaisedMessage(msgspec.Struct, array_like=True, frozen=True, tag="raised"):
    error: str
    kind: str
    notes: list[_NoteMessage]


_decoder = msgspec.msgpack.Decoder(_AskedMessage | _ReturnedMessage | _RaisedMessage)
_encoder = msgspec.msgpack.Encoder()


def step_of(message: bytes) -> Step:
    """The step that a driver's message describes."""
    try:
        step = _decoder.decode(message)
        notes = [_note(each) for each in step.notes] if step.notes else []
        if type(step) is _AskedMessage:  # as nearly always; the others are found by more expensive tests
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


def raised(error: str, kind: str) -> bytes:
    """The message of a step that failed, as a driver writes it."""
    return _encoder.encode(_RaisedMessage(error, kind, []))


def _query(message: _QueryMessage) -> Query:
    match message:
        case _LlmMessage():
            return LlmQuery(
                id=message.id,
                prompt=message.prompt,
                system=message.system,
                max_tokens=message.max_tokens,
                grounded=message.grounded,
                underspecified=message.underspecified,
                options=_json(message.options) or {},
            )
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


def _note(message: _NoteMessage) -> Note:
    match message:
        case _LoggedMessage():
            return LoggedRecord(message=message.message, level=message.level, source=message.source)
        case _ProgressedMessage():
            return ProgressedRecord(message=message.message, step=message.step, total=message.total)
        case _StatMessage():
            return StatRecord(key=message.key, value=msgspec.json.decode(message.value))
        case _:
            assert_never(message)


def _json(text: str | None) -> Any:
    return msgspec.json.decode(text) if text else None
