"""What a runtime is set to, and where each setting comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime


class Setting(msgspec.Struct, frozen=True):
    """One setting."""

    name: str
    value: str
    source: str
    """`given`, `default`, or `from` something else."""


class Description(msgspec.Struct, frozen=True):
    """All settings of a runtime. As text, a table."""

    settings: list[Setting]

    def __str__(self) -> str:
        names = max(len(each.name) for each in self.settings)
        values = max(len(each.value) for each in self.settings)
        return "\n".join(f"{each.name:<{names}}  {each.value:<{values}}  {each.source}" for each in self.settings)

    def to_json(self) -> dict[str, dict[str, str]]:
        return {each.name: {"value": each.value, "source": each.source} for each in self.settings}


def described(runtime: Runtime, given: Mapping[str, Any]) -> Description:
    """The settings of a runtime."""
    policy = runtime.policy

    def source(name: str) -> str:
        return "given" if given.get(name) is not None else "default"

    limits = given.get("limits")
    named = set(limits) if isinstance(limits, Mapping) else set(policy.limits.__struct_fields__) if limits else set()
    settings = [
        Setting("store", _store(given["store"]), "given" if given["store"] != "sqlite:///holdfast.db" else "default"),
        Setting("provider", policy.provider or "none", "given" if given.get("provider") else "from model"),
        Setting("model", policy.model or "none", source("model") if given.get("model") else "from provider"),
        Setting("mode", policy.mode, "default"),
        Setting("residency", runtime.residency, "default" if runtime.residency == "keep_all" else "given"),
        Setting("instructions", _short(policy.instructions), source("instructions")),
        *(
            Setting(f"limits.{name}", str(getattr(policy.limits, name)), "given" if name in named else "default")
            for name in policy.limits.__struct_fields__
        ),
        *(Setting(f"generation.{name}", str(value), "given") for name, value in (policy.generation or {}).items()),
        *(
            Setting(f"retry.{name}", str(getattr(runtime.retry, name)), source("retry"))
            for name in getattr(runtime.retry, "__struct_fields__", ())
        ),
        Setting("tools", ", ".join(spec.name for spec in runtime.tools.specs(None)) or "none", "given"),
        Setting("fallbacks", ", ".join(f"{c.provider.id}:{c.model}" for c in runtime.fallbacks) or "none", "given"),
    ]
    return Description(settings)


def _store(given: object) -> str:
    return given if isinstance(given, str) else str(getattr(given, "url", given))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}…"
