"""How an agent session is run: what its host wants of it (`Spec`), and what that comes to (`Policy`)."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.turn import Limits
from holdfast.core.values import Json


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
    """Names of the tools that the model is told of; None: all there are."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
        merged = {**msgspec.structs.asdict(base.limits), **spec.limits}
        changes["limits"] = msgspec.convert(merged, Limits)
    if spec.generation is not None:
        merged = {**base.generation, **spec.generation}
        changes["generation"] = {name: value for name, value in merged.items() if value is not None}
    return msgspec.structs.replace(base, **changes)
