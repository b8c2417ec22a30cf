"""Export files that were harmed, forged or cut off: each is refused at the line that gives it away."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.records import (
    Entry,
    LoggedRecord,
)
from holdfast.store.errors import ExportFileError, SchemaVersionError
from holdfast.store.export import EXPORT_VERSION, import_session, parse_export
from holdfast.store.memory import MemoryStore
from holdfast.testing.sessions import begin
from tests.examples import examples
from tests.store.test_export import assert_refused, lines_of, rich, store

__all__ = ["store"]


async def test_a_file_cut_off_after_any_line_is_refused_at_the_line_that_is_missing(
    store: MemoryStore, tmp_path: Path
) -> None:
    await rich(store)
    lines = await lines_of(store)
    for kept in range(len(lines)):
        error = await assert_refused(b"".join(lines[:kept]), tmp_path)
        assert error.line == kept + 1


async def test_a_file_cut_off_anywhere_is_refused_at_the_line_of_the_cut(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    chance = random.Random(30)
    for cut in {len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(100))}:
        error = await assert_refused(whole[:cut], tmp_path)
        assert error.line == whole[:cut].count(b"\n") + 1


async def test_a_file_with_any_one_byte_changed_is_refused_at_its_line(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    chance = random.Random(31)
    every_line = [index for index, byte in enumerate(whole) if byte == 0x0A]
    for place in [*every_line, *(chance.randrange(len(whole)) for _ in range(250))]:
        harmed = bytearray(whole)
        harmed[place] ^= chance.randrange(1, 256)
        error = await assert_refused(bytes(harmed), tmp_path)
        assert error.line == whole[:place].count(b"\n") + 1


async def test_a_file_with_any_one_byte_missing_or_doubled_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    chance = random.Random(32)
    for place in [0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(60))]:
        await assert_refused(whole[:place] + whole[place + 1 :], tmp_path)
        await assert_refused(whole[:place] + whole[place : place + 1] + whole[place:], tmp_path)


async def test_lines_that_changed_places_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    lines = await lines_of(store)
    for first in range(len(lines) - 1):
        swapped = [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]]
        error = await assert_refused(b"".join(swapped), tmp_path)
        assert error.line == first + 1


async def test_lines_that_are_missing_or_doubled_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    lines = await lines_of(store)
    for place in range(len(lines)):
        await assert_refused(b"".join(lines[:place] + lines[place + 1 :]), tmp_path)
        await assert_refused(b"".join(lines[: place + 1] + lines[place:]), tmp_path)


@pytest.mark.parametrize("more", [b"\n", b" ", b"{}\n", b"\0"])
async def test_anything_after_the_end_is_refused(store: MemoryStore, tmp_path: Path, more: bytes) -> None:
    await rich(store)
    lines = await lines_of(store)
    error = await assert_refused(b"".join(lines) + more, tmp_path)
    assert error.line == len(lines) + 1


async def test_two_files_in_one_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    lines = await lines_of(store)
    error = await assert_refused(b"".join(lines * 2), tmp_path)
    assert error.line == len(lines) + 1


async def test_line_ends_of_another_system_are_refused(store: MemoryStore, tmp_path: Path) -> None:
    await rich(store)
    whole = b"".join(await lines_of(store))
    assert (await assert_refused(whole.replace(b"\n", b"\r\n"), tmp_path)).line == 1


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{}\n", b"[]", b"notes\n" * 3, b"SQLite format 3\0" * 9, b"\xff" * 99]
)
async def test_a_file_that_is_no_export_is_refused_at_its_first_line(tmp_path: Path, content: bytes) -> None:
    error = await assert_refused(content, tmp_path)
    assert error.line == 1
    assert "not an export" in error.why


PIECES = st.lists(st.sampled_from([b'{"holdfast":"end"', b',"crc":0}', b"\n"])).map(b"".join)


@given(content=st.binary(max_size=300) | PIECES)
@settings(max_examples=examples(50), deadline=None)
def test_no_content_makes_the_reader_fail_in_another_way(content: bytes) -> None:
    with pytest.raises(ExportFileError):
        parse_export(content.splitlines(keepends=True))


def sealed(*lines: dict[str, Any]) -> bytes:
    """Lines with the checksums that belong to them: what someone makes who knows the format."""
    content = b""
    for number, line in enumerate(lines, 1):
        text = msgspec.json.encode(line)[:-1]
        content += text + b',"crc":%d}\n' % crc32(text, crc32(b"%d:" % number))
    return content


HEADER = {"holdfast": "session", "version": EXPORT_VERSION, "session_id": "s-1", "records": 1}
RECORD = {"holdfast": "record", "position": 1, "at": 1, "checksum": 1, "record": {"type": "logged", "message": "x"}}


@pytest.mark.parametrize(
    "lines",
    [
        [HEADER, HEADER],
        [HEADER, RECORD],
        [HEADER, {**RECORD, "position": 2}],
        [HEADER, {"holdfast": "unknown"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "zstd", "bytes": 1, "data": "AAAA"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "zstd", "bytes": 2**62, "data": "AAAA"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "zstd", "bytes": -1, "data": "AAAA"}],
        [HEADER, {"holdfast": "blob", "id": "x", "packing": "raw", "bytes": 1, "data": "not base64!"}],
        [HEADER, {"holdfast": "end", "lines": 1, "sha256": "0"}],
        [{**HEADER, "records": "many"}],
        [RECORD],
    ],
)
async def test_a_forged_file_is_refused_at_the_line_that_gives_it_away(
    tmp_path: Path, lines: list[dict[str, Any]]
) -> None:
    assert (await assert_refused(sealed(*lines), tmp_path)).line == len(lines)


async def test_a_journal_that_is_whole_and_makes_no_sense_is_refused(store: MemoryStore, tmp_path: Path) -> None:
    session = await begin(store)
    unstarted = session.commit(LoggedRecord(message="x"))
    wrong = [Entry(1, 1, unstarted.entries[0].record)]
    nonsense = MemoryStore()
    await nonsense.append(msgspec.structs.replace(unstarted, expected=0, entries=wrong, epoch=None))
    error = await assert_refused(b"".join(await lines_of(nonsense)), tmp_path)
    assert "does not hold together" in error.why


# --- versions ------------------------------------------------------------------------------------


async def test_a_file_of_a_newer_version_is_refused_before_anything_is_read(store: MemoryStore, tmp_path: Path) -> None:
    newer = {**HEADER, "version": EXPORT_VERSION + 1, "session_id": ["of", "another", "shape"], "more": True}
    (tmp_path / "newer").write_bytes(sealed(newer, {"holdfast": "unknown"}))
    with pytest.raises(SchemaVersionError) as caught:
        await import_session(store, tmp_path / "newer")
    assert (caught.value.found, caught.value.supported) == (EXPORT_VERSION + 1, EXPORT_VERSION)
    assert (await store.sessions()).rows == []
