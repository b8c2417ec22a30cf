"""Journals as stores keep them: a row holds the records of one commit, as a JSON array a person can read.

A commit of very many records, as of an import, is cut into several rows; small rows that are old may be packed into
one. A row is sealed with the id of the session that wrote it, its positions and its times, so that one which was
changed or moved is noticed. A reader may need a part of a row only: from where it continues, or up to where a fork was
made.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, islice
from operator import attrgetter
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from holdfast.core.large import LARGE_CHARS, is_large
from holdfast.core.limits import ERROR_PREVIEW_CHARS, MAX_INTEGER, MAX_VALUE_BYTES, MIN_INTEGER
from holdfast.core.records import Entry, Record, StartedRecord, decode_record, decode_records
from holdfast.core.values import check_number, encode, encode_checked, preview
from holdfast.store.codec import DOLLAR, fill_in, filled_size, has_marks, move_out, references
from holdfast.store.commits import Commit
from holdfast.store.errors import CorruptSessionError
from holdfast.store.limits import INLINE_VALUE_BYTES, ROW_RECORDS, SMALL_ROW_BYTES

PACKING_LEVEL = 1
"""Of zlib: the next ones take twice the time for a tenth of the size."""


_delays_decoder = msgspec.json.Decoder(list[int])


class JournalRow(msgspec.Struct, frozen=True, gc=False):
    """Records that were written together, as they lie in a store."""

    first: int
    """Position of the first record."""
    last: int
    """Position of the last one."""
    at: int
    """When the first was written."""
    later: str | None
    """Milliseconds from the record before to each, as a JSON array; None where all have the same time."""
    checksum: int
    body: bytes
    """The records, as a JSON array."""
    size: int | None = None
    """Bytes of that JSON if the body is packed; None if it is not."""


class JournalPart(msgspec.Struct, frozen=True, gc=False):
    """Those positions of a row that are of use to a reader."""

    row: JournalRow
    first: int
    last: int
    writer: str
    """Id of the session that wrote the row: the reader itself, or one that it was forked from."""

    @property
    def begins(self) -> int:
        """The first position that is in the row and of use."""
        first = self.row.first
        return max(first, self.first) if type(first) is int else self.first  # another type shows when it is checked

    @property
    def is_whole(self) -> bool:
        """Whether all records of a sound row are of use."""
        return self.first <= self.row.first and self.row.last <= self.last


class StoredCommit(msgspec.Struct, frozen=True, gc=False):
    """What a commit adds to a journal, as it is stored."""

    rows: list[JournalRow]
    blobs: dict[str, bytes]
    """The content of the blobs that the rows refer to, by id."""


# --- writing -------------------------------------------------------------------------------------

_TIME = attrgetter("at")


def encode_commit(commit: Commit) -> StoredCommit:
    """The stored form of a commit's entries; `InvalidValueError` for a record that JSON cannot hold."""
    times = list(map(_TIME, commit.entries))
    first = commit.expected + 1
    if commit.bodies and len(times) <= ROW_RECORDS and None not in commit.bodies:
        body = b"[%b]" % b",".join(commit.bodies)  # type: ignore[arg-type]  # there is no None
        if len(body) <= INLINE_VALUE_BYTES and DOLLAR not in body:
            return StoredCommit([_sealed(commit.session_id, first, times, body)], {})
    bodies, blobs = encode_bodies(commit)
    rows = []
    while len(bodies) > ROW_RECORDS:
        rows.append(_sealed(commit.session_id, first, times[:ROW_RECORDS], _array(bodies[:ROW_RECORDS])))
        first, times, bodies = first + ROW_RECORDS, times[ROW_RECORDS:], bodies[ROW_RECORDS:]
    if bodies:
        rows.append(_sealed(commit.session_id, first, times, _array(bodies)))
    return StoredCommit(rows, blobs)


def is_large_commit(commit: Commit) -> bool:
    """Whether to encode a commit would hold an event loop for long."""
    bodies = commit.bodies
    if not bodies:
        return any(is_large(entry.record) for entry in commit.entries)
    if None in bodies:
        unencoded = [entry for entry, body in zip(commit.entries, bodies, strict=True) if body is None]
        if any(is_large(entry.record) for entry in unencoded):
            return True
    return sum(map(len, filter(None, bodies))) > LARGE_CHARS


