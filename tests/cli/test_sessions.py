"""`sessions`, `show`, `watch`, and how sessions are found."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

from holdfast.testing.patience import HANG_S
from tests.cli.helpers import Home


def test_sessions_lists_the_newest_first_a_page_at_a_time(home: Home) -> None:
    for name in ("a", "b", "c"):
        home.start("greet", "--id", name)
    page = home.json("sessions", "--limit", "2")
    assert [row["session_id"] for row in page["sessions"]] == ["c", "b"]
    rest = home.json("sessions", "--limit", "2", "--after", page["next"])
    assert [row["session_id"] for row in rest["sessions"]] == ["a"]
    assert rest["next"] is None


def test_sessions_can_be_filtered(home: Home) -> None:
    home.start("greet", "--id", "one")
    home.start("choose", "--id", "two")
    home.ok("answer", "one", "Ada")

    def found(*args: str) -> list[str]:
        return [row["session_id"] for row in home.json("sessions", *args)["sessions"]]

    assert found("--state", "paused") == ["two"]
    assert found("--state", "paused", "--state", "completed") == ["two", "one"]
    assert found("--program", "strategies:greet") == ["one"]
    assert found("--waiting-for", "human") == ["two"]
    assert found("--waiting-for", "llm") == []


def test_the_table_shows_what_each_session_waits_for(home: Home) -> None:
    sid = home.start("panel")
    assert home.ok("sessions").splitlines()[1].split()[:5] == [sid, "paused", "strategies:panel", "3", "llm"]


def test_each_session_is_listed_with_its_title_and_children_are_counted_beside_their_parent(home: Home) -> None:
    home.start("delegate", "--id", "boss", "--task", "Say hello to whoever comes in")
    row = next(line for line in home.ok("sessions").splitlines() if line.startswith("boss"))
    assert "strategies:delegate (+1)  Say hello to whoever comes in" in row
    (shown,) = home.json("sessions")["sessions"]
    assert (shown["title"], shown["below"]) == ("Say hello to whoever comes in", 1)
    (child,) = home.json("sessions", "--parent", "boss")["sessions"]
    assert [row["session_id"] for row in home.json("sessions", "--children")["sessions"]] == [
        child["session_id"],
        "boss",
    ]


def test_the_list_fits_80_columns_with_whole_ids_and_states(home: Home) -> None:
    sid = home.start("panel", "--task", "A task that is so long that it does not fit beside all the rest of the line")
    with home.terminal("sessions", columns=80) as terminal:
        terminal.expect(f"{sid}  paused  ")
        assert terminal.exit_code() == 0
        assert max(map(len, terminal.shown.splitlines())) <= 80


def test_an_id_that_was_cut_off_by_a_listing_is_accepted(home: Home) -> None:
    sid = home.start("greet")
    assert home.json("show", f"{sid[:15]}…")["session_id"] == sid


WITHOUT_RIGHTS = """
import ctypes, os, sys
if os.getuid() == 0:  # whom rights do not stop, unless it gives that up (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)
    assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "holdfast.cli", *sys.argv[1:]])
