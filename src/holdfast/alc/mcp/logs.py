"""algocline's tools that look back: logs, notes, stats, and what the server is. All of it is read from the journals."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from holdfast import __version__
from holdfast.alc.cards.tool import own_box
from holdfast.alc.mcp import log_files
from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.mcp.package_list import cleaned
from holdfast.alc.migration.logs import log_document, log_metas
from holdfast.core.errors import HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.core.records import CompletedRecord
from holdfast.core.values import Json, encode
from holdfast.programs.sandbox.library import places
from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.runs import AD_HOC, RunView, rows_of
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, SessionId, about
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter

NOTES = "holdfast.notes"
"""The namespace of the store's state that keeps the notes, by session."""

MAX_NOTES = 1_000
"""Notes on one session: more are a diary, and belong elsewhere."""

MAX_NOTE_CHARS = 20_000
"""Characters of one note: several pages; a thousand of them still fit into one value of the store."""

MAX_TITLE_CHARS = 200

LIST_LIMIT = 50
"""Runs in a list, unless it is said otherwise."""

MAX_LIST = 10_000
"""Runs in a list at most: each is read from its journal."""

DETAIL_CHARS = 100_000
"""Characters of a run's log, unless it is said otherwise: what a model can take in at once."""

UNKNOWN = "unknown"
"""What runs of code without a name are counted under."""

DAY_MS = 24 * 3600 * 1000


# --- log view --------------------------------------------------------------------------------------


class LogParams(Params):
    session_id: Annotated[str | None, about("One run in full; else a list of runs.")] = None
    limit: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=MAX_LIST)] | None, about(f"Runs in the list; {LIST_LIMIT} if left out.")
    ] = None
    max_chars: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        about(f"Characters of one run's log: older rounds are cut; {DETAIL_CHARS} if left out, 0 for all."),
    ] = None


async def alc_log_view(call: McpCall, params: LogParams) -> Object:
    if params.session_id is None:
        store = call.holdfast.store
        return {"sessions": await _list(store, LIST_LIMIT if params.limit is None else params.limit)}
    document = await log_of(call, params.session_id)
    return cut(document, DETAIL_CHARS if params.max_chars is None else params.max_chars)


async def log_of(call: McpCall, session_id: str) -> Object:
    """The whole log of a session."""
    store = call.holdfast.store
    await store.session(session_id)
    return _document(await RunView.read(store, session_id), await notes_of(store, session_id))


async def meta_of(call: McpCall, session_id: str) -> Object:
    """The figures of a session, as a list of logs has them."""
    return await _meta(call.holdfast.store, session_id)


async def _list(store: Store, limit: int) -> list[Object]:
    """The runs that changed last, the latest first."""
    if not limit:
        return []
    latest: list[tuple[int, int, str]] = []
    seen = 0
    broken: list[str] = []
    async for row in rows_of(store, SessionFilter()):
        if isinstance(row, str):
            broken.append(row)
            continue
        seen += 1
        latest.append((row.summary.updated_at, -seen, row.session_id))
        if len(latest) >= 2 * limit:
            latest = sorted(latest, reverse=True)[:limit]
    chosen = [session_id for *_, session_id in sorted(latest, reverse=True)[:limit]]
    return [await _meta(store, session_id) for session_id in (*chosen, *broken)][:limit]


async def view_logs(call: McpCall, params: LogParams) -> Object:
    """`alc_log_view` with the logs that algocline has left as files."""
    if params.session_id is not None:
        try:
            return await alc_log_view(call, params)
        except (SessionNotFoundError, InvalidIdError):
            found: Object | None = await on_files(log_document, params.session_id)
            if found is None:
                raise
            return cut(found, DETAIL_CHARS if params.max_chars is None else params.max_chars)
    limit = LIST_LIMIT if params.limit is None else params.limit
    runs: list[Object] = (await alc_log_view(call, params))["sessions"]
    own = {run["session_id"] for run in runs}
    older = await on_files(log_metas, limit) if len(runs) < limit else []
    return {"sessions": [*runs, *(meta for meta in older if meta["session_id"] not in own)][:limit]}


async def _meta(store: Store, session_id: str) -> Object:
    """A line of the list. A run that cannot be read says so, and hides no other."""
    try:
        run = await RunView.read(store, session_id)
        notes = await notes_of(store, session_id)
    except HoldfastError as error:
        return {"session_id": session_id, "strategy": None, "task_hint": None, "status": "damaged", "error": str(error)}
    auto = run.stats["auto"]
    kept = ("elapsed_ms", "rounds", "llm_calls", "total_prompt_chars", "total_response_chars")
    tokens = ("prompt_tokens", "response_tokens", "total_tokens")
    return {
        "session_id": session_id,
        "strategy": run.strategy,
        "task_hint": run.hint,
        **{key: auto[key] for key in (*kept, *tokens)},
        "notes_count": len(notes),
        **run.outcome(),
    }


