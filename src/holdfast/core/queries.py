"""What a program asks, and what it is told: the five kinds of query, answers, and their usage.

Times inside a query are relative (`timeout_ms`, `delay_ms`). The moment a query lapses or fires follows from when it
was asked, so a query is the same in the first run and in every replay.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.limits import DEFAULT_MAX_TOKENS, MAX_WAIT_MS
from holdfast.core.values import Json, checked

QueryKind: TypeAlias = Literal["llm", "tool", "human", "timer", "child", "input"]


class _Query(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="kind"):
    id: str = ""
    """Given when the query is asked; empty before."""
    timeout_ms: int | None = None
    """How long an answer is waited for; its lapse is itself an answer, a failure with the code `timeout`."""


class LlmQuery(_Query, frozen=True, tag="llm"):
    """A question to a language model, answered with text; in a turn of an agent, with a reply (`core.turn.Replied`)."""

    prompt: str
    system: str | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    grounded: bool = False
    """The answer should rest on outside evidence; the host picks the means."""
    underspecified: bool = False
    """The prompt depends on intent that is not in it; the host picks how to find out."""
    options: dict[str, Json] = {}
    """Whatever else the program wants passed on: `model`, `temperature`, `role`, …"""
    iteration: int | None = None
    """Set by an agent: how often its turn asks the model with this. The prompt is empty then: what is asked is the
    conversation, which the journal has."""
    remark: str = ""
    """Set by an agent: what the runtime says in the conversation before the model is asked."""
    sums_up: int | None = None
    """Set by an agent: the model is to sum up what was said, but for about so many tokens of the latest. The prompt, if
    there is one, says what to heed."""


class ToolQuery(_Query, frozen=True, tag="tool"):
    """A call of a named tool, answered with any JSON."""

    name: str
    arguments: dict[str, Json] = {}
    call_id: str | None = None
    """The call of a model that this is, in an agent."""
    edited: bool = False
    """Whether the arguments are not the model's, but those of whoever approved the call."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a tool that somebody is asked to approve."""

    id: str
    """The model's own."""
    tool: str
    arguments: dict[str, Json] = {}
    reason: str = ""
    """Why it is asked."""


class HumanQuery(_Query, frozen=True, tag="human"):
    """A question to a person, answered with any JSON."""

    prompt: str
    choices: list[str] = []
    approves: Call | None = None
    """The call that this asks to approve; answered as `core.approval.decision_of` reads it."""


class TimerQuery(_Query, frozen=True, tag="timer"):
    """A wait, answered with null when it is over."""

    delay_ms: int


class ChildQuery(_Query, frozen=True, tag="child"):
    """Another session, answered with its result or its failure."""

    program: str
    source: str | None = None
    """Where the program's code is found, as in `records.Program`."""
    ctx: Json = None
    program_kind: Literal["native", "any"] = "native"
    """Whether it is that native program, or whichever one whoever starts the child finds under the name."""


class InputQuery(_Query, frozen=True, tag="input"):
    """The next input of an agent, which waits between turns; answered with a `core.conversation.TurnInput`."""


Query: TypeAlias = LlmQuery | ToolQuery | HumanQuery | TimerQuery | ChildQuery | InputQuery


class Value(msgspec.Struct, frozen=True, tag="value", tag_field="is", kw_only=True):
    """An answer that succeeded."""

    value: Json = None


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, tag="failure", tag_field="is"):
    """An answer that says why there is none; the program sees it as an error it can catch."""

    message: str
    code: str = "failed"
    """`failed`, `timeout`, `refused`, `unknown_outcome`, or any other word the answering side agrees on."""


Answer: TypeAlias = Value | Failure


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an answer cost, as far as whoever answered knows. That of a child is all that the child has spent."""

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


def kind_of(query: Query) -> QueryKind:
    """The kind of a query, as written on the wire."""
    return query.__struct_config__.tag  # type: ignore[return-value]


OWN_TOOLS = "holdfast."
"""What the names of the runtime's own tools begin with: the durable state, cards. They are no question to anybody."""


def is_own(query: Query) -> bool:
    """Whether the runtime itself answers a query, and always."""
    return isinstance(query, ToolQuery) and query.name.startswith(OWN_TOOLS)


def check_query(query: Query) -> None:
    """Raise `InvalidValueError` unless the query can be asked and kept."""
    what = f"{kind_of(query)} query"
    checked(query, what)
    if isinstance(query, LlmQuery) and query.max_tokens < 1:
        raise InvalidValueError(what, f"max_tokens must be at least 1, got {query.max_tokens}")
    if isinstance(query, TimerQuery):
        _check_wait(query.delay_ms, what, "delay_ms")
    if query.timeout_ms is not None:
        _check_wait(query.timeout_ms, what, "timeout_ms")


def _check_wait(milliseconds: int, what: str, field: str) -> None:
    if not 0 <= milliseconds <= MAX_WAIT_MS:
        raise InvalidValueError(what, f"{field} must lie between 0 and {MAX_WAIT_MS}, got {milliseconds}")


def check_answer(answer: Answer, usage: Usage | None = None) -> None:
    """Raise `InvalidValueError` unless the answer can be kept."""
    checked(answer, "answer" if isinstance(answer, Value) else "failure")
    check_usage(usage)


def check_usage(usage: Usage | None) -> None:
    """Raise `InvalidValueError` unless the usage can be kept, and is no gift."""
    if usage is None:
        return
    checked(usage, "usage")
    for name in usage.__struct_fields__:
        spent = getattr(usage, name)
        if spent is not None and spent < 0:
            raise InvalidValueError("usage", f"{name} cannot be negative, got {spent}")
