"""`Case`: a row of a dataset, checked."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json, check_value
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.errors import DatasetError

MAX_ROW_BYTES = 1024 * 1024
"""Bytes of JSON in a row: a long document and its question."""

ID_CHARS = 12
"""Hex digits of the id of a case that has none of its own: 48 bits, for 100,000 rows."""

_FIELDS = ("id", "input", "expected", "choices", "tags", "cluster", "context", "rubric", "weight")


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row: what is asked, and what is known about a good answer."""

    id: str
    input: Json
    """A text, a list of messages, or an object, which is the ctx of a strategy."""
    expected: list[str] = []
    """Answers of which any is right."""
    choices: list[str] = []
    tags: list[str] = []
    cluster: str | None = None
    """What it shares with other cases, such as a passage; their errors are not independent."""
    context: dict[str, Json] = {}
    rubric: str | None = None
    weight: float = 1.0

    @property
    def task(self) -> str:
        """The input as one text, with its choices."""
        if isinstance(self.input, str):
            text = self.input
        elif isinstance(self.input, list):
            text = "\n\n".join(_message_text(each) for each in self.input)
        elif isinstance(self.input, dict) and isinstance(self.input.get("task"), str):
            text = str(self.input["task"])
        else:
            text = msgspec.json.encode(self.input).decode()
        if not self.choices:
            return text
        listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(ascii_uppercase, self.choices, strict=False))
        return f"{text}\n\n{listed}\n\nAnswer with the letter of the right choice."

    def ctx(self, options: Mapping[str, Json]) -> dict[str, Json]:
        """What a strategy is started with for this case."""
        own = dict(self.input) if isinstance(self.input, dict) else {}
        return {**own, "task": self.task, **options}


def _message_text(message: Json) -> str:
    if not isinstance(message, dict):
        return str(message)
    content = message.get("content")
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    role = message.get("role")
    return text if role in (None, "user") else f"{role}: {text}"


def make_case(row: Mapping[str, Any], where: str) -> Case:
    """A case from a row with our names. Raises `DatasetError`."""

    def fail(why: str) -> DatasetError:
        return DatasetError(where, why)

    try:
        check_value(dict(row), "row")
    except HoldfastError as error:
        raise fail(str(error)) from None
    if unknown := sorted(set(row) - set(_FIELDS)):
        raise fail(f"unknown fields {', '.join(unknown)}; there are {', '.join(_FIELDS)} (map others: --field id=key)")
    if row.get("input") in (None, "", [], {}):
        raise fail("it has no input")
    own = {key: value for key, value in row.items() if value is not None}
    own["expected"] = _texts(own.get("expected", []), "expected", fail)
    own["choices"] = _texts(own.get("choices", []), "choices", fail)
    own["tags"] = _texts(own.get("tags", []), "tags", fail)
    for name in ("id", "cluster"):
        if name in own and not isinstance(own[name], str):
            own[name] = str(own[name])
    own.setdefault("id", f"c-{digest([own['input'], own['choices']], ID_CHARS)}")
    try:
        case = msgspec.convert(own, Case)
    except msgspec.ValidationError as error:
        raise fail(str(error)) from None
    if len(case.choices) > len(ascii_uppercase):
        raise fail(f"{len(case.choices)} choices; at most {len(ascii_uppercase)} can be named by a letter")
    if not 0 < case.weight < 1e9:
        raise fail(f"weight must be more than 0, got {case.weight:g}")
    if (size := len(msgspec.json.encode(case))) > MAX_ROW_BYTES:
        raise fail(f"it has {size:,} bytes, and at most {MAX_ROW_BYTES:,} are allowed")
    return case


def _texts(value: Any, name: str, fail: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    texts: list[str] = []
    for item in items:
        if isinstance(item, bool):
            texts.append("true" if item else "false")
        elif isinstance(item, str):
            texts.append(item)
        elif isinstance(item, (int, float)):
            texts.append(f"{item:g}" if isinstance(item, float) and item.is_integer() else str(item))
        else:
            raise fail(f"{name} must be a text or a list of texts, got {type(item).__name__}")
    return texts
