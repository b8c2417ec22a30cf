"""What a server tells of links, past items and packages: shapes that server and client share, and nothing else has."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.agent.machine.inbox import ItemCancellation
from holdfast.agent.queue import ItemStatus
from holdfast.core.values import Json


class SignedLink(msgspec.Struct, frozen=True):
    """A link: whoever has it may answer its question."""

    url: str
    expires_at: int


class AnsweredReport(msgspec.Struct, frozen=True):
    """Who has answered a question, when, and how."""

    by: str | None
    at: int
    answer: dict[str, Json]


class LinkedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The question that a link shows."""

    session_id: str
    title: str
    query: dict[str, Json] | None
    """None if nobody can answer it any more."""
    asked_at: int | None
    expires_at: int
    answered: AnsweredReport | None


class PastItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item that has left the inbox."""

    id: str
    position: int
    """Where it was accepted."""
    at: int
    text: str
    """The beginning of its input, or its command."""
    status: ItemStatus
    turn: str | None
    """The turn that took it."""
    cancelled: ItemCancellation | None
    """Who removed it, when and why."""


class PastItemsPage(msgspec.Struct, frozen=True):
    """Items that have left the inbox, and before which position the next page ends."""

    data: list[PastItem]
    next: int | None


class InstalledReport(msgspec.Struct, frozen=True):
    """What was done with each package."""

    packages: list[dict[str, Any]]
    """Each with its `name`, `action` and, if it was refused, `why`."""
    errors: list[str]
    """Sources that could not be read."""
    warnings: list[str]


class PackagesReport(msgspec.Struct, frozen=True):
    """The Lua packages of a server."""

    data: list[dict[str, Any]]
    """Each with its `name`, `version`, `scope`, `origin`, whether it is `active`, and what it says about itself."""
    warnings: list[str]


class RemovedReport(msgspec.Struct, frozen=True):
    """A package that was removed, and from where."""

    removed: str
    scope: str
