"""How an agent session is run: what its host asks for (`Spec`), and what that resolves to (`Policy`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.compaction import Compaction
from holdfast.agent.machine.delegation import MAX_DEPTH, Delegation
from holdfast.agent.machine.prompt import PromptLayer
from holdfast.agent.machine.turn_limits import Limits
from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json, checked

_DEFAULT_LIMITS = Limits()

RLM = "rlm"
"""The mode in which the model writes cells of Python."""

Emission: TypeAlias = Literal["fence", "tool"]
"""How an rlm agent hands over its cells: in its reply, or as calls of a tool."""

MARKDOWN, RAW = "markdown", "raw"
"""The final-answer formats that have a name; anything else is guidance in words."""

ALL_TOOLS = "*"
"""In a list of tools: all those that are for every session. No tool can have this name."""


CATALOG_TOKENS = 16_000
"""Tokens that the tools of a session may take in each model call. Beyond that, the model searches for tools itself."""


class Deadline(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long to wait for a call that somebody outside answers."""

    ms: int
    stops: bool = False
    """Whether the turn stops when the time is up; otherwise the model sees an error."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decides how turns are run. Recorded with the session, so a replay is run the same way."""

    provider: str = ""
    """The id of the provider that the session began with."""
    model: str = ""
    mode: str = "standard"
    instructions: str = ""
    """The system text, all layers of it."""
    limits: Limits = Limits()
    generation: dict[str, Json] = {}
    """`temperature`, `max_tokens`, … as the provider takes them."""
    tools: list[str] | None = None
    """Tools that the model has, by name or pattern; `*` stands for all that are not a plugin's, and so does None."""
    deny: list[str] = []
    """Tools that it does not have, by name or pattern, whatever `tools` says."""
    catalog_tokens: int = CATALOG_TOKENS
    """How many tokens its tools may take; beyond that, it gets a tool to find them with instead."""
    approval: list[Approval] = []
    """What happens to tool calls: the session's own rules, and those of the sessions it is a child of."""
    prompt: list[PromptLayer] = []
    """Layers of the system text on top of the instructions, the lowest first."""
    plugins: dict[str, Json] = {}
    """The plugins of the session, by id, with their configuration."""
    window: int | None = None
    """Tokens that the model takes at once, if known."""
    compaction: Compaction = Compaction()
    deadlines: dict[str, Deadline] = {}
    """Deadlines of tools that somebody outside answers, by name."""
    delegation: Delegation = Delegation()
    """How far it may delegate to subagents."""
    projections: dict[str, str] = {}
    """Data of the host that cells can read, by name, and what it is; the host itself has the values."""
    final_answer: str = ""
    """How an rlm agent gives its final answer: `markdown`, `raw`, or guidance in words. Empty in other modes."""
    emission: Emission = "fence"


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Part of a policy: a field that is None is inherited."""

    provider: str | None = None
    model: str | None = None
    instructions: str | None = None
    limits: dict[str, Json] | None = None
    """Single limits by name; the others stay."""
    generation: dict[str, Json] | None = None
    """Single options by name; None as a value takes an option away."""
    tools: list[str] | None = None
    deny: list[str] | None = None
    catalog_tokens: int | None = None
    window: int | None = None
    compaction: dict[str, Json] | None = None
    """Single settings by name; the others stay."""
    delegation: dict[str, Json] | None = None
    """Single settings by name; the others stay."""


class PolicyChange(Spec, frozen=True, kw_only=True):
    """What changes in a recorded policy: a spec, and what a host says otherwise than by a spec."""

    mode: str | None = None
    approval: list[Approval] | None = None
    prompt: list[PromptLayer] | None = None
    plugins: dict[str, Json] | None = None
    deadlines: dict[str, Deadline] | None = None
    projections: dict[str, str] | None = None
    final_answer: str | None = None
    emission: Emission | None = None


_MERGED = ("limits", "generation", "compaction", "delegation")
"""Fields of which single parts are named; all others are replaced as a whole."""


def resolve(spec: Spec, base: Policy) -> Policy:
    """The policy that a spec gives on top of another one: fields that are set win, the others are inherited.

    A window belongs to its model: another model without one has none. Raises `InvalidValueError` if the spec cannot be
    kept.
    """
    checked(spec, "spec")
    changes: dict[str, Any] = {
        name: value
        for name in spec.__struct_fields__
        if name not in _MERGED and (value := getattr(spec, name)) is not None
    }
    if spec.window is None and changes.get("model", base.model) != base.model:
        changes["window"] = None
    if spec.limits is not None:
        changes["limits"] = limits_from(spec.limits, base.limits)
    if spec.compaction is not None:
        changes["compaction"] = compaction_from(spec.compaction, base.compaction)
    if spec.delegation is not None:
        changes["delegation"] = delegation_from(spec.delegation, base.delegation)
    if spec.generation is not None:
        merged = {**base.generation, **spec.generation}
        changes["generation"] = {name: value for name, value in merged.items() if value is not None}
    return msgspec.structs.replace(base, **changes)


def change_between(before: Policy, after: Policy) -> PolicyChange | None:
    """What has to change in one policy to get another; None if that is nothing."""
    changes: dict[str, Any] = {}
    for name in Policy.__struct_fields__:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if name in _MERGED:
            olds, news = (each if isinstance(each, dict) else msgspec.structs.asdict(each) for each in (old, new))
            changes[name] = {part: news.get(part) for part in {**olds, **news} if olds.get(part) != news.get(part)}
        else:
            changes[name] = [ALL_TOOLS] if name == "tools" and new is None else new
    return PolicyChange(**changes) if changes else None


def change_from(spec: Spec, before: PolicyChange | None = None) -> PolicyChange:
    """A change that says what a spec says, and otherwise what the one before it says."""
    changes = {} if before is None else msgspec.structs.asdict(before)
    for name in spec.__struct_fields__:
        value, earlier = getattr(spec, name), changes.get(name)
        if value is not None:
            changes[name] = {**earlier, **value} if name in _MERGED and earlier is not None else value
    return PolicyChange(**changes)


class PolicyState(msgspec.Struct):
    """The policy of a session as its journal has it. What is configured during a turn is for the next one."""

    current: Policy
    """Of the turn that is under way, or of the next one if none is."""
    following: Policy | None = None
    """Of the next turn, if it was configured during the present one."""

    @property
    def next(self) -> Policy:
        """The policy of the next turn."""
        return self.following or self.current

    def configure(self, change: Spec, *, in_turn: bool) -> None:
        policy = resolve(change, self.next)
        if in_turn:
            self.following = policy
        else:
            self.current = policy

    def begin_turn(self, spec: Spec) -> None:
        """A turn begins under a policy of its own; the next one has the present policy again."""
        self.current, self.following = resolve(spec, self.current), self.next

    def turn_over(self) -> None:
        self.current, self.following = self.next, None


def policy_of(ctx: Json) -> Policy | None:
    """The policy that an agent was started with, or None if it cannot be read."""
    try:
        return msgspec.convert(ctx["policy"], Policy)
    except (KeyError, TypeError, msgspec.ValidationError):
        return None


def spec_from(fields: Mapping[str, Any]) -> Spec:
    """A spec with these fields. Raises `InvalidValueError`."""
    try:
        return checked(msgspec.convert(dict(fields), Spec), "spec")
    except msgspec.ValidationError as error:
        there = ", ".join(Spec.__struct_fields__)
        raise InvalidValueError("spec", f"{error} (its fields are: {there})") from None


_NO_COMPACTION = Compaction()


def compaction_from(given: Mapping[str, Any], base: Compaction = _NO_COMPACTION) -> Compaction:
    """Compaction settings: these, and the others from `base`. Raises `InvalidValueError`."""
    names = Compaction.__struct_fields__
    if unknown := sorted(set(given) - set(names)):
        raise InvalidValueError("compaction", f"no such setting: {', '.join(unknown)} (there are: {', '.join(names)})")
    for name in ("reserve", "keep"):
        if isinstance(given.get(name), int | float) and given[name] < 0:
            raise InvalidValueError("compaction", f"{name} must be at least 0, got {given[name]:g}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(base), **given}, Compaction)
    except msgspec.ValidationError as error:
        raise InvalidValueError("compaction", str(error)) from None


_DELEGATION = Delegation()


def delegation_from(given: Mapping[str, Any], base: Delegation = _DELEGATION) -> Delegation:
    """Settings of delegation: these, and the others from `base`. Raises `InvalidValueError`."""
    names = Delegation.__struct_fields__
    if unknown := sorted(set(given) - set(names)):
        raise InvalidValueError("delegation", f"no such setting: {', '.join(unknown)} (there are: {', '.join(names)})")
    try:
        made = msgspec.convert({**msgspec.structs.asdict(base), **given}, Delegation)
    except msgspec.ValidationError as error:
        raise InvalidValueError("delegation", str(error)) from None
    if not 0 <= made.depth <= MAX_DEPTH:
        raise InvalidValueError("delegation", f"depth must lie between 0 and {MAX_DEPTH}, got {made.depth}")
    if made.children < 0:
        raise InvalidValueError("delegation", f"children must be at least 0, got {made.children}")
    return made


def limits_from(given: Mapping[str, Any], base: Limits = _DEFAULT_LIMITS) -> Limits:
    """Limits: these, and the others from `base`. Raises `InvalidValueError`."""
    names = Limits.__struct_fields__
    if unknown := sorted(set(given) - set(names)):
        raise InvalidValueError("limits", f"no such limit: {', '.join(unknown)} (there are: {', '.join(names)})")
    for name, limit in given.items():
        least = 1 if name in ("iterations", "no_progress") else 0
        if isinstance(limit, int | float) and limit < least:
            raise InvalidValueError("limits", f"{name} must be at least {least}, got {limit:g}")
    try:
        return msgspec.convert({**msgspec.structs.asdict(base), **given}, Limits)
    except msgspec.ValidationError as error:
        raise InvalidValueError("limits", str(error)) from None
