"""Sessions of sandboxed Python go on from their snapshots; and from their journals, whenever those cannot be used."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.events import AcceptedEvent, Event, PausedEvent
from holdfast.core.queries import Failure
from holdfast.engine.seals import KEY_VARIABLE, MAX_SNAPSHOT_BYTES, Sealer, key_path
from holdfast.programs.errors import SnapshotUnusableError
from holdfast.programs.sandbox.paused_state import VERSION, decode_state, encode_state
from holdfast.store.commits import Snapshot
from holdfast.testing.patience import until
from tests.programs.sandbox.helpers import (
    CTX,
    MAIN,
    answers,
    asked,
    begin,
    code,
    converse,
    engine,
    forget,
    outcome,
    own_workers,
    replays,
    result,
    sqlite,
)


def stored(folder: Path) -> list[tuple[int, bytes]]:
    with sqlite3.connect(folder / "sessions.db") as db:
        return db.execute("select position, data from snapshots").fetchall()


def change(folder: Path, changed: Callable[[bytes], bytes | None]) -> None:
    """Do something to every snapshot of a store that no process has open; None deletes it."""
    with sqlite3.connect(folder / "sessions.db") as db:
        for rowid, data in db.execute("select rowid, data from snapshots").fetchall():
            if (new := changed(data)) is None:
                db.execute("delete from snapshots where rowid = ?", (rowid,))
            else:
                db.execute("update snapshots set data = ? where rowid = ?", (new, rowid))


async def undisturbed() -> tuple[list[list[str]], Any]:
    async with engine() as hf:
        await begin(hf.store, "s", code(MAIN), CTX)
        pauses, event = await converse(hf, await hf.resume("s"), answers)
        return pauses, outcome(event)


async def with_new_engines(folder: Path, disturb: Callable[[], Any]) -> tuple[list[list[str]], Any, list[str]]:
    """What a session asks and comes to, and why it was replayed, if each of its steps is taken by another engine."""
    url = sqlite(folder)
    pauses: list[list[str]] = []
    why: list[str] = []
    async with engine(url) as hf:
        await begin(hf.store, "s", code(MAIN), CTX)
        event = await hf.resume("s")
    while isinstance(event, PausedEvent):
        disturb()
        pauses.append(asked(event))
        async with engine(url) as hf:
            event = await hf.feed("s", {query.id: answers(query) for query in event.queries})
            why = await replays(hf.store, "s")
    return pauses, outcome(event), why


async def test_a_session_goes_on_in_another_engine_from_its_snapshot(tmp_path: Path) -> None:
    pauses, end = await undisturbed()
    assert end[0] == "completed"
    assert any("nobody knows" in str(step) for step in end[1]["trail"])
    assert await with_new_engines(tmp_path, lambda: len(stored(tmp_path)) == 1) == (pauses, end, [])


async def test_a_session_without_snapshots_is_replayed_and_asks_the_same(tmp_path: Path) -> None:
    pauses, end = await undisturbed()
    lost = await with_new_engines(tmp_path, lambda: forget(tmp_path))
    assert lost[:2] == (pauses, end)
    assert lost[2] == ["there is no snapshot"] * len(pauses)


LEFT_OVER = """
import asyncio
said = []
async def run(ctx):
    try:
        llm_batch(["a", "b", "c"])
    except RuntimeError as error:
        said.append(str(error))
    try:
        await asyncio.gather(llm_async("d"), llm_async("e"), ask_async("f"))
    except RuntimeError as error:
        said.append(str(error))
    said.append(llm("g"))
    try:
        llm_batch(["h", "i"])
    except RuntimeError as error:
        said.append(str(error))
    return said + [await llm_async("j")]
