"""How long, and how much, a command keeps: its options, and the table `retention` of the project's file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from holdfast.cli.config import read_config
from holdfast.cli.errors import InputError

if TYPE_CHECKING:
    from holdfast.engine.upkeep import Upkeep

_DAY_MS = 24 * 3600 * 1000
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)
_EXAMPLE = 'as in [retention] and below it keep_days = 90 or max_size = "20G"'


class SizeType(click.ParamType[int]):
    """Bytes, as in `500M` or `20G`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = parse_size(str(value))
        if size is None:
            self.fail(f"{value!r} is no size, as 500M or 20G is", param, ctx)
        return size


def parse_size(text: str) -> int | None:
    """The bytes that a text such as `500M` or `20G` means, or None if it means none."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else int(float(found[1]) * _UNITS[found[2].upper()])


class RetentionRules(NamedTuple):
    """What is kept; None for everything."""

    idle_days: float | None = None
    keep_days: float | None = None
    max_bytes: int | None = None

    def upkeep(self, *, on: bool) -> Upkeep:
        from holdfast.engine.upkeep import Upkeep

        return Upkeep(
            on=on,
            idle_ttl_ms=_milliseconds(self.idle_days),
            keep_ended_ms=_milliseconds(self.keep_days),
            max_bytes=self.max_bytes,
        )


def retention_in_config() -> RetentionRules:
    """What the table `retention` of the project's file says."""
    if (found := read_config()) is None:
        return RetentionRules()
    file, said = found
    table = said.get("retention", {})
    if not isinstance(table, dict):
        raise InputError(f"{file}: retention has to be a table, {_EXAMPLE}")
    if unknown := table.keys() - {"idle_days", "keep_days", "max_size"}:
        raise InputError(f"{file}: retention has no '{min(unknown)}', but idle_days, keep_days and max_size")
    for name in ("idle_days", "keep_days"):
        days = table.get(name, 0)
        if not isinstance(days, (int, float)) or isinstance(days, bool) or days < 0:
            raise InputError(f"{file}: {name} has to be a number of days, {_EXAMPLE}")
    size = table.get("max_size")
    max_bytes = None if size is None else parse_size(str(size))
    if size is not None and max_bytes is None:
        raise InputError(f"{file}: max_size has to be a size, {_EXAMPLE}")
    return RetentionRules(table.get("idle_days"), table.get("keep_days"), max_bytes)


def _milliseconds(days: float | None) -> int | None:
    return None if days is None else round(days * _DAY_MS)
