"""The chat: turns are kept, and one that is sent again is not taken twice."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from chat_app import make_app

from holdfast.testing import ScriptedProvider


@asynccontextmanager
async def client(store: str, model: ScriptedProvider) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application that has started."""
    app = make_app(store, provider=model)
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://chat") as made,
    ):
        yield made


async def test_a_message_that_is_sent_again_after_a_restart_gets_the_same_reply(tmp_path: Path) -> None:
    store, message = f"sqlite:///{tmp_path}/chat.db", {"id": "m-1", "text": "What is a holdfast?"}
    first, second = ScriptedProvider(["It holds seaweed."]), ScriptedProvider(["Never said."])
    async with client(store, first) as http:
        assert (await http.post("/chats/ada/messages", json=message)).json() == {
            "text": "It holds seaweed.",
            "again": False,
        }
    async with client(store, second) as http:
        assert (await http.post("/chats/ada/messages", json=message)).json() == {
            "text": "It holds seaweed.",
            "again": True,
        }
        kept = (await http.get("/chats/ada/messages")).json()
    assert [each["text"] for each in kept] == ["What is a holdfast?", "It holds seaweed."]
    assert second.requests == []


async def test_a_turn_can_be_followed(tmp_path: Path) -> None:
    async with client(f"sqlite:///{tmp_path}/chat.db", ScriptedProvider(["One two."])) as http:
        done = await http.post("/chats/bob/messages/stream", json={"id": "m-1", "text": "Count."})
    events = [json.loads(line.removeprefix("data: ")) for line in done.text.splitlines() if line]
    assert "".join(event["text"] for event in events if event["type"] == "text") == "One two."
    assert events[-1]["type"] == "finished"