"""


def waits_for(event: Event) -> list[str]:
    return event.remaining if isinstance(event, AcceptedEvent) else [query.id for query in event.queries]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_questions_that_were_left_over_are_left_over_after_a_replay_too(tmp_path: Path, is_lost: bool) -> None:
    """Failures that end a wait early; and a budget that is spent in between."""
    answered: list[dict[str, Any]] = [
        {"q-1": Failure("no b")},
        {"q-3": Failure("no d")},
        {"q-5": "late f"},
        {"q-6": "G"},
        {"q-4": "late e"},
        {"q-7": "J"},
    ]
    events = []
    for given in ({}, *answered):
        async with engine(sqlite(tmp_path)) as hf:
            if given:
                events.append(await hf.feed("s", given))
            else:
                events.append(await hf.start(code(LEFT_OVER), id="s", budget={"max_llm_calls": 7}))
        if is_lost:
            forget(tmp_path)
    assert [waits_for(event) for event in events] == [
        ["q-0", "q-1", "q-2"],
        ["q-3", "q-4", "q-5"],
        ["q-4", "q-5", "q-6"],
        ["q-4", "q-6"],
        ["q-4", "q-7"],
        ["q-7"],
        [],
    ]
    assert events[-1].result[:3] == ["llm_batch: item 2: no b", "no d", "G"]
    assert events[-1].result[3].startswith("budget_exceeded:")
    assert events[-1].result[4] == "J"


async def test_a_session_has_one_snapshot_while_it_lives_and_none_after(tmp_path: Path) -> None:
    async with engine(sqlite(tmp_path)) as hf:
        event = await hf.start(code("for i in range(5):\n    llm(str(i))\nllm_batch(['a', 'b'])"), id="s")
        while isinstance(event, PausedEvent):
            ((position, _),) = stored(tmp_path)
            assert position == await hf.store.position("s")
            event = await hf.feed("s", {query.id: "x" for query in event.queries})
        assert stored(tmp_path) == []


async def test_a_snapshot_is_what_a_session_goes_on_from(tmp_path: Path) -> None:
    """The journal of the one session, with the snapshot of another that would have gone on otherwise."""
    source = "import random\nx = random.random()\nllm('q')\nx"
    async with engine(sqlite(tmp_path)) as hf:
        for name, seed in (("one", 1), ("other", 2)):
            await begin(hf.store, name, code(source), seed=seed)
            await hf.resume(name)
        other = await hf.store.snapshot("other")
        assert other is not None
        state = Sealer().open("other", other.position, other)
        mine = Sealer().seal("one", other.position, state)
        assert mine is not None
    async with engine(sqlite(tmp_path)) as hf:
        expected = result(await hf.feed("other", "a"))
    with sqlite3.connect(tmp_path / "sessions.db") as db:
        db.execute("update snapshots set data = ?", (mine.data,))
    async with engine(sqlite(tmp_path)) as hf:
        assert result(await hf.feed("one", "a")) == expected


async def test_snapshots_stay_as_large_as_what_is_alive(tmp_path: Path) -> None:
    source = "x = 'held' * 100\nfor i in range(300):\n    x = x[:400]\n    llm(f'{i % 10}')\n"
    sizes = []
    async with engine(sqlite(tmp_path)) as hf:
        event = await hf.start(code(source))
        while isinstance(event, PausedEvent):
            snapshot = await hf.store.snapshot(event.session_id)
            assert snapshot is not None
            sizes.append(len(snapshot.data))
            event = await hf.feed(event.session_id, "answer")
    assert len(sizes) == 300
    assert max(sizes[10:]) <= sizes[10] * 1.1
    assert max(sizes) < 8_000


# --- snapshots that cannot be used ------------------------------------------------------------------------

SMALL = "import random\n[random.random() < 2, llm('first'), llm('second')]"
EXPECTED = [True, "a", "b"]


async def paused_in(folder: Path, source: str = SMALL, **limits: Any) -> None:
    """A session `s` that waits for its first answer, in a store that nobody has open."""
    async with engine(sqlite(folder), **limits) as hf:
        await hf.start(code(source), id="s")


async def gone_on_with(folder: Path, expected: Any = EXPECTED, **limits: Any) -> list[str]:
    """Why the session had to be replayed by an engine that goes on with it to its end."""
    async with engine(sqlite(folder), **limits) as hf:
        await hf.feed("s", "a")
        assert result(await hf.feed("s", "b")) == expected
        return await replays(hf.store, "s")


async def test_no_byte_of_a_snapshot_can_be_changed(tmp_path: Path) -> None:
    await paused_in(tmp_path, "llm('q')")
    ((position, data),) = stored(tmp_path)
    sealer = Sealer()
    assert sealer.open("s", position, Snapshot(position, data))
    for number in range(len(data)):
        forged = data[:number] + bytes([data[number] ^ (1 << number % 8)]) + data[number + 1 :]
        with pytest.raises(SnapshotUnusableError):
            sealer.open("s", position, Snapshot(position, forged))
    for length in range(len(data)):
        with pytest.raises(SnapshotUnusableError):
            sealer.open("s", position, Snapshot(position, data[:length]))
    for other_id, other_position in (("t", position), ("s", position + 1), ("s0", position), ("S", position)):
        with pytest.raises(SnapshotUnusableError):
            sealer.open(other_id, other_position, Snapshot(other_position, data))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "was not sealed with the key of this home, or was changed"),
        (lambda data: data[: len(data) // 2], "or was changed"),
        (lambda data: data + b"\0", "or was changed"),
        (lambda _: b"", "another format"),
        (lambda data: b"HFS\x02" + data[4:], "another format"),
        (lambda _: b"HFS\x01" + bytes(16), "or was changed"),
        (lambda _: None, "there is no snapshot"),
    ],
)
async def test_a_snapshot_that_was_tampered_with_is_not_used(
    tmp_path: Path, changed: Callable[[bytes], bytes | None], why: str
) -> None:
    await paused_in(tmp_path)
    change(tmp_path, changed)
    (told,) = await gone_on_with(tmp_path)
    assert why in told


async def test_a_snapshot_of_another_session_is_not_used(tmp_path: Path) -> None:
    async with engine(sqlite(tmp_path)) as hf:
        await hf.start(code(SMALL), id="s")
        await hf.start(code("[1, llm('x'), llm('y')]"), id="t")
        mine, other = await hf.store.snapshot("s"), await hf.store.snapshot("t")
    assert mine is not None
    assert other is not None
    assert mine.position == other.position
    change(tmp_path, lambda data: other.data if data == mine.data else mine.data)
    (told,) = await gone_on_with(tmp_path)
    assert "or was changed" in told


async def test_an_older_snapshot_of_the_same_session_is_not_used(tmp_path: Path) -> None:
    await paused_in(tmp_path)
    ((_, before),) = stored(tmp_path)
    async with engine(sqlite(tmp_path)) as hf:
        await hf.feed("s", "a")
    change(tmp_path, lambda _: before)
    async with engine(sqlite(tmp_path)) as hf:
        assert result(await hf.feed("s", "b")) == EXPECTED
        (told,) = await replays(hf.store, "s")
    assert "or was changed" in told
    with sqlite3.connect(tmp_path / "sessions.db") as db:
        assert db.execute("select count(*) from snapshots").fetchone() == (0,)


async def test_a_snapshot_of_another_position_is_not_used(tmp_path: Path) -> None:
    await paused_in(tmp_path)
    with sqlite3.connect(tmp_path / "sessions.db") as db:
        db.execute("update snapshots set position = 1")
    (told,) = await gone_on_with(tmp_path)
    assert told == "its snapshot is of position 1, and it is at 2"


async def test_a_snapshot_of_another_key_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await paused_in(tmp_path)
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    (told,) = await gone_on_with(tmp_path)
    assert "was not sealed with the key of this home" in told


async def test_machines_with_the_same_key_use_each_others_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "ab" * 32)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "one"))
    await paused_in(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "other"))
    assert await gone_on_with(tmp_path) == []
    assert not (tmp_path / "one").exists()


@pytest.mark.parametrize("key", ["", "00" * 31, "no hex at all", "\0\0"])
async def test_a_key_file_that_holds_no_key_is_not_touched_and_serves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    key_path().write_text(key)
    await paused_in(tmp_path)
    assert len(await gone_on_with(tmp_path)) == 1
    assert key_path().read_text() == key
    assert f"the key in {key_path()} cannot be used" in caplog.text


async def test_a_home_that_cannot_be_written_costs_replays_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file" / "home"))
    await paused_in(tmp_path)
    assert len(await gone_on_with(tmp_path)) == 1
    assert "Other processes will replay" in caplog.text


async def test_the_key_is_made_once_and_for_its_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    digests = {Sealer().seal("s", 1, b"x") for _ in range(5)}
    assert len(digests) == 1
    assert key_path().stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "home") == ["snapshot.key"]


def sealed_anew(folder: Path, made: Callable[[bytes], bytes]) -> None:
    """Put something else under a seal that is right."""
    sealer = Sealer()
    ((position, data),) = stored(folder)
    snapshot = sealer.seal("s", position, made(sealer.open("s", position, Snapshot(position, data))))
    assert snapshot is not None
    change(folder, lambda _: snapshot.data)


def with_dump(made: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def changed(state: bytes) -> bytes:
        frame = decode_state(state)
        return encode_state(msgspec.structs.replace(frame, dump=made(frame.dump)))

    return changed


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda _: b"garbage", "its snapshot cannot be read"),
        (lambda _: b"", "its snapshot cannot be read"),
        (lambda state: state[:-20], "its snapshot cannot be read"),
        (
            lambda state: encode_state(msgspec.structs.replace(decode_state(state), version=VERSION + 1)),
            f"version {VERSION + 1}",
        ),
        (
            lambda state: encode_state(msgspec.structs.replace(decode_state(state), is_packed=True, dump=b"x")),
            "cannot be unpacked",
        ),
        (with_dump(lambda _: b""), "the interpreter cannot load its snapshot"),
        (with_dump(lambda _: b"MONTY\0garbage"), "the interpreter cannot load its snapshot"),
        (with_dump(lambda dump: dump[: len(dump) // 2]), "the interpreter cannot load its snapshot"),
        (with_dump(lambda dump: dump[:6] + b"\xff\x7f" + dump[8:]), "the interpreter cannot load its snapshot"),
    ],
)
async def test_a_snapshot_that_cannot_be_loaded_although_it_is_ours_is_not_used(
    tmp_path: Path, made: Callable[[bytes], bytes], why: str
) -> None:
    await paused_in(tmp_path)
    sealed_anew(tmp_path, made)
    (told,) = await gone_on_with(tmp_path)
    assert why in told


async def test_a_worker_that_dies_while_it_loads_a_snapshot_costs_nothing_but_time(tmp_path: Path) -> None:
    others = own_workers()
    await paused_in(tmp_path)
    async with engine(sqlite(tmp_path), workers=1) as hf:
        await hf.start(code("5"))  # so that there is a worker
        await asyncio.sleep(0.2)  # in which it is made ready for the next step
        await until(lambda: len(own_workers() - others) == 1)  # those of the engine before may still be ending
        (worker,) = own_workers() - others
        os.kill(worker, signal.SIGSTOP)
        feeding = asyncio.create_task(hf.feed("s", "a"))
        await asyncio.sleep(0.2)  # in which it would load; where it was not ready, another one does
        os.kill(worker, signal.SIGKILL)
        assert asked(await feeding) == ["second"]
        assert worker not in own_workers()
        assert result(await hf.feed("s", "b")) == EXPECTED


async def test_a_state_that_is_too_large_is_not_kept_and_replayed(tmp_path: Path) -> None:
    source = f"""
        import random
        x = [random.getrandbits(1_000_000) for _ in range({MAX_SNAPSHOT_BYTES * 8 // 1_000_000 + 10})]
        [len(x) > 100, llm("first"), llm("second")]
    """
    async with engine(sqlite(tmp_path)) as hf:
        await hf.start(code(source, memory_mib=256), id="s", wait=30)
    assert stored(tmp_path) == []
    assert await gone_on_with(tmp_path) == ["there is no snapshot"]


# --- snapshots in memory -----------------------------------------------------------------------------------


async def test_sessions_that_do_not_fit_into_memory_go_on_from_the_store(tmp_path: Path) -> None:
    pauses, end = await undisturbed()
    async with engine(sqlite(tmp_path), hot_bytes=1) as hf:
        names = [f"s{number}" for number in range(4)]
        for name in names:
            await begin(hf.store, name, code(MAIN), {**CTX, "_ns": name})

        async def one(name: str) -> tuple[list[list[str]], Any]:
            asked_, event = await converse(hf, await hf.resume(name), answers)
            return asked_, outcome(event)

        assert await asyncio.gather(*map(one, names)) == [(pauses, end)] * len(names)


async def test_a_fork_is_rebuilt_by_replay_and_goes_on_by_itself(tmp_path: Path) -> None:
    async with engine(sqlite(tmp_path)) as hf:
        await hf.start(code(SMALL), id="s")
        event = await hf.feed("s", "a")
        fork = await hf.fork("s", id="f")
        assert asked(fork) == asked(event) == ["second"]
        assert result(await hf.feed("f", "other")) == [True, "a", "other"]
        assert await replays(hf.store, "f") == ["there is no snapshot"]
        assert result(await hf.feed("s", "b")) == EXPECTED
        assert await replays(hf.store, "s") == []
