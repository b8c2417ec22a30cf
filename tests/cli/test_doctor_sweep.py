"""`doctor` on many sessions: several processes check them, and find what one alone would find."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.doctor import sweep
from holdfast.cli.doctor.helper import HelperTask
from holdfast.cli.doctor.report import CheckedPart
from holdfast.core.queries import HumanQuery
from holdfast.store import open_store
from holdfast.store.sqlite.schema import PAGE_BYTES
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.sessions import begin
from tests.cli.helpers import Home
from tests.store.sqlite.helpers import LARGE, edit, settle
from tests.store.sqlite.test_checked import DAMAGES

SOUND = ["sound-fork", "sound-large", *(f"sound-{number}" for number in range(20))]
HURT = [f"hurt-{number}" for number in range(len(DAMAGES))]


async def write_damaged(path: str) -> None:
    """A session for each kind of damage, in between those that are sound."""
    async with SqliteStore(path) as store:
        source = await begin(store, "sound-0", hold_ms=0)
        await source.log("one", hold_ms=0)
        await fork_of(source, "sound-fork", 2)
        for session_id in [*SOUND[:11], *HURT, *SOUND[11:]]:
            if session_id not in ("sound-0", "sound-fork"):
                session = await begin(store, session_id, ctx=LARGE if session_id == "sound-large" else 1, hold_ms=0)
                await session.log("one", hold_ms=0)
                await session.ask(HumanQuery(prompt="two?"), hold_ms=0)
    edit(path, *(damage.replace("id = 'hurt'", f"id = '{hurt}'") for damage, hurt in zip(DAMAGES, HURT, strict=True)))


def many(monkeypatch: pytest.MonkeyPatch, *, spans: int) -> None:
    """Let helpers take part from so many spans on, whatever this machine has."""
    monkeypatch.setattr(sweep, "SPAN_SESSIONS", 3)
    monkeypatch.setattr(sweep, "MANY_SPANS", spans)
    monkeypatch.setattr(sweep, "_processors", lambda: 3)


async def found_in(path: str, tell: Callable[[int], None] = lambda _: None) -> CheckedPart:
    url = f"sqlite:///{path}"
    async with open_store(url) as store:
        part = await sweep.check_sessions(store, HelperTask(url, 0, [], []), tell)
    part.doubtful.sort()
    part.still.sort(key=lambda each: each.session_id)
    return part


class HelpersSeen:
    """Counts the helpers that did their part to the end, and the sessions that they looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[CheckedPart] = []
        helped = sweep._Shared._helped

        async def noted(shared: Any) -> CheckedPart:
            self.parts.append(await helped(shared))
            return self.parts[-1]

        monkeypatch.setattr(sweep._Shared, "_helped", noted)

    @property
    def sessions(self) -> int:
        return sum(part.seen for part in self.parts)


def leave_all_to_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process check only what is left when its helpers have ended."""
    check_here = sweep._Shared._check_here
    calls: list[object] = []

    async def later(shared: Any) -> CheckedPart:
        calls.append(shared)
        return CheckedPart() if len(calls) == 1 else await check_here(shared)

    monkeypatch.setattr(sweep._Shared, "_check_here", later)


async def test_helpers_find_every_kind_of_damage_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "store.db")
    await write_damaged(path)
    alone = await found_in(path)
    assert (alone.doubtful, alone.sound) == (sorted(HURT), len(SOUND))
    many(monkeypatch, spans=1)
    seen = HelpersSeen(monkeypatch)
    leave_all_to_helpers(monkeypatch)
    together = await found_in(path)
    assert seen.sessions == len(SOUND) + len(HURT)
    assert together == alone


async def test_where_the_file_is_damaged_helpers_doubt_only_what_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    async with SqliteStore(str(path)) as store:
        for number in range(40):
            await (await begin(store, f"s-{number}", hold_ms=0)).log(f"mark-{number} " * 40, hold_ms=0)
    settle(str(path))
    content = bytearray(path.read_bytes())
    page = content.index(b"mark-7 ") // PAGE_BYTES * PAGE_BYTES
    content[page : page + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(content)
    alone = await found_in(str(path))
    assert "s-7" in alone.doubtful
    assert len(alone.doubtful) < 5
    assert alone.sound == 40 - len(alone.doubtful)
    many(monkeypatch, spans=1)
    leave_all_to_helpers(monkeypatch)
    assert await found_in(str(path)) == alone


async def test_helpers_and_this_process_share_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "store.db")
    await write_damaged(path)
    alone = await found_in(path)
    many(monkeypatch, spans=1)
    progress: list[int] = []
    assert await found_in(path, progress.append) == alone
    assert progress == sorted(progress)
    assert progress[-1] == len(SOUND) + len(HURT)


@pytest.mark.parametrize(
    "helper",
    [
        ("/nowhere/python",),
        (sys.executable, "-c", "raise SystemExit(1)"),
        (sys.executable, "-c", "import sys; sys.stdin.readline(); sys.stdin.readline(); print(3, flush=True)"),
        (sys.executable, "-c", "import sys\nfor _ in sys.stdin: print(3, flush=True)"),
        (sys.executable, "-c", "import sys\nfor _ in sys.stdin: print('none', flush=True)"),
    ],
    ids=["cannot be started", "ends at once", "dies half-way", "gives no result", "talks nonsense"],
)
async def test_what_a_failed_helper_took_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: tuple[str, ...]
) -> None:
    path = str(tmp_path / "store.db")
    await write_damaged(path)
    alone = await found_in(path)
    many(monkeypatch, spans=1)
    monkeypatch.setattr(sweep, "HELPER", helper)
    progress: list[int] = []
    assert await found_in(path, progress.append) == alone
    assert progress[-1] == len(SOUND) + len(HURT)


async def test_few_sessions_are_checked_without_helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "store.db")
    await write_damaged(path)
    many(monkeypatch, spans=1_000)
    seen = HelpersSeen(monkeypatch)
    await found_in(path)
    assert seen.parts == []


def test_doctor_with_helpers_reports_as_without(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        home.start("greet", "--id", f"s-{number}")
    home.start("choose", "--id", "hurt", "--service", "billing")
    edit(str(home.db), "UPDATE sessions SET title = 'another' WHERE id = 'hurt'")
    alone = json.loads(home.call("doctor", "--dry-run", "--json").stdout)
    many(monkeypatch, spans=1)
    together = json.loads(home.call("doctor", "--dry-run", "--json").stdout)
    assert [each["session_id"] for each in together["repaired"]] == ["hurt"]
    for report in (alone, together):
        report["still"].sort(key=lambda each: str(each["session_id"]))
    assert together == alone
