"""Sandboxed Python through a real server over stdio: code, strategies by name, faults, and servers that are killed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast.programs.sandbox.library import BUNDLED
from tests.serve.calls import ERAS, Host, Told
from tests.serve.mcp_hosts import install, read_json, read_text
from tests.serve.processes import Place

TWO_STEPS = """
def run(ctx):
    seen = [llm("first: " + ctx["task"], system="Be brief.", temperature=0.5)]
    seen.append(llm(f"second, after {seen[0]}"))
    return {"seen": seen}
"""

REMEMBERS = """
import random

def run(ctx):
    drawn = random.random()
    kept = [llm(f"{drawn}")]
    for word in ("two?", "three?"):
        kept.append(llm(word))
    return {"kept": kept, "drawn": drawn}
"""

GATHERS = """
import asyncio

async def run(ctx):
    first, second = await asyncio.gather(llm_async("a?"), llm_async("b?"))
    return first + second
"""

ASKS_AGAIN = """
META = {
    "name": "asks_again",
    "category": "verification",
    "description": "Asks until it is sure.",
    "parameters": {
        "task": {"type": "str", "required": True, "description": "What to ask."},
        "times": {"type": "int", "default": 2, "min": 1, "description": "How often."},
    },
    "calls": "times",
}

def run(ctx):
    p = parameters(META, ctx)
    ctx["result"] = [llm(p["task"]) for _ in range(p["times"])]
    return ctx
"""

FAULTY = """
class Mine(dict):
    pass

def run(ctx):
    text: str = await_me(3)
    answer = await llm("x")
    del ctx["task"]
    return llm(prompt=5)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


async def answered(host: Host, told: Told, *answers: str) -> Told:
    """Answer the questions of a session one by one."""
    for answer in answers:
        told = await host.call("alc_continue", session_id=told["session_id"], response=answer)
    return told


# --- code --------------------------------------------------------------------------------------------


async def test_code_in_python_asks_and_is_answered_to_its_end(place: Place, era: str) -> None:
    async with place.host(era) as host:
        for tool in ("alc_run", "run"):
            asked = await host.call(tool, code=TWO_STEPS, language="python", ctx={"task": "tea"})
            session_id = asked.pop("session_id")
            assert ("temperature" in asked.pop("note", "")) == (tool == "run")  # the other replies as algocline does
            assert asked == {
                "status": "needs_response",
                "query_id": "q-0",
                "prompt": "first: tea",
                "system": "Be brief.",
                "max_tokens": 1024,
                "options": {"temperature": 0.5},
            }
            told = await answered(host, {"session_id": session_id}, "yes")
            assert (told["query_id"], told["prompt"]) == ("q-1", "second, after yes")
            told = await answered(host, told, "no")
            assert (told["status"], told["result"]) == ("completed", {"seen": ["yes", "no"]})
            assert told["stats"]["auto"]["llm_calls"] == 2


async def test_the_value_of_the_last_expression_is_the_result_where_there_is_no_run(place: Place, era: str) -> None:
    async with place.host(era) as host:
        told = await host.call("alc_run", code='[n * ctx["n"] for n in range(3)]', language="python", ctx={"n": 7})
    assert told["result"] == [0, 7, 14]


async def test_a_gather_is_one_pause_that_is_answered_in_any_order(place: Place, era: str) -> None:
    async with place.host(era) as host:
        asked = await host.call("alc_run", code=GATHERS, language="python")
        assert [(query["id"], query["prompt"]) for query in asked["queries"]] == [("q-0", "a?"), ("q-1", "b?")]
        session_id = asked["session_id"]
        taken = await host.call("alc_continue", session_id=session_id, query_id="q-1", response="B")
        assert (taken["status"], taken["remaining"]) == ("accepted", 1)
        ended = await host.call("alc_continue", session_id=session_id, query_id="q-0", response="A")
    assert ended["result"] == "AB"


async def test_a_failed_query_is_an_error_that_the_strategy_catches(place: Place, era: str) -> None:
    code = 'try:\n    said = llm("x")\nexcept RuntimeError as error:\n    said = f"no: {error}"\nsaid\n'
    async with place.host(era) as host:
        asked = await host.call("alc_run", code=code, language="python")
        told = await host.call("alc_continue", session_id=asked["session_id"], error="the model refused")
    assert told["result"] == "no: the model refused"


async def test_an_error_of_the_code_names_its_line_and_has_the_figures(place: Place, era: str) -> None:
    async with place.host(era) as host:
        asked = await host.call("alc_run", code='said = llm("x")\nint(said)\n', language="python")
        told = await answered(host, asked, "not a number")
    assert (told["status"], told["error_kind"], told["stats"]["auto"]["llm_calls"]) == ("error", "ValueError", 1)
    assert "code.py:2:" in told["error"]


