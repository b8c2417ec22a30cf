"""The site: the HTTP API and the console of a runtime behind the gate, alone or inside another application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from starlette.types import Send

from holdfast.agent.runtime import Runtime
from holdfast.serve.gate import GateRules, RefusalError, RequestGate, send_refusal
from holdfast.serve.http.app import ApiApp
from holdfast.serve.http.door import Door
from holdfast.serve.http.endpoints import ENDPOINTS
from holdfast.serve.http.limits import VALUE_BODY_BYTES
from holdfast.serve.http.problems import MEDIA_TYPE, TYPE_BASE
from holdfast.serve.http.web_app import WebApp
from holdfast.serve.listener import HttpSettings, serve
from holdfast.strategies.evaluation.begin import has_served_work
from holdfast.strategies.evaluation.dispatcher import Jobs
from holdfast.strategies.evaluation.evaluation import install_dispatcher


def web_app(runtime: Runtime, *, name: str = "agent", local_token: str | None = None) -> WebApp:
    """The HTTP API and the console of a runtime that is open, to be mounted in a Starlette or FastAPI application.

    That application then decides who reaches it, by which names and from which pages. Tokens are still asked for.
    """
    return WebApp(ApiApp(Door(runtime, name=name, local_token=local_token), ENDPOINTS))


@dataclass(frozen=True)
class SiteOptions:
    """What a server does beside serving the API."""

    has_open_metrics: bool = False
    allows_private_webhooks: bool = False
    features: frozenset[str] = frozenset()
    """Further words that `GET /server` lists."""


async def serve_site(
    runtime: Runtime, http: HttpSettings, ready: Callable[[str, Door], None], options: SiteOptions | None = None
) -> None:
    """Serve a runtime that is open until a signal asks to end, and tell its webhooks what happens meanwhile."""
    options = options or SiteOptions()
    door = Door(runtime, local_token=http.token, allows_private_webhooks=options.allows_private_webhooks)
    door.is_metrics_open = options.has_open_metrics
    door.features |= {"webhooks", *options.features}
    if await has_served_work(door.store):
        install_dispatcher(runtime, Jobs())
    app = WebApp(ApiApp(door, ENDPOINTS))
    rules = GateRules(
        http, VALUE_BODY_BYTES, _refuse, needs_token=False, checks_keys=False, same_port=True, ends_streams=False
    )
    sending = asyncio.create_task(door.webhook_sender.run())
    try:
        await serve(_Site(app, rules), http, lambda url: ready(url, door))
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


class _Site(RequestGate):
    """The gate, which tells the door when it closes."""

    def __init__(self, app: WebApp, rules: GateRules) -> None:
        super().__init__(app, rules)
        self._door = app.api.door

    def close(self) -> None:
        """Let streams say goodbye, and end what is under way after a while."""
        self._door.close()
        super().close()


async def _refuse(send: Send, refusal: RefusalError) -> None:
    kind = "refused"
    problem = {"type": TYPE_BASE + kind, "title": kind, "status": refusal.status, "detail": str(refusal)}
    await send_refusal(send, refusal, msgspec.json.encode(problem), MEDIA_TYPE)
