"""Metrics and logs: what operators are told of, in the formats that their tools read."""

from __future__ import annotations

import json
import logging
import re

from holdfast.serve.http.logs import JsonFormatter, name_session, request_context
from tests.serve.http.api_server import ApiServer
from tests.serve.http.programs import two_questions

LINE = re.compile(
    r'^[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+$|^[a-z_]+_bucket\{le="[^"]+"\} [0-9]+$'
)


async def _metrics(api: ApiServer) -> dict[str, float]:
    reply = await api.client.get(api.url + "/metrics")
    assert (reply.status_code, reply.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    lines = [line for line in reply.text.splitlines() if not line.startswith("#")]
    assert [line for line in lines if not LINE.match(line)] == []
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_metrics_tell_of_sessions_questions_requests_and_commits(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cost": 0.5}
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug", "usage": usage})
    await api.post("/agents/agent/sessions", {"id": "chat"})
    await api.post("/sessions/chat/turns", {"input": "Hello", "wait_s": 30})
    found = await _metrics(api)
    assert found['holdfast_sessions{state="paused"}'] == 2
    assert found['holdfast_sessions{state="failed"}'] == 0
    assert found["holdfast_questions_age_seconds_count"] == 1
    assert found['holdfast_tokens_total{direction="input"}'] >= 100
    assert found["holdfast_cost_usd_total"] >= 0.5
    assert found["holdfast_turns_total"] == 1
    assert found["holdfast_commits_total"] == found["holdfast_commit_seconds_count"] > 0
    assert found['holdfast_http_requests_total{method="POST",route="/sessions",status="201"}'] == 1


async def test_metrics_need_a_token_unless_the_server_says_otherwise(api: ApiServer) -> None:
    async with api.as_holder_of(None) as nobody:
        assert (await nobody.get(api.url + "/metrics")).status_code == 401
        api.door.is_metrics_open = True
        assert (await nobody.get(api.url + "/metrics")).status_code == 200


def test_a_line_of_the_log_names_its_request_and_session() -> None:
    record = logging.LogRecord("holdfast.http", logging.INFO, "f", 1, "gave %s", (201,), None)
    record.fields = {"status": 201}
    with request_context("r-1"):
        name_session("s-1")
        line = json.loads(JsonFormatter().format(record))
    assert {**line, "at": ""} == {
        "at": "",
        "level": "info",
        "logger": "holdfast.http",
        "message": "gave 201",
        "request_id": "r-1",
        "session_id": "s-1",
        "status": 201,
    }
    assert "request_id" not in json.loads(JsonFormatter().format(record))
