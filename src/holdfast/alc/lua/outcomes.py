"""What a step in a VM came to, as its driver tells it: read into the steps that the engine knows."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, TimerQuery, ToolQuery
from holdfast.core.records import LoggedRecord, ProgressedRecord, StatRecord
from holdfast.programs.contract import AskStep, Note, RaiseStep, ReturnStep, Step

_decoder = msgspec.msgpack.Decoder(tuple[str, list[tuple[Any, ...]], Any, Any])
_encoder = msgspec.msgpack.Encoder()


def step_of(told: bytes) -> Step:
    """The step that a worker told."""
    try:
        how, noted, what, more = _decoder.decode(told)
        notes = [_note(*each) for each in noted]
        match how:
            case "asked":
                return AskStep(queries=[_query(*each) for each in what], notes=notes, where=more)
            case "returned":
                return ReturnStep(result=msgspec.json.decode(what), notes=notes)
            case _:
                return RaiseStep(error=what, kind=more, notes=notes)
    except (msgspec.MsgspecError, ValueError) as error:
        return RaiseStep(error=f"what the strategy did cannot be kept: {error}", kind="invalid_value")


def raised(error: str, kind: str) -> bytes:
    """A step that went wrong, in the form that a driver gives it."""
    return _encoder.encode(("raised", [], error, kind))


def _query(  # noqa: PLR0917 - the fields of the message, in its order
    kind: str,
    id: str,
    prompt: str,
    system: str | None,
    number: Any,
    grounded: bool,
    underspecified: bool,
    extra: str | None,
) -> Query:
    value = msgspec.json.decode(extra) if extra else None
    match kind:
        case "llm":
            return LlmQuery(
                id=id,
                prompt=prompt,
                system=system,
                max_tokens=number,
                grounded=grounded,
                underspecified=underspecified,
                options=value or {},
            )
        case "tool":
            return ToolQuery(id=id, name=prompt, arguments=value or {})
        case "human":
            return HumanQuery(id=id, prompt=prompt, choices=value or [], timeout_ms=number)
        case "timer":
            return TimerQuery(id=id, delay_ms=number)
        case _:
            return ChildQuery(id=id, program=prompt, ctx=value, program_kind="any")


def _note(kind: str, text: Any, first: Any, second: Any) -> Note:
    match kind:
        case "logged":
            return LoggedRecord(message=text, level=first, source=second)
        case "progressed":
            return ProgressedRecord(message=text, step=first, total=second)
        case _:
            return StatRecord(key=text, value=msgspec.json.decode(first))
