"""What an author reads when a strategy fails: the error, where it is in the strategy, and what to do about it."""

from __future__ import annotations

import re
import unicodedata

from pydantic_monty import Frame as TraceFrame
from pydantic_monty import MontyRuntimeError, MontySyntaxError

from holdfast.programs.contract import Note, RaiseStep
from holdfast.programs.sandbox.cell import CellSource
from holdfast.programs.sandbox.limits import MAX_LINE_CHARS, MAX_MESSAGE_CHARS, MAX_TRACED

_HINTS = (
    (
        re.compile(r"^external function '(\w+)' cannot suspend in this synchronous context"),
        (
            r"\1(…) cannot be called here: a key function, map(), filter(), an operator method or __str__ cannot wait."
            " Ask first, in a loop or a comprehension, and use the answers"
        ),
    ),
    (re.compile(r"^The monty syntax parser does not yet support (.*)"), r"sandboxed Python has no \1"),
    (
        re.compile(r"^'(str|list|dict|NoneType|int|float|bool)' object can't be awaited"),
        (
            r"\g<0>: a plain call such as"
            " llm(…) gives its answer by itself. Drop the `await`, or call llm_async(…)"
        ),
    ),
    (
        re.compile(r"^An asyncio.Future, a coroutine or an awaitable is required"),
        r"\g<0>: give gather calls that can be awaited, as llm_async(…)",
    ),
    (
        re.compile(r"^Internal error in monty: exceptions can only be called with zero or one string argument"),
        "an exception of sandboxed Python takes one argument, a text, or none",
    ),
    (re.compile(r"^No module named '(\w+)'"), r"\g<0>: a strategy has the modules that docs/reference/python.md lists"),
)

_MEMORY = re.compile(
    r"memory limit exceeded: \d+ bytes > \d+ bytes|the worker exceeded its memory limit and was terminated"
)


def breach_of(error: MontyRuntimeError, cells: CellSource) -> str | None:
    """The limit that was broken: `deadline` or `memory`; None if the program failed by itself, or says so.

    A program can raise the same errors with the same words. But then there is something of it in the traceback, as
    there is not when its time is over; and it cannot make a `MemoryError` without its name, for a real one cannot be
    caught.
    """
    inner = error.exception()
    is_own = bool(error.traceback())
    if isinstance(inner, TimeoutError) and not is_own and "time limit exceeded" in str(inner):
        return "deadline"
    if isinstance(inner, MemoryError) and _MEMORY.fullmatch(str(inner)) and not (is_own and _can_raise(cells.main)):
        return "memory"
    return None


def _can_raise(code: str) -> bool:
    """Whether a source has the means to raise a `MemoryError` of its own, in whatever letters it names them."""
    return re.search(r"\b(MemoryError|eval|exec)\b", unicodedata.normalize("NFKC", code)) is not None


def failed(error: MontyRuntimeError | MontySyntaxError, cells: CellSource, file: str, notes: list[Note]) -> RaiseStep:
    """How a strategy that raised is over."""
    kind = type(error.exception()).__name__
    frames = [frame for frame in error.traceback() if _is_own(frame, cells)]
    message = _cut(explained(error.display("msg")), MAX_MESSAGE_CHARS)
    place = f" ({file}:{frames[-1].line}:{frames[-1].column})" if frames else ""
    trace = _trace(frames, file) if len(frames) > 1 else []
    lines = [f"{kind}: {message}{place}", *(["Traceback (most recent call last):", *trace] if trace else [])]
    return RaiseStep(error="\n".join(lines), kind=kind, notes=notes)


def explained(message: str) -> str:
    """A message of the interpreter in words that an author can act on."""
    for pattern, words in _HINTS:
        if pattern.match(message):
            return pattern.sub(words, message)
    return message


def _is_own(frame: TraceFrame, cells: CellSource) -> bool:
    """Whether a frame is in the author's text, and not in our prelude or the call that we added."""
    main = "<python-input-1>" if cells.prelude else "<python-input-0>"
    return (frame.filename != main and not frame.filename.startswith("<python-input")) or (
        frame.filename == main and frame.line <= cells.lines
    )


def _trace(frames: list[TraceFrame], file: str) -> list[str]:
    """The lines of a traceback; of a long one, its two ends."""
    left_out = len(frames) - 2 * MAX_TRACED
    if left_out <= 0:
        return [line for frame in frames for line in _shown(frame, file)]
    between = [f"  … {left_out} more calls"]
    return [*_trace(frames[:MAX_TRACED], file), *between, *_trace(frames[-MAX_TRACED:], file)]


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"


def _shown(frame: TraceFrame, file: str) -> list[str]:
    name = file if frame.filename.startswith("<python-input") else frame.filename
    lines = [f'  File "{name}", line {frame.line}, in {frame.function_name or "<module>"}']
    return [*lines, f"    {_cut(frame.source_line.strip(), MAX_LINE_CHARS)}"] if frame.source_line else lines
