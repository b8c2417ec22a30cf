"""The result of a tool call, and the answer made of it for a model, or for a strategy that made the call. No I/O.

A model sees a result up to the tool's `OutputLimits`. Of a longer one it sees the beginning and the end, and the result
itself (up to `KEPT_BYTES`) is kept in the journal beside that: `full_result` finds it.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Any, TypeAlias, assert_never

import msgspec

from holdfast.agent.machine.conversation import FULL, TOOL_MARK, tool_answer
from holdfast.agent.machine.excerpt import OutputLimits, shortened
from holdfast.agent.machine.turn import FrameSwitchOutcome, ToolCallOutcome
from holdfast.agent.tools.context import TURNS_OWN, Finish, SwitchFrame, ToolError
from holdfast.agent.tools.errors import InvalidResultError
from holdfast.agent.tools.output import KEPT_BYTES
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.large import encode_in_pieces, in_pieces
from holdfast.core.queries import Failure
from holdfast.core.values import Json, check_value, own_copy, repaired

ERROR_CHARS = 2_000
"""Characters of an error that a model sees: enough for the message, not for a page that a server sent with it."""

_BINARY = (bytes, bytearray, memoryview)


class ToolValue(msgspec.Struct, frozen=True):
    """The tool returned any JSON value, or what the turn should do next."""

    value: Json | Finish | SwitchFrame
    full: Json = msgspec.UNSET
    """The whole result, if `value` is an excerpt made for the model, which then sees it as it is."""


class ToolFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The tool failed, or was not run."""

    message: str
    code: str = "failed"
    partial: str = ""
    """Its output until then."""
    full: str | msgspec.UnsetType = msgspec.UNSET
    """The whole output, if `partial` is an excerpt made for the model."""
    retryable: bool = False
    retry_after_s: float | None = None
    ran: bool = True
    """False if the tool was not called at all. That is the model's mistake, and never stops a turn."""


ToolResult: TypeAlias = ToolValue | ToolFailure


def result_of_return(value: Any, tool: str) -> ToolResult:
    """The result that a tool's return value means."""
    try:
        match value:
            case Failure(message=message, code=code):
                return ToolFailure(message=message, code="failed" if code in TURNS_OWN else code)
            case Finish(value=inner):
                return ToolValue(Finish(json_of(inner, tool)))
            case SwitchFrame():
                return ToolValue(msgspec.convert(json_of(value, tool), SwitchFrame))
            case _:
                return ToolValue(json_of(value, tool))
    except InvalidResultError as error:
        return ToolFailure(message=str(error), code=error.kind)
    except msgspec.ValidationError as error:
        return ToolFailure(
            message=f"'{tool}' has run, but the frame that it opens is invalid: {error}", code="invalid_result"
        )


def checked_result(made: object, tool: str) -> ToolResult:
    """A result that a plugin has made to replace another. Raises if it is invalid."""
    match made:
        case ToolValue(value=value, full=full):
            if isinstance(value, Finish | SwitchFrame):
                json_of(value, tool)
            else:
                check_value(value, "the replacement result")
            if full is not msgspec.UNSET:
                check_value(full, "the full replacement result")
        case ToolFailure():
            msgspec.convert(msgspec.to_builtins(made), ToolFailure)
        case _:
            raise ValueError(f"it returned {type(made).__name__}, which is not a result")
    return made


def failure_of_exception(error: BaseException, partial: str = "") -> ToolFailure:
    """The failure that an exception means: its type and message, never its traceback."""
    message = exception_text(error)[:ERROR_CHARS]
    if not isinstance(error, Exception):
        return ToolFailure(message=message, code="tool_panicked", partial=partial)
    code = str(getattr(error, "code", error.kind)) if isinstance(error, HoldfastError) else "failed"
    failed = ToolFailure(message=message, code=repaired(code), partial=partial)
    if not isinstance(error, ToolError):
        return failed
    return msgspec.structs.replace(failed, retryable=error.retryable, retry_after_s=error.retry_after_s)


