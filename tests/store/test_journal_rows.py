"""The stored form of commits: rows of records, sealed, and read in parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from holdfast.core.decide import decide_start
from holdfast.core.records import Entry, LoggedRecord, Program, Record
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store.commits import Commit
from holdfast.store.errors import CorruptSessionError
from holdfast.store.journal_rows import (
    JournalPart,
    JournalRow,
    StoredCommit,
    blobs_of,
    check_parts,
    cut_row,
    decode_parts,
    encode_commit,
    in_order,
    is_sound,
)
from holdfast.store.limits import ROW_RECORDS

STARTED: Record = decide_start(Program("native", "task"))
SUMMARY = summarize(Session.fold("s", [Entry(1, 1, STARTED)]))
LARGE = "large " * 2_000


def lines(*texts: str, first: int = 1, times: tuple[int, ...] = ()) -> list[Entry]:
    moments = times or (1_000,) * len(texts)
    return [Entry(first + n, moments[n], LoggedRecord(message=text)) for n, text in enumerate(texts)]


def commit_of(entries: list[Entry], session_id: str = "s") -> Commit:
    return Commit(
        session_id=session_id, expected=entries[0].position - 1, entries=entries, summary=SUMMARY, owner="alice"
    )


def row_of(*texts: str, **given: Any) -> JournalRow:
    [row] = encode_commit(commit_of(lines(*texts, **given))).rows
    return row


def whole(row: JournalRow, writer: str = "s") -> JournalPart:
    return JournalPart(row, 1, 1_000, writer)


def test_a_commit_is_one_row_that_a_person_can_read() -> None:
    row = row_of("one", "two", first=4)
    assert (row.first, row.last, row.at, row.later) == (4, 5, 1_000, None)
    assert row.body == b'[{"type":"logged","message":"one"},{"type":"logged","message":"two"}]'
    assert decode_parts("s", [whole(row)], {}) == lines("one", "two", first=4)


@pytest.mark.parametrize("times", [(5, 9, 5), (9, 5, 1), (-(2**63), 2**63 - 1, 0)])
def test_records_of_one_commit_keep_their_own_times(times: tuple[int, ...]) -> None:
    row = row_of("one", "two", "three", times=times)
    assert row.later == msgspec.json.encode([0, *(later - moment for moment, later in pairwise(times))]).decode()
    assert [entry.at for entry in decode_parts("s", [whole(row)], {})] == [*times]


def test_a_commit_without_entries_has_no_row() -> None:
    commit = Commit(session_id="s", expected=3, entries=[], summary=SUMMARY, owner="alice")
    assert encode_commit(commit) == StoredCommit([], {})


def test_a_commit_of_very_many_records_is_cut_into_rows() -> None:
    entries = lines(*(f"line {n}" for n in range(2 * ROW_RECORDS + 1)))
    rows = encode_commit(commit_of(entries)).rows
    assert [(row.first, row.last) for row in rows] == [
        (1, ROW_RECORDS),
        (ROW_RECORDS + 1, 2 * ROW_RECORDS),
        (2 * ROW_RECORDS + 1, 2 * ROW_RECORDS + 1),
    ]
    parts = check_parts("s", [whole(row) for row in rows], 0, len(entries))
    assert decode_parts("s", parts, {}) == entries


def test_large_values_of_any_record_are_kept_beside_the_row() -> None:
    stored = encode_commit(commit_of(lines("small", LARGE, '{"$blob": 1}')))
    [row], parts = stored.rows, [whole(stored.rows[0])]
    assert len(row.body) < 1_000
    assert blobs_of(parts) == stored.blobs.keys()
    assert decode_parts("s", parts, stored.blobs) == lines("small", LARGE, '{"$blob": 1}')
    with pytest.raises(CorruptSessionError, match="position 2: its blob"):
        decode_parts("s", parts, {})


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_reader_of_one_record_needs_no_blob_of_those_beside_it(position: int) -> None:
    entries = lines(LARGE, "small", f"{LARGE}!")
    stored = encode_commit(commit_of(entries))
    found = [JournalPart(stored.rows[0], position, position, "s")]
    parts = check_parts("s", found, position - 1, position)
    wanted = blobs_of(parts)
    assert len(wanted) == (position != 2)
    kept = {blob_id: stored.blobs[blob_id] for blob_id in wanted}
    assert decode_parts("s", parts, kept) == entries[position - 1 : position]


@pytest.mark.parametrize(("after", "last", "positions"), [(0, 3, [1, 2, 3]), (1, 3, [2, 3]), (2, 3, [3])])
def test_a_reader_gets_the_records_after_its_position(after: int, last: int, positions: list[int]) -> None:
    row = row_of("one", "two", "three", times=(1, 2, 3))
    found = decode_parts("s", check_parts("s", [whole(row)], after, last), {})
    assert [(entry.position, entry.at) for entry in found] == [(position, position) for position in positions]


def test_a_fork_gets_its_share_of_a_row() -> None:
    source = row_of("one", "two", "three", "four")
    [own] = encode_commit(commit_of(lines("own"), "fork")).rows
    [later] = encode_commit(commit_of(lines("later", first=4), "fork")).rows
    parts = in_order([whole(later, "fork"), JournalPart(source, 2, 3, "s"), whole(own, "fork")])
    found = decode_parts("fork", check_parts("fork", parts, 0, 4), {})
    assert [(entry.position, entry.record.message) for entry in found] == [  # type: ignore[attr-defined]
        (1, "own"),
        (2, "two"),
        (3, "three"),
        (4, "later"),
    ]


CHANGES: list[dict[str, Any]] = [
    {"first": 1},
    {"last": 4},
    {"last": None},
    {"at": 7},
    {"later": "[0, 1]"},
    {"checksum": 7},
    {"checksum": "none"},
    {"body": b""},
    {"body": b"\xff\x00"},
    {"body": b'[{"type":"logged","message":"two"},{"type":"logged","message":"forged"}]'},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_changed_row_names_the_positions_that_it_had(change: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(row_of("two", "three", first=2), **change)
    with pytest.raises(CorruptSessionError, match=r"damaged at positions? 2( to 3)?: ") as caught:
        check_parts("s", [whole(row_of("one")), JournalPart(changed, 1, 3, "s")], 0, 3)
    assert caught.value.session_id == "s"


def test_a_row_of_another_session_or_place_is_not_taken() -> None:
    with pytest.raises(CorruptSessionError, match="position 1"):
        check_parts("s", [whole(row_of("one"), "other")], 0, 1)
    moved = msgspec.structs.replace(row_of("one", first=2), first=1, last=1)
    with pytest.raises(CorruptSessionError, match="position 1"):
        check_parts("s", [whole(moved)], 0, 1)


@pytest.mark.parametrize(("rows", "missing"), [((0, 2), 2), ((1, 2), 1), ((0, 1), 4), ((), 1)])
def test_a_missing_row_is_named_by_its_first_position(rows: tuple[int, ...], missing: int) -> None:
    written = [row_of("one"), row_of("two", "three", first=2), row_of("four", first=4)]
    with pytest.raises(CorruptSessionError, match=f"damaged at position {missing}: the record is missing"):
        check_parts("s", [whole(written[n]) for n in rows], 0, 4)


def test_a_record_that_cannot_be_decoded_is_named_alone() -> None:
    row = row_of("one", "two", "three")
    body = row.body.replace(b'"logged","message":"two"', b'"logged","message":7')
    bad = msgspec.structs.replace(row, body=body)
    with pytest.raises(CorruptSessionError, match="position 2: "):
        decode_parts("s", [whole(bad)], {})


@pytest.mark.parametrize(("first", "last"), [(1, 2), (2, 3), (2, 2), (0, 9)])
def test_a_row_that_was_cut_is_sealed_anew(first: int, last: int) -> None:
    entries = lines("one", LARGE, "three", times=(1, 2, 3))
    stored = encode_commit(commit_of(entries))
    [row] = stored.rows
    cut = cut_row("s", row, first, last)
    assert cut is not None
    assert is_sound("s", cut)
    kept = entries[max(first, 1) - 1 : last]
    assert (cut.first, cut.last) == (kept[0].position, kept[-1].position)
    assert decode_parts("s", [whole(cut)], stored.blobs) == kept
