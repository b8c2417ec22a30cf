"""How an agent session is run: what its host wants of it (`Spec`), and what that comes to (`Policy`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.turn import Limits
from holdfast.core.values import Json

_DEFAULT_LIMITS = Limits()

ALL_TOOLS = "*"
"""In a list of tools: all those that are for every session. No tool can be called so."""


class Deadline(msgspec.Struct, frozen=True, omit_defaults=True):
    """How long a call is waited for that somebody outside answers."""

    ms: int
    stops: bool = False
    """Whether the turn is stopped when it has passed, or the model is told."""


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
    """Names of the tools that the model is told of, `*` for all that are not a plugin's; None is the same as `*`."""
    deadlines: dict[str, Deadline] = {}
    """Of tools that wait for whoever answers, by name."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a policy: what is not said here is inherited."""

    provider: str | None = None
    model: str | None = None
    instructions: str | None = None
    limits: dict[str, Json] | None = None
    """Single limits by name; the others stay."""
    generation: dict[str, Json] | None = None
    """Single options by name; None as a value takes an option away."""
    tools: list[str] | None = None


def resolve(spec: Spec, base: Policy) -> Policy:
    """What a spec comes to on top of a policy: what is said wins, what is not is inherited."""
    changes: dict[str, Any] = {
        name: value
        for name in ("provider", "model", "instructions", "tools")
        if (value := getattr(spec, name)) is not None
    }
    if spec.limits is not None:
        changes["limits"] = limits_from(spec.limits, base.limits)
    if spec.generation is not None:
        merged = {**base.generation, **spec.generation}
        changes["generation"] = {name: value for name, value in merged.items() if value is not None}
    return msgspec.structs.replace(base, **changes)


def spec_from(fields: Mapping[str, Any]) -> Spec:
    """A spec of these fields. Raises `InvalidValueError`."""
    try:
        return msgspec.convert(dict(fields), Spec)
    except msgspec.ValidationError as error:
        there = ", ".join(Spec.__struct_fields__)
        raise InvalidValueError("spec", f"{error} (its fields are: {there})") from None


def limits_from(given: Mapping[str, Any], base: Limits = _DEFAULT_LIMITS) -> Limits:
    """Limits of which some are given. Raises `InvalidValueError`."""
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
