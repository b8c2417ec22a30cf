"""What a program asks and what it gets: the queries that every program may ask, answers, and their usage.

Times inside a query are relative (`timeout_ms`, `delay_ms`). The moment a query lapses or fires follows from when it
was asked, so a query is the same in the first run and in every replay.

The types of fields are evaluated here, and not kept as text: msgspec would compile every text again in each process.
"""

import math
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from holdfast.core.budget import Budget
from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import DEFAULT_MAX_TOKENS, MAX_INTEGER, MAX_WAIT_MS
from holdfast.core.values import Json, checked, encode, fingerprint, preview


class Query(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind", gc=False):
    """A question of a program. Each type says who answers it, how it looks on the wire, and which answers it takes.

    The types here are those that every program may ask. A program kind may bring subtypes of its own.
    """

    id: str = ""
    """Given when the query is asked; empty before."""
    timeout_ms: int | None = None
    """How long an answer is waited for; its lapse is itself an answer, a failure with the code `timeout`."""
    kind: ClassVar[str]
    """Who answers, as hosts, drivers and listings know it: `llm`, `tool`, `human`, `timer`, `child`, …"""
    is_patient: ClassVar[bool] = False
    """Whether a session may wait for this for any time without being idle."""
    wait_field: ClassVar[str] = "timeout_ms"
    """The field that says how long after it was asked the clock answers it; None there if it never does."""
    is_grouped: ClassVar[bool] = False
    """Whether who can answer it depends on more than its kind: then its group has a name of its own."""
    is_question: ClassVar[bool] = True
    """Whether somebody outside of the runtime may be asked it."""

    @property
    def group(self) -> str:
        """The same for all queries of a session that the same processes can answer: its kind, unless `is_grouped`."""
        return self.kind

    @property
    def tool_needed(self) -> str | None:
        """The tool by which a process can answer it; empty if any process that runs tools can, None if none can."""
        return None

    def to_json(self) -> dict[str, Json]:
        """Its fields on the wire, without its id: the key of that differs between one query and several."""
        return {}

    @property
    def text(self) -> str:
        """What it asks, in words."""
        return self.kind

    @property
    def is_plain(self) -> bool:
        """Whether each field is of its type and in range, and none holds an object or a list.

        Then it can be asked and kept if its texts are valid Unicode, which encoding it tells.
        """
        return False

    def check_answer(self, session_id: str, answer: "Answer") -> None:
        """Raise a `FeedError` if this query cannot be answered so. Most take any answer."""


_ON_TOP = ("role", "cache_breakpoint")


class LlmQuery(Query, frozen=True, tag="llm"):
    """A question to a language model, answered with text."""

    prompt: str
    system: str | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    grounded: bool = False
    """The answer should rest on outside evidence; the host picks the means."""
    underspecified: bool = False
    """The prompt depends on intent that is not in it; the host picks how to find out."""
    options: dict[str, Json] = {}
    """Whatever else the program wants passed on: `model`, `temperature`, `role`, …"""
    context_tokens: int = 0
    """About how many tokens are sent beside the prompt, as far as a budget needs to know."""
    kind = "llm"

    def to_json(self) -> dict[str, Json]:
        shown: dict[str, Json] = {"prompt": self.prompt, "system": self.system, "max_tokens": self.max_tokens}
        if self.grounded:
            shown["grounded"] = True
        if self.underspecified:
            shown["underspecified"] = True
        if self.options:
            shown["options"] = self.options
            shown.update(self.said_on_top)
        return shown

    @property
    def said_on_top(self) -> dict[str, Json]:
        """The options that algocline's hosts look for beside the prompt."""
        return {name: self.options[name] for name in _ON_TOP if name in self.options}

    @property
    def text(self) -> str:
        return self.prompt

    @property
    def is_plain(self) -> bool:
        asked: Any = self  # a caller without a type checker may have passed anything
        wait = asked.timeout_ms
        return (
            type(self) is LlmQuery
            and type(asked.options) is dict
            and not asked.options
            and type(asked.prompt) is str
            and type(asked.max_tokens) is int
            and 1 <= asked.max_tokens <= MAX_INTEGER
            and (asked.system is None or type(asked.system) is str)
            and (wait is None or (type(wait) is int and 0 <= wait <= MAX_WAIT_MS))
            and type(asked.grounded) is bool
            and type(asked.underspecified) is bool
            and type(asked.context_tokens) is int
        )


class ToolQuery(Query, frozen=True, tag="tool"):
    """A call of a named tool, answered with any JSON."""

    name: str
    arguments: dict[str, Json] = {}
    kind = "tool"
    is_grouped = True

    @property
    def group(self) -> str:
        return f"tool:{self.name}"

    @property
    def tool_needed(self) -> str | None:
        return self.name

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "arguments": self.arguments}

    @property
    def text(self) -> str:
        return f"{self.name} {encode(self.arguments).decode()}"


class HumanQuery(Query, frozen=True, tag="human"):
    """A question to a person, answered with any JSON."""

    prompt: str
    choices: list[str] = []
    kind = "human"

    def to_json(self) -> dict[str, Json]:
        return {"prompt": self.prompt, **({"choices": self.choices} if self.choices else {})}

    @property
    def text(self) -> str:
        return self.prompt


class TimerQuery(Query, frozen=True, tag="timer"):
    """A wait, answered with null when it is over."""

    delay_ms: int
    kind = "timer"
    wait_field = "delay_ms"
    is_question = False

    def to_json(self) -> dict[str, Json]:
        return {"delay_ms": self.delay_ms}


