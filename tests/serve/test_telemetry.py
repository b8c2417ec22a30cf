"""OpenTelemetry: calls of models and tools, and turns, as spans and histograms with the names of the conventions."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Runtime
from holdfast.core.queries import Usage
from holdfast.serve.telemetry import Telemetry, model_of
from holdfast.testing.provider import ScriptedProvider, reply, tool_call

sdk = pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


async def test_a_turn_its_model_calls_and_its_tool_calls_are_spans() -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    meter = MeterProvider([reader]).get_meter("t")
    usage = Usage(prompt_tokens=10, completion_tokens=4)
    script = [reply(tool_call("add", a=2, b=40), usage=usage), reply("It is 42.", usage=usage)]
    async with Runtime("memory:", provider=ScriptedProvider(script), model="m-1", tools=[add]) as runtime:
        telemetry = Telemetry(traces.get_tracer("t"), meter, lambda session_id: model_of(runtime, session_id))
        runtime.mount.holdfast.on_commit(telemetry.on_commit)
        session = await runtime.session("chat").open()
        await session.turn("2 + 40?").id("t-1").run()
    found = {span.name: dict(span.attributes or {}) for span in spans.get_finished_spans()}
    assert set(found) == {"chat m-1", "execute_tool add", "invoke_agent"}
    assert found["chat m-1"]["gen_ai.usage.input_tokens"] == 10
    assert found["execute_tool add"]["gen_ai.tool.name"] == "add"
    assert found["invoke_agent"]["holdfast.turn"] == "t-1"
    assert {each["gen_ai.conversation.id"] for each in found.values()} == {"chat"}
    assert "42" not in str(found), "contents are not told"
    data: Any = reader.get_metrics_data()
    names = {metric.name for each in data.resource_metrics for scope in each.scope_metrics for metric in scope.metrics}
    assert names == {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"}
