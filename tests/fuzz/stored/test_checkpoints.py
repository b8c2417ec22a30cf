"""Checkpoints of agents that were forged, or cannot be read although their seals fit: not used, and nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis.strategies as st
import msgspec
import pytest

from holdfast.core.values import Json
from holdfast.engine import session_fold
from holdfast.engine.checkpoints import saved_in
from holdfast.engine.seals import Sealer
from holdfast.store import Store
from holdfast.store.checkpoints import seal_checkpoint, seal_segment
from holdfast.store.commits import Checkpoint, Segment
from holdfast.store.export import export_lines, export_session, import_session
from holdfast.testing.provider import tool_call
from holdfast.testing.sessions import adopt
from holdfast.zstd import compress, decompress
from tests.agent.helpers import Home, add
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_json, encoded
from tests.store.pg_fixtures import database, postgres_url
from tests.store.postgres.helpers import connected

__all__ = ["database", "postgres_url"]

MOST_BYTES = 1 << 24
TURNS = 12

Stored: TypeAlias = tuple[Checkpoint, list[Segment]]


class Sample:
    """A checkpoint of an agent's session, taken apart."""

    def __init__(self, sealed: Stored) -> None:
        opened = Sealer().open_checkpoint("s-1", *sealed)
        assert opened is not None
        self.sealed = sealed
        self.position = sealed[0].position
        state, data = opened
        self.segments = [Segment(each.after, each.position, part) for each, part in zip(sealed[1], data, strict=True)]
        saved = saved_in(state)
        assert saved is not None
        self.saved = saved
        self.parts = {name: getattr(self.saved, name) for name in ("fold", "program", "view")}

    def changed(self, name: str, part: bytes) -> Stored:
        """The checkpoint and the segments with one part of them in place of the right one."""
        if name == "segments":
            first, *rest = self.segments
            return self.saved.checkpoint(self.position), [msgspec.structs.replace(first, data=part), *rest]
        saved = msgspec.structs.replace(self.saved, **{name: part})
        return saved.checkpoint(self.position), self.segments


async def talk(home: Home) -> Sample:
    script = [step for number in range(TURNS) for step in (tool_call("add", a=number, b=1), f"Said {number}.")]
    async with home.runtime(*script, tools=[add]) as runtime:
        session = await runtime.session("s-1").open()
        for number in range(TURNS):
            await session.turn(f"Turn {number}.").run()
        found = await session.mount.store.checkpoint("s-1")
    assert found is not None
    assert found[1]
    return Sample(found)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_fold, "CHECKPOINT_RECORDS", 16)


# --- forged, with checksums that fit and seals that do not ---------------------------------------------


@st.composite
def forgeries(draw: Draw, sample: Sample) -> Stored:
    """A checkpoint of which one part was changed, under the seal of the right one."""
    name = draw(st.sampled_from(["fold", "program", "view", "segments", "segments", "sealed"]))
    (checkpoint, segments), (was, were) = sample.sealed, sample.sealed
    if name == "sealed":
        checkpoint = Checkpoint(was.position, draw(changed_bytes([was.state])))
    elif name == "segments":
        start, ids, packed = sample.segments[0].data.split(b"\n", 2)
        match draw(st.sampled_from(["start", "ids", "body", "bytes"])):
            case "start":
                start = _changed(draw, start)
            case "ids":
                ids = _changed(draw, ids)
            case "body":
                packed = compress(_changed(draw, decompress(packed, MOST_BYTES)))
            case _:
                packed = draw(changed_bytes([packed]))
        forged = were[0].data[:16] + b"\n".join((start, ids, packed))
        segments = [msgspec.structs.replace(were[0], data=forged), *were[1:]]
    else:
        forged = sample.changed(name, _changed(draw, sample.parts[name]))[0].state
        checkpoint = Checkpoint(was.position, was.state[:16] + forged)
    return checkpoint, segments


