"""The diagram of a strategy: its pauses in order, like questions of one pause as one box, rounds as a loop."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from holdfast.strategies.dry_run import DryRun, DryRunPause, DryRunQuery

LONGEST_ROUND = 6
"""Pauses of one round of a loop that are recognised as such."""

_HEAD = 40
"""Characters of a prompt by which questions without a role are told apart."""


class DiagramBox(msgspec.Struct, frozen=True):
    """Questions of one pause that have the same purpose."""

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


class DiagramPause(msgspec.Struct, frozen=True, tag="pause", tag_field="is"):
    """A pause."""

    pause: int
    boxes: list[DiagramBox]


class DiagramLoop(msgspec.Struct, frozen=True, tag="loop", tag_field="is"):
    """Pauses that are repeated; the first round is shown."""

    times: int
    steps: list[DiagramPause]


Part: TypeAlias = DiagramPause | DiagramLoop


def diagram(run: DryRun) -> list[Part]:
    """The parts of a diagram, from the rehearsal of a strategy."""
    return _folded([_step(pause) for pause in run.pauses])


def diagram_json(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The diagram as JSON."""
    return [msgspec.to_builtins(part) for part in parts]


def _step(pause: DryRunPause) -> DiagramPause:
    keys = list(dict.fromkeys(_key(each) for each in pause.asked))
    ordered = sorted(pause.asked, key=lambda each: keys.index(_key(each)))
    return DiagramPause(pause.number, [_box(list(group)) for _, group in groupby(ordered, key=_key)])


def _key(asked: DryRunQuery) -> tuple[str, str]:
    return (asked.query.kind, asked.role or _head(asked.text))


def _sign(box: DiagramBox) -> tuple[str, str]:
    return (box.kind, _head(box.prompt) if box.label == box.kind else box.label)


def _head(text: str) -> str:
    return " ".join(text.split())[:_HEAD]


def _box(asked: list[DryRunQuery]) -> DiagramBox:
    first = asked[0]
    answer = first.answer if isinstance(first.answer, str) else msgspec.json.encode(first.answer).decode()
    return DiagramBox(
        label=first.role or first.query.kind,
        kind=first.query.kind,
        times=len(asked),
        prompt=first.text,
        is_same=len({(getattr(each.query, "system", None), each.text) for each in asked}) == 1,
        answer=answer,
    )


def _folded(steps: list[DiagramPause]) -> list[Part]:
    """Pauses, with repeated ones as loops: the longest stretch first, in the shortest rounds."""
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
        parts += [DiagramLoop(times, steps[at : at + size])] if times > 1 else [steps[at]]
        at += size * times
    return parts
