"""What a card holds, seen from outside: its text, its line in a listing, and whether it is what a call made. Pure."""

from __future__ import annotations

from holdfast.alc.cards.errors import CardTooLargeError
from holdfast.alc.cards.limits import MAX_CARD_BYTES
from holdfast.alc.cards.names import given_id, id_stem
from holdfast.alc.cards.toml import Table, to_toml
from holdfast.core.values import Json, fingerprint


def holds(card: dict[str, Json], part: dict[str, Json]) -> bool:
    """Whether a card has all of this, exactly: keys that were appended to it since do not matter."""
    return all(key in card and fingerprint(card[key]) == fingerprint(value) for key, value in part.items())


def card_text(table: Table, operation: str) -> bytes:
    """A card as the TOML of its file. Raises if it is too large."""
    text = to_toml(table)
    if len(text) > MAX_CARD_BYTES:
        why = (
            f"the card has {len(text)} bytes of TOML, and at most {MAX_CARD_BYTES} are kept;"
            " put what belongs to single cases into write_samples"
        )
        raise CardTooLargeError(operation, why)
    return text


class Creation:
    """One `create`, by which the card that an earlier attempt at it has made is recognised."""

    def __init__(self, asked: dict[str, Json], made: Table, now: float) -> None:
        self._given, self._stem = given_id(asked), id_stem(asked, now)
        # The attempt may have been made by another version, whose name is in the card and in the digest of its id.
        varies = {"card_id", "created_by"} if asked.get("created_by") is None else {"card_id"}
        self._part = {key: made[key] for key in made.keys() - varies}

    def may_be(self, card_id: str) -> bool:
        """Whether the card can have this id."""
        return card_id == self._given if self._given else card_id.startswith(self._stem)

    def made(self, card_id: str, card: dict[str, Json]) -> bool:
        """Whether this is its card."""
        return self.may_be(card_id) and holds(card, self._part)


def summary_of(card: dict[str, Json], card_id: str, pkg: str) -> dict[str, Json]:
    """The line of a card in a listing."""
    own_id = card.get("card_id")
    summary: dict[str, Json] = {"card_id": own_id if isinstance(own_id, str) else card_id, "pkg": pkg}
    for key, section, name in (
        ("created_at", None, "created_at"),
        ("model", "model", "id"),
        ("scenario", "scenario", "name"),
        ("pass_rate", "stats", "pass_rate"),
    ):
        place = card if section is None else card.get(section)
        value = place.get(name) if isinstance(place, dict) else None
        wanted = (int, float) if key == "pass_rate" else (str,)
        if isinstance(value, wanted) and not isinstance(value, bool):
            summary[key] = value
    return summary


def later_alias(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """The binding that was made later; the first of two that were made at the same time."""
    return other if other["set_at"] > one["set_at"] else one