@pytest.fixture(params=["sqlite", "postgres"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "sqlite":
        return Home(f"sqlite:///{tmp_path / 'store.db'}")
    return Home(request.getfixturevalue("database"))


async def forge(home: Home, forged: Stored) -> None:
    """Put rows with fitting checksums in place of those that are there."""
    sealed = seal_checkpoint("s-1", forged[0]), seal_segment("s-1", forged[1][0])
    rows = [(checksum, data, position) for _, position, checksum, data in sealed]
    if home.url.startswith("sqlite:///"):
        with closing(sqlite3.connect(home.url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
            connection.execute("UPDATE checkpoints SET checksum = ?, state = ? WHERE position = ?", rows[0])
            connection.execute("UPDATE segments SET checksum = ?, data = ? WHERE position = ?", rows[1])
        return
    async with connected(home.url) as connection:
        await connection.execute("update holdfast.checkpoints set checksum=$1, state=$2 where position=$3", *rows[0])
        await connection.execute("update holdfast.segments set checksum=$1, data=$2 where position=$3", *rows[1])


async def seen(home: Home) -> tuple[Any, ...]:
    """What readers are shown of the session, and all that is stored of it."""
    async with home.runtime("Fine.") as runtime:
        session = await runtime.session("s-1").open()
        view = await session.read_view()
        status = (await session.usage_report(), [item async for item in export_lines(session.mount.store, "s-1")])
        return view, status


def test_a_forged_checkpoint_is_not_used(fuzzer: Fuzzer, home: Home, often: None) -> None:
    with asyncio.Runner() as runner:
        sample = runner.run(talk(home))
        right = runner.run(seen(home))

        async def check(forged: Stored) -> None:
            await forge(home, forged)
            assert await seen(home) == right

        examples = 40 if home.url.startswith("sqlite:") else 12
        fuzzer.run(lambda forged: runner.run(check(forged)), forgeries(sample), examples)


# --- sealed, and of no use all the same ----------------------------------------------------------------


@st.composite
def mistakes(draw: Draw, sample: Sample) -> Stored:
    """A checkpoint of which one part cannot be read, under a seal that fits: as a process with a fault leaves it."""
    names = [name for name, part in sample.parts.items() if part]
    name = draw(st.sampled_from([*names, "segments"]))
    if name == "view":
        # Ids in it lead to each other, and are trusted to its seal: only what cannot be read is noticed.
        part = sample.parts[name]
        part = part[: draw(st.integers(0, len(part) - 1))]
    elif name == "segments":
        # Its first line says what is in it. The rest is decoded when it is needed, and trusted to its seal.
        header, rest = sample.segments[0].data.split(b"\n", 1)
        part = _changed(draw, header) + b"\n" + rest
    else:
        part = _changed(draw, sample.parts[name])
    return _sealed(*sample.changed(name, part))


def unreadable_policy(sample: Sample) -> Stored:
    """A checkpoint of a session that was started with a policy which no agent can be made of: turns once hung."""
    return _sealed(*sample.changed("fold", sample.parts["fold"].replace(b'"model":"m-1"', b'"model":10', 1)))


def _sealed(checkpoint: Checkpoint, segments: list[Segment]) -> Stored:
    sealer = Sealer()
    return sealer.seal_checkpoint("s-1", checkpoint), [sealer.seal_segment("s-1", each) for each in segments]


def _changed(draw: Draw, plain: bytes) -> bytes:
    document = _json(plain)
    if document is not None and draw(st.integers(0, 3)):
        return encoded(draw(changed_json([document])))
    return draw(changed_bytes([plain]))


def _json(data: bytes) -> Json:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError:
        return None


def test_a_checkpoint_with_a_mistake_is_not_used_or_harms_nothing(fuzzer: Fuzzer, tmp_path: Path, often: None) -> None:
    async def made() -> Sample:
        home = Home("memory:")
        sample = await talk(home)
        await export_session(home.store(), "s-1", tmp_path / "session")
        return sample

    async def check(found: Stored) -> None:
        home = Home("memory:")
        store: Store = home.store()
        await import_session(store, tmp_path / "session")
        await adopt(store, "s-1")
        before = [entry async for entry in store.journal("s-1")]

        async def checkpoint(session_id: str) -> Stored:
            return found

        store.checkpoint = checkpoint  # type: ignore[method-assign]
        async with home.runtime("Fine.") as runtime:
            try:
                session = await runtime.session("s-1").open()
                await session.read_view()
                await session.turn("And now?").run()
            except Exception as error:
                assert_is_declared(error)
        after = [entry async for entry in store.journal("s-1")]
        assert after[: len(before)] == before
        await store.load("s-1")

    sample = asyncio.run(made())
    known = [unreadable_policy(sample)]
    fuzzer.run(lambda found: asyncio.run(check(found)), mistakes(sample), examples=25, known=known)
