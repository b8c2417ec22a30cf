"""Traces and metrics through OpenTelemetry, with the names of its conventions for generative AI.

All of it follows from the journal: a call of a model or a tool is a span from the pause that asked it to its answer,
and a turn is a span from its input to its end. What was asked and answered is not told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import holdfast
from holdfast.agent.machine.records import TurnRecord
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.runtime import Runtime
from holdfast.core.queries import Failure, LlmQuery, Query, ToolQuery, Value, is_own
from holdfast.core.records import AnsweredRecord, Entry, PausedRecord

MAX_ASKED = 10_000
"""Questions without an answer that are remembered; an answer to an older one has no span."""

SCOPE = "holdfast"


class Telemetry:
    """Tells OpenTelemetry what the commits of a process record."""

    def __init__(self, tracer: Any, meter: Any, model_of: Callable[[str], str] = lambda session_id: "") -> None:
        """`tracer` and `meter` are those of `opentelemetry.trace` and `opentelemetry.metrics`; `model_of` says which
        model a session has, where its journal does not."""
        self._tracer = tracer
        self._model_of = model_of
        self._failed: set[str] = set()
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of a call of a model.")
        self._durations = meter.create_histogram("gen_ai.client.operation.duration", "s", "Time that a call took.")
        self._asked: OrderedDict[tuple[str, str], tuple[Query, int]] = OrderedDict()
        self._turns: OrderedDict[str, tuple[str, int]] = OrderedDict()

    def on_commit(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Tell of what a commit has recorded, once it is durable."""
        for entry in entries:
            match entry.record:
                case PausedRecord(queries=queries):
                    for query in queries:
                        if query.kind == "input":
                            self._turn_ended(session_id, entry.at)
                        self._remember(self._asked, (session_id, query.id), (query, entry.at))
                case AnsweredRecord() as answered:
                    self._answered(session_id, answered, entry.at)
                case TurnRecord(outcome=StoppedOutcome()):
                    self._failed.add(session_id)
                case _:
                    pass

    @staticmethod
    def _remember(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        kept[key] = value
        if len(kept) > MAX_ASKED:
            kept.popitem(last=False)

    def _answered(self, session_id: str, record: AnsweredRecord, at: int) -> None:
        query, asked_at = self._asked.pop((session_id, record.query_id), (None, at))
        value = record.answer.value if isinstance(record.answer, Value) else None
        if query is None or is_own(query):
            return
        if query.kind == "input" and isinstance(value, dict) and isinstance(value.get("turn"), str):
            self._remember(self._turns, session_id, (value["turn"], at))
            return
        about: dict[str, Any] = {"gen_ai.conversation.id": session_id, "holdfast.query.id": query.id}
        if isinstance(query, LlmQuery):
            model = value.get("model") if isinstance(value, dict) else None
            named = str(model or query.options.get("model") or self._model_of(session_id))
            about |= {"gen_ai.operation.name": "chat", "gen_ai.request.model": named}
            name = f"chat {named}".strip()
            self._count(record, named)
        elif isinstance(query, ToolQuery):
            about |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": query.name}
            name = f"execute_tool {query.name}"
        else:
            about["gen_ai.operation.name"] = query.kind
            name = f"holdfast {query.kind}"
        usage = record.usage
        if usage is not None:
            about["gen_ai.usage.input_tokens"] = usage.prompt_tokens or 0
            about["gen_ai.usage.output_tokens"] = usage.completion_tokens or 0
        failure = record.answer if isinstance(record.answer, Failure) else None
        if failure is not None:
            about["error.type"] = failure.code
        operation = {"gen_ai.operation.name": about["gen_ai.operation.name"]}
        self._durations.record((at - asked_at) / 1000, operation)
        self._span(name, asked_at, at, about, failed=failure is not None)

    def _count(self, record: AnsweredRecord, model: str) -> None:
        if record.usage is None:
            return
        about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
        for kind, tokens in (("input", record.usage.prompt_tokens), ("output", record.usage.completion_tokens)):
            if tokens is not None:
                self._tokens.record(tokens, {**about, "gen_ai.token.type": kind})

    def _turn_ended(self, session_id: str, at: int) -> None:
        """An agent waits for its next input: if it was in a turn, that is over."""
        if session_id not in self._turns:
            return
        turn, began_at = self._turns.pop(session_id)
        failed = session_id in self._failed
        self._failed.discard(session_id)
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": session_id, "holdfast.turn": turn}
        self._span("invoke_agent", began_at, at, about, failed=failed)

    def _span(self, name: str, began_at: int, at: int, about: dict[str, Any], *, failed: bool) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, start_time=began_at * 1_000_000, attributes=about)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=at * 1_000_000)


def instrument(runtime: Runtime) -> Telemetry:
    """Tell OpenTelemetry what a runtime records from now on: to the providers that the application has set up."""
    from opentelemetry import metrics, trace

    telemetry = Telemetry(
        trace.get_tracer(SCOPE, holdfast.__version__),
        metrics.get_meter(SCOPE, holdfast.__version__),
        lambda session_id: model_of(runtime, session_id),
    )
    runtime.mount.holdfast.on_commit(telemetry.on_commit)
    return telemetry


def model_of(runtime: Runtime, session_id: str) -> str:
    """The model of an agent's session, as far as this process knows it; empty for other sessions."""
    conversation = runtime.mount.conversations.at_hand(session_id)
    policy = conversation.policy if conversation is not None else None
    return policy.model if policy is not None else ""
