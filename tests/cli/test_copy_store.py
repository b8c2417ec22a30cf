"""`copy-store`: a whole store into another, killed and continued."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.testing.patience import until_so
from holdfast.testing.postgres_server import fresh_database
from tests.cli.helpers import Home

SESSIONS = 60


def copies_in(path: Path) -> int:
    """How many sessions are in a store that another process is writing."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it is being made


def test_a_session_goes_on_in_the_copy_on_postgresql_and_back(home: Home, server: str, tmp_path: Path) -> None:
    sid = home.start("greet")
    moved, back = fresh_database(server), f"sqlite:///{tmp_path / 'back.db'}"
    assert home.json("copy-store", home.url, moved)["copied"] == 1
    assert home.json("answer", sid, "Ada", "--store", moved)["result"] == "Hello Ada"
    assert home.json("copy-store", moved, back)["skipped"] == []
    assert home.json("show", sid, "--store", back)["outcome"]["result"] == "Hello Ada"
    assert home.json("show", sid)["phase"] == "paused"  # the source is as it was


def test_a_copy_that_is_killed_is_continued_by_the_same_command(home: Home, tmp_path: Path) -> None:
    for _ in range(SESSIONS):
        home.start("greet")
    path = tmp_path / "copy.db"
    command = ("copy-store", home.url, f"sqlite:///{path}")
    copying = home.background(*command)
    until_so(lambda: copies_in(path) > 0 or copying.poll() is not None)
    copying.kill()
    copying.communicate()
    report = home.json(*command)
    assert (report["sessions"], report["copied"] + report["equal"], report["skipped"]) == (SESSIONS, SESSIONS, [])
    assert home.json(*command)["equal"] == SESSIONS


def test_what_was_copied_is_said_in_a_sentence(home: Home, tmp_path: Path) -> None:
    home.start("greet")
    said = home.ok("copy-store", home.url, f"sqlite:///{tmp_path / 'copy.db'}")
    assert "1 of 1 sessions copied" in said


def test_stores_that_cannot_be_copied_are_refused(home: Home, tmp_path: Path) -> None:
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    for source, words in [
        ("memory:", "a store in memory cannot be copied"),
        (target, "cannot be copied into itself"),
        (f"sqlite:///{tmp_path}/nothing.db", "there is no such file"),
    ]:
        result = home.call("copy-store", source, target)
        assert result.exit_code != 0
        assert words in result.stderr
    assert not (tmp_path / "copy.db").exists()
