"""`holdfast replay`: stored histories against the code that is here."""

from __future__ import annotations

import json

from tests.cli.helpers import Home


def test_sessions_and_exports_are_checked_and_nothing_is_changed(home: Home) -> None:
    greet, panel = home.start("greet"), home.start("panel")
    home.ok("answer", panel, "x", "--query", "q-0")
    export = str(home.folder / "greet.jsonl")
    home.ok("export", greet, export)
    before = home.db.read_bytes()
    checked = home.json("replay", export, panel)["sessions"]
    assert [(each["session_id"], each["state"], each["program"]) for each in checked] == [
        (greet, "ok", "strategies:greet"),
        (panel, "ok", "strategies:panel"),
    ]
    assert "2 sessions: 2 ok" in home.ok("replay", export, panel)
    assert home.db.read_bytes() == before


def test_a_session_that_would_diverge_is_shown_with_both_sides(home: Home) -> None:
    sid = home.start("panel")
    home.file.write_text(home.file.read_text().replace("second?", "zweitens?"))
    refused = home.process("replay", sid)
    assert refused.returncode == 4
    for part in ("diverges", "recorded at position 2", "second?", "zweitens?", "it began with version", str(home.file)):
        assert part in refused.stdout
    (shown,) = json.loads(home.process("replay", sid, "--json").stdout)["sessions"]
    assert (shown["state"], shown["position"]) == ("diverges", 2)


def test_all_sessions_of_a_program_are_checked(home: Home) -> None:
    ended, waiting = home.start("greet"), home.start("greet")
    home.start("panel")
    home.ok("answer", ended, "Ada")

    def checked(*args: str) -> set[str]:
        return {each["session_id"] for each in home.json("replay", *args)["sessions"]}

    assert checked("--program", "greet") == checked("--program", "strategies:greet") == {waiting}
    assert checked("--program", "greet", "--all") == {ended, waiting}


def test_what_is_not_served_cannot_be_checked(home: Home) -> None:
    sid = home.start("greet")
    (home.folder / "holdfast.toml").write_text("")
    refused = home.process("replay", sid)
    assert refused.returncode == 3
    assert "program 'strategies:greet' cannot be run here" in refused.stdout
    assert home.process("replay", sid, "--serve", str(home.file)).returncode == 0


def test_what_cannot_be_checked_is_refused_with_a_sentence(home: Home) -> None:
    home.start("greet")
    assert home.call("replay").exit_code == 2
    assert home.call("replay", "--all", "x").exit_code == 2
    assert home.call("replay", "nowhere").exit_code == 3
    (home.folder / "odd.jsonl").write_text("nothing\n")
    assert "not an export" in home.call("replay", str(home.folder / "odd.jsonl")).stderr