async def test_a_source_with_faults_is_refused_with_each_of_them_and_starts_nothing(place: Place, era: str) -> None:
    async with place.host(era) as host:
        for tool in ("alc_run", "run"):
            why = await host.refusal(tool, code=FAULTY, language="python")
            told = why.splitlines()
            assert told[0] == "strategy 'code' has 5 faults, and was not started:"
            places = [line.split(": ")[0].strip() for line in told[1:-1]]
            assert places == ["code.py:2:1", "code.py:6:17", "code.py:7:20", "code.py:8:5", "code.py:9:16"], why
            assert "no inheritance" in told[1]
            assert "[unresolved-reference]" in told[2]
            assert "drop the await, or call llm_async(…)" in told[3]
            assert "holdfast://types/__builtins__.pyi" in told[-1]
        assert (await host.call("sessions"))["sessions"] == []
        broken = await host.refusal("alc_run", code="x = 1\nif x\n    x = 2\n", language="python")
        assert "code.py:2:5: error: " in broken


async def test_a_file_is_run_in_the_language_of_its_name_or_in_the_one_that_is_said(place: Place, era: str) -> None:
    (place.folder / "sum.py").write_text('ctx["n"] + 1')
    (place.folder / "text").write_text('ctx["n"] + 2')
    (place.folder / "sum.lua").write_text("return ctx.n + 3")
    async with place.host(era, "--code-dir", str(place.folder)) as host:
        for file, language, result in (("sum.py", {}, 2), ("text", {"language": "python"}, 3), ("sum.lua", {}, 4)):
            told = await host.call("alc_run", code_file=str(place.folder / file), ctx={"n": 1}, **language)
            assert told["result"] == result
        assert "only 'lua' and 'python' run here" in await host.refusal("alc_run", code="1", language="ruby")
        missing = await host.refusal("alc_run", code_file=str(place.folder / "missing.py"))
        assert "cannot be read" in missing


async def test_code_of_a_host_is_always_in_the_sandbox(place: Place, era: str) -> None:
    reached = place.folder / "reached"
    async with place.host(era) as host:
        refused = await host.refusal("alc_run", code="import subprocess\n", language="python")
        assert "no module 'subprocess'" in refused
        # In a text that is made up later, the check before the run cannot see it.
        told = await host.call("alc_run", code=f"exec(\"open({str(reached)!r}, 'w')\")", language="python")
        assert (told["status"], told["error_kind"]) == ("error", "PermissionError")
    assert not reached.exists()


# --- by name -----------------------------------------------------------------------------------------


async def test_a_bundled_strategy_is_run_by_its_name(place: Place, era: str) -> None:
    async with place.host(era) as host:
        asked = await host.call("alc_advice", strategy="cot", task="3 boxes of 4")
        assert "3 boxes of 4" in asked["prompt"]
        told = await answered(host, asked, "3 times 4 is 12", "12")
        assert (told["status"], told["result"]["result"]) == ("completed", "12")
        wrong = await host.call("run", strategy="cot")
        assert (wrong["status"], "'task'" in wrong["error"]) == ("error", True)


async def test_a_strategy_of_the_project_is_found_and_a_lua_package_of_the_name_wins(place: Place, era: str) -> None:
    project = place.folder / "project"
    (project / "strategies").mkdir(parents=True)
    (project / "strategies" / "asks_again.py").write_text(ASKS_AGAIN)
    async with place.host(era) as host:
        assert "asks_again" in await host.refusal("alc_advice", strategy="asks_again", task="x")
        asked = await host.call("alc_advice", strategy="asks_again", task="Sure?", project_root=str(project))
        assert (asked["prompt"], asked["query_id"]) == ("Sure?", "q-0")
        told = await answered(host, asked, "yes", "yes")
        assert told["result"]["result"] == ["yes", "yes"]
        lua = "return { meta = { name = 'asks_again', type = 'runnable' }, run = function(ctx) return 'from Lua' end }"
        install(place.folder / "home" / "packages", {"asks_again": lua})
        told = await host.call("alc_advice", strategy="asks_again", task="Sure?", project_root=str(project))
        assert told["result"] == "from Lua"
        listed = await host.call("strategies", project=str(project), search="asks_again")
        assert [(each["name"], each["kind"]) for each in listed["strategies"]] == [("asks_again", "lua")]


