"""The results of Holdfast's own tools, as they are declared to hosts. What is absent in a result is `UNSET` here."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.core.state import State
from holdfast.serve.mcp.catalog import StrategyView
from holdfast.serve.mcp.tools import about

Kind: TypeAlias = Literal["llm", "tool", "human", "timer", "child"]


class ResultView(msgspec.Struct):
    """The result of a tool, or a part of one."""


# --- events ------------------------------------------------------------------------------------------


class QueryView(ResultView, kw_only=True):
    """What is asked."""

    kind: Annotated[Kind | UnsetType, about("What is asked for; a model's answer (llm) if absent.")] = UNSET
    prompt: Annotated[str | UnsetType, about("The question.")] = UNSET
    system: Annotated[str | UnsetType | None, about("How to answer it.")] = UNSET
    max_tokens: Annotated[int | UnsetType, about("How long the answer may be.")] = UNSET
    grounded: Annotated[bool | UnsetType, about("Back the answer by evidence: search, read, run.")] = UNSET
    underspecified: Annotated[
        bool | UnsetType, about("The prompt leaves the intent open: find out, for example by asking the user.")
    ] = UNSET
    options: Annotated[dict[str, Any] | UnsetType, about("More wishes: model, temperature, role, ….")] = UNSET
    choices: Annotated[list[str] | UnsetType, about("Of a human query: what may be answered.")] = UNSET
    approves: Annotated[
        dict[str, Any] | UnsetType,
        about(
            "Of a human query: the call (tool, arguments, reason) that is run only if it is approved. Answer approve,"
            ' deny or always; or the JSON of {"decision": "approve", "arguments": {…}} to change its arguments, or of'
            ' {"decision": "deny", "reason": "…"}. Ask the user; do not decide for them.'
        ),
    ] = UNSET
    name: Annotated[str | UnsetType, about("Of a tool query: the tool to call.")] = UNSET
    arguments: Annotated[dict[str, Any] | UnsetType, about("Of a tool query: what to call it with.")] = UNSET
    due_at: Annotated[int | UnsetType, about("When the question lapses (unix ms).")] = UNSET


class BatchQueryView(QueryView, kw_only=True):
    """One of several queries."""

    id: Annotated[str, about("Its query_id.")]


class StatsView(ResultView, kw_only=True):
    """What a session spent."""

    auto: Annotated[dict[str, Any], about("elapsed_ms, llm_calls, pauses, rounds, tokens, ….")]
    custom: Annotated[dict[str, Any], about("What the strategy recorded about itself.")]


class EventView(QueryView, kw_only=True):
    """What a session says."""

    status: Annotated[
        Literal["needs_response", "accepted", "running", "imported", "completed", "error", "cancelled", "expired"],
        about(
            "needs_response: it asks; answer it. accepted: the answer was taken, other queries are still open. running:"
            " it works without you; look again with `show`. imported: it came from a file, and does nothing until the"
            " operator adopts it. All others say how it ended."
        ),
    ]
    session_id: Annotated[str, about("Use it to answer, show, cancel or fork the session, at any time.")]
    query_id: Annotated[str | UnsetType, about("Of the one query asked, whose fields are beside this.")] = UNSET
    queries: Annotated[list[BatchQueryView] | UnsetType, about("The queries, where several are asked at once.")] = UNSET
    note: Annotated[str | UnsetType, about("How to answer them, where that is easily overlooked.")] = UNSET
    remaining: Annotated[int | UnsetType, about("Accepted: how many answers are still missing.")] = UNSET
    remaining_ids: Annotated[list[str] | UnsetType, about("Accepted: to which queries.")] = UNSET
    waits_for: Annotated[list[Kind] | UnsetType, about("Running: what it waits for meanwhile.")] = UNSET
    why: Annotated[str | UnsetType, about("Running, imported: why it makes no progress, if it makes none.")] = UNSET
    result: Annotated[Any, about("Completed: what the strategy returned.")] = UNSET
    error: Annotated[str | UnsetType, about("Error: what went wrong.")] = UNSET
    error_kind: Annotated[str | UnsetType, about("Error: of what kind.")] = UNSET
    reason: Annotated[str | UnsetType, about("Cancelled, expired: why.")] = UNSET
    by: Annotated[str | UnsetType, about("Cancelled: by whom.")] = UNSET
    stats: Annotated[StatsView | UnsetType, about("What it spent, once it has ended.")] = UNSET
    replayed: Annotated[bool | UnsetType, about("The answer had been taken before; this is the reply it got.")] = UNSET


# --- sessions ----------------------------------------------------------------------------------------


class SessionRowView(ResultView, kw_only=True):
    """A session in a list."""

    session_id: str
    state: State
    strategy: str
    created_at: Annotated[int, about("Unix ms.")]
    updated_at: Annotated[int, about("Unix ms.")]
    pending_queries: Annotated[int, about("How many queries wait for an answer.")]
    waiting_for: Annotated[list[str], about("The kinds of those.")]
    parent: Annotated[str | UnsetType, about("The session it works for.")] = UNSET


class SessionsView(ResultView, kw_only=True):
    """A page of sessions."""

    sessions: list[SessionRowView]
    next_cursor: Annotated[str | UnsetType, about("Pass it as `cursor` for the next page; absent on the last.")] = UNSET
    damaged: Annotated[list[str] | UnsetType, about("Ids of sessions that cannot be read.")] = UNSET


class PendingQueryView(QueryView, kw_only=True):
    """A query that waits."""

    query_id: str
    delay_ms: Annotated[int | UnsetType, about("Of a timer.")] = UNSET
    program: Annotated[str | UnsetType, about("Of a child: what it runs.")] = UNSET


class EntryView(ResultView, kw_only=True):
    """One entry of a journal."""

    position: int
    at: Annotated[int, about("Unix ms.")]
    record: Annotated[dict[str, Any], about("What happened: its `type`, and the fields of that.")]


class JournalView(ResultView, kw_only=True):
    """A page of a journal."""

    entries: list[EntryView]
    next: Annotated[int | None, about("Pass it as `journal_after` for the next page; null at the end.")]


class ShowView(ResultView, kw_only=True):
    """A session."""

    session_id: str
    state: Literal["running", "paused", "imported", "terminal"]
    phase: State
    strategy: str | UnsetType = UNSET
    started_at: Annotated[int, about("Unix ms.")]
    last_activity_at: Annotated[int, about("Unix ms.")]
    position: Annotated[int, about("The last position of its journal.")]
    owner: Annotated[str | None, about("The process that drives it now.")]
    metrics: Annotated[dict[str, Any], about("Calls, tokens, times, recent log lines, progress, what is left.")]
    imported: Annotated[dict[str, Any] | UnsetType, about("When it was imported from a file, if it was.")] = UNSET
    pending_queries: Annotated[int | UnsetType, about("How many queries wait for an answer.")] = UNSET
    pending: Annotated[list[PendingQueryView], about("Those queries, in full.")]
    outcome: Annotated[EventView | UnsetType, about("How it ended.")] = UNSET
    journal: Annotated[JournalView | UnsetType, about("What happened, where that was asked for.")] = UNSET


# --- strategies --------------------------------------------------------------------------------------


class StrategiesView(ResultView, kw_only=True):
    """A page of strategies."""

    strategies: list[StrategyView]
    total: Annotated[int, about("How many match the search.")]
    next_cursor: Annotated[str | UnsetType, about("Pass it as `cursor` for the next page; absent on the last.")] = UNSET
