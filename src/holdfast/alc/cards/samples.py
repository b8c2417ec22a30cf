"""The samples of one card: a line of JSON each, written once, read a page at a time. Nothing is held as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path

import msgspec

from holdfast.alc.cards.errors import CardTooLargeError, UnreadableCardError
from holdfast.alc.cards.files import open_regular
from holdfast.alc.cards.limits import (
    MAX_READ_BYTES,
    MAX_SAMPLE_BYTES,
    MAX_SAMPLE_ROWS,
    MAX_SAMPLES_BYTES,
)
from holdfast.alc.cards.query import Predicate, matches
from holdfast.core.values import Json, check_value, encode


class SampleLines:
    """Samples as lines, checked and counted while they are taken."""

    def __init__(self, rows: Iterable[Json]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        total = 0
        for row in self._rows:
            check_value(row, f"sample {self.count + 1} (alc.card.write_samples)")
            line = encode(row) + b"\n"
            total += len(line)
            if len(line) > MAX_SAMPLE_BYTES:
                why = f"sample {self.count + 1} has {len(line)} bytes of JSON, and at most {MAX_SAMPLE_BYTES} are kept"
                raise CardTooLargeError("write_samples", why)
            if total > MAX_SAMPLES_BYTES:
                why = f"the samples have more than {MAX_SAMPLES_BYTES} bytes; spread them over several cards"
                raise CardTooLargeError("write_samples", why)
            self.count += 1
            if self.count > MAX_SAMPLE_ROWS:
                why = f"there are more than {MAX_SAMPLE_ROWS} samples; spread them over several cards"
                raise CardTooLargeError("write_samples", why)
            yield line


def has_lines(path: Path, lines: SampleLines) -> bool:
    """Whether a file consists of exactly these lines. Takes all of them, so that they are counted."""
    alike = True
    for there, given in zip_longest(_lines(path), lines):
        alike = alike and there == given
    return alike


class SamplePage:
    """The samples that pass a filter, from the one at `offset` on, at most `limit`; handed in one by one."""

    def __init__(self, offset: int, limit: int | None, where: Predicate | None) -> None:
        self.rows: list[Json] = []
        self._offset, self._limit, self._where = offset, limit, where
        self._passed = self._size = 0

    @property
    def is_full(self) -> bool:
        return self._limit is not None and len(self.rows) >= self._limit

    def skip(self, rows: int) -> bool:
        """Pass over so many at once, if none of them belongs to the page."""
        if self._where is not None or self._passed + rows > self._offset:
            return False
        self._passed += rows
        return True

    def take(self, row: Callable[[], Json], size: int) -> bool:
        """Add the next sample, of so many bytes, if it belongs to the page; False if the page is full before it."""
        if self.is_full:
            return False
        if self.skip(1):
            return True
        found = row()
        if self._where is not None and not matches(self._where, found):
            return True
        self._passed += 1
        if self._passed <= self._offset:
            return True
        self._size += size
        if self._size > MAX_READ_BYTES:
            why = (
                f"the samples asked for have more than {MAX_READ_BYTES} bytes;"
                f" ask for fewer at a time with limit and offset ({len(self.rows)} fitted)"
            )
            raise CardTooLargeError("read_samples", why)
        self.rows.append(found)
        return True


def read_rows(path: Path) -> Iterator[tuple[Callable[[], Json], int]]:
    """The samples in a file, each as a function that decodes it and its bytes; none if there is no file."""
    for number, line in enumerate(_lines(path), 1):
        if not line.isspace():
            yield partial(_row, line, number, path), len(line)


def _row(line: bytes, number: int, path: Path) -> Json:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableCardError(str(path), f"line {number} is not JSON ({error})") from None


def _lines(path: Path) -> Iterator[bytes]:
    with open_regular(path) as handle:
        if handle is None:
            return
        with open(handle, "rb", closefd=False) as file:
            number = 0
            while line := file.readline(MAX_SAMPLE_BYTES + 1):
                number += 1
                if len(line) > MAX_SAMPLE_BYTES:
                    raise UnreadableCardError(str(path), f"line {number} has more than {MAX_SAMPLE_BYTES} bytes")
                yield line