async def test_strategies_in_python_are_listed_with_what_they_take_and_cost(place: Place, era: str) -> None:
    project = place.folder / "project"
    (project / "strategies").mkdir(parents=True)
    (project / "strategies" / "asks_again.py").write_text(ASKS_AGAIN)
    (project / "strategies" / "broken.py").write_text('META = {"name": 5}\n')
    entry = {
        "name": "asks_again",
        "kind": "python",
        "description": "Asks until it is sure.",
        "category": "verification",
        "calls": "times",
        "parameters": ["task", "times"],
    }
    bundled = {path.stem for path in BUNDLED.glob("*.py") if not path.stem.startswith("_")}
    async with place.host(era) as host:
        own = (await host.call("strategies", limit=200, project=str(project)))["strategies"]
        packages = await host.call("alc_pkg_list", project_root=str(project))
        for listed in (own, packages["strategies"]):
            found = {each["name"]: each for each in listed}
            assert found["asks_again"] == entry
            assert bundled <= set(found)
            assert "broken" not in found
        assert (packages["packages"], packages["total"]) == ([], 0)
        paths = (await host.call("alc_info"))["strategy_paths"]
        assert paths[-1] == {"path": str(BUNDLED), "source": "bundled"}


async def test_a_strategy_is_read_with_what_it_says_of_itself_and_its_code(place: Place, era: str) -> None:
    async with place.host(era) as host:
        listed = (await read_json(host.client, "holdfast://strategies"))["strategies"]
        assert "python" in {each["kind"] for each in listed if each["name"] == "cot"}
        cot = await read_json(host.client, "holdfast://strategies/cot")
        assert (cot["kind"], cot["calls"], cot["path"]) == ("python", cot["meta"]["calls"], str(BUNDLED / "cot.py"))
        assert cot["meta"]["parameters"]["task"]["required"] is True
        source = await read_text(host.client, "holdfast://strategies/cot/strategy.py")
        assert source == (BUNDLED / "cot.py").read_text()
        assert cot["text"] in source


# --- killed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["snapshot", "replay"])
async def test_a_run_goes_on_after_its_server_was_killed_at_each_pause(place: Place, era: str, how: str) -> None:
    async with place.host(era) as host:
        asked = await host.call("alc_run", code=REMEMBERS, language="python")
        await host.kill()
    for answer, then in (("1", "two?"), ("2", "three?")):
        prepare(place, how)
        async with place.host(era) as host:
            told = await host.call("alc_continue", session_id=asked["session_id"], response=answer)
            assert told["prompt"] == then
            await host.kill()
    prepare(place, how)
    async with place.host(era) as host:
        ended = await host.call("alc_continue", session_id=asked["session_id"], response="3")
        shown = await host.call("show", session_id=asked["session_id"], journal=True)
    assert ended["status"] == "completed"
    assert ended["result"] == {"kept": ["1", "2", "3"], "drawn": float(asked["prompt"])}
    replays = [
        entry["record"]["message"] for entry in shown["journal"]["entries"] if entry["record"]["type"] == "logged"
    ]
    expected = [] if how == "snapshot" else ["the program was rebuilt by replay: there is no snapshot"] * 3
    assert replays == expected
    assert snapshots(place) == 0, "a session that has ended needs none"


def prepare(place: Place, how: str) -> None:
    """Between two servers: there is one snapshot, which the next one finds or does not."""
    assert snapshots(place) == 1
    if how == "replay":
        with sqlite3.connect(place.folder / "sessions.db") as store:
            store.execute("DELETE FROM snapshots")
        store.close()


def snapshots(place: Place) -> int:
    store = sqlite3.connect(place.folder / "sessions.db")
    try:
        count: int = store.execute("SELECT count(*) FROM snapshots").fetchone()[0]
        return count
    finally:
        store.close()


async def test_a_gather_is_answered_by_two_servers_of_which_the_first_was_killed(place: Place, era: str) -> None:
    async with place.host(era) as host:
        asked = await host.call("alc_run", code=GATHERS, language="python")
        taken = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-0", response="A")
        assert taken["status"] == "accepted"
        await host.kill()
    async with place.host(era) as host:
        status = await host.call("alc_status", session_id=asked["session_id"], pending_filter="full")
        assert [query["query_id"] for query in status["pending"]] == ["q-1"]
        ended = await host.call("alc_continue", session_id=asked["session_id"], query_id="q-1", response="B")
    assert ended["result"] == "AB"


async def test_a_child_asks_the_host_of_its_parent_also_after_a_kill(place: Place, era: str) -> None:
    code = 'def run(ctx):\n    done = child("cot", {"task": "2 + 2"})\n    return done["result"]\n'
    async with place.host(era) as host:
        asked = await host.call("alc_run", code=code, language="python")
        assert "2 + 2" in asked["prompt"]
        await host.kill()
    async with place.host(era) as host:
        query = {"query_id": asked["query_id"]}
        told = await host.call("alc_continue", session_id=asked["session_id"], response="two and two", **query)
        told = await host.call("alc_continue", session_id=asked["session_id"], query_id=told["query_id"], response="4")
    assert (told["status"], told["result"]) == ("completed", "4")
