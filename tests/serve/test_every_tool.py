"""Every tool of a real server, called by the official client over stdio and over HTTP, in both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serve.calls import ERAS, Host
from tests.serve.processes import Place

Caller = Callable[..., Awaitable[Any]]

PACKAGE = (
    'local M = {}\nM.meta = { name = "tiny", version = "1.0.0" }\nfunction M.run(ctx) return ctx.task end\nreturn M\n'
)
SPEC = "lust.it('is one', function() lust.expect(1).to.equal(1) end)\n"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_every_tool_does_its_work(tmp_path: Path, transport: str, era: str) -> None:
    place = Place(tmp_path)
    (tmp_path / "source" / "tiny" / "spec").mkdir(parents=True)
    (tmp_path / "source" / "tiny" / "init.lua").write_text(PACKAGE)
    (tmp_path / "source" / "tiny" / "spec" / "tiny_spec.lua").write_text(SPEC)
    (tmp_path / "project").mkdir()
    place.env["ALC_CARD_SINKS"] = f"file://{tmp_path / 'mirror'}"
    place.env["ALC_HOME"] = str(tmp_path / "algocline")
    if transport == "stdio":
        async with place.host(era) as host:
            await use_every_tool(host, tmp_path, is_stateful=True)
    else:
        with place.http() as server:
            async with server.host(era) as host:
                await use_every_tool(host, tmp_path, is_stateful=era == "legacy")


async def use_cards_and_hub(call: Caller, place: Path) -> None:
    made = "return alc.card.create({ pkg = { name = 'tiny' }, card_id = 'c1', stats = { pass_rate = 0.5 } }).card_id"
    assert (await call("alc_run", code=made))["result"] == "c1"
    assert (await call("alc_run", code="return alc.card.write_samples('c1', { { case = 1 } }).count"))["result"] == 1
    assert (await call("alc_card_list"))[0]["card_id"] == "c1"
    assert (await call("alc_card_get", card_id="c1"))["stats"] == {"pass_rate": 0.5}
    assert len(await call("alc_card_find", where={"stats": {"pass_rate": {"gte": 0.5}}})) == 1
    assert (await call("alc_card_append", card_id="c1", fields={"review": "good"}))["review"] == "good"
    assert (await call("alc_card_alias_set", name="best", card_id="c1"))["card_id"] == "c1"
    assert (await call("alc_card_alias_list"))[0]["name"] == "best"
    assert (await call("alc_card_get_by_alias", name="best"))["card_id"] == "c1"
    assert await call("alc_card_samples", card_id="c1") == [{"case": 1}]
    assert (await call("alc_card_lineage", card_id="c1"))["root"] == "c1"
    sink = f"file://{place / 'mirror'}"
    assert (await call("alc_card_sink_backfill", sink=sink))["skipped"] == ["c1"]
    (place / "collection" / "tiny").mkdir(parents=True)
    (place / "collection" / "alc_cards.toml").write_text("")
    (place / "collection" / "tiny" / "c2.toml").write_text('card_id = "c2"\n[pkg]\nname = "tiny"\n')
    assert (await call("alc_card_install", url=str(place / "collection")))["installed_cards"] == ["c2"]

    assert (await call("alc_hub_search", query="tiny"))["results"][0]["installed"] is True
    assert (await call("alc_hub_info", pkg="tiny"))["stats"]["card_count"] == 2
    source = str(place / "source")
    assert (await call("alc_hub_reindex", source_dir=source))["package_count"] == 1
    assert "wrote narrative/tiny.md" in (await call("alc_hub_gendoc", source_dir=source))["stdout"]
    assert (await call("alc_hub_dist", source_dir=source, preset="publish"))["preset"] == "publish"
    assert "adopted" in await call("alc_migrate", project_root=str(place / "project"))


async def use_every_tool(host: Host, place: Path, *, is_stateful: bool) -> None:
    called: set[str] = set()

    async def call(tool: str, **arguments: object) -> Any:
        called.add(tool)
        return await host.call(tool, **arguments)

    source, project = str(place / "source" / "tiny"), str(place / "project")
    assert await call("alc_init", project_root=project)
    assert await call("alc_pkg_install", url=source)
    assert await call("alc_pkg_list")
    assert await call("alc_pkg_doctor")
    assert await call("alc_pkg_repair")
    assert (await call("alc_pkg_scaffold", name="made", target_dir=str(place)))["status"] == "ok"
    assert await call("alc_pkg_link", path=str(place / "made"))
    assert await call("alc_pkg_unlink", name="made")
    assert (await call("alc_pkg_test", pkg="tiny"))["passed"] == 1
    assert await call("alc_update", project_root=project)

    assert (await call("alc_advice", strategy="tiny", task="tea"))["result"] == "tea"
    asked = await call("alc_run", code="return alc.llm('hi')")
    assert (await call("alc_continue", session_id=asked["session_id"], response="yo"))["result"] == "yo"
    assert (await call("alc_status", session_id=asked["session_id"]))["phase"] == "completed"
    assert (await call("alc_note", session_id=asked["session_id"], content="good"))["notes_count"] == 1
    assert await call("alc_log_view", session_id=asked["session_id"])
    assert await call("alc_stats")
    assert await call("alc_info")
    asked = await call("alc_run", code="return alc.llm('hi')")
    assert (await call("alc_cancel", session_id=asked["session_id"]))["status"] == "cancelled"

    await use_cards_and_hub(call, place)
    scenario = 'return { cases = { { input = "tea", expected = "tea" } } }'
    (place / "source" / "scenarios").mkdir()
    (place / "source" / "scenarios" / "drinks.lua").write_text(scenario)
    assert (await call("alc_scenario_install", url=str(place / "source")))["installed"] == ["drinks"]
    assert (await call("alc_scenario_list"))["failures"] == []
    assert (await call("alc_scenario_show", name="drinks"))["content"] == scenario
    first, second = [await call("alc_eval", strategy="tiny", scenario_name="drinks") for _ in range(2)]
    assert (await call("alc_eval_history", limit=0))["evals"] == []
    assert (await call("alc_eval_detail", eval_id=first["eval_id"]))["result"] == first["result"]
    assert await call("alc_eval_compare", eval_id_a=first["eval_id"], eval_id_b=second["eval_id"])

    asked = await call("alc_v2_run", code="return alc.llm('hi')")
    assert await call("alc_v2_state", session_id=asked["session_id"])
    assert await call("alc_v2_cancel", session_id=asked["session_id"])
    asked = await call("alc_run", code="return alc.llm('hi')")
    assert await call(
        "alc_v2_resume",
        session_id=asked["session_id"],
        payload={"payload_kind": "single", "query_id": "q-0", "response": "yo"},
    )

    asked = await call("run", code="return alc.llm('hi')")
    assert await call("show", session_id=asked["session_id"])
    assert (await call("fork", session_id=asked["session_id"]))["status"] == "needs_response"
    assert (await call("answer", session_id=asked["session_id"], response="yo"))["result"] == "yo"
    assert await call("sessions")
    assert await call("strategies")
    asked = await call("run", code="return alc.llm('hi')")
    assert (await call("cancel", session_id=asked["session_id"]))["status"] == "cancelled"
    assert await call("alc_pkg_remove", name="tiny", scope="global")

    assert await call("alc_state_set", namespace="team", key="k", value={"data": {"completed_steps": ["a"]}})
    assert (await call("alc_state_list", namespace="team"))["keys"] == ["k"]
    assert (await call("alc_state_reset", namespace="team", key="k", steps=["a"]))["steps_removed"] == 1
    assert (await call("alc_state_show", namespace="team", key="k"))["data"] == {"completed_steps": []}
    assert (await call("alc_state_delete", namespace="team", key="k"))["existed"] is True
    ran = (await call("alc_trace_query", min_calls=1, completed=True))["traces"]
    assert isinstance(ran, list)
    both = {"a_session_id": ran[0]["session_id"], "b_session_id": ran[1]["session_id"]}
    assert (await call("alc_trace_diff", **both))["delta"]["calls_delta"] == 0
    assert (await call("alc_setting_resolve", project_root=project))["resolved"] == {}
    made = "local made = alc.card.create({ pkg = { name = 'tiny' } }) return made.card_id"
    card = (await call("alc_run", code=made))["result"]
    assert (await call("alc_card_analyze", card_id=card))["status"] == "completed"
    if is_stateful:
        assert (await call("alc_session_new", project_root=project))["project_root"] == project
        assert (await call("alc_info"))["project_root"] == project
    else:
        assert "send project_root with each" in await host.refusal("alc_session_new", project_root=project)
        called.add("alc_session_new")

    offered = {tool.name for tool in (await host.client.list_tools()).tools}
    assert called == offered
