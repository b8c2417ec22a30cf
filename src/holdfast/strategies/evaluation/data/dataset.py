"""`Dataset`: the cases of an evaluation in a fixed order, with a digest."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.limits import MAX_VALUE_BYTES
from holdfast.strategies.evaluation.data.case import Case, make_case
from holdfast.strategies.evaluation.data.formats import read_graders, read_rows
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.errors import DatasetError

MAX_CASES = 100_000
"""Cases of a dataset: far above what a comparison needs."""

DATASET_DIGEST_CHARS = 16


class Dataset:
    """Cases. Two of the same id are an error."""

    def __init__(
        self,
        cases: Iterable[Case | Mapping[str, Any]],
        *,
        name: str = "data",
        path: Path | None = None,
        graders: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.name = name
        self.path = path
        """The file that it was read from, if it was."""
        self.graders = list(graders)
        """The graders that it brings, for plans that name none."""
        self.cases: list[Case] = []
        seen: dict[str, int] = {}
        size = 0
        for number, each in enumerate(cases):
            case = each if isinstance(each, Case) else make_case(each, f"{name}, row {number + 1}")
            if case.id in seen:
                why = f"its id '{case.id}' is that of row {seen[case.id] + 1}"
                raise DatasetError(
                    f"{name}, row {number + 1}", f"{why}; without ids of their own, equal inputs are one"
                )
            seen[case.id] = number
            size += len(msgspec.json.encode(case))
            if number >= MAX_CASES:
                raise DatasetError(name, f"it has more than {MAX_CASES:,} cases; take some with --limit or --sample")
            if size > MAX_VALUE_BYTES:
                raise DatasetError(
                    name, f"it has more than {MAX_VALUE_BYTES:,} bytes; take some with --limit or --sample"
                )
            self.cases.append(case)
        if not self.cases:
            raise DatasetError(name, "it has no cases")

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        fields: Mapping[str, str] | None = None,
        cluster: str | None = None,
        limit: int | None = None,
    ) -> Dataset:
        """The dataset in a file: JSONL, JSON, YAML, CSV or TSV, by its extension and by what is in it.

        `fields` says under which names rows have what we call `input`, `expected` and so on; `cluster` names the field,
        of the row or of its `context`, that says which cases belong together.
        """
        file = Path(path)
        rows = read_rows(file, fields or {}, cluster)
        return cls(_first(rows, limit), name=file.stem, path=file, graders=read_graders(file))

    def __len__(self) -> int:
        return len(self.cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    @cached_property
    def digest(self) -> str:
        return digest([msgspec.to_builtins(case) for case in self.cases], DATASET_DIGEST_CHARS)

    def first(self, limit: int) -> Dataset:
        """The first so many cases."""
        return self._part(self.cases[:limit])

    def sample(self, count: int, seed: int) -> Dataset:
        """So many cases drawn at random, in the order of the dataset; the same for the same seed."""
        if count >= len(self.cases):
            return self
        chosen = sorted(random.Random(seed).sample(range(len(self.cases)), count))
        return self._part([self.cases[number] for number in chosen])

    def _part(self, cases: list[Case]) -> Dataset:
        return Dataset(cases, name=self.name, path=self.path, graders=self.graders)


def _first(rows: Iterator[Mapping[str, Any]], limit: int | None) -> Iterator[Mapping[str, Any]]:
    for number, row in enumerate(rows):
        if limit is not None and number >= limit:
            return
        yield row
