"""The host functions of sandboxed Python: exactly what a strategy may call. Each gives a value at once, or queries to
wait for.

The names, parameters and meanings are those of the table in `holdfast.programs.api`; a test compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, tzinfo
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from holdfast.core.budget import RemainingBudget
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import DEFAULT_MAX_TOKENS
from holdfast.core.queries import (
    OWN_TOOLS,
    Answer,
    ChildQuery,
    Failure,
    HumanQuery,
    LlmQuery,
    Query,
    TimerQuery,
    ToolQuery,
    Value,
    check_query,
)
from holdfast.core.records import LoggedRecord, ProgressedRecord, StatRecord
from holdfast.core.values import Json, checked, encode, repaired
from holdfast.programs import model_text, parameters
from holdfast.programs.contract import Note
from holdfast.programs.own_tools import CARD_TOOL, STATE_TOOL
from holdfast.programs.sandbox.limits import MAX_ASKED_BYTES, MAX_FIGURE_BYTES, MAX_NOTED_CHARS, MAX_NOTES
from holdfast.programs.sandbox.paused_state import WaitingCall
from holdfast.programs.sandbox.values import Payload, failure_of, kept, measured, raised, returned


class StepContext(NamedTuple):
    """What a program may know in one step; the same in every replay of it."""

    at: int
    """Unix milliseconds when it was resumed."""
    seed: int
    llm_calls: int
    left: RemainingBudget | None
    namespace: str


class CallValue(NamedTuple):
    """A call that has its value at once."""

    value: object


class CallPause(NamedTuple):
    """A call that waits for the answers to these queries."""

    queries: Sequence[Query]
    detail: Json = None


CallOutcome: TypeAlias = CallValue | CallPause


class HostCalls:
    """The host functions, as one program calls them during one step."""

    def __init__(self, context: StepContext, figures: dict[str, Json], suspensions: int) -> None:
        self.context = context
        self.figures = figures
        self.suspensions = suspensions
        """Calls so far in the program's whole life, this one included."""
        self.notes: list[Note] = []
        self._noted_chars = 0
        self._has_warned = False
        self._asked_bytes = 0
        self._figure_bytes = measured(figures, "stats")

    def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallOutcome:
        """Make a call. Raises `TypeError`, `ValueError` or `InvalidValueError` if its arguments are wrong."""
        asked_bytes = self._asked_bytes
        if measured((args, kwargs), _shown(name), is_text=name == "log") > MAX_ASKED_BYTES:
            raise ValueError(f"{_shown(name)}: the arguments have more than {MAX_ASKED_BYTES} bytes")
        try:
            outcome = FUNCTIONS[name](self, *args, **kwargs)
            if isinstance(outcome, CallPause):
                for query in outcome.queries:
                    check_query(query)
            return outcome
        except (ValueError, InvalidValueError):
            self._asked_bytes = asked_bytes
            raise
        except TypeError:
            self._asked_bytes = asked_bytes
            try:  # Python's own message would name our methods
                _SIGNATURES[name].bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{_shown(name)}: {error}") from None
            raise

    def _book(self, what: str, *asked: object) -> None:
        """Count the bytes of a question. One text may occur in thousands of questions, and is stored in each."""
        self._asked_bytes += measured(asked, what)
        if self._asked_bytes > MAX_ASKED_BYTES:
            raise ValueError(f"{what}: the questions of one pause have more than {MAX_ASKED_BYTES} bytes")

    # --- questions ---------------------------------------------------------------------------------

    def llm(
        self,
        prompt: str,
        *,
        system: str | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        grounded: bool = False,
        underspecified: bool = False,
        timeout_ms: int | None = None,
        **options: Json,
    ) -> CallPause:
        self._book("llm", prompt, system, options)
        query = LlmQuery(
            prompt=_text(prompt, "llm: prompt"),
            system=system,
            max_tokens=max_tokens,
            grounded=grounded,
            underspecified=underspecified,
            timeout_ms=timeout_ms,
            options=kept(options, "llm: options"),
        )
        return CallPause([_typed(query, "llm")])

    def llm_batch(self, items: Sequence[str | Mapping[str, Json]], **options: Json) -> CallOutcome:
        return self._several(items, options, "llm_batch")

    def llm_each(self, items: Sequence[str | Mapping[str, Json]], **options: Json) -> CallOutcome:
        return self._several(items, options, "llm_each")

    def _several(self, items: object, options: Mapping[str, Json], what: str) -> CallOutcome:
        if not isinstance(items, list | tuple):
            raise TypeError(f"{what}: items must be a list of prompts or dicts, got {type(items).__name__}")
        queries: list[Query] = []
        for number, item in enumerate(items, 1):
            arguments = {"prompt": item} if isinstance(item, str) else item
            if not isinstance(arguments, dict) or not isinstance(arguments.get("prompt"), str):
                raise TypeError(f"{what}: item {number} must be a prompt, or a dict with the key 'prompt'")
            queries += self.llm(**{**options, **arguments}).queries
        return CallPause(queries) if queries else CallValue([])

    def ground(self, claim: str, **options: Json) -> CallPause:
        return self.llm(claim, **{**options, "grounded": True})

    def specify(self, prompt: str, **options: Json) -> CallPause:
        return self.llm(prompt, **{**options, "underspecified": True})

    def ask(self, prompt: str, *, choices: Sequence[str] = (), timeout_ms: int | None = None) -> CallPause:
        self._book("ask", prompt, choices)
        query = HumanQuery(prompt=_text(prompt, "ask: prompt"), choices=list(choices), timeout_ms=timeout_ms)
        return CallPause([_typed(query, "ask")])

    def tool(self, name: str, /, **arguments: Json) -> CallPause:
        if _text(name, "tool: name").startswith(OWN_TOOLS):
            raise ValueError(f"tool: names that begin with '{OWN_TOOLS}' belong to Holdfast")
        self._book("tool", name, arguments)
        return CallPause([ToolQuery(name=name, arguments=kept(arguments, "tool: arguments"))])

    def sleep(self, seconds: float) -> CallPause:
        if type(seconds) not in (int, float) or not seconds >= 0:
            raise ValueError(f"sleep: seconds must be a number, 0 or more, got {str(seconds)[:40]}")
        return CallPause([TimerQuery(delay_ms=round(min(seconds, 1e12) * 1000))])

    def child(self, program: str, ctx: Json = None) -> CallPause:
        return CallPause([self._child(program, ctx, "child")])

    def fork(self, strategies: Sequence[str], ctx: Json, *, on_error: str = "skip") -> CallPause:
        if not isinstance(strategies, list | tuple) or not strategies:
            raise TypeError("fork: strategies must be a list of names, and not empty")
        if on_error not in ("skip", "abort"):
            raise ValueError(f"fork: on_error must be 'skip' or 'abort', got {on_error!r}")
        queries = [self._child(name, ctx, "fork") for name in strategies]
        return CallPause(queries, {"names": list(strategies), "on_error": on_error})

    def _child(self, program: object, ctx: Json, what: str) -> ChildQuery:
        name = _text(program, f"{what}: strategy")
        self._book(what, name, ctx)
        return ChildQuery(program=name, ctx=kept(ctx, f"{what}: ctx"), program_kind="any")

    # --- what the engine answers -------------------------------------------------------------------

    def state(self, op: str, *, namespace: str | None = None, **arguments: Json) -> CallPause:
        if "key" in arguments:
            _text(arguments["key"], "state: key")
        where = self.context.namespace if namespace is None else _text(namespace, "state: namespace")
        asked = kept(arguments, "state: value")
        return CallPause([ToolQuery(name=STATE_TOOL, arguments={"op": op, "namespace": where, **asked})])

    def card(self, op: str, **arguments: Json) -> CallPause:
        asked = {name: value for name, value in kept(arguments, f"card.{op}").items() if value is not None}
        return CallPause([ToolQuery(name=CARD_TOOL, arguments={"op": op, "now": self.context.at / 1000, **asked})])

    # --- what it may know --------------------------------------------------------------------------

    def now(self) -> CallValue:
        return CallValue(self.context.at / 1000)

    def uuid(self) -> CallValue:
        digest = blake2b(b"%d/%d" % (self.context.seed, self.suspensions), digest_size=16, person=b"holdfast-uuid")
        return CallValue(str(UUID(bytes=digest.digest(), version=4)))

    def budget_remaining(self) -> CallValue:
        left = self.context.left
        if left is None:
            return CallValue(None)
        return CallValue({"llm_calls": left.llm_calls, "elapsed_ms": left.elapsed_ms, "tokens": left.tokens})

    def budget_check(self) -> CallValue:
        left = self.context.left
        limits = [] if left is None else [limit for limit in msgspec.structs.astuple(left) if limit is not None]
        return CallValue(all(limit > 0 for limit in limits))

    # --- what it may say ---------------------------------------------------------------------------

    def log(self, message: object, level: str = "info") -> CallValue:
        self._note(LoggedRecord(message=repaired(str(message)), level=_text(level, "log: level")), "log line")
        return CallValue(None)

    def progress(self, step: int, total: int, message: str | None = None) -> CallValue:
        text = None if message is None else repaired(_text(message, "progress: message"))
        self._note(ProgressedRecord(step=step, total=total, message=text), "progress")
        return CallValue(None)

    def _note(self, record: LoggedRecord | ProgressedRecord, what: str) -> None:
        """Keep a record for the journal, unless the step has written too much already."""
        if self._has_room(measured((record.message, getattr(record, "level", "")), what)):
            self.notes.append(checked(record, what))
        elif not self._has_warned:
            self._has_warned = True
            warning = f"… and more; {MAX_NOTES} lines and {MAX_NOTED_CHARS} characters of one step are kept"
            self.notes.append(LoggedRecord(message=warning, level="warn", source="holdfast"))

    def _has_room(self, chars: int) -> bool:
        self._noted_chars += chars
        return len(self.notes) < MAX_NOTES and self._noted_chars <= MAX_NOTED_CHARS

    def stats(self, op: str, key: str = "", value: Json = None) -> CallValue:
        match op:
            case "record":
                figure = StatRecord(key=_text(key, "stats.record: key"), value=kept(value, "stats.record: value"))
                size = measured((figure.key, figure.value), "stats.record")
                before = measured((key, self.figures[key]), "stats.record") if key in self.figures else 0
                if self._figure_bytes + size - before > MAX_FIGURE_BYTES or not self._has_room(size):
                    limits = f"{MAX_FIGURE_BYTES} bytes in one session, {MAX_NOTES} records in one step"
                    raise ValueError(f"stats.record: too much is recorded; {limits} at most")
                self._figure_bytes += size - before
                self.figures[figure.key] = figure.value
                self.notes.append(figure)
                return CallValue(None)
            case "get":
                return CallValue(self.figures.get(_text(key, "stats.get: key")))
            case _:
                return CallValue(self.context.llm_calls)


