"""The same door without `await`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.core.errors import SessionNotFoundError, UnknownQueryError
from holdfast.core.events import RunningEvent
from holdfast.core.records import CompletedRecord
from holdfast.engine.errors import ResultTimeoutError
from holdfast.engine.sync import open_sync
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.testing.patience import HANG_S
from tests.engine.helpers import prompts, result, sqlite


@strategy(name="sync-two")
async def two(ctx: Context) -> list[str]:
    return [await ctx.llm("one"), await ctx.llm("two")]


def test_a_session_is_run_to_its_end_without_asyncio(tmp_path: Path) -> None:
    with open_sync(sqlite(tmp_path)) as hf:
        event = hf.start(two, id="s")
        assert prompts(event) == {"q-0": "one"}
        assert prompts(hf.feed("s", "1")) == {"q-1": "two"}
        assert hf.status("s")["phase"] == "paused"
    with open_sync(sqlite(tmp_path)) as hf:
        assert prompts(hf.resume("s")) == {"q-1": "two"}
        assert result(hf.feed("s", {"q-1": "2"})) == ["1", "2"]
        assert hf.result("s") == ["1", "2"]
        assert [row.session_id for row in hf.sessions().rows] == ["s"]


def test_errors_come_out_as_they_are(tmp_path: Path) -> None:
    with open_sync(sqlite(tmp_path)) as hf:
        with pytest.raises(SessionNotFoundError):
            hf.status("nobody")
        event = hf.start(two)
        with pytest.raises(UnknownQueryError):
            hf.feed(event.session_id, {"q-5": "?"})
        with pytest.raises(ResultTimeoutError):
            hf.result(event.session_id, timeout=0.05)


def test_drivers_cancel_fork_and_delete_work(tmp_path: Path) -> None:
    with open_sync(sqlite(tmp_path)) as hf:
        event = hf.start(two)
        fork = hf.fork(event.session_id, at=2)
        assert prompts(fork) == {"q-0": "one"}
        assert hf.cancel(event.session_id, "enough").status == "cancelled"
        hf.delete(event.session_id)
        with pytest.raises(SessionNotFoundError):
            hf.status(event.session_id)
        hf.drive("llm", lambda query: query.prompt.upper())
        assert hf.result(hf.start(two).session_id, timeout=HANG_S) == ["ONE", "TWO"]
        with pytest.raises(ResultTimeoutError, match="`host` answers its llm queries"):
            hf.result(fork.session_id, timeout=0.05)  # it was started for a host
        hf.assign(fork.session_id, "any")
        assert hf.result(fork.session_id, timeout=HANG_S) == ["ONE", "TWO"]


def test_watch_follows_a_session_to_its_end_and_may_be_left_early(tmp_path: Path) -> None:
    with open_sync(sqlite(tmp_path)) as hf:
        event = hf.start(two)
        for entry in hf.watch(event.session_id):
            assert entry.position == 1
            break
        threading.Timer(0.05, lambda: [hf.feed(event.session_id, "1"), hf.feed(event.session_id, "2")]).start()
        seen = list(hf.watch(event.session_id, from_=2))
        assert [entry.position for entry in seen] == [3, 4, 5, 6]
        assert isinstance(seen[-1].record, CompletedRecord)


def test_several_threads_may_use_one_door(tmp_path: Path) -> None:
    with open_sync(sqlite(tmp_path)) as hf:
        results: list[object] = []

        def work(n: int) -> None:
            event = hf.start(two)
            hf.feed(event.session_id, f"{n}")
            results.append(result(hf.feed(event.session_id, "b")))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results, key=repr) == [[f"{n}", "b"] for n in range(8)]


def test_a_wait_may_run_out(tmp_path: Path) -> None:
    async def sync_nap(ctx: Context) -> str:
        await ctx.sleep(0.2)
        return "rested"

    with open_sync(sqlite(tmp_path)) as hf:
        event = hf.start(sync_nap, wait=0.01)
        assert isinstance(event, RunningEvent)
        assert hf.result(event.session_id, timeout=HANG_S) == "rested"


def test_it_says_how_it_is_used_when_it_is_used_otherwise() -> None:
    hf = open_sync("memory:")
    with pytest.raises(RuntimeError, match="context manager"):
        hf.status("s")


def test_a_store_that_cannot_be_opened_says_so_and_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(Exception, match="cannot be used"), open_sync(f"sqlite:///{tmp_path}"):
        pass
    assert threading.active_count() == before
