"""Approvals: what waits is posted, a signed press decides, and a restart loses nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from approvals import make_app, signature

from holdfast.testing import ScriptedProvider, tool_call
from holdfast.testing.patience import HANG_S

SECRET = "not so secret"


class Room:
    """A chat room: what was posted to it, and its buttons."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def message(self) -> dict[str, Any]:
        """The next message."""
        async with asyncio.timeout(HANG_S):
            return await self.messages.get()


@asynccontextmanager
async def running(store: str, room: Room, model: ScriptedProvider) -> AsyncIterator[tuple[Any, httpx2.AsyncClient]]:
    app = make_app(store, room.messages.put, SECRET, provider=model)
    transport = httpx2.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url="http://app") as http:
        yield app.state.runtime, http


async def press(http: httpx2.AsyncClient, value: str, secret: str = SECRET) -> httpx2.Response:
    body, at = json.dumps({"value": value}).encode(), str(int(time.time()))
    headers = {"x-request-timestamp": at, "x-signature": signature(secret, at, body)}
    return await http.post("/clicks", content=body, headers=headers)


async def said_last(session: Any) -> str:
    """What the agent says at the end of the turn."""
    async with asyncio.timeout(HANG_S):
        while True:
            last = (await session.read_view()).messages[-1]
            if last.role == "assistant" and last.text:
                return str(last.text)
            await asyncio.sleep(0.02)


async def test_a_press_decides_after_a_restart_and_only_once(tmp_path: Path) -> None:
    store, room = f"sqlite:///{tmp_path}/tickets.db", Room()
    asks = ScriptedProvider([tool_call("refund", order="o-1", cents=1200)])
    async with running(store, room, asks) as (_, http):
        assert (await http.post("/tickets", json={"id": "7", "text": "It arrived broken."})).status_code == 202
        first = await room.message()
    async with running(store, room, ScriptedProvider(["You get 12 euros back."])) as (runtime, http):
        again = await room.message()
        assert again == first
        assert "it moves money" in again["text"]
        approve = again["buttons"][0]["value"]
        assert (await press(http, approve, secret="guessed")).status_code == 401
        assert (await press(http, approve)).status_code == 200
        session = await runtime.session("ticket-7").open()
        assert "12 euros back" in await said_last(session)
        assert (await press(http, approve.replace("approve", "deny"))).status_code == 409
