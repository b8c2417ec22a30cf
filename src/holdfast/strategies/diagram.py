"""The diagram of a strategy: its pauses in order, like questions of one pause as one box, rounds as a loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from holdfast.strategies.dry_run import Asked, DryRun, Pause

LONGEST_ROUND = 6
"""Pauses of one round of a loop that are recognised as such."""

_HEAD = 40
"""Characters of a prompt by which questions without a role are told apart."""


class Box(msgspec.Struct, frozen=True):
    """Questions of one pause that are for the same."""

    label: str
    """The role that the strategy gives them; else the kind."""
    kind: str
    times: int
    prompt: str
    """Of the first."""
    is_same: bool
    """Whether all of them have this prompt."""
    answer: str
    """To the first."""


class Step(msgspec.Struct, frozen=True, tag="pause", tag_field="is"):
    """A pause."""

    pause: int
    boxes: list[Box]


class Loop(msgspec.Struct, frozen=True, tag="loop", tag_field="is"):
    """Pauses that come again; the first round is shown."""

    times: int
    steps: list[Step]


Part: TypeAlias = Step | Loop


def diagram(run: DryRun) -> list[Part]:
    """The parts of a diagram, from the rehearsal of a strategy."""
    return _folded([_step(pause) for pause in run.pauses])


def diagram_json(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The diagram as JSON."""
    return [msgspec.to_builtins(part) for part in parts]


def _step(pause: Pause) -> Step:
    keys = list(dict.fromkeys(_key(each) for each in pause.asked))
    ordered = sorted(pause.asked, key=lambda each: keys.index(_key(each)))
    return Step(pause.number, [_box(list(group)) for _, group in groupby(ordered, key=_key)])


def _key(asked: Asked) -> tuple[str, str]:
    return (asked.query.kind, asked.role or _head(asked.text))


def _sign(box: Box) -> tuple[str, str]:
    return (box.kind, _head(box.prompt) if box.label == box.kind else box.label)


def _head(text: str) -> str:
    return " ".join(text.split())[:_HEAD]


def _box(asked: list[Asked]) -> Box:
    first = asked[0]
    answer = first.answer if isinstance(first.answer, str) else msgspec.json.encode(first.answer).decode()
    return Box(
        label=first.role or first.query.kind,
        kind=first.query.kind,
        times=len(asked),
        prompt=first.text,
        is_same=len({(getattr(each.query, "system", None), each.text) for each in asked}) == 1,
        answer=answer,
    )


def _folded(steps: list[Step]) -> list[Part]:
    """Steps, with those that come again and again as loops: the longest stretch first, in the shortest rounds."""
    parts: list[Part] = []
    signs = [[(*_sign(box), box.times) for box in step.boxes] for step in steps]
    at = 0
    while at < len(steps):
        size, times = 1, 1
        for length in range(1, min(LONGEST_ROUND, (len(steps) - at) // 2) + 1):
            count = 1
            while signs[at : at + length] == signs[at + count * length : at + (count + 1) * length]:
                count += 1
            if count > 1 and count * length > size * times:
                size, times = length, count
        parts += [Loop(times, steps[at : at + size])] if times > 1 else [steps[at]]
        at += size * times
    return parts