def exception_text(error: BaseException) -> str:
    """An exception as one line of text."""
    if isinstance(error, BaseExceptionGroup):
        return f"{len(error.exceptions)} errors: " + "; ".join(exception_text(each) for each in error.exceptions)
    try:
        text = repaired(str(error))
    except Exception:
        text = "its message cannot be read"
    if isinstance(error, HoldfastError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- JSON ----------------------------------------------------------------------------------------------


def json_of(value: Any, tool: str) -> Json:
    """A value as JSON. Raises `InvalidResultError` if it has no JSON form."""
    try:
        plain = in_pieces(value, _plain)
        check_value(plain, "result")
    except InvalidValueError as error:
        place = f" (at {error.path})" if error.path else ""
        hint = "; a tool returns text or JSON: save binary data, and return its location" if "byte" in error.why else ""
        raise InvalidResultError(tool, error.why + place + hint) from None
    except Exception as error:  # properties of objects may raise anything
        raise InvalidResultError(
            tool, exception_text(error) if not isinstance(error, TypeError) else str(error)
        ) from None
    return own_copy(plain)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=_BINARY, str_keys=True, enc_hook=_to_json)


def _to_json(value: Any) -> Any:
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


# --- answers -------------------------------------------------------------------------------------------


def result_for_model(result: ToolResult, limit: OutputLimits, *, stops: bool) -> tuple[ToolCallOutcome, Json]:
    """The result as the model sees it, and the full result if that was shortened (else UNSET)."""
    match result:
        case ToolFailure():
            content: Json = {"error": result.message, "code": result.code}
            if result.partial:
                is_shown = result.full is not msgspec.UNSET
                content["partial"] = result.partial if is_shown else shortened(result.partial, limit)
            done = ToolCallOutcome(content=content, is_error=True, executed=result.ran, stops=stops and result.ran)
            return done, result.full
        case ToolValue(value=Finish(value=value)):
            content, full = _limited(value, limit)
            return ToolCallOutcome(content=content, finish=value), full
        case ToolValue(value=SwitchFrame(frame=frame, task=task)):
            return ToolCallOutcome(content={"frame": frame}, frame=FrameSwitchOutcome(frame, task)), msgspec.UNSET
        case ToolValue(value=value, full=full):
            content, full = _limited(value, limit) if full is msgspec.UNSET else (value, full)
            return ToolCallOutcome(content=content), full
        case _:
            assert_never(result)


def answer_to_model(result: ToolResult, done: ToolCallOutcome, full: Json) -> Json | Failure:
    """The answer to the query of a model's call, in its plainest form."""
    if isinstance(result, ToolFailure) and not done.stops and not result.partial:
        return Failure(result.message, result.code)
    if full is not msgspec.UNSET:
        return {TOOL_MARK: {**tool_answer(done)[TOOL_MARK], FULL: full}}
    looks_marked = isinstance(done.content, dict) and set(done.content) == {TOOL_MARK}
    return done.content if done == ToolCallOutcome(content=done.content) and not looks_marked else tool_answer(done)


def answer_to_strategy(result: ToolResult, tool: str) -> Json | Failure:
    """The answer to the query of a strategy, which gets values and failures unshortened."""
    match result:
        case ToolFailure(message=message, code=code):
            return Failure(message, code)
        case ToolValue(value=Finish(value=value)):
            return value
        case ToolValue(value=SwitchFrame()):
            return Failure(f"'{tool}' switches frames, which only agents have", "invalid_result")
        case ToolValue(value=value):
            return value
        case _:
            assert_never(result)


def full_result(answer: Json) -> Json:
    """The whole result of a tool, from the value of its answer; None if the model saw all of it."""
    marked = answer.get(TOOL_MARK) if isinstance(answer, dict) else None
    return marked.get(FULL) if isinstance(marked, dict) else None


def _limited(value: Json, limit: OutputLimits) -> tuple[Json, Json]:
    """A value as it is shown, and the full value if that was shortened (else UNSET)."""
    text = value if isinstance(value, str) else encode_in_pieces(value).decode()
    shown = shortened(text, limit)
    if shown is text:
        return value, msgspec.UNSET
    kept = shortened(text, OutputLimits(max_bytes=KEPT_BYTES, max_lines=sys.maxsize))
    return shown, value if kept is text else kept
