"""Drivers: what answers queries by itself, and what is done about an effect whose outcome a crash has hidden."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from types import CoroutineType
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.decide import GivenAnswer
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import OWN_TOOLS, Failure, LlmQuery, Query, ToolQuery, Usage, Value, check_answer
from holdfast.core.values import Json, repaired
from holdfast.engine.containment import ExitError, passes_through
from holdfast.engine.errors import DriverError
from holdfast.engine.slots import SharedSlots, Slots
from holdfast.store.errors import StoreUnavailableError

Recovery: TypeAlias = Literal["never", "safe", "idempotent", "confirm", "ask"]
"""What to do about a query whose effect was begun by a process that died before it wrote down the outcome:

- `never`: do not run it again; the program gets a failure with the code `unknown_outcome`;
- `safe`: run it again, nothing is lost by that;
- `idempotent`: run it again with the same key, by which the other side recognises it;
- `confirm`: ask the driver's probe what became of it;
- `ask`: leave it to whoever answers from outside.
"""

DEFAULT_CONCURRENCY = 16
"""Effects of one driver under way at once: what most services allow, and few enough to be cancelled together."""


MAX_DEATHS = 3
"""Processes in a row that may die while they attempt one query. After that its effect is what kills them: it fails."""

DIED = "the process that ran it died, or lost the store for longer than its lease, before it wrote down the outcome"
CUT_OFF = "it was told to stop, because the store was away for longer than the lease of its session"
SHUT_DOWN = "it was interrupted by a shutdown of its process before it had ended"
UNHEARD = "the store did not say whether the attempt was recorded"


class AttemptEnd:
    """Whether the end of an attempt is waited for no more. Set by the event loop, and read by threads."""

    has_come = False


class Attempt(msgspec.Struct, frozen=True):
    """One execution of a query's effect."""

    session_id: str
    query_id: str
    number: int
    """1 for the first, 2 for the first after a crash, …"""
    end: AttemptEnd = msgspec.field(default_factory=AttemptEnd)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attempt) and (self.key, self.number) == (other.key, other.number)

    def __hash__(self) -> int:
        return hash((self.key, self.number))

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for the outcome any more: it was cancelled, or the session cannot be held any longer.

        A function in a thread cannot be stopped from outside. It can check this, and return.
        """
        return self.end.has_come

    @property
    def key(self) -> str:
        """The same for every attempt at this query, and for no other: an idempotency key."""
        return f"{self.session_id}/{self.query_id}"


class Reply(msgspec.Struct, frozen=True):
    """What a driver may return instead of a bare value: a value with its usage."""

    value: Json
    usage: Usage | None = None


class NotDone(msgspec.Struct, frozen=True):
    """What a probe returns when it knows that the effect did not happen: it is then run again."""


Effect: TypeAlias = Callable[..., Any]
"""`fn(query)` or `fn(query, attempt)`, sync or async. For tools: called with the tool's arguments by name, and with
`attempt=` if it takes that."""

Probe: TypeAlias = Callable[[Attempt], Any]


class Driver:
    """One registered driver."""

    is_harmless = False
    """Whether it runs nobody's code but Holdfast's own. Processes that die meanwhile do not die of it, so it is run
    again however many they are: a wake that is given up would never come."""

    def __init__(self, name: str, effect: Effect, *, recovery: Recovery, probe: Probe | None, concurrency: int) -> None:
        if (recovery == "confirm") != (probe is not None):
            raise DriverError(f"driver '{name}': a probe and the policy 'confirm' go together")
        if concurrency < 1:
            raise DriverError(f"driver '{name}': concurrency must be at least 1, got {concurrency}")
        self.name = name
        self.recovery: Recovery = recovery
        self._effect = effect
        self._probe = probe
        self.slots: Slots | SharedSlots = Slots(concurrency)
        self._is_async = inspect.iscoroutinefunction(effect) or inspect.iscoroutinefunction(
            getattr(effect, "__call__", None)  # noqa: B004 - an object whose call is async
        )

    @cached_property
    def _wants_attempt(self) -> bool:
        return _takes_attempt(self._effect, self.name)  # when it is first run: of many tools, few are called

    @property
    def may_repeat(self) -> bool:
        """Whether an effect whose outcome is unknown is simply run again."""
        return self.recovery in ("safe", "idempotent")

    async def run(self, query: Query, attempt: Attempt) -> GivenAnswer:
        """Execute the effect and give back its answer, which may not be fit to keep; whatever it raises is one, too.

        `StoreUnavailableError` is raised where the effect may be repeated: it is to be run again.
        """
        try:
            return _answer(await self.execute(query, attempt), query.id)
        except BaseException as error:
            if passes_through(error):
                raise
            if isinstance(error, StoreUnavailableError) and self.may_repeat:
                raise  # what it has to read cannot be reached: that says nothing about the effect
            return failure_of(error, query.id)

    async def execute(self, query: Query, attempt: Attempt) -> Any:
        """The result of the effect: a value, a `Reply` or a `Failure`. An exception is a failure, too."""
        if isinstance(query, ToolQuery):
            extra = {"attempt": attempt} if self._wants_attempt else {}
            call = partial(self._effect, **query.arguments, **extra)
        else:
            call = partial(self._effect, *((query, attempt) if self._wants_attempt else (query,)))
        if self._is_async:
            outcome = call()
        else:
            try:
                outcome = await asyncio.to_thread(_contained, call)
            except asyncio.CancelledError:
                attempt.end.has_come = True
                raise
        return await outcome if type(outcome) is CoroutineType or isinstance(outcome, Awaitable) else outcome

    async def recover(self, query: Query, attempt: Attempt, why: str) -> GivenAnswer | None:
        """The answer to a query whose last attempt has no outcome, and why not; None to run the effect again."""
        match self.recovery:
            case "safe" | "idempotent":
                return None
            case "confirm" if self._probe is not None:
                try:
                    found = self._probe(attempt)
                    found = await found if isinstance(found, Awaitable) else found
                    if isinstance(found, NotDone):
                        return None
                    given = _answer(found, query.id)
                    check_answer(given.answer, given.usage)
                    return given
                except Exception as error:
                    return _unknown(self.name, query.id, f"its probe failed: {error}")
            case _:
                return _unknown(self.name, query.id, why)


def _contained(call: Callable[[], Any]) -> Any:
    """Call a function in a thread. It cannot exit the process from there, so its attempt is an error like any other."""
    try:
        return call()
    except (SystemExit, KeyboardInterrupt) as stop:
        raise RuntimeError(f"it tried to exit the process ({type(stop).__name__}: {stop})") from stop


def _unknown(driver: str, asked: str, why: str) -> GivenAnswer:
    return GivenAnswer(Failure(f"'{driver}' may or may not have run: {why}", "unknown_outcome"), asked)


def given_up(driver: str, asked: str, deaths: int) -> GivenAnswer:
    """The answer to a query at which several processes have died, one after the other."""
    why = f"'{driver}' was begun {deaths} times, and each time its process died before it ended; it is not run again"
    return GivenAnswer(Failure(why, "process_died"), asked)


def failure_of(error: BaseException, asked: str | None) -> GivenAnswer:
    """The answer to a query whose effect failed with an exception."""
    error = ExitError(error) if isinstance(error, (SystemExit, KeyboardInterrupt)) else error
    code = getattr(error, "code", "failed")
    text = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    return GivenAnswer(Failure(repaired(text), repaired(str(code))), asked)


def _answer(outcome: Any, asked: str) -> GivenAnswer:
    match outcome:
        case Reply(value=value, usage=usage):
            return GivenAnswer(Value(value=value), asked, usage)
        case Failure():
            return GivenAnswer(outcome, asked)
        case value:
            return GivenAnswer(Value(value=value), asked)


def _takes_attempt(effect: Effect, name: str) -> bool:
    try:
        parameters = inspect.signature(effect).parameters
    except (TypeError, ValueError):
        return False
    if name in ("llm", "human"):
        positional = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(positional) > 1
    return "attempt" in parameters


Finder: TypeAlias = Callable[[str, ToolQuery], "Driver | None"]
"""Finds the driver of a session's call of a tool that has none by its name alone."""


