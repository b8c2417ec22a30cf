"""Endpoints about many sessions at once: counts, labels, costs, and the processes that work on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any, Literal

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.state import State
from holdfast.engine.process_rows import ProcessRow
from holdfast.engine.work_report import WorkReport
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters
from holdfast.serve.http.filters import FilterParameters
from holdfast.serve.http.limits import MAX_LABELS_SHOWN
from holdfast.serve.http.spent_totals import Spending, by_model, is_between
from holdfast.store.limits import READ_LIMIT
from holdfast.store.overview import SessionTotal, SessionTotals, Trait
from holdfast.store.session_rows import SessionFilter, SessionRow

endpoints = Endpoints()

TOP_SESSIONS = 20
"""Sessions that cost most, in a report of costs."""

LEASE_ENDS_MS = 5_000
"""Milliseconds before the end of a lease in which it counts as about to end."""


class CountsReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many sessions there are, and what they ask, use and cost."""

    sessions: int
    by_state: dict[str, int]
    by_waiting_for: dict[str, int]
    asks: int
    tokens: int
    cost: float
    more: bool
    """Whether there are more sessions than were counted."""


class LabelCount(msgspec.Struct, frozen=True):
    """A label, and how many sessions have it."""

    label: str
    sessions: int


class LabelsReport(msgspec.Struct, frozen=True):
    """Labels, the most used first."""

    data: list[LabelCount]


class CostParameters(FilterParameters, frozen=True, kw_only=True):
    """Whose costs, and by what they are told apart."""

    by: list[Literal["day", "program", "model", "label", "service", "state"]] = msgspec.field(
        default_factory=lambda: ["day"]
    )
    """One or two. `model` goes alone, or with `day`: it is told for the 200 sessions that cost most; the others come
    under an empty name."""
    since: str | None = None
    """The first day, as `2026-11-17`, in UTC. A session counts on the day on which it was started."""
    until: str | None = None
    """The last day."""


class CostRow(msgspec.Struct, frozen=True):
    """What sessions that are alike have cost."""

    key: dict[str, str]
    sessions: int
    tokens: int
    cost: float


class BudgetRow(msgspec.Struct, frozen=True):
    """A session that has used most of a limit of its budget."""

    session_id: str
    title: str
    used: dict[str, float]
    limits: dict[str, float]
    share: float
    """How much of the limit that is nearest is used: 1 is all of it."""


class CostsReport(msgspec.Struct, frozen=True):
    """What sessions have cost."""

    data: list[CostRow]
    total: CostRow
    top: list[SessionRow]
    budgets: list[BudgetRow]
    more: bool


class WorkerRow(msgspec.Struct, frozen=True):
    """A process at work on the store."""

    name: str
    host: str
    since: int
    seen_at: int
    offers: dict[str, Any]
    troubles: list[dict[str, Any]]
    sessions: int
    """How many it holds."""
    work: WorkReport | None
    """Its turns, if it works through inboxes; of this server as they are now, of others as they last said."""


class InboxReport(msgspec.Struct, frozen=True):
    """What waits in the inboxes of agents."""

    waiting: int
    oldest_at: int | None
    """When the session last changed that has waited longest."""


class WorkersReport(msgspec.Struct, frozen=True):
    """Who works on the store, and what nobody works on."""

    data: list[WorkerRow]
    unowned: int
    """Sessions that could go on at once, and that nobody holds."""
    inbox: InboxReport
    leases_ending: int
    """Leases that end within five seconds unless their holders show that they live."""


@endpoints.add("GET", "/sessions/counts", "sessions:read", query=FilterParameters, reply=CountsReport)
async def count_sessions(call: ApiCall[FilterParameters, None]) -> JsonReply:
    """Count sessions by state and by what they wait for."""
    where = call.query.session_filter(call.principal)
    if where is None:
        return JsonReply(counts_of(SessionTotals([])))
    totals = await call.door.counts.totals(where, ("state", "waiting_for"))
    return JsonReply(counts_of(totals))


