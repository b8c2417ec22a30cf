"""Aliases of cards: a name that is bound to a card, as files and the store keep it."""

from __future__ import annotations

from holdfast.alc.cards.names import check_name, check_now, rfc3339
from holdfast.alc.cards.toml import storable


def new_alias(name: str, card_id: str, now: float, pkg: str | None, note: str | None) -> dict[str, str]:
    """An alias that is set now; raises if a part of it cannot be kept."""
    alias = {"name": check_name(name, "alias"), "card_id": card_id}
    if pkg is not None:
        alias["pkg"] = check_name(pkg, "pkg")
    alias["set_at"] = rfc3339(check_now(now, "alias_set"))
    if note is not None:
        alias["note"] = note
    storable(alias, "alias_set")
    return alias
