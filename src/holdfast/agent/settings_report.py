"""`SettingsReport`: the settings of a runtime, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.providers.retry import RetryPolicy
from holdfast.agent.runtime_options import DEFAULT_STORE

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime


class SettingRow(msgspec.Struct, frozen=True):
    """One setting."""

    name: str
    value: str
    source: str
    """`given`, `default`, or `from` something else."""


class SettingsReport(msgspec.Struct, frozen=True):
    """All settings of a runtime. As text, a table."""

    settings: list[SettingRow]

    def __str__(self) -> str:
        names = max(len(each.name) for each in self.settings)
        values = max(len(each.value) for each in self.settings)
        return "\n".join(f"{each.name:<{names}}  {each.value:<{values}}  {each.source}" for each in self.settings)

    def to_json(self) -> dict[str, dict[str, str]]:
        return {each.name: {"value": each.value, "source": each.source} for each in self.settings}


def settings_report(runtime: Runtime, arguments: Mapping[str, Any]) -> SettingsReport:
    """The settings of a runtime; `arguments` are those that it was made with."""
    policy, retry, options = runtime.policy, runtime.models.retry, runtime.options
    limits = runtime.defaults.limits or {}

    def source(name: str, default: object = None) -> str:
        return "given" if arguments.get(name) not in (None, default) else "default"

    rows = [
        SettingRow("store", _store(arguments["store"]), source("store", DEFAULT_STORE)),
        SettingRow("provider", policy.provider or "none", "given" if arguments.get("provider") else "from model"),
        SettingRow("model", policy.model or "none", source("model") if arguments.get("model") else "from provider"),
        SettingRow("mode", policy.mode, "default"),
        SettingRow("residency", options.residency, "default" if options.residency == "keep_all" else "given"),
        SettingRow("instructions", _short(policy.instructions), source("instructions")),
        *(
            SettingRow(f"limits.{name}", str(getattr(policy.limits, name)), "given" if name in limits else "default")
            for name in policy.limits.__struct_fields__
        ),
        *(SettingRow(f"generation.{name}", str(value), "given") for name, value in (policy.generation or {}).items()),
        *(
            SettingRow(f"retry.{name}", str(getattr(retry, name)), "default" if retry == RetryPolicy() else "given")
            for name in retry.__struct_fields__
        ),
        SettingRow("tools", ", ".join(spec.name for spec in runtime.tools.specs(None)) or "none", "given"),
        SettingRow("fallbacks", ", ".join(f"{c.provider.id}:{c.model}" for c in runtime.fallbacks) or "none", "given"),
    ]
    return SettingsReport(rows)


def _store(store: object) -> str:
    return store if isinstance(store, str) else str(getattr(store, "url", store))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}…"
