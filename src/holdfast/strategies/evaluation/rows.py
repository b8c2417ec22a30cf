"""`TrialRows`: the trials and grades of an evaluation as reports read them, in state items of some hundred cases each.

A projection: sessions are the truth. A row that is missing is made again from its session, so rows are written now and
then, not with every trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from holdfast.store.contract import Store
from holdfast.store.errors import StateConflictError
from holdfast.strategies.evaluation.trials import GradeRow, TrialKey, TrialRow

BLOCK = 256
"""Cases in one item: some 20 KB, few enough to write again when one of them is added."""

_PREFIX = "evaluation."
"""What the namespaces of rows begin with."""


_TrialBlock: TypeAlias = tuple[str, int, int]
"""Arm, repeat, and the number of the block. A plain tuple: there are as many look-ups as trials."""

_GradeBlock: TypeAlias = tuple[str, str, int, int]
"""The digest of the grader, and then as for trials."""


class RowTotals(NamedTuple):
    """Sums over all trials."""

    trials: int
    failed: int
    """Without a result."""
    over_budget: int
    cost: float
    tokens: int
    calls: int


_trials = msgspec.json.Decoder(list[TrialRow])
_grades = msgspec.json.Decoder(list[GradeRow])


class TrialRows:
    """The rows of one evaluation."""

    def __init__(self, evaluation: str) -> None:
        self.namespace = f"{_PREFIX}{evaluation}"
        self._trials: dict[_TrialBlock, dict[int, TrialRow]] = {}
        self._grades: dict[_GradeBlock, dict[int, GradeRow]] = {}
        self._changed: set[_TrialBlock | _GradeBlock] = set()
        self._versions: dict[str, int] = {}
        """Of the items, when they were last read or written here."""
        self.unwritten = 0
        """Rows that were added since the last write."""

    @classmethod
    async def load(cls, store: Store, evaluation: str) -> TrialRows:
        """All rows that were written."""
        rows, after = cls(evaluation), ""
        while keys := await store.list_state(rows.namespace, after=after):
            after = keys[-1]
            for key in keys:
                await rows._merge(store, key)
        return rows

    async def _merge(self, store: Store, key: str) -> None:
        """Take over the rows of an item that are not known here, or are of a later attempt."""
        item = await store.get_state(self.namespace, key)
        self._versions[key] = 0 if item is None else item.version
        if item is None or not isinstance(item.value, str):
            return
        kind, *names = key.split(":")
        try:
            if kind == "t":
                arm, repeat, number = names
                trials = self._trials.setdefault((arm, int(repeat), int(number)), {})
                for row in _trials.decode(item.value):
                    if row.case not in trials or trials[row.case].attempt < row.attempt:
                        trials[row.case] = row
            elif kind == "g":
                grader, arm, repeat, number = names
                grades = self._grades.setdefault((grader, arm, int(repeat), int(number)), {})
                for grade in _grades.decode(item.value):
                    if grade.case not in grades or grades[grade.case].attempt < grade.attempt:
                        grades[grade.case] = grade
        except (ValueError, msgspec.DecodeError):
            return  # made by another version, or damaged: its rows are made again

    def trial(self, key: TrialKey) -> TrialRow | None:
        block = self._trials.get((key.arm, key.repeat, key.case // BLOCK))
        return None if block is None else block.get(key.case)

    def grade(self, grader: str, key: TrialKey, attempt: int) -> GradeRow | None:
        """What a grader said of this attempt at a trial, or None."""
        block = self._grades.get((grader, key.arm, key.repeat, key.case // BLOCK))
        row = None if block is None else block.get(key.case)
        return row if row is not None and row.attempt == attempt else None

    def trials(self) -> Iterator[tuple[TrialKey, TrialRow]]:
        """All trials that have a row."""
        for (arm, repeat, _), rows in self._trials.items():
            for case, row in rows.items():
                yield TrialKey(arm, case, repeat), row

    def totals(self) -> RowTotals:
        """What all trials have come to, and what they and their judges have cost."""
        rows = [row for block in self._trials.values() for row in block.values()]
        judged = sum(row.cost or 0.0 for block in self._grades.values() for row in block.values())
        return RowTotals(
            trials=len(rows),
            failed=sum(row.status != "done" for row in rows),
            over_budget=sum(row.status == "over_budget" for row in rows),
            cost=judged + sum(row.spent[0] for row in rows),
            tokens=sum(row.spent[1] for row in rows),
            calls=sum(row.spent[2] for row in rows),
        )

    def ungraded(self, graders: Sequence[str]) -> Iterator[tuple[TrialKey, TrialRow, list[str]]]:
        """Trials with a result, and the graders that have said nothing about it."""
        for (arm, repeat, number), rows in list(self._trials.items()):
            said = {grader: self._grades.get((grader, arm, repeat, number), {}) for grader in graders}
            for case, row in list(rows.items()):
                if row.status != "done":
                    continue
                missing = [
                    grader
                    for grader, grades in said.items()
                    if (grade := grades.get(case)) is None or grade.attempt != row.attempt
                ]
                if missing:
                    yield TrialKey(arm, case, repeat), row, missing

    def grades(self, grader: str) -> Iterator[tuple[TrialKey, GradeRow]]:
        """All that a grader has said."""
        for (name, arm, repeat, _), rows in self._grades.items():
            if name == grader:
                for case, row in rows.items():
                    yield TrialKey(arm, case, repeat), row

    def add_trial(self, key: TrialKey, row: TrialRow) -> None:
        block = (key.arm, key.repeat, key.case // BLOCK)
        self._trials.setdefault(block, {})[key.case] = row
        self._note(block)

    def add_grade(self, grader: str, key: TrialKey, row: GradeRow) -> None:
        block = (grader, key.arm, key.repeat, key.case // BLOCK)
        self._grades.setdefault(block, {})[key.case] = row
        self._note(block)

    def _note(self, block: _TrialBlock | _GradeBlock) -> None:
        self._changed.add(block)
        self.unwritten += 1

    async def write(self, store: Store) -> None:
        """Write what was added. What another process has written meanwhile is kept, too.

        Whatever is not written because this fails or is cancelled, the next call writes.
        """
        changed, self._changed, self.unwritten = self._changed, set(), 0
        try:
            await self._write_blocks(store, changed)
        finally:
            self._changed |= changed
            self.unwritten += len(changed)

    async def _write_blocks(self, store: Store, changed: set[_TrialBlock | _GradeBlock]) -> None:
        """Write blocks, and take each out of the set once it is written."""
        for block in list(changed):
            key = ":".join(["t" if len(block) == 3 else "g", *map(str, block)])
            while True:
                rows = list((self._trials[block] if len(block) == 3 else self._grades[block]).values())
                text = msgspec.json.encode(rows).decode()
                try:
                    version = self._versions.get(key, 0)
                    self._versions[key] = await store.put_state(self.namespace, key, text, expected=version)
                    changed.discard(block)
                    break
                except StateConflictError:
                    await self._merge(store, key)
