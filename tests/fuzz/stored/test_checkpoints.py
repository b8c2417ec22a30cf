"""Checkpoints of agents that cannot be read although their checksums fit: not used, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest

from holdfast.core.values import Json
from holdfast.engine import session_fold
from holdfast.engine.checkpoints import SavedSession
from holdfast.store import Store
from holdfast.store.commits import Checkpoint, Segment
from holdfast.store.export import export_session, import_session
from holdfast.testing.provider import tool_call
from holdfast.zstd import decompress
from tests.agent.helpers import Home, add
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_json, encoded

MOST_BYTES = 1 << 24


class Sample:
    """An agent's session in a file, and its checkpoint taken apart."""

    def __init__(self, checkpoint: Checkpoint, segments: list[Segment]) -> None:
        self.position, self.segments = checkpoint.position, segments
        self.saved = msgspec.msgpack.decode(decompress(checkpoint.state, MOST_BYTES), type=SavedSession)
        self.parts = {name: getattr(self.saved, name) for name in ("fold", "program", "view")}

    def changed(self, name: str, part: bytes) -> tuple[Checkpoint, list[Segment]]:
        """The checkpoint and the segments with one part of them in place of the right one."""
        if name == "segments":
            first, *rest = self.segments
            return self.whole(), [msgspec.structs.replace(first, data=part), *rest]
        saved = msgspec.structs.replace(self.saved, **{name: part})
        return saved.checkpoint(self.position), self.segments

    def whole(self) -> Checkpoint:
        return self.saved.checkpoint(self.position)


async def made(file: Path) -> Sample:
    home = Home("memory:")
    store = home.store()
    script = [["Yes."] if number % 2 else [tool_call("add", a=number, b=1)] for number in range(40)]
    async with home.runtime(*[step for each in script for step in each], tools=[add]) as runtime:
        session = await runtime.session("s-1").open()
        for number in range(12):
            await session.turn(f"Turn {number}.").run()
    found = await store.checkpoint("s-1")
    assert found is not None
    await export_session(store, "s-1", file)
    return Sample(*found)


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    monkeypatch.setattr(session_fold, "CHECKPOINT_RECORDS", 16)
    return asyncio.run(made(tmp_path / "session"))


@st.composite
def changes(draw: Draw, sample: Sample) -> tuple[Checkpoint, list[Segment]]:
    """A checkpoint of which one part was changed: in its JSON, or in its bytes."""
    names = [name for name, part in sample.parts.items() if part] + (["segments"] if sample.segments else [])
    name = draw(st.sampled_from(names))
    if name == "view":
        # Ids in it lead to each other, and are trusted to its checksum: only what cannot be read is noticed.
        part = sample.parts[name]
        return sample.changed(name, part[: draw(st.integers(0, len(part) - 1))])
    if name != "segments":
        return sample.changed(name, _changed(draw, sample.parts[name]))
    # Its first line says what is in it. The rest is decoded when it is needed, and trusted to its checksum.
    header, rest = sample.segments[0].data.split(b"\n", 1)
    return sample.changed(name, _changed(draw, header) + b"\n" + rest)


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


def test_a_changed_checkpoint_is_not_used_or_harms_nothing(fuzzer: Fuzzer, tmp_path: Path, sample: Sample) -> None:
    async def check(found: tuple[Checkpoint, list[Segment]]) -> None:
        home = Home("memory:")
        store: Store = home.store()
        await import_session(store, tmp_path / "session")
        before = [entry async for entry in store.journal("s-1")]

        async def checkpoint(session_id: str) -> tuple[Checkpoint, list[Segment]]:
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

    fuzzer.run(lambda found: asyncio.run(check(found)), changes(sample), examples=60)
