"""Looking back at runs by algocline's tools: logs that are cut, notes, stats, and what the server says of itself."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import __version__
from holdfast.alc.lua.source import lua_code
from holdfast.alc.mcp.logs import MAX_NOTES, NOTES, TOOLS, cut
from holdfast.core.queries import Failure
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store.environment import Environment
from tests.agent.background.clocks import HOUR, SetClock
from tests.serve.calls import ERAS, Host, Told, host_of

ASKS = "return alc.llm(ctx.task, {system = 'be brief'})"


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOLDFAST_PACKAGES_PATH", "ALC_PACKAGES_PATH", "HOLDFAST_PROJECT_ROOT", "ALC_PROJECT_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ALC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def holdfast(tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db", upkeep=Upkeep(on=False)) as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast) -> AsyncIterator[Host]:
    async with host_of(holdfast, TOOLS) as opened:
        yield opened


async def run(holdfast: Holdfast, code: str = ASKS, *answers: Any, name: str = "code", ctx: Any = None) -> str:
    """A run with these answers, in turn."""
    given = {"task": "what is 2+2?"} if ctx is None else ctx
    event = await holdfast.start(lua_code(code, name=name), ctx=given)
    for answer in answers:
        event = await holdfast.feed(event.session_id, answer)
    return event.session_id


# --- the list --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_every_run_is_in_the_list_with_its_outcome_and_times(holdfast: Holdfast, era: str) -> None:
    done = await run(holdfast, ASKS, "4", name="solve")
    failed = await run(holdfast, "error('no good')")
    waiting = await run(holdfast)
    cancelled = await run(holdfast)
    await holdfast.cancel(cancelled, "changed my mind")
    async with host_of(holdfast, TOOLS, era) as host:
        listed = {each["session_id"]: each for each in (await host.call("alc_log_view"))["sessions"]}
    assert set(listed) == {done, failed, waiting, cancelled}
    assert [listed[each]["status"] for each in (done, failed, waiting, cancelled)] == [
        "completed",
        "failed",
        "paused",
        "cancelled",
    ]
    told = listed[done]
    assert told["strategy"] == "solve"
    assert told["task_hint"] == "what is 2+2?"
    assert (told["llm_calls"], told["rounds"], told["notes_count"]) == (1, 1, 0)
    assert told["total_prompt_chars"] == len("what is 2+2?") + len("be brief")
    assert told["total_response_chars"] == 1
    assert told["total_tokens"]["source"] == "estimated"
    assert told["started_at"] <= told["ended_at"]
    assert "no good" in listed[failed]["error"]
    assert listed[cancelled]["reason"] == "changed my mind"
    assert listed[waiting]["ended_at"] is None


async def test_the_run_that_something_happened_to_last_comes_first(holdfast: Holdfast, host: Host) -> None:
    first = await run(holdfast)
    await asyncio.sleep(0.01)
    second = await run(holdfast)
    assert [each["session_id"] for each in (await host.call("alc_log_view"))["sessions"]] == [second, first]
    await asyncio.sleep(0.01)
    await holdfast.feed(first, "4")
    assert [each["session_id"] for each in (await host.call("alc_log_view"))["sessions"]] == [first, second]


async def test_a_list_has_fifty_runs_unless_it_is_said_otherwise(holdfast: Holdfast, host: Host) -> None:
    for _ in range(52):
        await run(holdfast, "return 1")
    latest = await run(holdfast, "return 2")
    assert len((await host.call("alc_log_view"))["sessions"]) == 50
    assert len((await host.call("alc_log_view", limit=None))["sessions"]) == 50
    assert len((await host.call("alc_log_view", limit=10_000))["sessions"]) == 53
    assert [each["session_id"] for each in (await host.call("alc_log_view", limit=1))["sessions"]] == [latest]
    assert (await host.call("alc_log_view", limit=0))["sessions"] == []


async def test_a_hint_is_cut_at_a_hundred_bytes_between_characters(holdfast: Holdfast, host: Host) -> None:
    await run(holdfast, ctx={"task": "é" * 60 + "x"})
    [told] = (await host.call("alc_log_view"))["sessions"]
    assert told["task_hint"] == "é" * 50 + "..."


async def test_a_run_that_did_not_ask_is_told_by_its_task(holdfast: Holdfast, host: Host) -> None:
    await run(holdfast, "return 1", ctx={"task": "count"})
    await run(holdfast, "return 1", ctx=[1])
    hints = [each["task_hint"] for each in (await host.call("alc_log_view"))["sessions"]]
    assert sorted(hints, key=str) == [None, "count"]


async def test_a_damaged_run_hides_no_other(holdfast: Holdfast, host: Host, tmp_path: Path) -> None:
    good = await run(holdfast, ASKS, "4")
    bad = await run(holdfast, ASKS, "5")
    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute(
            "update journal set body = '{' where session = (select num from sessions where id = ?) and last = 2",
            (bad,),
        )
    connection.close()
    listed = {each["session_id"]: each for each in (await host.call("alc_log_view"))["sessions"]}
    assert listed[good]["status"] == "completed"
    assert listed[bad]["status"] == "damaged"
    assert listed[bad]["error"]
    assert bad in await host.refusal("alc_log_view", session_id=bad)
    stats = await host.call("alc_stats")
    assert (stats["total_sessions"], stats["damaged"]) == (1, [bad])


# --- one run ---------------------------------------------------------------------------------------


async def test_a_run_in_full_has_every_question_and_answer_and_its_result(holdfast: Holdfast, host: Host) -> None:
    code = "alc.stats.record('tries', 2) local a = alc.llm('one') return {a, alc.llm('two')}"
    session_id = await run(holdfast, code, "A", "B", name="pair")
    told = await host.call("alc_log_view", session_id=session_id)
    assert (told["session_id"], told["strategy"], told["task_hint"]) == (session_id, "pair", "one")
    assert (told["status"], told["result"]) == ("completed", ["A", "B"])
    assert told["stats"]["llm_calls"] == 2
    assert told["custom"] == {"tries": 2}
    kept = [{key: each[key] for key in ("query_id", "prompt", "system", "response")} for each in told["transcript"]]
    assert kept == [
        {"query_id": "q-0", "prompt": "one", "system": None, "response": "A"},
        {"query_id": "q-1", "prompt": "two", "system": None, "response": "B"},
    ]
    assert all(each["started_at"] <= each["completed_at"] for each in told["transcript"])
    assert "truncated" not in told
    assert "notes" not in told


async def test_what_has_no_answer_yet_and_what_failed_are_in_the_transcript(holdfast: Holdfast, host: Host) -> None:
    code = "pcall(alc.llm, 'one') alc.llm('two')"
    session_id = await run(holdfast, code, Failure("overloaded"))
    first, second = (await host.call("alc_log_view", session_id=session_id))["transcript"]
    assert (first["response"], first["error"]) == (None, "overloaded")
    assert (second["response"], second["completed_at"]) == (None, None)


async def test_what_a_program_asks_of_the_runtime_itself_is_no_exchange(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast, "alc.state.set('k', 1) return alc.state.get('k')")
    told = await host.call("alc_log_view", session_id=session_id)
    assert (told["result"], told["transcript"]) == (1, [])


async def test_a_failed_run_says_why(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast, "error('no good')")
    told = await host.call("alc_log_view", session_id=session_id)
    assert told["status"] == "failed"
    assert "no good" in told["error"]
    assert "result" not in told


async def test_the_oldest_rounds_are_cut_until_the_log_fits(holdfast: Holdfast, host: Host) -> None:
    code = "for i = 1, 8 do alc.llm('question ' .. i .. string.rep('x', 500)) end return 'ok'"
    session_id = await run(holdfast, code, *["y" * 500] * 8)
    whole = await host.call("alc_log_view", session_id=session_id)
    assert len(whole["transcript"]) == 8
    assert await host.call("alc_log_view", session_id=session_id, max_chars=0) == whole
    for max_chars in (3_000, 5_000, 8_000):
        told = await host.call("alc_log_view", session_id=session_id, max_chars=max_chars)
        assert told["truncated"] is True
        assert told["original_rounds"] == 8
        assert 0 < told["returned_rounds"] == len(told["transcript"]) < 8
        assert told["transcript"] == whole["transcript"][-told["returned_rounds"] :]
        assert len(json.dumps(told, separators=(",", ":"), ensure_ascii=False)) <= max_chars
        assert told["result"] == "ok"


async def test_a_hundred_thousand_characters_are_the_default(holdfast: Holdfast, host: Host) -> None:
    code = "for i = 1, 3 do alc.llm(string.rep('x', 45000)) end"
    session_id = await run(holdfast, code, "a", "b", "c")
    told = await host.call("alc_log_view", session_id=session_id)
    assert (told["original_rounds"], told["returned_rounds"]) == (3, 2)
    assert "truncated" not in await host.call("alc_log_view", session_id=session_id, max_chars=10**15)


async def test_a_result_too_long_for_the_limit_is_left_out_and_says_so(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast, "return string.rep('x', 5000)")
    told = await host.call("alc_log_view", session_id=session_id, max_chars=3_000)
    assert "result" not in told
    assert (told["truncated"], told["result_truncated"]) == (True, True)
    assert len(json.dumps(told)) < 3_000


def test_a_log_is_cut_by_characters_and_not_by_bytes() -> None:
    document = {"transcript": [{"prompt": "é" * 100}], "result": None}
    assert cut(document, 160) == document
    assert cut(document, 120)["returned_rounds"] == 0


async def test_a_limit_of_one_character_leaves_a_log_that_says_what_is_missing(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast, ASKS, "4")
    told = await host.call("alc_log_view", session_id=session_id, max_chars=1)
    assert (told["transcript"], told["original_rounds"], told["returned_rounds"]) == ([], 1, 0)


# --- notes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_notes_are_kept_in_order_beside_the_run(holdfast: Holdfast, era: str) -> None:
    session_id = await run(holdfast, ASKS, "4")
    async with host_of(holdfast, TOOLS, era) as host:
        first = await host.call("alc_note", session_id=session_id, content="good", title="overall")
        assert first == {"session_id": session_id, "notes_count": 1}
        assert (await host.call("alc_note", session_id=session_id, content="ünï"))["notes_count"] == 2
        told = await host.call("alc_log_view", session_id=session_id)
        assert [(each["title"], each["content"]) for each in told["notes"]] == [("overall", "good"), (None, "ünï")]
        assert all(isinstance(each["timestamp"], int) for each in told["notes"])
        assert (await host.call("alc_log_view"))["sessions"][0]["notes_count"] == 2


async def test_a_run_that_is_not_over_can_be_noted_on_and_is_not_changed_by_it(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast)
    before = await holdfast.store.position(session_id)
    await host.call("alc_note", session_id=session_id, content="waiting")
    assert await holdfast.store.position(session_id) == before
    assert (await holdfast.store.session(session_id)).summary.state is State.PAUSED


async def test_notes_taken_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    async with open_holdfast(url) as one, open_holdfast(url) as other:
        session_id = await run(one, ASKS, "4")
        async with host_of(one, TOOLS) as left, host_of(other, TOOLS, "legacy") as right:
            notes = [
                host.call("alc_note", session_id=session_id, content=f"{side}{number}")
                for number in range(10)
                for side, host in (("l", left), ("r", right))
            ]
            counts = [told["notes_count"] for told in await asyncio.gather(*notes)]
            assert sorted(counts) == list(range(1, 21))
            told = await left.call("alc_log_view", session_id=session_id)
            assert len({each["content"] for each in told["notes"]}) == 20


async def test_no_more_than_a_thousand_notes_are_kept(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast)
    full = [{"timestamp": 1, "title": None, "content": "x"}] * MAX_NOTES
    await holdfast.store.put_state(NOTES, session_id, full)
    assert "notes" in await host.refusal("alc_note", session_id=session_id, content="one more")
    item = await holdfast.store.get_state(NOTES, session_id)
    assert item is not None
    assert item.value == full


async def test_what_a_program_wrote_in_place_of_notes_does_no_harm(holdfast: Holdfast, host: Host) -> None:
    session_id = await run(holdfast, ASKS, "4")
    for planted in ("text", {"a": 1}, [1, None, {"x": 1}]):
        await holdfast.store.put_state(NOTES, session_id, planted)
        assert "notes" not in await host.call("alc_log_view", session_id=session_id)
    assert (await host.call("alc_note", session_id=session_id, content="x"))["notes_count"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"session_id": "s-unknown", "content": "x"},
        {"session_id": "../notes", "content": "x"},
        {"session_id": 5, "content": "x"},
        {"content": "x"},
        {"session_id": "REAL"},
        {"session_id": "REAL", "content": ""},
        {"session_id": "REAL", "content": ["x"]},
        {"session_id": "REAL", "content": "x" * 20_001},
        {"session_id": "REAL", "content": "x", "title": "t" * 201},
        {"session_id": "REAL", "content": "x", "when": "now"},
    ],
)
async def test_a_note_that_cannot_be_is_refused_and_none_is_kept(
    holdfast: Holdfast, host: Host, arguments: Told
) -> None:
    real = await run(holdfast)
    given = {key: real if value == "REAL" else value for key, value in arguments.items()}
    assert await host.refusal("alc_note", **given)
    assert await holdfast.store.list_state(NOTES) == []


# --- stats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_stats_add_up_the_runs_of_each_strategy(holdfast: Holdfast, era: str) -> None:
    await run(holdfast, ASKS, "four", name="solve")
    await run(holdfast, "alc.llm('a') alc.llm('b')", "1", "2", name="solve")
    await run(holdfast, "error('x')", name="break")
    async with host_of(holdfast, TOOLS, era) as host:
        told = await host.call("alc_stats")
    assert told["total_sessions"] == 3
    assert told["card_sinks"] == []
    solve = told["strategies"]["solve"]
    assert (solve["count"], solve["avg_llm_calls"], solve["avg_rounds"]) == (2, 2, 2)  # 1.5, rounded up
    assert solve["total_prompt_chars"] == len("what is 2+2?be briefab")
    assert solve["total_response_chars"] == 6
    assert solve["total_tokens"] == solve["total_prompt_tokens"] + solve["total_response_tokens"] > 0
    assert solve["outcomes"] == {"completed": 2}
    broken = told["strategies"]["break"]
    assert (broken["count"], broken["avg_llm_calls"], broken["outcomes"]) == (1, 0, {"failed": 1})
    assert isinstance(broken["avg_elapsed_ms"], int)


async def test_stats_of_one_strategy_leave_the_others_out(holdfast: Holdfast, host: Host) -> None:
    await run(holdfast, "return 1", name="one")
    await run(holdfast, "return 1", name="two")
    told = await host.call("alc_stats", strategy="one")
    assert (told["total_sessions"], list(told["strategies"])) == (1, ["one"])
    nothing = await host.call("alc_stats", strategy="none of them")
    assert (nothing["total_sessions"], nothing["strategies"]) == (0, {})


async def test_stats_of_the_last_days_leave_older_runs_out() -> None:
    now = time.time_ns() // 1_000_000
    clock = SetClock(now - 3 * 24 * HOUR)
    engine = open_holdfast("memory:", upkeep=Upkeep(on=False), environment=Environment(clock=clock))
    async with engine as holdfast, host_of(holdfast, TOOLS) as host:
        await run(holdfast, "return 1", name="old")
        clock.at = now
        await run(holdfast, "return 1", name="new")
        assert set((await host.call("alc_stats", days=10**30))["strategies"]) == {"old", "new"}
        assert set((await host.call("alc_stats", days=4))["strategies"]) == {"old", "new"}
        assert set((await host.call("alc_stats", days=2))["strategies"]) == {"new"}
        assert (await host.call("alc_stats", days=2, strategy="old"))["total_sessions"] == 0


async def test_a_run_that_waits_for_days_does_not_make_the_average_time_longer(holdfast: Holdfast, host: Host) -> None:
    async def average() -> int:
        stats = await host.call("alc_stats")
        return int(stats["strategies"]["waits"]["avg_elapsed_ms"])

    await run(holdfast, name="waits")
    before = await average()
    await asyncio.sleep(0.3)
    assert await average() == before


async def test_a_card_sink_of_the_environment_is_told_of(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALC_CARD_SINKS", f"file://{tmp_path}/mirror")
    [sink] = (await host.call("alc_stats"))["card_sinks"]
    assert sink["sink"] == f"file://{tmp_path}/mirror"
    monkeypatch.setenv("ALC_CARD_SINKS", "nonsense")
    [broken] = (await host.call("alc_stats"))["card_sinks"]
    assert broken["last_error"]["kind"] == "invalid_sink"


# --- info ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_info_says_what_the_server_is_and_where_it_looks(holdfast: Holdfast, tmp_path: Path, era: str) -> None:
    async with host_of(holdfast, TOOLS, era) as host:
        told = await host.call("alc_info")
        assert told["version"] == __version__
        assert (told["log_enabled"], told["tracing"]) == (True, "stderr only")
        assert set(told["log_dir"]) == {"resolved", "source"}
        assert told["store"] == f"sqlite:///{tmp_path}/runs.db"
        assert "packages_dir" not in told
        (tmp_path / "home" / "packages").mkdir(parents=True)
        told = await host.call("alc_info")
        assert told["packages_dir"] == str(tmp_path / "home" / "packages")
        assert {"path": told["packages_dir"], "source": "user"} in told["search_paths"]


# --- bad calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("alc_log_view", {"limit": -1}),
        ("alc_log_view", {"limit": 10_001}),
        ("alc_log_view", {"limit": "many"}),
        ("alc_log_view", {"limit": True}),
        ("alc_log_view", {"max_chars": -1}),
        ("alc_log_view", {"session_id": 7}),
        ("alc_log_view", {"session_id": "s-unknown"}),
        ("alc_log_view", {"session_id": "../../etc/passwd"}),
        ("alc_log_view", {"session_id": ""}),
        ("alc_log_view", {"session": "s-1"}),
        ("alc_stats", {"days": -1}),
        ("alc_stats", {"days": "three"}),
        ("alc_stats", {"strategy": 5}),
        ("alc_info", {"verbose": True}),
    ],
)
async def test_a_wrong_call_is_refused_in_words(host: Host, tool: str, arguments: Told) -> None:
    refusal = await host.refusal(tool, **arguments)
    assert len(refusal) > 15
    assert "Traceback" not in refusal


async def test_every_tool_has_a_schema_in_one_piece_and_says_what_it_does(host: Host) -> None:
    tools = (await host.client.list_tools()).tools
    assert [tool.name for tool in tools] == ["alc_log_view", "alc_note", "alc_stats", "alc_info"]
    for tool in tools:
        assert "$ref" not in json.dumps(tool.input_schema)
        assert tool.description
        assert len(tool.description) > 40
        for described in tool.input_schema["properties"].values():
            assert "description" in json.dumps(described)
