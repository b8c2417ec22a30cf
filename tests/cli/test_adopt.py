"""`import`, `adopt` and `keys`: a file from somebody else runs nothing until somebody here has looked at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.patience import HANG_S, until_so
from tests.cli.helpers import Home

EVIL = """
local file = io.open(ctx.path, "a") file:write("ran ") file:close()
return alc.llm("Go on?")
"""


@pytest.fixture
def there(tmp_path: Path) -> Home:
    """The home of somebody else."""
    (tmp_path / "there").mkdir()
    return Home(tmp_path / "there")


@pytest.fixture
def file(there: Home, tmp_path: Path) -> Path:
    """A session of theirs, in a file."""
    path = tmp_path / "session.export"
    there.start("greet", "--id", "theirs")
    there.ok("export", "theirs", str(path))
    return path


def test_an_imported_session_is_shown_as_such_everywhere(home: Home, file: Path) -> None:
    assert "It does nothing until it is adopted: holdfast adopt theirs" in home.ok("import", str(file))
    assert "imported" in home.ok("sessions")
    assert [row["session_id"] for row in home.json("sessions", "--state", "imported")["sessions"]] == ["theirs"]
    shown = home.ok("show", "theirs")
    assert "not signed; `holdfast adopt theirs` lets it run" in shown
    assert "holdfast answer" not in shown
    assert home.json("show", "theirs")["state"] == "imported"
    (row,) = home.json("top", "--once")["sessions"]
    assert row["state"] == "imported"
    assert "somebody to adopt it" in home.ok("top", "--once")
    doctor = home.json("doctor")
    assert doctor["ok"]
    assert "`holdfast adopt theirs`" in doctor["still"][0]["wait"]["why"]
    refused = home.call("answer", "theirs", "Ada")
    assert refused.exit_code == 4
    assert "holdfast adopt theirs" in refused.stderr


def test_adopt_shows_what_would_run_and_asks(home: Home, file: Path) -> None:
    home.ok("import", str(file))
    refused = home.call("adopt", "theirs")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    shown = home.ok("adopt", "theirs", "--dry-run")
    for expected in ("greet (native)", "not signed", "service", "What is your name?", "waits for answers"):
        assert expected in shown
    assert home.json("adopt", "theirs", "--dry-run")["program"].endswith("greet")
    assert home.json("show", "theirs")["phase"] == "imported"
    assert home.json("adopt", "theirs", "--yes")["status"] == "needs_response"
    assert "there is nothing to adopt" in home.ok("adopt", "theirs")
    assert home.json("answer", "theirs", "Ada")["result"] == "Hello Ada"


def test_adopt_asks_a_person(home: Home, file: Path) -> None:
    home.ok("import", str(file))
    with home.terminal("adopt", "theirs") as terminal:
        terminal.expect("Let it run here? [y/N]")
        terminal.type("n\n")
        terminal.expect("It was not adopted.")
    assert home.json("show", "theirs")["phase"] == "imported"


def test_a_worker_runs_nothing_of_an_imported_session(home: Home, there: Home, tmp_path: Path) -> None:
    ran, code, path = tmp_path / "ran", tmp_path / "evil.lua", tmp_path / "evil.export"
    code.write_text(EVIL)
    there.ok("run", str(code), "--trusted", "--id", "evil", "--set", f"path={ran}")
    there.ok("export", "evil", str(path))
    ran.unlink()
    home.ok("import", str(path))
    shown = home.ok("adopt", "evil", "--dry-run")
    assert "asks to run outside of the sandbox" in shown
    assert 'io.open(ctx.path, "a")' in shown
    ours = home.start("greet")
    worker = home.background("worker", "--serve", str(home.file), "--serve", str(code))
    try:
        home.ok("answer", ours, "Ada")
        until_so(lambda: home.json("show", ours).get("outcome"))  # it has looked at the sessions of the store
        assert home.json("show", "evil")["phase"] == "imported"
    finally:
        worker.terminate()
        worker.communicate(timeout=HANG_S)
    assert not ran.exists()


def test_a_signature_of_a_known_key_is_told_at_import_and_adopt(home: Home, there: Home, tmp_path: Path) -> None:
    path = tmp_path / "signed.export"
    there.start("greet", "--id", "theirs")
    missing = there.call("export", "theirs", str(path), "--sign")
    assert missing.exit_code == 2
    assert "holdfast keys --new" in missing.stderr
    key = there.json("keys", "--new")["keys"]["own"]
    assert there.json("export", "theirs", str(path), "--sign")["key"] == key
    assert f"signed with a key that is not known here ({key})" in home.ok("import", str(path))
    home.ok("keys", "--add", "ada", key)
    assert home.json("import", str(path))["signed_by"] == "ada"
    assert f"signed with the key 'ada' ({key})" in home.ok("adopt", "theirs", "--dry-run")
    assert home.json("adopt", "theirs", "--dry-run")["signed_by"] == "ada"
    pem = there.folder / "own" / "keys" / "signing.pem"
    assert there.json("export", "theirs", str(path), "--key", str(pem))["key"] == key
