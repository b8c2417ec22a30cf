"""Tools of algocline's later releases: kept values, traces, settings, a pinned project, the analysis of a card."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.alc.cards.tool import own_box
from holdfast.alc.mcp.extension import EXTENSION
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from tests.alc.mcp.user_packages import new_user, write_package
from tests.serve.calls import ERAS, Host, host_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_user(monkeypatch, tmp_path)


@pytest.fixture
async def holdfast(home: Path, tmp_path: Path) -> AsyncIterator[Holdfast]:
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db", upkeep=Upkeep(on=False)) as opened:
        yield opened


@pytest.fixture(params=ERAS)
async def host(holdfast: Holdfast, request: pytest.FixtureRequest) -> AsyncIterator[Host]:
    async with host_of(holdfast, EXTENSION.tools, request.param) as opened:
        yield opened


# --- kept values -----------------------------------------------------------------------------------


async def test_values_that_a_strategy_kept_are_listed_shown_changed_and_deleted(host: Host) -> None:
    await host.call("alc_run", code="alc.state.set('a b', {n = 1}) alc.state.set('c', 2)", ctx={"_ns": "team"})
    assert await host.call("alc_state_list", namespace="team") == {"keys": ["a b", "c"]}
    assert await host.call("alc_state_show", namespace="team", key="a b") == {"n": 1}
    assert await host.call("alc_state_show", namespace="team", key="c") == {"value": 2}
    assert await host.call("alc_state_set", namespace="team", key="a b", value={"n": 5}) == {"ok": True}
    told = await host.call("alc_run", code="return alc.state.get('a b').n", ctx={"_ns": "team"})
    assert told["result"] == 5
    assert await host.call("alc_state_show", namespace="team", key="a b.bak") == {"n": 1}
    assert await host.call("alc_state_delete", namespace="team", key="c") == {"ok": True, "existed": True}
    assert await host.call("alc_state_delete", namespace="team", key="c") == {"ok": True, "existed": False}
    assert (await host.call("alc_state_list", namespace="team"))["keys"] == ["a b"]
    assert "not found in namespace 'team'" in await host.refusal("alc_state_show", namespace="team", key="c")


async def test_values_of_code_without_a_name_are_those_of_the_default_namespace(host: Host) -> None:
    await host.call("alc_run", code="alc.state.set('k', 1)")
    assert await host.call("alc_state_list") == {"keys": ["k"]}


async def test_steps_and_fields_are_reset_and_the_value_before_is_kept(host: Host) -> None:
    before = {"data": {"completed_steps": ["plan", "code", "test"], "draft": 1, "kept": 2}, "identity": {"id": 7}}
    await host.call("alc_state_set", namespace="team", key="k", value=before)
    told = await host.call("alc_state_reset", namespace="team", key="k", steps=["code", "no"], fields=["draft"])
    assert told == {
        "ok": True,
        "backup_path": "team/k.bak",
        "steps_removed": 1,
        "steps_input": ["code", "no"],
        "fields_removed": 1,
        "fields_input": ["draft"],
    }
    after = {"data": {"completed_steps": ["plan", "test"], "kept": 2}, "identity": {"id": 7}}
    assert await host.call("alc_state_show", namespace="team", key="k") == after
    assert await host.call("alc_state_show", namespace="team", key="k.bak") == before
    await host.call("alc_state_set", namespace="team", key="odd", value=[1])
    assert "shape invalid" in await host.refusal("alc_state_reset", namespace="team", key="odd", steps=["a"])


@pytest.mark.parametrize("namespace", ["http.tokens", "http.keys", "holdfast.notes"])
async def test_what_servers_keep_for_themselves_is_no_state(holdfast: Holdfast, namespace: str) -> None:
    async with host_of(holdfast, EXTENSION.tools) as host:
        assert "belongs to the server" in await host.refusal("alc_state_list", namespace=namespace)
        assert "belongs to the server" in await host.refusal("alc_state_show", namespace=namespace, key="k")
        refusal = await host.refusal("alc_state_set", namespace=namespace, key="k", value=1)
        assert "belongs to the server" in refusal
        assert "belongs to the server" in await host.refusal("alc_state_delete", namespace=namespace, key="k")


# --- traces ----------------------------------------------------------------------------------------


async def ask(host: Host, times: int) -> str:
    asked = await host.call("alc_run", code=f"for i = 1, {times} do alc.llm('q' .. i) end return 'done'")
    for _ in range(times):
        await host.call("alc_continue", session_id=asked["session_id"], response="a")
    return str(asked["session_id"])


async def test_runs_are_found_by_their_calls_and_compared(host: Host) -> None:
    one, three = await ask(host, 1), await ask(host, 3)
    waiting = (await host.call("alc_run", code="return alc.llm('x')"))["session_id"]
    found = (await host.call("alc_trace_query", min_calls=2))["traces"]
    assert [each["session_id"] for each in found] == [three]
    assert (found[0]["trace"]["total_calls"], found[0]["trace"]["completed"]) == (3, True)
    found = (await host.call("alc_trace_query", completed=False))["traces"]
    assert [each["session_id"] for each in found] == [waiting]
    first = await host.call("alc_trace_query", limit=2)
    rest = await host.call("alc_trace_query", limit=2, offset=first["next_offset"])
    everything = [each["session_id"] for each in (*first["traces"], *rest["traces"])]
    assert sorted(everything) == sorted([one, three, waiting])
    assert "next_offset" not in rest
    told = await host.call("alc_trace_diff", a_session_id=one, b_session_id=three)
    assert told["delta"]["calls_delta"] == 2
    assert told["comparison"]


async def test_traces_in_samples_of_cards_are_compared(host: Host) -> None:
    made = """
        local id = alc.card.create({ pkg = { name = "p" } }).card_id
        alc.card.write_samples(id, { { trace = { total_calls = 2, total_trace_ms = 100, completed = true } },
                                     { trace = { total_calls = 5, total_trace_ms = 500 } }, { other = 1 } })
        return id
    """
    card = (await host.call("alc_run", code=made))["result"]
    told = await host.call("alc_trace_diff", a_card_id=card, b_card_id=card, b_sample_index=1)
    assert told["delta"] == {"calls_delta": 3, "ms_delta": 400, "ms_per_call_delta": 50.0}
    assert "has no trace" in await host.refusal("alc_trace_diff", a_card_id=card, a_sample_index=2, b_card_id=card)
    assert "has no sample 9" in await host.refusal("alc_trace_diff", a_card_id=card, a_sample_index=9, b_card_id=card)
    assert "give either" in await host.refusal("alc_trace_diff", a_card_id=card)
    missing = await host.refusal("alc_trace_diff", a_session_id="s-none", b_card_id=card)
    assert "session 's-none' not found" in missing
    assert "'../x' not found" in await host.refusal("alc_trace_diff", a_session_id="../x", b_card_id=card)
    found = (await host.call("alc_trace_query", pkg="p"))["traces"]
    assert [(each["card_id"], each["sample_index"], each["trace"]["total_calls"]) for each in found] == [
        (card, 0, 2),
        (card, 1, 5),
    ]
    assert (await host.call("alc_trace_query", pkg="p", completed=True))["traces"] == found[:1]
    assert (await host.call("alc_trace_query", pkg="p", limit=1, offset=1))["traces"] == found[1:]


async def test_samples_that_are_too_large_to_be_read_together_are_searched_too(host: Host) -> None:
    box = own_box()
    box.create({"pkg": {"name": "p"}, "card_id": "large"}, now=1_750_000_000.0)
    samples = [*({"text": "x" * 4 * 1024 * 1024} for _ in range(7)), {"case": 1, "trace": {"total_calls": 7}}]
    box.write_samples("large", samples)
    [found] = (await host.call("alc_trace_query", min_calls=7))["traces"]
    trace = {"total_calls": 7, "total_trace_ms": 0, "completed": False}
    assert found == {"card_id": "large", "pkg": "p", "sample_index": 7, "case": 1, "trace": trace}


def write_log(folder: Path, session_id: str, calls: int, meta: dict[str, object]) -> None:
    """A log as algocline writes it: the exchanges, and the figures beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"session_id": session_id, "strategy": "cot", "stats": {"llm_calls": calls}, "transcript": []}
    (folder / f"{session_id}.json").write_text(json.dumps(document))
    (folder / f"{session_id}.meta.json").write_text(json.dumps({"session_id": session_id, **meta}))


