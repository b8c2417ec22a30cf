"""`export`, `import`, `delete`, `gc`, `doctor`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.testing.patience import HANG_S
from tests.cli.helpers import Home


def change(home: Home, statement: str, *values: object) -> None:
    """Damage the store behind Holdfast's back."""
    with closing(sqlite3.connect(home.db)) as connection, connection:
        connection.execute(statement, values)


def test_an_export_can_be_imported_into_another_store_and_go_on_there(home: Home, tmp_path: Path) -> None:
    sid = home.start("greet")
    file = tmp_path / "session.export"
    assert home.json("export", sid, str(file))["bytes"] == file.stat().st_size
    other = f"sqlite:///{tmp_path / 'other.db'}"
    receipt = home.json("import", str(file), "--store", other)
    assert receipt == {
        "session_id": sid,
        "position": 2,
        "replayed": False,
        "state": "imported",
        "key": None,
        "signed_by": None,
    }
    assert home.json("import", str(file), "--store", other)["replayed"] is True
    home.ok("adopt", sid, "--yes", "--store", other)
    assert home.json("answer", sid, "Ada", "--store", other)["result"] == "Hello Ada"


def test_an_export_goes_through_a_pipe(home: Home) -> None:
    sid = home.start("greet")
    exported = home.process("export", sid).stdout
    imported = home.process("import", "-", "--id", "copy", stdin=exported)
    assert imported.returncode == 0, imported.stderr
    assert home.json("show", "copy")["phase"] == "imported"


def test_an_export_to_what_is_no_file_writes_to_it_and_does_not_replace_it(home: Home, tmp_path: Path) -> None:
    sid = home.start("greet")
    plain, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(plain)
    home.ok("export", sid, str(link))
    assert link.is_symlink()
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        home.ok("export", sid, str(pipe))
        piped, _ = reader.communicate(timeout=HANG_S)
    assert pipe.is_fifo()
    assert piped == plain.read_bytes()


def test_a_damaged_export_is_refused_with_its_line(home: Home, tmp_path: Path) -> None:
    sid = home.start("greet")
    file = tmp_path / "session.export"
    home.ok("export", sid, str(file))
    file.write_text(file.read_text().replace("your name", "your game"))
    result = home.call("import", str(file), "--id", "copy")
    assert result.exit_code == 2
    assert "line 3" in result.stderr
    assert home.call("show", "copy").exit_code == 3


def test_what_cannot_be_read_or_written_is_named(home: Home, tmp_path: Path) -> None:
    sid = home.start("greet")
    assert home.call("import", str(tmp_path / "nothing")).exit_code == 2
    result = home.call("export", sid, str(tmp_path / "no" / "folder" / "file"))
    assert result.exit_code == 2
    assert "No such file or directory" in result.stderr


def test_delete_asks_for_a_yes(home: Home) -> None:
    sid = home.start("greet")
    refused = home.call("delete", sid)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert home.json("delete", sid, "--yes") == {"session_id": sid, "deleted": True}
    assert home.call("show", sid).exit_code == 3


def test_gc_expires_idle_sessions_and_deletes_old_ones_as_told(home: Home) -> None:
    waiting, ended = home.start("greet"), home.start("greet")
    home.ok("answer", ended, "Ada")
    assert home.json("gc") == {"expired": [], "deleted": []}
    assert home.json("gc", "--idle-days", "7") == {"expired": [], "deleted": []}
    assert home.json("gc", "--idle-days", "0") == {"expired": [waiting], "deleted": []}
    assert home.json("show", waiting)["phase"] == "expired"
    assert sorted(home.json("gc", "--keep-days", "0")["deleted"]) == sorted([waiting, ended])
    assert home.json("sessions")["sessions"] == []


def test_doctor_finds_a_sound_store_sound(home: Home) -> None:
    home.start("greet")
    report = home.json("doctor")
    sandbox = report.pop("sandbox")
    assert [each["wait"]["why"].split(";")[0] for each in report.pop("still")] == ["waits for an answer to q-0 (llm)"]
    counts = {"sessions": 1, "still_count": 1, "between_turns": 0}
    assert report == {"ok": True, "repaired": [], "damaged": [], "processes": [], "limits": []} | counts
    assert sandbox["runs"] is True


def test_doctor_says_on_a_terminal_how_far_it_is(home: Home) -> None:
    home.start("greet")
    with home.terminal("doctor") as terminal:
        terminal.expect("1 session checked …")
        assert terminal.exit_code() == 0