@endpoints.add("GET", "/labels", "sessions:read", reply=LabelsReport)
async def list_labels(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the labels that sessions have, the most used first."""
    where = SessionFilter(id_prefix=call.principal.id_prefix or None)
    totals = await call.door.counts.totals(where, ("labels",))
    found: Counter[str] = Counter()
    for each in totals.rows:
        found.update({label: each.sessions for label in each.key["labels"].split(",") if label})
    most = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:MAX_LABELS_SHOWN]
    return JsonReply(LabelsReport([LabelCount(*each) for each in most]))


@endpoints.add("GET", "/costs", "sessions:read", query=CostParameters, reply=CostsReport)
async def show_costs(call: ApiCall[CostParameters, None]) -> JsonReply:
    """Show what sessions have cost, by day, program, model, label, service or state.

    What a child has used counts for its parent, unless only some sessions are asked for.
    """
    query, where = call.query, call.query.session_filter(call.principal)
    by = list(dict.fromkeys(query.by))
    if not 1 <= len(by) <= 2 or ("model" in by and not {*by} <= {"model", "day"}):
        choices = "day, program, label, service and state, or by model, or by day and model"
        raise InvalidValueError("by", f"costs are told apart by one or two of {choices}")
    traits: list[Trait] = ["labels" if each == "label" else each for each in by if each != "model"]
    if where is None:
        nothing = CostRow({}, 0, 0, 0.0)
        return JsonReply(CostsReport([], nothing, [], [], False))
    first, last = _day("since", query.since), _day("until", query.until)
    days: list[Trait] = [] if "day" in traits else ["day"]
    totals = await _own_totals(call, where, (*traits, *days))
    sums = Spending()
    for each in totals.rows:
        if is_between(each.key["day"], first, last):
            for key in _cost_keys(by, each.key):
                sums.add(key, each.sessions, each.tokens, each.cost)
    if "model" in by:
        sums = await by_model(call.door, (await _own_totals(call, where, ("session", "day"))).rows, (first, last), sums)
    total = Spending()
    for each in totals.rows:
        if is_between(each.key["day"], first, last):
            total.add((), each.sessions, each.tokens, each.cost)
    rows = [CostRow(dict(key), *spent) for key, spent in sums.rows()]
    all_of_it = CostRow({}, *total[()])
    top = await _dearest(call, where)
    return JsonReply(CostsReport(rows, all_of_it, top, await _tight_budgets(call, where), totals.is_partial))


async def _own_totals(call: ApiCall[Any, Any], where: SessionFilter, by: Sequence[Trait]) -> SessionTotals:
    """Sums over sessions; over all of them, without children: what those used is counted in their parents."""
    totals = await call.door.counts.totals(where, by)
    if any(getattr(where, name) for name in where.__struct_fields__ if name != "id_prefix"):
        return totals
    children = await call.door.counts.totals(msgspec.structs.replace(where, children=True), by)
    below = {tuple(each.key.items()): each for each in children.rows}
    rows: list[SessionTotal] = []
    for each in totals.rows:
        counted = below.get(tuple(each.key.items()))
        rows.append(each if counted is None else each.without(counted))
    return SessionTotals([each for each in rows if each.sessions], totals.is_partial or children.is_partial)


@endpoints.add("GET", "/workers", "sessions:read", reply=WorkersReport)
async def list_workers(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the processes at work on the store, what each has and holds, and what nobody works on."""
    door, now = call.door, call.door.holdfast.now()
    held = await door.counts.totals(SessionFilter(states=[State.RUNNING, State.PAUSED]), ("owner", "state"))
    by_owner: Counter[str] = Counter()
    unowned = 0
    for each in held.rows:
        by_owner[each.key["owner"]] += each.sessions
        if not each.key["owner"] and each.key["state"] == State.RUNNING:
            unowned += each.sessions
    waiting = await door.store.sessions(SessionFilter(waiting_for="inbox"), limit=READ_LIMIT)
    oldest = min((row.summary.updated_at for row in waiting.rows), default=None)
    ending = sum(1 for row in waiting.rows if row.lease_until is not None and row.lease_until - now < LEASE_ENDS_MS)
    rows = [_worker(call, each, by_owner[each.name]) for each in await door.holdfast.processes()]
    return JsonReply(WorkersReport(rows, unowned, InboxReport(len(waiting.rows), oldest), ending))


def counts_of(totals: SessionTotals) -> CountsReport:
    """Sums by state and by what is waited for, as one report."""
    by_state: Counter[str] = Counter()
    by_waiting_for: Counter[str] = Counter()
    for each in totals.rows:
        by_state[each.key["state"]] += each.sessions
        for kind in each.key["waiting_for"].split(","):
            if kind:
                by_waiting_for[kind] += each.sessions
    return CountsReport(
        sessions=sum(each.sessions for each in totals.rows),
        by_state=dict(by_state),
        by_waiting_for=dict(by_waiting_for),
        asks=sum(each.asks for each in totals.rows),
        tokens=sum(each.tokens for each in totals.rows),
        cost=sum(each.cost for each in totals.rows),
        more=totals.is_partial,
    )


def _cost_keys(by: Sequence[str], key: dict[str, str]) -> list[tuple[tuple[str, str], ...]]:
    """The rows that a sum counts in: with labels, one for each of them."""
    labels = key["labels"].split(",") if "label" in by else [""]
    return [tuple((each, label if each == "label" else key.get(each, "")) for each in by) for label in labels or [""]]


def _day(name: str, given: str | None) -> str | None:
    try:
        return None if given is None else date.fromisoformat(given).isoformat()
    except ValueError:
        raise InvalidValueError(name, f"it is a day like 2026-11-17, got {given!r}") from None


async def _dearest(call: ApiCall[Any, Any], where: SessionFilter) -> list[SessionRow]:
    dearest = await call.door.counts.totals(where, ("session",), TOP_SESSIONS)
    ids = [each.key["session"] for each in dearest.rows if each.cost or each.tokens]
    return [await call.door.store.session(session_id) for session_id in ids]


async def _tight_budgets(call: ApiCall[Any, Any], where: SessionFilter) -> list[BudgetRow]:
    """Of the dearest sessions that live, those with a budget, the tightest first."""
    found: list[BudgetRow] = []
    living = msgspec.structs.replace(where, states=[State.RUNNING, State.PAUSED])
    for row in await _dearest(call, living):
        session = await call.door.holdfast.session(row.session_id)
        budget = session.started.budget if session.started is not None else None
        if budget is None:
            continue
        spent = {
            "max_tokens": session.metrics.total_tokens,
            "max_cost": session.metrics.cost,
            "max_llm_calls": session.metrics.llm_calls,
        }
        limits = {name: float(limit) for name in spent if (limit := getattr(budget, name, None))}
        if limits:
            share = max(spent[name] / limit for name, limit in limits.items())
            used = {name: float(spent[name]) for name in limits}
            found.append(BudgetRow(row.session_id, row.summary.title, used, limits, share))
    return sorted(found, key=lambda each: -each.share)


def _worker(call: ApiCall[Any, Any], process: ProcessRow, sessions: int) -> WorkerRow:
    """A process as it is listed. Its name begins with that of its machine."""
    shown = msgspec.to_builtins(process)
    offers = {**_NO_OFFERS, **shown["offers"]}
    host = process.name.rsplit(".", 2)[0]
    owner, work = call.door.holdfast.engine.owner, process.work
    if process.name == owner.name:
        work = owner.work() if owner.work is not None else None
    return WorkerRow(process.name, host, process.since, process.seen_at, offers, shown["troubles"], sessions, work)


_NO_OFFERS: dict[str, Any] = {
    **{name: [] for name in ("services", "strategies", "providers", "models", "tools", "agents")},
    "has_model": False,
    "answers_people": False,
}
