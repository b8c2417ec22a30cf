"""How cards are named and completed: names, fingerprints, times, ids. Pure: the time comes in as a number."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast import __version__
from holdfast.alc.cards.errors import InvalidCardError, InvalidCardNameError
from holdfast.alc.cards.limits import MAX_NAME_BYTES
from holdfast.core.values import Json, encode, repaired

SCHEMA_VERSION = "card/v0"
ALIAS_FILE = "_aliases.toml"

_MASK = 2**64 - 1
_YEAR_10000 = 253_402_300_800


def check_name(name: object, what: str) -> str:
    """Give back a package name, card id or alias that is safe inside a file name; raise if it is not."""
    if not isinstance(name, str):
        raise InvalidCardNameError(what, type(name).__name__, "expected text")
    shown = repaired(name[:MAX_NAME_BYTES])
    if not name:
        raise InvalidCardNameError(what, shown, "it is empty")
    if any(part in name for part in ("/", "\\", "..", "\0")) or name == ".":
        raise InvalidCardNameError(what, shown, "a name holds no '/', '\\', '..' or NUL")
    if name == ALIAS_FILE:
        raise InvalidCardNameError(what, shown, "the alias table has that name")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidCardNameError(what, shown, "it is not valid Unicode") from None
    if size > MAX_NAME_BYTES:
        raise InvalidCardNameError(what, shown + "…", f"it has {size} bytes, and at most {MAX_NAME_BYTES} are allowed")
    return name


# --- fingerprints --------------------------------------------------------------------------------


def djb2(text: str) -> str:
    """The 64-bit DJB2 of a text, as 16 hex digits."""
    digest = 5381
    for byte in text.encode():
        digest = (digest * 33 + byte) & _MASK
    return f"{digest:016x}"


def stable_text(value: Json) -> str:
    """The compact JSON of a value with sorted keys, in which the text of a string stands as it is.

    Without escapes it is not always JSON. It only gets hashed, and algocline hashes it so: the same parameters have the
    same fingerprint in both.
    """
    pieces: list[str] = []
    _write_stable(value, pieces)
    return "".join(pieces)


def _write_stable(value: Json, pieces: list[str]) -> None:
    match value:
        case str():
            pieces += ('"', value, '"')
        case dict():
            pieces.append("{")
            for position, key in enumerate(sorted(value)):
                pieces += ("," if position else "", '"', key, '":')
                _write_stable(value[key], pieces)
            pieces.append("}")
        case list() | tuple():
            pieces.append("[")
            for position, item in enumerate(value):
                pieces.append("," if position else "")
                _write_stable(item, pieces)
            pieces.append("]")
        case _:
            pieces.append(encode(value).decode())


# --- times and ids -------------------------------------------------------------------------------


def check_now(now: object, operation: str) -> float:
    """Give back a time in unix seconds that can be written with four digits for the year."""
    if isinstance(now, (int, float)) and not isinstance(now, bool) and 0 <= now < _YEAR_10000:
        return now
    raise InvalidCardError(operation, f"now must be a time in unix seconds, got {now!r}")


def rfc3339(now: float) -> str:
    """Unix seconds as `YYYY-MM-DDTHH:MM:SSZ`."""
    return _utc(now).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc(now: float) -> datetime:
    return datetime.fromtimestamp(now // 1, UTC)


def short_model(model: str) -> str:
    """The part of a model's id that goes into a card's id: `claude-opus-4-6` is `opus46`."""
    bare = model.removeprefix("claude-") if model.startswith("claude-") else model.removeprefix("gpt-")
    return re.sub(r"[^A-Za-z0-9]", "", bare) or "model"


def created_by() -> str:
    """What is written as the maker of a card that names none."""
    return f"alc@{__version__}"


# --- a whole card --------------------------------------------------------------------------------


def package_of(card: Json) -> str:
    """The package a new card belongs to."""
    if not isinstance(card, dict):
        raise InvalidCardError("create", "input must be a table")
    pkg = card.get("pkg")
    name = pkg.get("name") if isinstance(pkg, dict) else None
    if not isinstance(name, str):
        raise InvalidCardError("create", "pkg.name is required")
    return check_name(name, "pkg")


def id_stem(card: dict[str, Json], now: float) -> str:
    """What the generated id of a card begins with: all but the digest of what is in it."""
    model = card.get("model")
    model_id = model.get("id") if isinstance(model, dict) else None
    short = short_model(model_id if isinstance(model_id, str) else "")
    return f"{package_of(card)}_{short}_{_utc(now).strftime('%Y%m%dT%H%M%S')}_"


def given_id(card: dict[str, Json]) -> str | None:
    """The id that a new card asks for, if it asks for one."""
    asked = card.get("card_id")
    return check_name(asked, "card_id") if isinstance(asked, str) and asked else None


def completed(card: dict[str, Json], now: float) -> dict[str, Json]:
    """A new card with everything that is filled in for it; the given one is not changed."""
    whole = dict(card)
    for key, value in (
        ("schema_version", SCHEMA_VERSION),
        ("created_at", rfc3339(now)),
        ("created_by", created_by()),
    ):
        if whole.get(key) is None:
            whole[key] = value
    if isinstance(whole.get("params"), dict):
        whole["param_fingerprint"] = djb2(stable_text(whole["params"]))
    asked = given_id(card)
    whole["card_id"] = asked or check_name(id_stem(card, now) + djb2(stable_text(whole))[-6:], "card_id")
    return whole