class Drivers:
    """The drivers of one process: one for all `llm` queries, one for `human` ones, and one for each tool by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Driver] = {}
        self._finder: Finder | None = None
        self.may_have_effects = False
        """Whether there are any but the runtime's own, which can be run again without harm."""

    def add(self, driver: Driver) -> None:
        self._by_name[driver.name] = driver
        if not driver.name.startswith(f"tool:{OWN_TOOLS}"):
            self.may_have_effects = True

    def find_tools_with(self, finder: Finder) -> None:
        """Ask this for the drivers of tools that were not added by name."""
        self._finder = finder
        self.may_have_effects = True

    def find(self, session_id: str, query: Query) -> Driver | None:
        """The driver that answers a query of a session here, if one does."""
        match query:
            case LlmQuery():
                return self._by_name.get("llm")
            case ToolQuery(name=name):
                driver = self._by_name.get(f"tool:{name}")
                return driver if driver is not None or self._finder is None else self._finder(session_id, query)
            case _:
                return self._by_name.get("human") if query.__struct_config__.tag == "human" else None

    @property
    def tool_names(self) -> list[str]:
        """The tools that are answered here, of those that are known by name."""
        return [name.removeprefix("tool:") for name in self._by_name if name.startswith("tool:")]

    @property
    def kinds(self) -> set[str]:
        """The kinds of query of which some are answered here."""
        named = {"tool" if name.startswith("tool:") else name for name in self._by_name}
        return named | {"tool"} if self._finder is not None else named
