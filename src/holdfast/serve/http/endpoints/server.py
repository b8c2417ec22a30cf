"""Endpoints about the server itself: what it is, whether it is well, and who else is at work on its store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

import holdfast
from holdfast.engine.process_rows import ProcessRow
from holdfast.serve.http.endpoint import ApiCall, BytesReply, Endpoints, JsonReply, NoParameters
from holdfast.serve.http.limits import (
    BODY_BYTES,
    MAX_PAGE_ROWS,
    MAX_STREAMS,
    MAX_WAIT_S,
    VALUE_BODY_BYTES,
    WRITES_PER_S,
)
from holdfast.serve.http.logins import authorization_in
from holdfast.serve.http.metrics import MEDIA_TYPE, metrics_text
from holdfast.serve.http.problems import ApiError
from holdfast.store.errors import StoreError
from holdfast.store.supervisor import TaskTrouble

endpoints = Endpoints()


class ServerReport(msgspec.Struct, frozen=True):
    """What a server is."""

    version: str
    store: str
    """The kind of its store. Its address is not shown: it may hold a password."""
    now: int
    """The time by the server's clock (unix ms)."""
    services: list[str]
    agents: list[str]
    scopes: list[str]
    """What the token of this request may do."""
    features: list[str]
    """What this server has beside the API: some of `console`, `webhooks`, `work`, `demo`."""


class CleanReport(msgspec.Struct, frozen=True):
    """What was ended, and what was deleted, by id."""

    expired: list[str]
    deleted: list[str]


class ServerSettings(msgspec.Struct, frozen=True):
    """How a server is set up."""

    retention: dict[str, float | None]
    """Seconds after which sessions expire and are deleted (`idle_s`, `keep_ended_s`), and bytes that the store may
    take before ended ones are deleted sooner (`max_bytes`); null for never."""
    limits: dict[str, float]
    store: dict[str, str]
    demo: bool


class DoctorReport(msgspec.Struct, frozen=True):
    """What is not well."""

    troubles: list[TaskTrouble]
    """What this process does by itself and has failed at lately."""
    damaged: list[str]
    """Sessions among the latest thousand whose summary cannot be read."""
    processes: int


@endpoints.add("GET", "/server", "sessions:read", reply=ServerReport)
async def show_server(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show what this server is, and what the token may do here."""
    door = call.door
    report = ServerReport(
        version=holdfast.__version__,
        store=door.store.url.partition(":")[0],
        now=door.holdfast.now(),
        services=list(door.holdfast.engine.owner.offers.services),
        agents=[door.name],
        scopes=sorted(call.principal.scopes),
        features=sorted(door.features),
    )
    return JsonReply(report)


@endpoints.add("GET", "/settings", "sessions:read", reply=ServerSettings)
async def show_settings(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show how this server is set up: what it keeps for how long, and its limits."""
    door = call.door
    limits = {
        "body_bytes": BODY_BYTES,
        "value_bytes": VALUE_BODY_BYTES,
        "page_rows": MAX_PAGE_ROWS,
        "wait_s": MAX_WAIT_S,
        "writes_per_s": WRITES_PER_S,
        "streams": MAX_STREAMS,
    }
    store = {"kind": door.store.url.partition(":")[0]}
    kept = door.holdfast.upkeep.retention
    retention = {
        "idle_s": _seconds(kept.idle_ttl_ms),
        "keep_ended_s": _seconds(kept.keep_ended_ms),
        "max_bytes": kept.max_bytes,
    }
    return JsonReply(ServerSettings(retention, limits, store, "demo" in door.features))


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


@endpoints.add("GET", "/doctor", "admin", reply=DoctorReport)
async def examine_store(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show what is not well: standing tasks that fail, and sessions whose summary cannot be read."""
    holdfast = call.door.holdfast
    page = await holdfast.sessions(limit=MAX_PAGE_ROWS)
    return JsonReply(DoctorReport(holdfast.troubles(), page.damaged, len(await holdfast.processes())))


@endpoints.add("POST", "/maintenance/clean", "admin", reply=CleanReport)
async def clean_store(call: ApiCall[NoParameters, None]) -> JsonReply:
    """End what was idle for too long, and delete what was kept for long enough, now, as this server is set up."""
    return JsonReply(CleanReport(*await call.door.holdfast.clean()))


@endpoints.add("GET", "/healthz", "none", reply=dict[str, Any])
async def show_health(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Say that the process is alive."""
    return JsonReply({"status": "ok"})


@endpoints.add("GET", "/readyz", "none", reply=dict[str, Any])
async def show_readiness(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Say whether requests can be served: the store answers, and the server is not shutting down."""
    try:
        await call.door.store.sessions(limit=1)
    except StoreError as error:
        raise ApiError(503, "store_unavailable", str(error), {"retry-after": "2"}) from None
    return JsonReply({"status": "ok"})


@endpoints.add("GET", "/metrics", "none", reply=bytes, media_type="text/plain")
async def show_metrics(call: ApiCall[NoParameters, None]) -> BytesReply:
    """Show the metrics of this server and its store, in the text format of Prometheus."""
    door = call.door
    if not door.is_metrics_open:
        (await door.principal(authorization_in(call.headers))).check_scope("sessions:read")

    async def text() -> AsyncIterator[bytes]:
        yield (await metrics_text(door.metrics, door.holdfast, door.counts)).encode()

    return BytesReply(text(), MEDIA_TYPE)


@endpoints.add("GET", "/processes", "sessions:read", reply=list[ProcessRow])
async def list_processes(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the processes at work on the store, and what each of them offers."""
    return JsonReply(await call.door.holdfast.processes())