def _reader(function: Callable[..., Any]) -> Callable[..., CallValue]:
    def read(host: HostCalls, *args: Any, **kwargs: Any) -> CallValue:
        return CallValue(function(*args, **kwargs))

    read.__signature__ = _with_host(function)  # type: ignore[attr-defined]
    return read


def _with_host(function: Callable[..., Any]) -> inspect.Signature:
    own = inspect.signature(function)
    host = inspect.Parameter("host", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        each.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        else each
        for each in own.parameters.values()
    ]
    return own.replace(parameters=[host, *parameters])


OF_MODELS = frozenset(["llm", "llm_batch", "llm_each", "ground", "specify"])
"""Functions whose answers are texts."""

TO_THE_LAST = frozenset(["llm_each", "fork"])
"""Functions that wait for every answer, even after a failure."""

AWAITABLE = "_async"
"""The end of the names of functions whose calls are awaited."""

_WAITING = ("llm", "ask", "tool", "sleep", "child")

READERS = (
    *("json_extract", "list_items", "match_enum", "match_bool", "parse_score", "vote", "chunk", "fingerprint"),
    "tuning",
)

PRIVATE = "_holdfast_"
"""The beginning of the names of functions that only our own prelude calls."""

FUNCTIONS: dict[str, Callable[..., CallOutcome]] = {
    **{name: getattr(HostCalls, name) for name in (*_WAITING, "llm_batch", "llm_each", "ground", "specify", "fork")},
    **{
        name: getattr(HostCalls, name)
        for name in ("now", "uuid", "budget_remaining", "budget_check", "log", "progress")
    },
    **{name: _reader(getattr(model_text, name)) for name in READERS},
    "parameters": _reader(parameters.filled),
    **{f"{name}{AWAITABLE}": getattr(HostCalls, name) for name in _WAITING},
    **{f"{PRIVATE}{name}": getattr(HostCalls, name) for name in ("state", "card", "stats")},
    **{f"{PRIVATE}{name}": _reader(getattr(model_text, name)) for name in ("as_text", "parse_number")},
}
"""Everything a program can call, by name."""

