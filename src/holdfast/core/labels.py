"""Titles and labels: what people call a session by, and find it again by.

A label `NAME=VALUE` is also what a fleet counts and orders its work by: limits by key look at the value of a name, and
`priority=5` says what goes first. Nothing else follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json

MAX_TITLE_CHARS = 120
"""Characters of a title: one line of a wide listing."""

MAX_LABEL_CHARS = 64
"""Characters of a label: a word, or a few."""

MAX_LABELS = 20
"""Labels of a session: more tell nothing apart, and each listing shows them all."""


PRIORITY = "priority"
"""The name of the label that says what goes first."""

MAX_PRIORITY = 9
"""The highest priority; the lowest is as far below 0, which is the usual one."""


class LabelMessage(msgspec.Struct, frozen=True, omit_defaults=True, tag="label", tag_field="type"):
    """The wish to give a session another title, or other labels; None leaves what is there."""

    title: str | None = None
    labels: list[str] | None = None
    by: str | None = None


def check_title(title: object) -> str:
    """The title. Raises `InvalidValueError` unless it is one line that can be shown."""
    if not isinstance(title, str) or len(title) > MAX_TITLE_CHARS or not title.isprintable():
        raise InvalidValueError("title", f"it is one line of at most {MAX_TITLE_CHARS} printable characters")
    return title


def check_labels(labels: Iterable[object]) -> list[str]:
    """The labels, sorted and each once. Raises `InvalidValueError` unless each is a short text without commas."""
    if isinstance(labels, str):
        raise InvalidValueError("labels", "they are a list of words, and not one text")
    found: set[str] = set()
    for label in labels:
        if (
            not isinstance(label, str)
            or not 0 < len(label) <= MAX_LABEL_CHARS
            or "," in label
            or not label.isprintable()
            or label != label.strip()
        ):
            why = f"each is 1 to {MAX_LABEL_CHARS} printable characters without a comma, got {label!r}"
            raise InvalidValueError("labels", why)
        if label.startswith(f"{PRIORITY}=") and _priority(label) is None:
            why = f"a priority is a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}, got {label!r}"
            raise InvalidValueError("labels", why)
        found.add(label)
    if len(found) > MAX_LABELS:
        raise InvalidValueError("labels", f"a session has at most {MAX_LABELS}, got {len(found)}")
    return sorted(found)


def label_value(labels: Iterable[str], name: str) -> str | None:
    """The value of the label `NAME=VALUE`, the first of them; None if there is none."""
    prefix = f"{name}="
    return next((label.removeprefix(prefix) for label in labels if label.startswith(prefix)), None)


def priority_of(labels: Iterable[str]) -> int:
    """The priority that labels say; 0 if they say none."""
    return next((found for label in labels if (found := _priority(label)) is not None), 0)


def _priority(label: str) -> int | None:
    name, _, text = label.partition("=")
    if name != PRIORITY or not text.removeprefix("-").isdecimal() or len(text) > 2:
        return None
    number = int(text)
    return number if -MAX_PRIORITY <= number <= MAX_PRIORITY else None


def inherited_labels(labels: Iterable[str]) -> list[str]:
    """The labels that a child has from its parent: what it is counted and ordered by."""
    return [label for label in labels if "=" in label]


def title_from(text: str) -> str:
    """A title for a session that was given none: the beginning of what it works on."""
    line = next((each for each in text[: 8 * MAX_TITLE_CHARS].splitlines() if each.strip()), "").strip()
    shown = "".join(each if each.isprintable() else " " for each in line)
    return shown if len(shown) <= MAX_TITLE_CHARS else shown[: MAX_TITLE_CHARS - 1].rstrip() + "…"


def title_of_ctx(ctx: Json) -> str:
    """The same from what a strategy was started with: its `task`, if it has one in words."""
    task = ctx.get("task") if isinstance(ctx, dict) else None
    return title_from(task) if isinstance(task, str) else ""


class Labelled(Protocol):
    """What has a title and labels."""

    title: str
    labels: tuple[str, ...]


def relabelled(now: Labelled, title: str | None, labels: Sequence[str] | None) -> tuple[str, tuple[str, ...]]:
    """Its title and labels after a change of either; None leaves what is there."""
    return now.title if title is None else title, now.labels if labels is None else tuple(labels)


def contains_text(wanted: str, texts: Iterable[str]) -> bool:
    """Whether any of the texts contains another, without regard to the case of ASCII letters."""
    sought = lower_ascii(wanted)
    return any(sought in lower_ascii(text) for text in texts)


def lower_ascii(text: str) -> str:
    """A text with small letters instead of the capital ones of ASCII. Others differ between stores, and stay."""
    return text.translate(_LOWER)


_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
