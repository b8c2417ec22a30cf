"""Writers killed at random while they write: what was acknowledged is there, once, and whole.

The default run is short. `make soak` runs longer ones, and HOLDFAST_SEED repeats a run's pressure.
"""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.core.records import LoggedRecord
from holdfast.store import open_store
from holdfast.testing.crash import AppendReceipt, CrashReport, CrashSpec, broken_laws, crash_writers
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.sessions import begin, feed

KILLS = 12
SOAK_KILLS = 100
soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")


@pytest.fixture
def seed() -> int:
    given = os.environ.get("HOLDFAST_SEED")
    return int(given) if given else random.SystemRandom().randrange(1_000_000)


async def assert_survives(spec: CrashSpec, capsys: pytest.CaptureFixture[str]) -> None:
    report = await crash_writers(spec)
    broken = await broken_laws(report)
    with capsys.disabled():
        print(f"\n{report.figures()}")
    assert not broken, f"{report.figures()}\n" + "\n".join(broken[:20])
    assert_was_put_to_the_test(report)


def assert_was_put_to_the_test(report: CrashReport) -> None:
    """A run without kills, acknowledgements and takeovers would show nothing."""
    assert report.kills >= report.spec.kills
    assert len(report.acks) >= 2 * report.spec.kills
    assert report.sent
    assert any(epoch > 1 for _, epoch, _ in report.holders)


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# --- the harness itself ----------------------------------------------------------------------------


async def judged(path: Path, **reported: Any) -> list[str]:
    """What the harness says of one session with two appends and a taken message, given what its writers reported."""
    spec = CrashSpec(f"sqlite:///{path}", sessions=1)
    async with open_store(spec.url) as store:
        session = await begin(store, "crash-0")
        for text in ("w0 1 1 1/2", "w0 1 1 2/2", "w1 1 2 1/1"):
            await session.append(LoggedRecord(message=text, source="append"))
        await session.append(LoggedRecord(message="m-1", source="taken"))
        await store.send("crash-0", "m-2", feed(), 1)
    return await broken_laws(CrashReport(spec, **reported))


async def test_the_harness_is_content_with_a_store_that_kept_its_word(tmp_path: Path) -> None:
    acks = [AppendReceipt("w0", "crash-0", 3, 1, 1), AppendReceipt("w1", "crash-0", 4, 1, 2)]
    sent = [("crash-0", "m-1"), ("crash-0", "m-2")]
    holders = [("crash-0", 1, "w0"), ("crash-0", 2, "w1")]
    assert await judged(tmp_path / "store.db", acks=acks, sent=sent, holders=holders) == []


@pytest.mark.parametrize(
    ("reported", "complaint"),
    [
        ({"acks": [AppendReceipt("w0", "crash-0", 9, 7, 1)]}, "was acknowledged and is lost"),
        ({"acks": [AppendReceipt("w0", "crash-0", 2, 1, 1)]}, "was acknowledged and stands at 3"),
        ({"sent": [("crash-0", "m-3")]}, "message m-3 was acknowledged and is lost"),
        ({"holders": [("crash-0", 2, "w0")]}, "epoch 2, which w0 held"),
        ({"holders": [("crash-0", 5, "w0"), ("crash-0", 5, "w1")]}, "epoch 5 was given 2 times"),
        ({"faults": ["a writer died by itself"]}, "a writer died by itself"),
    ],
)
async def test_the_harness_notices_an_acknowledgement_that_was_not_kept(
    tmp_path: Path, reported: dict[str, Any], complaint: str
) -> None:
    (broken,) = await judged(tmp_path / "store.db", **reported)
    assert complaint in broken


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        (["append w0 1 1 1/1", "append w1 1 1 1/1"], "epoch 1, which w0 held"),
        (["append w0 1 2 1/1", "append w1 1 1 1/1"], "after one of epoch 2"),
        (["append w0 1 1 1/1", "append w0 2 1 1/1", "append w0 1 1 1/1"], "is there 2 times"),
        (["append w0 1 1 1/2", "append w0 2 1 1/1"], "only a part of"),
        (["taken m-1", "taken m-1"], "message m-1 was taken 2 times"),
        (["taken waiting"], "message waiting was taken and still waits"),
    ],
)
async def test_the_harness_notices_a_journal_that_nobody_should_have_written(
    tmp_path: Path, messages: list[str], complaint: str
) -> None:
    spec = CrashSpec(f"sqlite:///{tmp_path}/store.db", sessions=1)
    async with open_store(spec.url) as store:
        session = await begin(store, "crash-0")
        await store.send("crash-0", "waiting", feed(), 1)
        for text in messages:
            source, _, message = text.partition(" ")
            await session.append(LoggedRecord(message=message, source=source))
    (broken,) = await broken_laws(CrashReport(spec))
    assert complaint in broken


async def test_the_harness_notices_a_summary_that_is_not_of_its_journal(tmp_path: Path) -> None:
    spec = CrashSpec(f"sqlite:///{tmp_path}/store.db", sessions=1)
    async with open_store(spec.url) as store:
        session = await begin(store, "crash-0")
        await store.repair("crash-0", msgspec.structs.replace(session.summary, pending=3))
    (broken,) = await broken_laws(CrashReport(spec))
    assert "the summary of crash-0" in broken


# --- kills -----------------------------------------------------------------------------------------


async def test_a_sqlite_file_keeps_what_it_acknowledged_to_writers_that_were_killed(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.db"
    await assert_survives(CrashSpec(f"sqlite:///{path}", seed, KILLS), capsys)
    assert_sound(path)


async def test_postgresql_keeps_what_it_acknowledged_to_writers_that_were_killed(
    server: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await assert_survives(CrashSpec(fresh_database(server), seed, KILLS), capsys)


@soak
@pytest.mark.soak
async def test_a_sqlite_file_survives_a_long_series_of_kills(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.db"
    await assert_survives(CrashSpec(f"sqlite:///{path}", seed, SOAK_KILLS), capsys)
    assert_sound(path)


@soak
@pytest.mark.soak
async def test_postgresql_survives_a_long_series_of_kills(
    server: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    await assert_survives(CrashSpec(fresh_database(server), seed, SOAK_KILLS), capsys)