_SIGNATURES = {name: inspect.signature(function) for name, function in FUNCTIONS.items()}


# --- what answers become -------------------------------------------------------------------------------


def call_result(call: WaitingCall, host: HostCalls) -> Payload:
    """What a plain call returns or raises, once it need not wait any longer."""
    match call.function:
        case "llm_batch":
            return _batch(call)
        case "llm_each":
            return _each(call, host)
        case "fork":
            return _fork(call)
        case _:
            answer = call.arrived[call.queries[0]]
            return raised(*failure_of(answer)) if isinstance(answer, Failure) else returned(answer.value)


def as_text(answer: Answer) -> Answer:
    """An answer to a model query. Hosts may answer with any value; programs are promised text."""
    if isinstance(answer, Failure) or isinstance(answer.value, str):
        return answer
    return Value(value=encode(answer.value).decode())


def is_over(call: WaitingCall) -> bool:
    """Whether a plain call need not wait any longer."""
    if len(call.arrived) == len(call.queries):
        return True
    is_failed = any(isinstance(answer, Failure) for answer in call.arrived.values())
    return is_failed and call.function not in TO_THE_LAST


def _batch(call: WaitingCall) -> Payload:
    answers = list(call.arrived.values())
    if isinstance(first := answers[0], Failure) and answers.count(first) == len(call.queries):
        return raised(*failure_of(first))  # none of them was asked
    for number, asked in enumerate(call.queries, 1):
        if isinstance(answer := call.arrived.get(asked), Failure):
            kind, message = failure_of(answer)
            return raised(kind, f"llm_batch: item {number}: {message}")
    return returned([_answer_value(call.arrived[asked]) for asked in call.queries])