def test_doctor_repairs_listings_from_the_journal(home: Home) -> None:
    sid = home.start("greet")
    change(home, "UPDATE sessions SET state = 'completed', pending = 7")
    dry = home.call("doctor", "--dry-run")
    assert dry.exit_code == 1
    assert "can be repaired" in dry.stdout
    report = home.json("doctor")
    assert [found["session_id"] for found in report["repaired"]] == [sid]
    assert "pending was 7, is 1" in report["repaired"][0]["why"]
    assert home.json("doctor")["repaired"] == []
    assert home.json("sessions", "--state", "paused")["sessions"][0]["pending_queries"] == 1


def test_doctor_repairs_a_listing_that_cannot_even_be_read(home: Home) -> None:
    sid = home.start("greet")
    home.start("greet", "--id", "sound")
    change(home, "UPDATE sessions SET state = 'nonsense' WHERE id = ?", sid)
    listed = home.call("sessions")
    assert listed.exit_code == 0
    assert sid in listed.stderr
    assert len(home.json("doctor")["repaired"]) == 1
    assert home.json("sessions")["damaged"] == []


def test_doctor_explains_a_damaged_journal_and_leaves_the_others_alone(home: Home) -> None:
    sid = home.start("panel")
    home.ok("answer", sid, "x", "--query", "q-0")
    home.start("greet", "--id", "sound")
    change(home, "UPDATE journal SET body = replace(body, '\"x\"', '\"y\"') WHERE 3 BETWEEN first AND last")
    result = home.call("doctor")
    assert result.exit_code == 1
    assert "position 3" in result.stdout
    assert f"holdfast fork {sid} --at 2" in result.stdout
    assert "2 sessions checked, 1 sound, 1 damaged" in result.stdout
    assert json.loads(home.call("doctor", "--json").stdout)["damaged"][0]["session_id"] == sid


@pytest.mark.parametrize(("position", "next_step"), [(0, "None of it can be used"), (1, "--at 1")])
def test_doctor_finds_a_journal_that_is_longer_than_its_session(home: Home, position: int, next_step: str) -> None:
    sid = home.start("greet")
    home.start("greet", "--id", "sound")
    change(home, "UPDATE sessions SET position = ? WHERE id = ?", position, sid)
    result = home.call("doctor")
    assert result.exit_code == 1
    assert "2 sessions checked, 1 sound, 1 damaged" in result.stdout
    assert f"ends at position {position}, but that has 2" in result.stdout
    assert next_step in result.stdout


def test_doctor_finds_a_value_that_is_gone(home: Home) -> None:
    big = home.folder / "big.json"
    big.write_text(json.dumps({"mark": "!" * 10_000}))
    sid = home.start("greet", "--ctx", f"@{big}")
    change(home, "DELETE FROM blobs")
    result = home.call("doctor")
    assert result.exit_code == 1
    assert "None of it can be used" in result.stdout
    assert home.call("delete", sid, "--yes").exit_code == 0


def test_as_much_as_can_be_read_of_a_damaged_session_is_shown(home: Home) -> None:
    sid = home.start("panel")
    home.ok("answer", sid, "x", "--query", "q-0")
    change(home, "UPDATE journal SET body = replace(body, '\"x\"', '\"y\"') WHERE 3 BETWEEN first AND last")
    result = home.call("show", sid)
    assert result.exit_code == 1
    assert "second?" in result.stdout
    assert "position 3" in result.stderr
    assert "holdfast doctor" in result.stderr


def test_doctor_explains_why_sessions_do_not_move(home: Home) -> None:
    asked = home.start("choose")
    waiting = home.start("greet", "--service", "billing")
    home.ok("assign", waiting, "--llm", "any")
    report = home.json("doctor")
    assert report["ok"]
    still = {each["session_id"]: each for each in report["still"]}
    assert still[asked]["wait"]["answers"] == ["q-0"]
    assert still[waiting]["service"] == "billing"
    assert "a model" in still[waiting]["wait"]["missing"]
    assert report["still"][0]["session_id"] == waiting  # what nobody can serve comes first
    text = home.ok("doctor")
    assert f"{waiting} of service billing  stands still, waits for a process that serves service `billing`" in text
    assert f"holdfast answer {asked}" in text
    assert "No process is at work on this store" in text
    (row,) = [row for row in home.json("top", "--once")["sessions"] if row["session_id"] == waiting]
    assert "a model" in row["missing"]
    assert "a process that serves service `billing`" in home.ok("top", "--once")
    assert "for a process that serves service `billing`" in home.ok("show", waiting)
