"""A budget as callers of `start` may write it: as one, or as a mapping of its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.budget import Budget
from holdfast.core.errors import InvalidBudgetError


def given_budget(given: Budget | Mapping[str, Any] | None) -> Budget | None:
    """The budget that a caller has given; `InvalidBudgetError` for a limit that there is not, or that is none."""
    if given is None or isinstance(given, Budget):
        return given
    if unknown := sorted(set(given) - set(Budget.__struct_fields__)):
        limits = ", ".join(Budget.__struct_fields__)
        raise InvalidBudgetError(f"no such limit: {', '.join(map(str, unknown))} (there are: {limits})")
    try:
        return msgspec.convert(dict(given), Budget)
    except msgspec.ValidationError as error:
        raise InvalidBudgetError(str(error)) from None