def _each(call: WaitingCall, host: HostCalls) -> Payload:
    answers = [call.arrived[asked] for asked in call.queries]
    failures = {number: failure_of(each) for number, each in enumerate(answers, 1) if isinstance(each, Failure)}
    if len(failures) == len(answers):
        return raised(*failures[1])
    for number, (_, message) in failures.items():
        host.log(f"llm_each: item {number} failed: {message}", "warn")
    return returned([None if isinstance(each, Failure) else each.value for each in answers])


def _fork(call: WaitingCall) -> Payload:
    entries: list[dict[str, Json]] = []
    for name, asked in zip(call.detail["names"], call.queries, strict=True):
        answer = call.arrived[asked]
        if isinstance(answer, Value):
            entries.append({"strategy": name, "ok": True, "result": answer.value})
            continue
        kind, message = failure_of(answer)
        if call.detail["on_error"] == "abort":
            return raised(kind, f"fork: {name}: {message}")
        entries.append({"strategy": name, "ok": False, "error": message})
    return returned(entries)


def _answer_value(answer: Answer) -> Json:
    assert isinstance(answer, Value)
    return answer.value


# --- functions of the standard library ----------------------------------------------------------------------

MODULE_CALLS = {"asyncio.sleep": f"sleep{AWAITABLE}", "time.sleep": "sleep"}
"""Functions of the standard library that wait, and the host function for each."""


def clock(name: str, args: Sequence[Any], at: int) -> datetime | date | float | None:
    """The recorded time, as a function of the standard library gives it; None for any other function."""
    match name:
        case "time.time":
            return at / 1000
        case "datetime.now":
            zone = args[0] if args and isinstance(args[0], tzinfo) else None
            now = datetime.fromtimestamp(at / 1000, UTC)
            return now.astimezone(zone) if zone is not None else now.replace(tzinfo=None)
        case "date.today":
            return datetime.fromtimestamp(at / 1000, UTC).date()
        case _:
            return None


# --- arguments ---------------------------------------------------------------------------------------------


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, got {type(value).__name__}")
    return value


def _typed(query: Query, what: str) -> Query:
    """The query, if its fields have the right types; a program may have passed anything."""
    try:
        return msgspec.convert(msgspec.to_builtins(query), type(query))
    except msgspec.ValidationError as error:
        raise TypeError(f"{what}: {error}") from None
    except (TypeError, ValueError) as error:
        raise InvalidValueError(what, str(error)) from None


def _shown(name: str) -> str:
    """The name that authors know a function by."""
    return name.removeprefix(PRIVATE).removesuffix(AWAITABLE) if name.startswith(PRIVATE) else name
