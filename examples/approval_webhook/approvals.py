"""Approval in a chat room: calls that need consent are posted there, and its buttons answer them. See README.md."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast import Approve, Rule, Runtime
from holdfast.core.errors import HoldfastError
from holdfast.store.session_rows import SessionFilter

Post: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]
"""Posts a message to the room. The room shows messages with the same key once."""

OLDEST_S = 300
"""Seconds after which a click is refused: somebody may have recorded it."""


def refund(order: str, cents: int) -> str:
    """Pay the price of an order back."""
    return f"{cents / 100:.2f} were paid back for {order}"


async def post_waiting(runtime: Runtime, post: Post, posted: set[tuple[str, str]]) -> None:
    """Post every call that waits for consent and was not posted yet by this process."""
    asking = SessionFilter(asking=True, waiting_for="human")
    for row in (await runtime.mount.store.sessions(asking)).rows:
        session = await runtime.session(row.session_id).open()
        for query in (await session.read_view()).approvals:
            if (key := (row.session_id, query.id)) in posted:
                continue
            call = query.approves
            buttons = [{"value": f"{row.session_id}/{query.id}/{word}", "text": word} for word in ("approve", "deny")]
            text = f"{row.session_id} wants {call.tool} {call.arguments}: {call.reason}"
            await post({"key": "/".join(key), "text": text, "buttons": buttons})
            posted.add(key)


async def keep_posting(runtime: Runtime, post: Post) -> None:
    """Post what waits, now and whenever something changes. A room that cannot be reached is tried again."""
    posted: set[tuple[str, str]] = set()
    with runtime.mount.store.watch() as changes:
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                await post_waiting(runtime, post, posted)
            await changes.changed(timeout=5)


def is_from_the_room(secret: str, headers: Any, body: bytes) -> bool:
    """Whether a click was signed with the secret, and lately."""
    at, given = headers.get("x-request-timestamp", ""), headers.get("x-signature", "")
    if not at.isdigit() or abs(time.time() - int(at)) > OLDEST_S:
        return False
    return hmac.compare_digest(given, signature(secret, at, body))


def signature(secret: str, at: str, body: bytes) -> str:
    """What the room signs a click with."""
    return "v0=" + hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()


def make_app(store: str, post: Post, secret: str, **options: Any) -> Starlette:
    """The application. `options` are those of `Runtime`."""
    rules = Approve([Rule.confirm("refund").because("it moves money")])

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Runtime(store, tools=[refund], plugins=[rules], **options) as runtime, runtime.work():
            app.state.runtime = runtime
            posting = asyncio.create_task(keep_posting(runtime, post))
            yield
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)

    async def ticket(request: Request) -> Response:
        """Begin work on a ticket. It is durable when this returns; the same id again begins nothing new."""
        body = await request.json()
        session = await request.app.state.runtime.session(f"ticket-{body['id']}").open()
        await session.enqueue(body["text"]).id("opened").send()
        return JSONResponse({"session": f"ticket-{body['id']}"}, status_code=202)

    async def click(request: Request) -> Response:
        """Somebody has pressed a button in the room."""
        body = await request.body()
        if not is_from_the_room(secret, request.headers, body):
            return Response(status_code=401)
        session_id, query, word = (await request.json())["value"].split("/")
        session = await request.app.state.runtime.session(session_id).open()
        try:
            await session.answer(query, word)
        except HoldfastError as error:  # somebody else was quicker, or it is over
            return JSONResponse({"text": str(error)}, status_code=409)
        return JSONResponse({"text": f"{word}: {session_id}"})

    routes = [Route("/tickets", ticket, methods=["POST"]), Route("/clicks", click, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


async def post_to_room(message: dict[str, Any]) -> None:
    """Post to the incoming webhook of the room."""
    async with httpx2.AsyncClient() as http:
        (await http.post(os.environ["ROOM_URL"], json=message)).raise_for_status()


app = make_app(
    "sqlite:///tickets.db",
    post_to_room,
    os.environ.get("ROOM_SECRET", ""),
    model=os.environ.get("HOLDFAST_MODEL", "openai:gpt-5"),
    instructions="Help with the ticket. Refund what the customer is due.",
)
