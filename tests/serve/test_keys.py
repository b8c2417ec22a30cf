"""The keys of paused calls: made once, the user's alone, replaced without losing what is still open."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState

from holdfast.serve.mcp.keys import KeyFileError, key_path, load_keys, rotate_keys
from holdfast.serve.mcp.server import PAUSE_TTL_S
from holdfast.testing.patience import HANG_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "mcp.keys"


def test_keys_are_made_once_and_are_the_users_alone(path: Path) -> None:
    (key,) = load_keys(path)
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_keys(path) == [key]
    assert load_keys(path.with_name("others")) != [key]


def test_keys_are_in_holdfasts_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    assert key_path() == tmp_path / "mcp.keys"
    assert load_keys() == load_keys(tmp_path / "mcp.keys")


def test_processes_that_start_at_once_agree_on_one_key(path: Path) -> None:
    found = _in_processes(8, f"print(load_keys(Path({str(path)!r}))[0].hex())")
    assert len(set(found)) == 1
    assert [key.hex() for key in load_keys(path)] == found[:1]


def test_processes_that_replace_keys_at_once_lose_none(path: Path) -> None:
    load_keys(path)
    _in_processes(4, f"[rotate_keys(Path({str(path)!r})) for _ in range(5)]")
    assert len(set(load_keys(path))) == 21
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["mcp.keys", "mcp.keys.lock"]


def _in_processes(count: int, code: str) -> list[str]:
    """What processes print that all run the code at the same moment."""
    wait = f"time.sleep(max(0, {time.time() + 1.5} - time.time()))"
    names = "from pathlib import Path\nfrom holdfast.serve.mcp.keys import load_keys, rotate_keys\nimport time"
    command = [sys.executable, "-c", f"{names}\n{wait}\n{code}"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    printed = [process.communicate(timeout=HANG_S)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0] * count
    return printed


def test_a_new_key_seals_and_the_old_one_still_opens(path: Path) -> None:
    before = AESGCMRequestStateCodec(load_keys(path))
    sealed = before.seal(b"a session")
    assert rotate_keys(path) == 1
    after = AESGCMRequestStateCodec(load_keys(path))
    assert after.unseal(sealed) == b"a session"
    with pytest.raises(InvalidRequestState):
        before.unseal(after.seal(b"a session"))


def test_a_key_is_dropped_when_nothing_it_sealed_can_be_valid(path: Path) -> None:
    now = int(time.time())
    made = [now - PAUSE_TTL_S + 60, now - PAUSE_TTL_S - 60, now - PAUSE_TTL_S - 120]
    path.parent.mkdir()
    path.write_text("".join(f"{number:02x}{'00' * 31} {at}\n" for number, at in enumerate(made)))
    assert rotate_keys(path) == 2, "the last one was replaced too long ago; the others were not"
    assert [key[0] for key in load_keys(path)[1:]] == [0, 1]


@pytest.mark.parametrize(
    "content", ["", "\n", "no key", "abcd 17", f"{'00' * 32}", f"{'00' * 32} 17\nrubbish", "\x00\xff"]
)
def test_a_file_that_holds_something_else_is_refused_and_left_alone(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_text(content)
    for use in (load_keys, rotate_keys):
        with pytest.raises(KeyFileError, match=r"mcp\.keys cannot be used: it holds something else; move it away"):
            use(path)
    assert path.read_text() == content


def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(KeyFileError, match=r"file/mcp\.keys cannot be used: Not a directory; HOLDFAST_HOME names"):
        load_keys(file / "mcp.keys")
    directory = tmp_path / "mcp.keys"
    directory.mkdir()
    with pytest.raises(KeyFileError, match="Is a directory"):
        load_keys(directory)


def test_keys_that_others_can_read_are_used_with_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = load_keys(path)
    assert not caplog.messages
    path.chmod(0o644)
    assert load_keys(path) == keys
    assert caplog.messages == [f"{path} can be read by others; `chmod 600` it, then `holdfast mcp --rotate-key`"]