async def test_runs_in_logs_of_algocline_are_found_and_compared(
    host: Host, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALC_LOG_DIR", str(tmp_path / "elsewhere"))
    run = await ask(host, 1)  # which has a journal, and a log of the same name
    figures = {"strategy": "cot", "task_hint": "Why?", "llm_calls": 5, "elapsed_ms": 900}
    write_log(home / "logs", "s-187-abc", 5, figures)
    write_log(tmp_path / "elsewhere", "s-188-def", 4, {"strategy": "tot"})  # its figures are in the other file
    (home / "logs" / "s-189-bad.meta.json").write_text("{")
    found = (await host.call("alc_trace_query"))["traces"]
    assert {each["session_id"] for each in found} == {run, "s-187-abc", "s-188-def"}
    assert len(found) == 3
    assert (await host.call("alc_trace_query", pkg="cot"))["traces"] == [
        {
            "session_id": "s-187-abc",
            "pkg": "cot",
            "case": "Why?",
            "trace": {"total_calls": 5, "total_trace_ms": 900, "completed": None},
        }
    ]
    assert (await host.call("alc_trace_query", min_calls=4, max_calls=4))["traces"][0]["session_id"] == "s-188-def"
    for completed in (True, False):  # algocline has not written down how they ended
        told = await host.call("alc_trace_query", completed=completed)
        assert [each["session_id"] for each in told["traces"]] == ([run] if completed else [])
    told = await host.call("alc_trace_diff", a_session_id=run, b_session_id="s-187-abc")
    assert told["delta"]["calls_delta"] == 4
    assert "comparison" not in told


# --- settings --------------------------------------------------------------------------------------


async def test_settings_come_from_the_environment_the_project_and_the_user(
    host: Host, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[setting.journal]\npath = "user.md"\npkg = false\nmost = 3\n')
    project = tmp_path / "project"
    project.mkdir()
    (project / "alc.toml").write_text('[setting.journal]\npath = "project.md"\n[setting.card]\nrun = true\n')
    (project / "alc.local.toml").write_text('[setting.journal]\npath = "local.md"\n')
    monkeypatch.setenv("ALC_SETTING_JOURNAL_PKG", "true")
    told = await host.call("alc_setting_resolve", target="journal", project_root=str(project))
    assert told == {
        "resolved": {"journal": {"path": "local.md", "pkg": True, "most": 3}},
        "sources": {"journal": {"path": "project", "pkg": "env", "most": "global"}},
    }
    assert sorted((await host.call("alc_setting_resolve", project_root=str(project)))["resolved"]) == [
        "card",
        "journal",
    ]
    assert "snake_case only" in await host.refusal("alc_setting_resolve", target="No!")
    (project / "alc.toml").write_text("[setting")
    assert "failed to parse TOML" in await host.refusal("alc_setting_resolve", project_root=str(project))


# --- a pinned project ------------------------------------------------------------------------------


async def test_a_pinned_project_is_the_one_of_all_further_calls(host: Host, tmp_path: Path) -> None:
    project = tmp_path / "project"
    write_package(project / "packages", "mine")
    (project / "alc.toml").write_text('[packages]\nmine = { path = "packages/mine" }\n')
    before = {each["name"] for each in (await host.call("alc_pkg_list"))["packages"]}
    assert "mine" not in before
    told = await host.call("alc_session_new", project_root=str(project))
    assert (told["project_root"], told["mode"]) == (str(project), "default")
    assert told["session_id"].startswith("alc-sess-")
    assert "mine" in {each["name"] for each in (await host.call("alc_pkg_list"))["packages"]}
    assert (await host.call("alc_info"))["project_root"] == str(project)
    assert "unknown mode 'odd'" in await host.refusal("alc_session_new", mode="odd")


# --- cards -----------------------------------------------------------------------------------------

CARD = """
    local id = alc.card.create({ pkg = { name = "p" } }).card_id
    alc.card.write_samples(id, { { case = "one", passed = true }, { case = "two", passed = false } })
    return id
"""


async def test_a_card_is_analysed_by_one_question_about_its_failures(host: Host) -> None:
    card = (await host.call("alc_run", code=CARD))["result"]
    asked = await host.call("alc_card_analyze", card_id=card)
    assert asked["status"] == "needs_response"
    assert "two" in asked["prompt"]
    assert '"one"' not in asked["prompt"]
    answer = '{"pattern": "it loses the second", "suggested_change": "say both", "confidence": 3}'
    told = await host.call("alc_continue", session_id=asked["session_id"], response=answer)
    assert told["result"] == {
        "pattern": "it loses the second",
        "suggested_change": "say both",
        "confidence": 1.0,
        "failure_count": 1,
        "sample_count": 2,
    }


async def test_a_package_that_analyses_cards_gets_the_card_and_its_samples(host: Host, home: Path) -> None:
    package = write_package(home / "packages", "card_analysis")
    (package / "init.lua").write_text("return { run = function(ctx) return { ctx.card_id, #ctx.samples } end }")
    card = (await host.call("alc_run", code=CARD))["result"]
    assert (await host.call("alc_card_analyze", card_id=card))["result"] == [card, 2]
    assert own_box().get(card) is not None
    assert "not found" in await host.refusal("alc_card_analyze", card_id="no_such_card")
