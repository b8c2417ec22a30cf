"""What an algocline user set up beside the tools: where logs go, and what runs and figures are called in them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.alc.mcp.extension import EXTENSION
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.upkeep import Upkeep
from tests.alc.mcp.user_packages import new_user
from tests.serve.calls import Host, host_of


@pytest.fixture
async def holdfast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    new_user(monkeypatch, tmp_path)
    async with open_holdfast(f"sqlite:///{tmp_path}/runs.db", upkeep=Upkeep(on=False)) as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast) -> AsyncIterator[Host]:
    async with host_of(holdfast, EXTENSION.tools) as opened:
        yield opened


async def answered(host: Host, code: str = "return alc.llm('what?', {system = 'brief'})") -> str:
    asked = await host.call("alc_run", code=code)
    await host.call("alc_continue", session_id=asked["session_id"], response="tea")
    return str(asked["session_id"])


async def test_logs_are_written_where_the_variable_says(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "logs"
    monkeypatch.setenv("ALC_LOG_DIR", str(logs))
    session_id = await answered(host)
    log = json.loads((logs / f"{session_id}.json").read_text())
    assert [(each["prompt"], each["response"]) for each in log["transcript"]] == [("what?", "tea")]
    assert log["stats"]["llm_calls"] == 1
    meta = json.loads((logs / f"{session_id}.meta.json").read_text())
    assert (meta["session_id"], meta["rounds"], meta["notes_count"]) == (session_id, 1, 0)
    await host.call("alc_run", code="return 1")
    assert len(list(logs.iterdir())) == 2  # what asked nothing leaves no log
    told = await host.call("alc_info")
    assert told["log_dir"] == {"resolved": str(logs), "source": "ALC_LOG_DIR"}


async def test_the_level_off_writes_no_logs(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALC_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setenv("ALC_LOG_LEVEL", "off")
    session_id = await answered(host)
    assert not (tmp_path / "logs").exists()
    assert (await host.call("alc_info"))["log_enabled"] is False
    assert (await host.call("alc_log_view", session_id=session_id))["result"] == "tea"  # the journal has it


async def test_a_log_that_cannot_be_written_is_told(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALC_LOG_DIR", str(tmp_path / "file" / "logs"))
    asked = await host.call("alc_run", code="return alc.llm('what?')")
    told = await host.call("alc_continue", session_id=asked["session_id"], response="tea")
    assert told["result"] == "tea"
    assert "the log was not written" in told["transcript_warning"]


async def test_code_that_a_host_sent_has_no_strategy(host: Host) -> None:
    session_id = await answered(host)
    assert (await host.call("alc_log_view", session_id=session_id))["strategy"] is None
    assert [each["strategy"] for each in (await host.call("alc_log_view"))["sessions"]] == [None]
    assert (await host.call("alc_status", session_id=session_id))["strategy"] is None
    assert list((await host.call("alc_stats"))["strategies"]) == ["unknown"]
    assert (await host.call("alc_stats", strategy="unknown"))["total_sessions"] == 1


async def test_prompt_chars_are_bytes_of_prompts_and_system_texts(host: Host) -> None:
    asked = await host.call("alc_run", code="return alc.llm('größe', {system = 'süß'})")
    told = await host.call("alc_continue", session_id=asked["session_id"], response="né")
    auto = told["stats"]["auto"]
    assert (auto["total_prompt_chars"], auto["total_response_chars"]) == (12, 3)
    assert (auto["prompt_characters"], auto["response_characters"]) == (8, 2)