def _document(run: RunView, notes: list[Object]) -> Object:
    stats = run.stats
    document: Object = {
        "session_id": run.session.id,
        "strategy": run.strategy,
        "task_hint": run.hint,
        **run.outcome(),
        "stats": stats["auto"],
        "custom": stats["custom"],
        "transcript": [each.to_json() for each in run.exchanges.values()],
    }
    if isinstance(run.session.ended, CompletedRecord):
        document["result"] = run.session.ended.result
    if notes:
        document["notes"] = notes
    return document


def cut(document: Object, max_chars: int) -> Object:
    """The document within so many characters of JSON (0: any number): the oldest rounds go first.

    If that is not enough, other long texts are cut too, and marked as cut.
    """
    if not max_chars or _chars(document) <= max_chars:
        return document
    transcript: list[Object] = document["transcript"]
    short = {
        **document,
        "transcript": [],
        "truncated": True,
        "original_rounds": len(transcript),
        "returned_rounds": len(transcript),
    }
    for long in ("notes", "custom", "result"):
        if long in short and _chars(short) > max_chars and _chars(short[long]) > max_chars // 4:
            del short[long]
            short[f"{long}_truncated"] = True
    room = max_chars - _chars(short)
    kept: list[Object] = []
    for each in reversed(transcript):
        room -= _chars(each) + 1
        if room < 0:
            break
        kept.append(each)
    return {**short, "transcript": kept[::-1], "returned_rounds": len(kept)}


def _chars(value: Json) -> int:
    return len(encode(value).decode())


# --- notes -----------------------------------------------------------------------------------------


class NoteParams(Params):
    session_id: SessionId
    content: Annotated[str, msgspec.Meta(description="The note.", min_length=1, max_length=MAX_NOTE_CHARS)]
    title: Annotated[
        Annotated[str, msgspec.Meta(max_length=MAX_TITLE_CHARS)] | None, about("What it is about, as 'Step 2'.")
    ] = None


async def alc_note(call: McpCall, params: NoteParams) -> Object:
    store = call.holdfast.store
    await store.session(params.session_id)
    note = {"timestamp": int(time.time()), "title": params.title, "content": params.content}

    def append(value: Json) -> Json:
        kept = _notes_in(value)
        if len(kept) >= MAX_NOTES:
            raise McpToolError(
                f"session '{params.session_id}' has {len(kept)} notes, and no more than {MAX_NOTES} are kept"
            )
        return [*kept, note]

    item = await store.update_state(NOTES, params.session_id, append)
    return {"session_id": params.session_id, "notes_count": len(item.value)}


async def notes_of(store: Store, session_id: str) -> list[Object]:
    """The notes on a session, the oldest first."""
    item = await store.get_state(NOTES, session_id)
    return _notes_in(item.value if item is not None else None)


def _notes_in(value: Json) -> list[Object]:
    """Any program can write to any namespace, so whatever is no note is skipped."""
    return [each for each in value if isinstance(each, dict) and "content" in each] if isinstance(value, list) else []


# --- stats -----------------------------------------------------------------------------------------


class StatsParams(Params):
    strategy: Annotated[str | None, about("Only runs of this strategy.")] = None
    days: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        about("Only runs that something happened to in the last days."),
    ] = None


