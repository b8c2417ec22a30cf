"""Envelopes as files: a save is durable and whole or not made, and other files do no harm."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from holdfast.agent.envelopes.files import MAX_FILE_BYTES, DirectoryEnvelopes
from holdfast.agent.envelopes.store import EnvelopeReport
from holdfast.core.values import encode
from holdfast.store.errors import EnvelopeError, StoreUnavailableError
from holdfast.testing.patience import HANG_S
from tests.agent.envelopes.helpers import FROM_FLUERS, GOOD, an_envelope, said


async def test_the_directory_is_made_by_the_first_save_and_by_nothing_else(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory / "a" / "b")
    await envelopes.load("s-1")
    await envelopes.list()
    await envelopes.delete("s-1")
    assert not directory.exists()
    await envelopes.save("s-1", an_envelope())
    assert os.listdir(directory / "a" / "b") == ["s-1.json"]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"\xff\xfe", b'{"schema_version": 1', b"not json", b"\0" * 4096, b'{"model": "\\ud800"}'),
        *(b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        b'{"schema_version": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        json.dumps(GOOD).encode() + b"trailing",
        json.dumps(GOOD).encode().replace(b'"m"', b'"\xff"'),
        json.dumps(GOOD | {"messages": [{"role": "wizard" * 100_000}]}).encode(),
    ],
    ids=lambda data: ascii(data[:24]),
)
async def test_a_file_of_junk_is_an_error_naming_the_session_and_stops_nobody(directory: Path, data: bytes) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("good", an_envelope())
    (directory / "junk.json").write_bytes(data)
    with pytest.raises(EnvelopeError, match="session 'junk'") as caught:
        await envelopes.load("junk")
    assert len(str(caught.value)) < 1000
    found = await envelopes.list()
    assert found == EnvelopeReport(["good"], {"junk": str(caught.value)})


async def test_what_is_no_readable_file_is_bad_and_never_waited_for(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("good", an_envelope())
    (directory / "folder.json").mkdir()
    os.mkfifo(directory / "pipe.json")
    (directory / "loop.json").symlink_to(directory / "loop.json")
    (directory / "huge.json").touch()
    os.truncate(directory / "huge.json", MAX_FILE_BYTES + 1)
    release = asyncio.get_running_loop().call_later(5, os.open, directory / "pipe.json", os.O_RDWR)  # if it does hang
    async with asyncio.timeout(HANG_S):
        found = await envelopes.list()
    release.cancel()
    assert found.ids == ["good"]
    assert list(found.bad) == ["folder", "huge", "loop", "pipe"]
    assert "not a regular file" in found.bad["pipe"]
    assert str(MAX_FILE_BYTES) in found.bad["huge"]


async def test_files_whose_names_are_no_ids_are_bad_and_other_files_are_not_seen(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("good", an_envelope())
    for name in (".json", ".hidden.json", "-x.json", "a b.json", "é.json", "\udcff.json", "x" * 220 + ".json"):
        (directory / name).write_text(json.dumps(GOOD))
    for name in ("notes.txt", "good.json.tmp", ".saving-abc.tmp", "good.json~", "json"):
        (directory / name).write_text(json.dumps(GOOD))
    found = await envelopes.list()
    assert found.ids == ["good"]
    assert sorted(found.bad) == sorted(["", ".hidden", "-x", "a b", "é", "\\udcff", "x" * 220])
    assert all("invalid session id" in why for why in found.bad.values())
    encode(found)  # can be told as JSON


async def test_a_save_that_fails_leaves_the_old_envelope_and_nothing_else(directory: Path) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("s-1", FROM_FLUERS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, limits[1]))
    try:
        with pytest.raises(StoreUnavailableError, match="File too large"):
            await envelopes.save("s-1", an_envelope(said("x" * 1_000_000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(directory) == ["s-1.json"]
    assert await envelopes.load("s-1") == FROM_FLUERS


async def test_a_save_that_cannot_take_its_name_leaves_nothing(directory: Path) -> None:
    (directory / "s-1.json").mkdir(parents=True)
    with pytest.raises(StoreUnavailableError, match="directory"):
        await DirectoryEnvelopes(directory).save("s-1", an_envelope())
    assert os.listdir(directory) == ["s-1.json"]


async def test_a_directory_that_is_a_file_is_unavailable(directory: Path) -> None:
    directory.write_text("no directory")
    envelopes = DirectoryEnvelopes(directory)
    for refused in (envelopes.save("s-1", an_envelope()), envelopes.list(), envelopes.delete("s-1")):
        with pytest.raises(StoreUnavailableError, match=str(directory)):
            await refused
    with pytest.raises(EnvelopeError, match="session 's-1'"):
        await envelopes.load("s-1")


async def test_the_file_is_durable_before_its_name_and_the_name_before_the_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(handle: int) -> None:
        found = os.fstat(handle)
        steps.append("directory" if stat.S_ISDIR(found.st_mode) else f"file of {found.st_size > 0}")
        fsync(handle)

    def note_replace(source: str, target: Path) -> None:
        steps.append("rename")
        assert Path(source).parent == target.parent
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("s-1", an_envelope())
    assert steps == ["directory", "file of True", "rename", "directory"]  # the first is the new directory's own name
    steps.clear()
    await envelopes.delete("s-1")
    assert steps == ["directory"]


async def test_a_cancelled_save_ends_only_when_its_file_is_settled(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelopes = DirectoryEnvelopes(directory)
    await envelopes.save("s-1", an_envelope())
    slow, go_on = threading.Event(), threading.Event()
    fsync = os.fsync

    def slow_fsync(handle: int) -> None:
        slow.set()
        assert go_on.wait(10)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    saving = asyncio.ensure_future(envelopes.save("s-1", FROM_FLUERS))
    assert await asyncio.to_thread(slow.wait, 10)
    for _ in range(3):
        saving.cancel()
        await asyncio.sleep(0.02)
    assert not saving.done()
    assert await envelopes.load("s-1") == an_envelope()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert os.listdir(directory) == ["s-1.json"]
    assert await envelopes.load("s-1") == FROM_FLUERS


async def test_transcripts_are_readable_by_their_owner_only(directory: Path) -> None:
    await DirectoryEnvelopes(directory).save("s-1", an_envelope())
    assert stat.S_IMODE((directory / "s-1.json").stat().st_mode) == 0o600