def encode_bodies(commit: Commit) -> tuple[list[bytes], dict[str, bytes]]:
    """The stored JSON of each record of a commit, and the blobs that they refer to."""
    bodies: list[bytes] = []
    blobs: dict[str, bytes] = {}
    for entry, checked in zip(commit.entries, commit.bodies or [None] * len(commit.entries), strict=True):
        body = encode_entry(entry) if checked is None else checked
        if len(body) > INLINE_VALUE_BYTES or has_marks(body):
            body = without_large(body, blobs)
        bodies.append(body)
    return bodies, blobs


def encode_entry(entry: Entry) -> bytes:
    """The JSON of an entry's record; `InvalidValueError` for what JSON cannot hold."""
    check_number(entry.at, "time of an entry")
    return encode_checked(entry.record, "record")


def without_large(body: bytes, blobs: dict[str, bytes]) -> bytes:
    """The JSON of a record as it is stored: large values moved to the blobs, lookalikes of references marked."""
    return move_out(body, blobs, outermost=True)


def _array(bodies: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(bodies)


_NO_EXTRAS = "None/None/"
"""What a checksum covers of the columns that most rows leave empty: to format None takes longer than the rest."""


def _sealed(writer: str, first: int, times: Sequence[int], body: bytes, size: int | None = None) -> JournalRow:
    """A row with records that were written at these times."""
    last, at = first + len(times) - 1, times[0]
    later = None
    if times.count(at) < len(times):
        later = f"[0,{times[1] - at}]" if len(times) == 2 else _delays_between(times)  # most rows have two
    extras = _NO_EXTRAS if later is None and size is None else f"{later}/{size}/"
    checksum = row_checksum(f"{writer}/{first}/{last}/{at}/{extras}", body)
    return JournalRow(first, last, at, later, checksum, body, size)


def row_checksum(label: str, body: bytes) -> int:
    """The checksum of a row, which depends on its place as well. A CRC would take four times as long as the rest."""
    return xxh3_64_intdigest(body, xxh3_64_intdigest(label.encode())) & MAX_INTEGER


def _delays_between(times: Sequence[int]) -> str:
    """Milliseconds from the record before to each, as a JSON array."""
    before = times[0]
    text = "[0"
    for at in times[1:]:
        text += f",{at - before}"
        before = at
    return text + "]"


# --- reading -------------------------------------------------------------------------------------


def in_order(parts: Iterable[JournalPart]) -> list[JournalPart]:
    """Parts of a journal in the order of their positions."""
    return sorted(parts, key=lambda part: part.begins)


def check_parts(session_id: str, parts: Iterable[JournalPart], after: int, last: int) -> list[JournalPart]:
    """Those parts of an ordered journal that have positions after one up to another; `CorruptSessionError` unless they
    have them all, as they were written."""
    sound: list[JournalPart] = []
    expected = after + 1
    for part in parts:
        row, begins, ends = part.row, part.first, part.last
        first, last_here = row.first, row.last
        if not are_sound(part.writer, _columns_of(row)):
            ends = min(last_here, ends) if type(last_here) is int else expected
            raise CorruptSessionError(session_id, _place(expected, ends), "the record was changed after it was written")
        begins = first if first > begins else begins
        if begins > expected:
            why = f"the record is missing; the next one is {begins}"
            raise CorruptSessionError(session_id, f"position {expected}", why)
        ends = last_here if last_here < ends else ends
        if ends < expected:
            continue
        if begins == expected and row.size is None:
            sound.append(part)
        else:
            sound.append(JournalPart(_unpacked_or_corrupt(session_id, row), expected, ends, part.writer))
        expected = ends + 1
    if expected <= last:
        raise CorruptSessionError(session_id, f"position {expected}", "the record is missing")
    return sound


_columns_of = msgspec.structs.astuple


def is_sound(writer: str, row: JournalRow) -> bool:
    """Whether a row is as it was written."""
    return are_sound(writer, _columns_of(row))


def are_sound(writer: str, columns: tuple[Any, ...]) -> bool:
    """The same of the columns of a row, for those who need no more of it."""
    first, last, at, later, checksum, body, size = columns
    extras = _NO_EXTRAS if later is None and size is None else f"{later}/{size}/"
    return (
        row_checksum(f"{writer}/{first}/{last}/{at}/{extras}", body) == checksum
        and type(first) is int
        and type(last) is int
        and type(at) is int
    )


def _place(first: int, last: int) -> str:
    return f"position {first}" if last <= first else f"positions {first} to {last}"


def blobs_of(parts: Iterable[JournalPart]) -> set[str]:
    """Ids of the blobs that sound parts refer to."""
    found: set[str] = set()
    for part in parts:
        if DOLLAR in part.row.body and has_marks(part.row.body):
            with suppress(msgspec.MsgspecError, ValueError, RecursionError):  # decoding it will say what is wrong
                found |= references(part.row.body if part.is_whole else _array(_bodies_of(part)))
    return found


def decode_parts(session_id: str, parts: Iterable[JournalPart], blobs: Mapping[str, bytes]) -> list[Entry]:
    """The entries in sound parts, from these and the content of the blobs."""
    entries: list[Entry] = []
    for part in parts:
        row = part.row
        begins, ends, is_whole = row.first, row.last, True  # as nearly always
        if begins < part.first or ends > part.last:
            begins, ends, is_whole = part.begins, min(ends, part.last), False
        records = _records_of(session_id, part, is_whole, blobs)
        if len(records) != ends - begins + 1:
            raise CorruptSessionError(
                session_id, _place(begins, ends), "the row has more or fewer records than positions"
            )
        if row.later is None:
            at = row.at
            for position, record in enumerate(records, begins):
                entries.append(Entry(position, at, record))
        else:
            times = _times_or_corrupt(session_id, row)[begins - row.first :]
            entries += map(Entry, range(begins, ends + 1), times, records)
    return entries


def _times_or_corrupt(session_id: str, row: JournalRow) -> list[int]:
    try:
        return times_in(_columns_of(row))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CorruptSessionError(session_id, _place(row.first, row.last), f"its times: {error}") from None


def times_in(columns: tuple[Any, ...]) -> list[int]:
    """When each record was written, by the columns of a sound row of records with different times.

    Raises `msgspec.MsgspecError`, `TypeError` or `ValueError` if it does not say.
    """
    first, last, at, later, *_ = columns
    times = list(accumulate(_delays_decoder.decode(later), initial=at))
    del times[0]
    if len(times) != last - first + 1:
        raise ValueError(f"there are {len(times)}, for {last - first + 1} records")
    if min(times) < MIN_INTEGER or max(times) > MAX_INTEGER:
        raise ValueError("they do not fit into 64 bits")
    return times


def _bodies_of(part: JournalPart) -> list[msgspec.Raw]:
    """The stored JSON of those records of a row that are of use; none if it has more or fewer than it should have."""
    row = part.row
    bodies = msgspec.json.decode(row.body, type=list[msgspec.Raw])
    is_complete = len(bodies) == row.last - row.first + 1
    return bodies[part.begins - row.first : part.last + 1 - row.first] if is_complete else []


def _records_of(session_id: str, part: JournalPart, is_whole: bool, blobs: Mapping[str, bytes]) -> list[Record]:
    """The records of a part. Those of the row that are of no use are not decoded: their blobs are not there."""
    row, body = part.row, part.row.body
    if is_whole and (DOLLAR not in body or not has_marks(body)):
        try:
            records = decode_records(body)
            if row.first == 1 and records:
                records[0] = _with_shared_source(records[0])
            return records
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # which of them it is shows below
    try:
        bodies = _bodies_of(part)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CorruptSessionError(session_id, _place(row.first, row.last), str(error)) from None
    return decode_bodies(session_id, part.begins, bodies, blobs)


def decode_bodies(
    session_id: str, first: int, bodies: Iterable[bytes | msgspec.Raw], blobs: Mapping[str, bytes]
) -> list[Record]:
    """Records from their stored JSON, the first of which stands at a position, and the content of their blobs."""
    records: list[Record] = []
    for position, body in enumerate(bodies, first):
        place = f"position {position}"
        try:
            records.append(decode_body(bytes(body), blobs))
        except KeyError as error:
            raise CorruptSessionError(session_id, place, f"its blob {preview(error.args[0])} is missing") from None
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise CorruptSessionError(session_id, place, str(error)[: 4 * ERROR_PREVIEW_CHARS]) from None
    return records


def decode_body(body: bytes, blobs: Mapping[str, bytes]) -> Record:
    """A record from its stored JSON; `KeyError` with the id of a blob that is not among those given."""
    if has_marks(body):
        stored = msgspec.json.decode(body)
        if filled_size(stored, blobs) > MAX_VALUE_BYTES:
            raise ValueError(f"with its blobs it has more than {MAX_VALUE_BYTES} bytes, which no record has")
        values = {ref: msgspec.Raw(blobs[ref]) for ref in references(body)}  # read once, as parts of the record
        body = encode(fill_in(stored, values))
    return _with_shared_source(decode_record(body))


def _with_shared_source(record: Record) -> Record:
    """Many sessions have the same source, which may be long: it is kept in memory once."""
    if type(record) is not StartedRecord or record.program.source is None:
        return record
    program = msgspec.structs.replace(record.program, source=sys.intern(record.program.source))
    return msgspec.structs.replace(record, program=program)


# --- packing -------------------------------------------------------------------------------------


def packed_row(writer: str, rows: Sequence[JournalRow]) -> JournalRow:
    """One row with the records of several sound ones that follow on each other, in much less space.

    It is deflated in the way that `sqlar_uncompress` of the `sqlite3` shell reads. Raises `ValueError` if one of them
    makes no sense in spite of its checksum.
    """
    times: list[int] = []
    for row in rows:
        if row.later is None:
            times += [row.at] * (row.last - row.first + 1)
        else:
            times += islice(accumulate(_delays_decoder.decode(row.later), initial=row.at), 1, None)
    if len(times) != rows[-1].last - rows[0].first + 1:
        raise ValueError("there are not as many times as records")
    body = _array([row.body[1:-1] for row in rows])
    return _sealed(writer, rows[0].first, times, zlib.compress(body, PACKING_LEVEL), len(body))


def unpacked_row(row: JournalRow) -> JournalRow:
    """A sound row with its records as JSON; raises `ValueError` if it cannot be unpacked."""
    if row.size is None:
        return row
    if type(row.size) is not int or not 0 < row.size <= ROW_RECORDS * SMALL_ROW_BYTES:
        raise ValueError("the size of its records is out of range")
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(row.body, row.size)
    except (zlib.error, TypeError) as error:
        raise ValueError(f"its records cannot be unpacked: {error}") from None
    if len(body) != row.size or not unpacker.eof:
        raise ValueError("its records cannot be unpacked: they are not of the size that it says")
    return msgspec.structs.replace(row, body=body, size=None)


def _unpacked_or_corrupt(session_id: str, row: JournalRow) -> JournalRow:
    try:
        return unpacked_row(row)
    except ValueError as error:
        raise CorruptSessionError(session_id, _place(row.first, row.last), str(error)) from None


# --- what a deletion leaves ----------------------------------------------------------------------


def cut_row(writer: str, row: JournalRow, first: int, last: int) -> JournalRow | None:
    """A sound row of which only the records from one position to another are left; None if it is damaged, and is to
    stay as it is."""
    try:
        whole = unpacked_row(row)
        bodies = [bytes(body) for body in msgspec.json.decode(whole.body, type=list[msgspec.Raw])]
        times = [row.at] * len(bodies) if whole.later is None else times_in(_columns_of(whole))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
    first, last = max(first, row.first), min(last, row.last)
    kept = slice(first - row.first, last + 1 - row.first)
    if len(bodies) != row.last - row.first + 1 or not bodies[kept]:
        return None
    return _sealed(writer, first, times[kept], _array(bodies[kept]))
