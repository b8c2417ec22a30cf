"""The contract of an envelope store in each of its places: saving, loading, listing, bad envelopes and bad ids."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.envelopes.store import NAMESPACE, EnvelopeReport, EnvelopeSessions, SessionEnvelope, StoreEnvelopes
from holdfast.core.errors import InvalidIdError
from holdfast.core.limits import MAX_INTEGER
from holdfast.store import open_store
from holdfast.store.errors import EnvelopeError, SchemaVersionError
from holdfast.store.limits import READ_LIMIT
from tests.agent.envelopes.helpers import FROM_FLUERS, GOOD, Rig, an_envelope, said

# --- the laws of the contract --------------------------------------------------------------------


async def test_what_is_saved_is_loaded(rig: Rig) -> None:
    await rig.envelopes.save("s-1", FROM_FLUERS)
    assert await rig.envelopes.load("s-1") == FROM_FLUERS


async def test_an_absent_envelope_is_none(rig: Rig) -> None:
    assert await rig.envelopes.load("s-1") is None


async def test_a_second_save_replaces_the_whole_envelope(rig: Rig) -> None:
    await rig.envelopes.save("s-1", FROM_FLUERS)
    await rig.envelopes.save("s-1", an_envelope())
    assert await rig.envelopes.load("s-1") == an_envelope()


async def test_a_deleted_envelope_is_gone_and_can_be_saved_again(rig: Rig) -> None:
    assert await rig.envelopes.delete("s-1") is False
    await rig.envelopes.save("s-1", an_envelope(said("first")))
    assert await rig.envelopes.delete("s-1") is True
    assert await rig.envelopes.load("s-1") is None
    assert await rig.envelopes.delete("s-1") is False
    await rig.envelopes.save("s-1", an_envelope(said("second")))
    assert await rig.envelopes.load("s-1") == an_envelope(said("second"))


async def test_an_empty_place_lists_nothing(rig: Rig) -> None:
    assert await rig.envelopes.list() == EnvelopeReport([], {})


async def test_the_listing_is_sorted_and_the_same_through_the_sessions(rig: Rig) -> None:
    for session_id in ("s-2", "s-10", "S-3", "a.json", "s-1", "a@b:c+d=e_f.g"):
        await rig.envelopes.save(session_id, an_envelope())
    found = await EnvelopeSessions.list(rig.envelopes)
    assert found == EnvelopeReport(["S-3", "a.json", "a@b:c+d=e_f.g", "s-1", "s-10", "s-2"], {})


async def test_a_bad_envelope_is_listed_apart_and_stops_nobody(rig: Rig) -> None:
    await rig.envelopes.save("good", an_envelope())
    await rig.plant("shapeless", {"schema_version": 1})
    await rig.plant("newer", {"schema_version": 7, "turns": "of another shape"})
    found = await rig.envelopes.list()
    assert found.ids == ["good"]
    assert list(found.bad) == ["newer", "shapeless"]
    assert "schema version 7" in found.bad["newer"]
    assert "model" in found.bad["shapeless"]
    assert await rig.envelopes.load("good") == an_envelope()


async def test_a_bad_envelope_can_be_deleted_and_overwritten(rig: Rig) -> None:
    await rig.plant("s-1", ["no envelope"])
    await rig.plant("s-2", {"schema_version": 7})
    assert await rig.envelopes.delete("s-1") is True
    await rig.envelopes.save("s-2", an_envelope())
    assert await rig.envelopes.list() == EnvelopeReport(["s-2"], {})


@pytest.mark.parametrize("version", [2, 0, -1, 4_294_967_295, 10**30])
async def test_the_version_is_looked_at_before_the_shape(rig: Rig, version: int) -> None:
    if version > MAX_INTEGER and isinstance(rig.envelopes, StoreEnvelopes):
        version = MAX_INTEGER  # the most that a state item can hold
    await rig.plant("s-1", {"schema_version": version, "messages": "in a new shape"})
    with pytest.raises(SchemaVersionError, match=r"session 's-1'.*reads up to 1") as caught:
        await rig.envelopes.load("s-1")
    assert caught.value.found == version


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "Expected `object`"),
        ([], "Expected `object`"),
        ("text", "Expected `object`"),
        ({}, "schema_version"),
        (GOOD | {"schema_version": "1"}, "schema_version"),
        (GOOD | {"schema_version": 1.5}, "schema_version"),
        (GOOD | {"schema_version": True}, "schema_version"),
        ({key: value for key, value in GOOD.items() if key != "messages"}, "messages"),
        ({key: value for key, value in GOOD.items() if key != "metadata"}, "metadata"),
        (GOOD | {"model": None}, "model"),
        (GOOD | {"max_turns": -1}, "max_turns"),
        (GOOD | {"max_turns": 1.5}, "max_turns"),
        (GOOD | {"metadata": {"a": 1}}, "metadata"),
        (GOOD | {"messages": [{"content": []}]}, "role"),
        (GOOD | {"messages": [{"role": "wizard"}]}, r"messages\[0\].role|messages\[...\].role"),
        (GOOD | {"messages": [{"role": "user", "content": "hi"}]}, "content"),
        (GOOD | {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "type"),
        (GOOD | {"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "video"),
        (GOOD | {"messages": [{"role": "tool", "content": [{"type": "tool_result", "content": 1}]}]}, "tool_use_id"),
        (
            GOOD | {"messages": [{"role": "user", "content": [{"type": "image", "image": {"media_type": "a/b"}}]}]},
            "data",
        ),
        (
            GOOD
            | {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "image": {"media_type": "a/b", "data": "!"}}]}
                ]
            },
            "base64",
        ),
    ],
)
async def test_a_malformed_envelope_is_an_error_naming_the_session_and_the_fault(
    rig: Rig, value: Any, why: str
) -> None:
    await rig.plant("s-1", value)
    with pytest.raises(EnvelopeError, match=why) as caught:
        await rig.envelopes.load("s-1")
    assert "session 's-1'" in str(caught.value)
    assert len(str(caught.value)) < 1000


BAD_IDS = [
    *("../x", "..", ".", "a/b", "/tmp/holdfast-escaped", "a\\b", "", ".hidden", "-x", "a b", "a\n", "\na", "é", "ａ"),
    *("a\0b", "\0", "x" * 1_000_000, "x" * 201, "\ud800", "a\udcff", None, 5, b"s-1", ["s-1"]),
]


@pytest.mark.parametrize("session_id", BAD_IDS, ids=lambda value: ascii(value)[:20])
async def test_a_bad_id_is_refused_before_anything_is_touched(rig: Rig, tmp_path: Path, session_id: Any) -> None:
    before = sorted(path for path in tmp_path.rglob("*") if "holdfast.db" not in path.name)
    for refused in (
        rig.envelopes.save(session_id, an_envelope()),
        rig.envelopes.load(session_id),
        rig.envelopes.delete(session_id),
        EnvelopeSessions().save(rig.envelopes, session_id),
        EnvelopeSessions.load(rig.envelopes, session_id),
    ):
        with pytest.raises(InvalidIdError, match="session id") as caught:
            await refused
        assert len(str(caught.value)) < 1000
    assert sorted(path for path in tmp_path.rglob("*") if "holdfast.db" not in path.name) == before
    assert await rig.envelopes.list() == EnvelopeReport([], {})


async def test_the_longest_id_is_kept(rig: Rig) -> None:
    await rig.envelopes.save("x" * 200, an_envelope())
    assert await rig.envelopes.list() == EnvelopeReport(["x" * 200], {})


async def test_concurrent_saves_of_one_id_leave_one_of_them_whole(rig: Rig) -> None:
    versions = [an_envelope(said(f"{n} " * 20_000), metadata={"n": str(n)}) for n in range(30)]
    seen: list[SessionEnvelope | None] = []

    async def look() -> None:
        seen.append(await rig.envelopes.load("s-1"))

    await asyncio.gather(*(job for version in versions for job in (rig.envelopes.save("s-1", version), look())))
    assert all(found is None or found in versions for found in seen)
    assert await rig.envelopes.load("s-1") in versions
    assert await rig.envelopes.list() == EnvelopeReport(["s-1"], {})


# --- a store's state -----------------------------------------------------------------------------


async def test_a_store_with_more_envelopes_than_a_page_lists_them_all() -> None:
    async with open_store("memory:") as store:
        names = [f"s-{n:05}" for n in range(2 * READ_LIMIT + 1)]
        for name in names:
            await store.put_state(NAMESPACE, name, GOOD)
        assert await StoreEnvelopes(store).list() == EnvelopeReport(names, {})


async def test_state_items_of_others_are_not_envelopes() -> None:
    async with open_store("memory:") as store:
        await store.put_state("other", "s-1", GOOD)
        assert await StoreEnvelopes(store).load("s-1") is None
        assert await StoreEnvelopes(store).list() == EnvelopeReport([], {})


async def test_a_row_that_was_damaged_is_bad_and_stops_nobody(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/holdfast.db") as store:
        envelopes = StoreEnvelopes(store)
        await envelopes.save("s-1", an_envelope())
        await envelopes.save("s-2", an_envelope())
        with sqlite3.connect(tmp_path / "holdfast.db") as connection:
            connection.execute("UPDATE state SET value = '{\"schema_ver' WHERE key = 's-1'")
        connection.close()
        found = await envelopes.list()
        assert found.ids == ["s-2"]
        assert list(found.bad) == ["s-1"]
        with pytest.raises(EnvelopeError, match="session 's-1'"):
            await envelopes.load("s-1")
