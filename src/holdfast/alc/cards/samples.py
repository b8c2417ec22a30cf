"""The samples of one card: a line of JSON each, written once, read a page at a time. Nothing is held as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def read_page(path: Path, offset: int, limit: int | None, where: Predicate | None) -> list[Json]:
    """The samples that pass the filter, from the one at `offset` on, at most `limit`; none if there is no file."""
    page: list[Json] = []
    passed = size = 0
    for number, line in enumerate(_lines(path), 1):
        if limit is not None and len(page) >= limit:
            break
        if line.isspace():
            continue
        if where is None and passed < offset:
            passed += 1
            continue
        row = _row(line, number, path)
        if where is not None and not matches(where, row):
            continue
        passed += 1
        if passed <= offset:
            continue
        size += len(line)
        if size > MAX_READ_BYTES:
            why = (
                f"the samples asked for have more than {MAX_READ_BYTES} bytes;"
                f" ask for fewer at a time with limit and offset ({len(page)} fitted)"
            )
            raise CardTooLargeError("read_samples", why)
        page.append(row)
    return page


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
