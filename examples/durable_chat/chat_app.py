"""A chat over HTTP with FastAPI. See README.md."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from holdfast import Runtime


class Message(BaseModel):
    """What a browser sends. A request that is sent again has the same id, and joins its turn."""

    id: str
    text: str


def make_app(store: str = "sqlite:///chat.db", **options: Any) -> FastAPI:
    """The application. `options` are those of `Runtime`: a model, tools, plugins."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Runtime(store, **options) as runtime:
            app.state.runtime = runtime
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/chats/{chat}/messages")
    async def send(chat: str, message: Message, request: Request) -> dict[str, Any]:
        """Take a turn, and answer with what the model says."""
        session = await request.app.state.runtime.session(chat).open()
        result = await session.turn(message.text).id(message.id).run()
        return {"text": result.text, "again": result.receipt.replayed}

    @app.post("/chats/{chat}/messages/stream")
    async def stream(chat: str, message: Message, request: Request) -> StreamingResponse:
        """Take a turn, and send what happens as it happens. If the browser leaves, the turn goes on."""
        session = await request.app.state.runtime.session(chat).open()

        async def lines() -> AsyncIterator[bytes]:
            async for event in session.turn(message.text).id(message.id).stream():
                yield b"data: " + msgspec.json.encode(event) + b"\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.get("/chats/{chat}/messages")
    async def messages(chat: str, request: Request) -> list[dict[str, str]]:
        """The conversation so far."""
        session = await request.app.state.runtime.session(chat).open()
        return [{"role": each.role, "text": each.text} for each in (await session.read_view()).messages]

    return app


app = make_app(model=os.environ.get("HOLDFAST_MODEL", "openai:gpt-5"), instructions="Be brief.")
