"""`Wake`: which answers a paused program waits for before it continues."""

from __future__ import annotations

from collections.abc import Sized
from typing import Literal, TypeAlias, assert_never

Wake: TypeAlias = Literal["all", "all_or_failure", "first"]
"""When a pause ends: once every pending query is answered, also at the first failure, or at any first answer."""


def pause_is_over(wake: Wake, pending: Sized, undelivered: Sized, has_failure: bool) -> bool:
    """Whether the program of a paused session continues.

    `undelivered` are the answers that it has not been given; `has_failure` says whether one of them is a failure.
    """
    match wake:
        case "all":
            return not pending
        case "all_or_failure":
            return not pending or has_failure
        case "first":
            return bool(undelivered)
        case _:
            assert_never(wake)
