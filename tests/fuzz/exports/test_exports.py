"""Export files that were changed, and sealed again so that every checksum fits: refused whole, or imported whole."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path
from zlib import crc32

import hypothesis.strategies as st

from holdfast.core.queries import HumanQuery, LlmQuery, TimerQuery
from holdfast.core.records import ProgressedRecord, StatRecord
from holdfast.core.values import Json
from holdfast.store.export import export_lines, export_session, import_session
from holdfast.store.memory import MemoryStore
from holdfast.testing.sessions import begin, exported_entries, picture
from holdfast.zstd import compress
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_json, encoded

LARGE = [f"line {number} of a value too large for its record" for number in range(200)]


async def rich() -> list[bytes]:
    """The lines of a session with blobs, lookalikes of references, several queries and answers."""
    store = MemoryStore()
    session = await begin(store, ctx={"text": "žluť 🐎 \x00", "same": LARGE})
    await session.ask(LlmQuery(prompt="why?", options={"t": 0.1}), HumanQuery(prompt="ok?", timeout_ms=1_000))
    await session.answer("q-0", {"same": LARGE, "odd": {"$blob": "f" * 64, "in": [{"$literal": {"$blob": None}}]}})
    await session.answer("q-1", [-1.5e-300, None, True])
    await session.append(StatRecord(key="score", value=1), ProgressedRecord(step=1, total=2))
    await session.ask(TimerQuery(delay_ms=10_000))
    return [line async for line in export_lines(store, "s-1")]


LINES = asyncio.run(rich())
DOCUMENT: Json = [json.loads(line) for line in LINES]


@st.composite
def resealed_files(draw: Draw) -> bytes:
    """An export with something changed in its lines; most of its checksums are of what now stands there."""
    lines = draw(changed_json([DOCUMENT]))
    keeps_record_sums, keeps_end = draw(st.integers(0, 3)) == 0, draw(st.integers(0, 3)) == 0
    written: list[bytes] = []
    for number, line in enumerate(lines if isinstance(lines, list) else [lines], 1):
        if isinstance(line, dict):
            line.pop("crc", None)
            if line.get("holdfast") == "record" and not keeps_record_sums:
                place = f"s-1/{line.get('position')}/{line.get('at')}/".encode("utf-8", "replace")
                line["checksum"] = crc32(place + encoded(line.get("record"), ascii_only=False))
            if line.get("holdfast") == "end" and not keeps_end:
                line |= {"lines": number - 1, "sha256": hashlib.sha256(b"".join(written)).hexdigest()}
        text = encoded(line, ascii_only=False)[:-1]
        written.append(text + b',"crc":%d}\n' % crc32(text, crc32(b"%d:" % number)))
    return b"".join(written)


def sealed(*lines: bytes) -> bytes:
    """These lines, without their last brace, with checksums."""
    return b"".join(line + b',"crc":%d}\n' % crc32(line, crc32(b"%d:" % n)) for n, line in enumerate(lines, 1))


def record(body: bytes) -> bytes:
    total = crc32(b"s-1/1/0/" + body)
    return b'{"holdfast":"record","position":1,"at":0,"checksum":%d,"record":%b' % (total, body)


_HEADER = b'{"holdfast":"session","version":1,"session_id":"s-1","records":1'


def blob(content: bytes) -> tuple[str, bytes]:
    """A line with a blob, and the reference to it."""
    known = hashlib.sha256(content).hexdigest()
    data = base64.b64encode(compress(content))
    line = b'{"holdfast":"blob","id":"%b","packing":"zstd","bytes":%d,"data":"%b"'
    return known, line % (known.encode(), len(content), data)


def bomb(blobs: int, references: int) -> bytes:
    """A small file that unpacks to so many times so many values of 16 MB."""
    made = [blob(b'"%d%b"' % (number, b"0" * (16 << 20))) for number in range(blobs)]
    refs = b",".join(b'{"$blob":"%b"}' % known.encode() for known, _ in made for _ in range(references))
    return sealed(_HEADER, *(line for _, line in made), record(b'{"type":"logged","message":[%b]}' % refs))


KNOWN = [
    bomb(1, 40),
    bomb(8, 1),
    sealed(_HEADER, b'{"holdfast":"blob","id":"x","packing":"zstd","bytes":%d,"data":"%b"' % (1 << 40, b"")),
    sealed(b'{"holdfast":"\xed\xa0\x80"'),
    sealed(b'{"holdfast":"session","version":' + b"[" * 100_000),
    sealed(_HEADER, record(b'{"type":"\xed\xa0\x80"}')),
    sealed(_HEADER, record(b'{"type":"logged","message":{"$blob":{}}}')),
]
"""Files that once ended an import with an undeclared error, or took all memory."""


def test_an_export_that_was_changed_and_sealed_again_is_imported_whole_or_not_at_all(
    fuzzer: Fuzzer, tmp_path: Path
) -> None:
    fuzzer.run(lambda data: asyncio.run(_import(data, tmp_path)), resealed_files(), examples=125, known=KNOWN)


def test_an_export_whose_bytes_were_changed_is_imported_whole_or_not_at_all(fuzzer: Fuzzer, tmp_path: Path) -> None:
    fuzzer.run(lambda data: asyncio.run(_import(data, tmp_path)), changed_bytes([b"".join(LINES)]), examples=60)


async def _import(data: bytes, folder: Path) -> None:
    file = folder / "export"
    file.write_bytes(data)
    store = MemoryStore()
    await begin(store, "another")
    before = await picture(store)
    try:
        receipt = await import_session(store, file)
    except Exception as error:
        assert_is_declared(error)
        assert await picture(store) == before
        return
    await store.load(receipt.session_id)
    entries = await exported_entries(store, receipt.session_id)
    await export_session(store, receipt.session_id, file)
    elsewhere = MemoryStore()
    await import_session(elsewhere, file)
    assert await exported_entries(elsewhere, receipt.session_id) == entries