@dataclass
class Sums:
    """The figures of all runs of one strategy."""

    count: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, run: RunView) -> None:
        auto = run.stats["auto"]
        self.count += 1
        self.outcomes[str(run.session.state)] += 1
        for key in ("elapsed_ms", "llm_calls", "rounds", "total_prompt_chars", "total_response_chars"):
            self.totals[key] += auto[key]
        for key in ("prompt_tokens", "response_tokens", "total_tokens"):
            self.totals[key] += auto[key]["tokens"]

    def to_json(self) -> Object:
        def average(key: str) -> int:
            return (self.totals[key] + self.count // 2) // self.count

        return {
            "count": self.count,
            **{f"avg_{key}": average(key) for key in ("elapsed_ms", "llm_calls", "rounds")},
            "total_prompt_chars": self.totals["total_prompt_chars"],
            "total_response_chars": self.totals["total_response_chars"],
            "total_prompt_tokens": self.totals["prompt_tokens"],
            "total_response_tokens": self.totals["response_tokens"],
            "total_tokens": self.totals["total_tokens"],
            "outcomes": dict(sorted(self.outcomes.items())),
        }


async def alc_stats(call: McpCall, params: StatsParams) -> Object:
    store = call.holdfast.store
    since = None if params.days is None else max(0, int(time.time() * 1000) - params.days * DAY_MS)
    sums: dict[str, Sums] = {}
    damaged: list[str] = []
    program = AD_HOC if params.strategy == UNKNOWN else params.strategy
    async for row in rows_of(store, SessionFilter(program=program, updated_after=since)):
        session_id = row if isinstance(row, str) else row.session_id
        try:
            run = await RunView.read(store, session_id)
        except HoldfastError:
            damaged.append(session_id)
            continue
        sums.setdefault(run.strategy or UNKNOWN, Sums()).add(run)
    shown: Object = {
        "total_sessions": sum(each.count for each in sums.values()),
        "strategies": {name: sums[name].to_json() for name in sorted(sums)},
        "card_sinks": await on_files(_card_sinks),
    }
    return {**shown, "damaged": damaged} if damaged else shown


def _card_sinks() -> list[Object]:
    try:
        return [dict(each) for each in own_box().sink_stats()]
    except HoldfastError as error:
        return [{"sink": None, "last_error": {"kind": error.kind, "msg": str(error)}}]


# --- info ------------------------------------------------------------------------------------------


class InfoParams(Params):
    project_root: ProjectRoot = None


async def alc_info(call: McpCall, params: InfoParams) -> Object:
    where = directories_of(params.project_root)
    roots = await on_files(where.roots)
    shown: Object = {
        "version": __version__,
        "preset_catalog_version": None,
        "log_dir": _log_dir(),
        "log_enabled": log_files.is_enabled(),
        "tracing": "stderr only",
        "search_paths": [{"path": root, "source": roots.origins.get(root, "path")} for root in roots.roots],
        "strategy_paths": [{"path": str(each.directory), "source": each.origin} for each in places()],
        "server": "holdfast",
        "store": _shown_store(call.holdfast.store.url),
        "home": str(where.home),
    }
    if where.packages.is_dir():
        shown["packages_dir"] = str(where.packages)
    if roots.project is not None:
        shown["project_root"] = roots.project
    if roots.warnings:
        shown["warnings"] = roots.warnings
    clean: Object = cleaned(shown)
    return clean


def _log_dir() -> Object:
    found = log_files.log_directory()
    if found is None:
        return {"resolved": None, "source": "the journals of the store"}
    return {"resolved": str(found), "source": log_files.DIRECTORY_VARIABLE}


def _shown_store(url: str) -> str:
    """The store's URL, without a password."""
    if not url.startswith("postgres"):
        return url
    from holdfast.store.postgres.store import redact

    return redact(url)


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_log_view",
        "Look back at runs",
        "What was run: without session_id a list, the latest first, each with its outcome, times, tokens and what it is"
        " about; with session_id that run in full: every question and answer, result or error, stats and notes."
        " Runs that are under way are there too.",
        LogParams,
        view_logs,
        read_only=True,
        idempotent=True,
        output={
            "type": "object",
            "properties": {
                "sessions": {"type": "array", "items": {"type": "object"}},
                "session_id": {"type": "string"},
                "transcript": {"type": "array", "items": {"type": "object"}},
                "truncated": {"type": "boolean"},
                "original_rounds": {"type": "integer"},
                "returned_rounds": {"type": "integer"},
            },
        },
    ),
    McpTool(
        "alc_note",
        "Note something on a run",
        "Add a note to a run, at any time: what was good, what went wrong, what to try next. alc_log_view shows it.",
        NoteParams,
        alc_note,
        output={
            "type": "object",
            "properties": {"session_id": {"type": "string"}, "notes_count": {"type": "integer"}},
            "required": ["session_id", "notes_count"],
        },
    ),
    McpTool(
        "alc_stats",
        "Compare strategies by their runs",
        "What all runs come to, for each strategy: how many and how they ended, average time, model calls and rounds,"
        " and the characters and tokens in all.",
        StatsParams,
        alc_stats,
        read_only=True,
        idempotent=True,
        output={
            "type": "object",
            "properties": {
                "total_sessions": {"type": "integer"},
                "strategies": {"type": "object", "additionalProperties": {"type": "object"}},
                "card_sinks": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["total_sessions", "strategies", "card_sinks"],
        },
    ),
    McpTool(
        "alc_info",
        "About this server",
        "The version, the store that keeps the runs, and the directories in which packages and strategies are looked"
        " for.",
        InfoParams,
        alc_info,
        read_only=True,
        idempotent=True,
        output={
            "type": "object",
            "properties": {
                "version": {"type": "string"},
                "search_paths": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["version", "log_dir", "log_enabled", "tracing", "search_paths"],
        },
    ),
]