class ChildQuery(Query, frozen=True, tag="child"):
    """Another session, answered with its result or its failure."""

    program: str
    ctx: Json = None
    program_kind: Literal["native", "any", "agent"] = "native"
    """`native`: the native program registered under that name. `any`: the first program that is found under it.
    `agent`: a subagent of that name."""
    budget: Budget | None = None
    """What the child may spend at most, beside its share of what its parent has left."""
    found: dict[str, Json] | None = None
    """The program itself, as sessions record it, if whoever asks had found it before; it is not looked up then."""
    kind = "child"
    is_patient = True
    is_question = False

    def to_json(self) -> dict[str, Json]:
        return {"program": self.program, "ctx": self.ctx}

    @property
    def text(self) -> str:
        return f"the program {self.program}"


KERNEL_QUERIES: tuple[type[Query], ...] = (LlmQuery, ToolQuery, HumanQuery, TimerQuery, ChildQuery)
"""The types that every program may ask."""


class Value(msgspec.Struct, frozen=True, tag="value", tag_field="is", kw_only=True, gc=False):
    """An answer that succeeded."""

    value: Json = None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, tag="failure", tag_field="is", gc=False):
    """An answer that says why there is none; the program sees it as an error it can catch."""

    message: str
    code: str = "failed"
    """`failed`, `timeout`, `refused`, `unknown_outcome`, or any other word the answering side agrees on."""


Answer: TypeAlias = Value | Failure


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """What an answer cost, as far as its giver knows. For a child it is everything that the child spent."""

    prompt_tokens: int | None = None
    """All that went in, from a cache or not."""
    completion_tokens: int | None = None
    """All that came out, reasoning included."""
    cache_read_tokens: int | None = None
    """Of those that went in."""
    cache_write_tokens: int | None = None
    """Of those that went in."""
    reasoning_tokens: int | None = None
    """Of those that came out."""
    cost: float | None = None
    """In the currency of the session's prices."""
    llm_calls: int | None = None
    """How many questions a child asked models. An `llm` query itself is one, and was counted when it was asked."""
    by_model: "dict[str, Usage] | None" = None
    """What a child spent on each model, as far as that is known."""


def sum_of_usage(first: Usage, second: Usage) -> Usage:
    """What two calls cost together. Each counts as one, unless it says how many it stands for."""

    def total(name: str) -> Any:
        known = [spent for each in (first, second) if (spent := getattr(each, name)) is not None]
        return sum(known) if known else None

    counted = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    calls = [1 if each.llm_calls is None else each.llm_calls for each in (first, second)]
    return Usage(**{name: total(name) for name in counted}, cost=total("cost"), llm_calls=sum(calls))


OWN_TOOLS = "holdfast."
"""What the names of the runtime's own tools begin with: the durable state, cards. They are no question to anybody."""


def is_own(query: Query) -> bool:
    """Whether the runtime itself answers a query, and always."""
    return query.kind == "tool" and isinstance(query, ToolQuery) and query.name.startswith(OWN_TOOLS)


def check_query(query: Query) -> None:
    """Raise `InvalidValueError` unless the query can be asked and kept."""
    checked(query, f"{query.kind} query")
    check_query_limits(query)


def check_query_limits(query: Query) -> None:
    """Raise `InvalidValueError` if a number in a query that can be kept is out of range."""
    what = f"{query.kind} query"
    if isinstance(query, LlmQuery) and query.max_tokens < 1:
        raise InvalidValueError(what, f"max_tokens must be at least 1, got {query.max_tokens}")
    if isinstance(query, TimerQuery):
        _check_wait(query.delay_ms, what, "delay_ms")
    if query.timeout_ms is not None:
        _check_wait(query.timeout_ms, what, "timeout_ms")


def _check_wait(milliseconds: int, what: str, field: str) -> None:
    if not 0 <= milliseconds <= MAX_WAIT_MS:
        raise InvalidValueError(what, f"{field} must lie between 0 and {MAX_WAIT_MS}, got {milliseconds}")


def says_the_same(first: Answer, second: Answer) -> bool:
    """Whether two answers mean the same. A failure never says the same as a value."""
    if type(first) is not type(second):
        return False
    if type(first) is Value and type(second) is Value:
        return fingerprint(first.value) == fingerprint(second.value)
    return fingerprint(first) == fingerprint(second)


def answer_preview(answer: Answer) -> str:
    """An answer quoted for a message: its value, or the failure itself, cut short."""
    return preview(answer.value if isinstance(answer, Value) else answer)


def check_answer(answer: Answer, usage: Usage | None = None) -> None:
    """Raise `InvalidValueError` unless the answer can be kept."""
    checked(answer, "answer" if isinstance(answer, Value) else "failure")
    check_usage(usage)


def is_plain_usage(usage: Usage) -> bool:
    """Whether each field of a usage is of its type and in range, so that it can be kept as it is."""
    if type(usage) is not Usage:
        return False
    *counts, cost, calls, by_model = msgspec.structs.astuple(usage)
    if by_model is not None:
        return False
    for count in (*counts, calls):
        if count is not None and not (type(count) is int and 0 <= count <= MAX_INTEGER):
            return False
    return cost is None or (type(cost) is float and 0.0 <= cost < math.inf)


def check_usage(usage: Usage | None) -> None:
    """Raise `InvalidValueError` unless the usage can be kept, and is no gift."""
    if usage is None or is_plain_usage(usage):
        return
    checked(usage, "usage")
    for name in usage.__struct_fields__:
        spent = getattr(usage, name)
        if name != "by_model" and spent is not None and spent < 0:
            raise InvalidValueError("usage", f"{name} cannot be negative, got {spent}")
    for each in (usage.by_model or {}).values():
        check_usage(each)