"""


def test_a_store_that_can_only_be_read_is_shown_and_not_written(home: Home) -> None:
    home.start("greet", "--id", "kept")
    folder = home.folder / "shared"
    folder.mkdir()
    home.db.rename(folder / "sessions.db")
    (folder / "sessions.db").chmod(0o444)
    folder.chmod(0o555)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT_RIGHTS, "--store", f"sqlite:///{folder}/sessions.db", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=home.folder)

    try:
        assert "kept" in run("sessions").stdout
        assert "What is your name?" in run("show", "kept").stdout
        refused = run("answer", "kept", "Ada")
        assert (refused.returncode, "this process may only read it" in refused.stderr) == (5, True), refused.stderr
    finally:
        folder.chmod(0o755)


def test_what_is_logged_beside_json_is_json_too(home: Home) -> None:
    home.start("greet", "--id", "kept")
    index = bytearray(100)  # of a log that was removed, with five pages that were not copied
    struct.pack_into("=HI", index, 14, 1024, 5)
    home.db.with_name(f"{home.db.name}-shm").write_bytes(index)
    done = home.process("sessions", "--json")
    assert json.loads(done.stdout)["sessions"][0]["session_id"] == "kept"
    (logged,) = map(json.loads, done.stderr.splitlines())
    assert (logged["status"], logged["level"], logged["logger"]) == ("log", "error", "holdfast.store")


def test_no_sessions_yet_is_no_error(home: Home) -> None:
    result = home.call("sessions", env={"HOLDFAST_STORE": "", "XDG_DATA_HOME": str(home.folder / "data")})
    assert result.exit_code == 0
    assert "No sessions yet" in result.stdout
    assert (home.folder / "data" / "holdfast" / "holdfast.db").exists()


def test_an_id_may_be_abbreviated_with_or_without_its_prefix(home: Home) -> None:
    sid = home.start("greet")
    for given in (sid, sid[:8], sid[2:8]):
        assert home.json("show", given)["session_id"] == sid


def test_an_ambiguous_beginning_lists_the_candidates(home: Home) -> None:
    home.start("greet", "--id", "s-abc1")
    home.start("greet", "--id", "s-abc2")
    result = home.call("show", "abc", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stderr)["candidates"] == ["s-abc1", "s-abc2"]


def test_the_beginning_of_a_parents_id_means_the_parent(home: Home) -> None:
    event = home.json("run", f"{home.file}:delegate", "--id", "s-family")
    assert event["query_id"] == "q-0.q-0"
    assert home.json("show", "fam")["session_id"] == "s-family"
    children = home.json("sessions", "--parent", "fam")["sessions"]
    assert [row["session_id"] for row in children] == ["s-family.q-0"]


def test_a_deleted_session_is_told_from_one_that_never_was(home: Home) -> None:
    sid = home.start("greet")
    home.ok("delete", sid, "--yes")
    result = home.call("show", sid)
    assert result.exit_code == 3
    assert "it was deleted" in result.stderr


def test_show_prints_the_status_with_all_pending_queries(home: Home) -> None:
    sid = home.start("panel")
    status = home.json("show", sid)
    assert [query["prompt"] for query in status["pending"]] == ["first?", "second?", "third?"]
    shown = home.ok("show", sid)
    assert "Waits for 3 answers" in shown
    assert f"holdfast answer {sid} --query q-0 TEXT" in shown


def test_show_numbers_the_choices_of_a_person(home: Home) -> None:
    shown = home.ok("show", home.start("choose"))
    assert "1. tea" in shown
    assert "2. coffee" in shown


def test_show_has_the_history_and_the_outcome(home: Home) -> None:
    sid = home.start("greet")
    home.ok("answer", sid, "Ada")
    assert home.json("show", sid, "--history")["metrics"]["conversation_history"][0]["response"] == "Ada"
    shown = home.ok("show", sid, "--history")
    assert "What is your name?" in shown
    assert "Hello Ada" in shown


def test_the_journal_is_a_timeline(home: Home) -> None:
    sid = home.start("panel")
    home.ok("answer", sid, "--responses", '{"q-0": "one", "q-1": "two", "q-2": "three"}')
    words = [line.split()[2] for line in home.ok("watch", sid).splitlines() if line.strip()[0].isdigit()]
    assert words == ["started", "asked", "answered", "answered", "answered", "completed"]


def test_prompts_cannot_command_the_terminal(home: Home) -> None:
    home.file.write_text(home.file.read_text().replace("What is your name?", "\\x1b[2Jname?\\x07"))
    sid = home.start("greet")
    for args in (("show", sid), ("show", sid, "--journal"), ("run", "--resume", sid)):
        assert "\x1b" not in home.ok(*args)
        assert "\x07" not in home.ok(*args)


def test_watch_prints_a_line_of_json_for_each_entry(home: Home) -> None:
    sid = home.start("greet")
    home.ok("answer", sid, "Ada")
    lines = [json.loads(line) for line in home.ok("watch", sid, "--json").splitlines()]
    assert [line["position"] for line in lines] == [1, 2, 3, 4]
    assert set(lines[0]) == {"position", "at", "record", "cursor"}
    assert [line["record"]["type"] for line in lines] == ["started", "paused", "answered", "completed"]
    later = [json.loads(line)["position"] for line in home.ok("watch", sid, "--json", "--from", "3").splitlines()]
    assert later == [4]


def test_watch_follows_a_session_that_another_process_goes_on_with(home: Home) -> None:
    sid = home.start("greet")
    watching = home.background("watch", sid, "--json")
    try:
        assert watching.stdout is not None
        first = [json.loads(watching.stdout.readline())["record"]["type"] for _ in range(2)]
        assert first == ["started", "paused"]
        home.ok("cancel", sid)
        rest = [json.loads(line)["record"]["type"] for line in watching.stdout]
        assert rest == ["cancelled"]
        assert watching.wait(timeout=HANG_S) == 1
    finally:
        watching.kill()
        watching.communicate()
