"""The metrics of a server in the text format of Prometheus: what its store holds, and what this process has done."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.core.records import AnsweredRecord, Entry
from holdfast.core.state import State
from holdfast.engine.holdfast import Holdfast
from holdfast.serve.http.counts import Counts
from holdfast.store.session_rows import SessionFilter

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the buckets of requests and commits, in seconds."""

AGES_S = (60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)
"""Bounds of the buckets of waiting questions: a minute, ten, an hour, six, a day, a week."""

QUESTIONS_LOOKED_AT = 1_000
"""Sessions whose questions are looked at for their ages."""


@dataclass
class Histogram:
    """How many of what was observed is below each bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class ServerMetrics:
    """What this process has done since it began."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By method, route and status."""
    request_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    streams: int = 0
    """Open now."""
    commit_s: Histogram = field(default_factory=lambda: Histogram(LATENCY_S))
    commits: int = 0
    entries: int = 0
    turns: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    """By direction: `input` and `output`, as far as they were counted by whoever answered."""
    cost: float = 0.0
    webhooks: Counter[str] = field(default_factory=Counter)
    """Deliveries by outcome: `ok`, `failed`."""

    def on_commit(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Count a commit of this process, once it is durable."""
        self.commits += 1
        self.entries += len(entries)
        for entry in entries:
            record = entry.record
            if isinstance(record, AnsweredRecord) and record.usage is not None:
                usage = record.usage
                self.tokens["input"] += usage.prompt_tokens or 0
                self.tokens["output"] += usage.completion_tokens or 0
                self.cost += usage.cost or 0.0
        self.turns += sum(1 for entry in entries if getattr(entry.record, "query_id", None) and _is_input(entry))


def _is_input(entry: Entry) -> bool:
    answer = getattr(entry.record, "answer", None)
    value = getattr(answer, "value", None)
    return isinstance(value, dict) and "turn" in value and "content" in value


async def metrics_text(metrics: ServerMetrics, holdfast: Holdfast, counts: Counts) -> str:
    """All metrics, as they are now."""
    totals = await counts.totals(SessionFilter(), ("state", "waiting_for"))
    by_state: Counter[str] = Counter({state: 0 for state in State if state is not State.ABSENT})
    for each in totals.rows:
        by_state[each.key["state"]] += each.sessions
    questions = await holdfast.questions(limit=QUESTIONS_LOOKED_AT)
    now = holdfast.now()
    ages = Histogram(AGES_S)
    for question in questions.questions:
        ages.observe(max(0, now - question.asked_at) / 1000)
    inbox = await holdfast.sessions(SessionFilter(waiting_for="inbox"), limit=QUESTIONS_LOOKED_AT)
    oldest = min((row.summary.updated_at for row in inbox.rows), default=now)
    takeovers = holdfast.engine.owner.takeovers
    lines = [
        *_gauge("holdfast_sessions", "Sessions by state.", [({"state": k}, v) for k, v in by_state.items()]),
        *_gauge("holdfast_session_tokens", "Tokens of all sessions.", [({}, sum(r.tokens for r in totals.rows))]),
        *_gauge("holdfast_session_cost_usd", "Cost of all sessions.", [({}, sum(r.cost for r in totals.rows))]),
        *_histogram("holdfast_questions_age_seconds", "Questions that wait for people and hosts, by age.", ages),
        *_gauge("holdfast_inbox_sessions", "Agents with something in their inbox.", [({}, len(inbox.rows))]),
        *_gauge("holdfast_inbox_oldest_seconds", "Age of the oldest of those.", [({}, max(0, now - oldest) / 1000)]),
        *_gauge("holdfast_workers", "Processes at work on the store.", [({}, len(await holdfast.processes()))]),
        *_gauge("holdfast_troubles", "Standing tasks that fail.", [({}, len(holdfast.troubles()))]),
        *_counter("holdfast_commits_total", "Commits of this process.", [({}, metrics.commits)]),
        *_counter("holdfast_entries_total", "Journal entries written by this process.", [({}, metrics.entries)]),
        *_counter("holdfast_turns_total", "Turns of agents begun by this process.", [({}, metrics.turns)]),
        *_counter(
            "holdfast_tokens_total",
            "Tokens counted in answers that this process has recorded.",
            [({"direction": name}, metrics.tokens[name]) for name in ("input", "output")],
        ),
        *_counter("holdfast_cost_usd_total", "Cost told in those answers.", [({}, metrics.cost)]),
        *_counter("holdfast_takeovers_total", "Sessions of dead owners taken over.", [({}, takeovers)]),
        *_counter(
            "holdfast_http_requests_total",
            "Requests by method, route and status.",
            [
                ({"method": method, "route": route, "status": status}, count)
                for (method, route, status), count in sorted(metrics.requests.items())
            ],
        ),
        *_histogram("holdfast_http_request_seconds", "Time that requests took, without streams.", metrics.request_s),
        *_histogram("holdfast_commit_seconds", "Time that commits of this process took.", metrics.commit_s),
        *_gauge("holdfast_http_streams", "Open event streams.", [({}, metrics.streams)]),
        *_counter(
            "holdfast_webhook_deliveries_total",
            "Deliveries of webhooks by outcome.",
            [({"outcome": name}, metrics.webhooks[name]) for name in ("ok", "failed")],
        ),
    ]
    return "\n".join(lines) + "\n"


Samples = Iterable[tuple[Mapping[str, str], float]]


def _gauge(name: str, text: str, samples: Samples) -> list[str]:
    return _family(name, text, "gauge", samples)


def _counter(name: str, text: str, samples: Samples) -> list[str]:
    return _family(name, text, "counter", samples)


def _family(name: str, text: str, kind: str, samples: Samples) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]


def _histogram(name: str, text: str, histogram: Histogram) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
    below = 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{le="{_number(bound)}"}} {below}')
    return [*lines, f"{name}_sum {_number(histogram.total)}", f"{name}_count {below}"]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
