"""Event streams: whoever is cut off at any event goes on exactly there, and nobody waits for a reader."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.testing.patience import HANG_S, soon
from tests.serve.http.api_server import ApiServer, Frame, events_in
from tests.serve.http.programs import two_questions


async def _conversation(api: ApiServer) -> None:
    await api.post("/agents/agent/sessions", {"id": "chat"})
    for text in ("one", "two", "three"):
        reply = await api.post("/sessions/chat/turns", {"input": text, "wait_s": 30})
        assert reply.json()["status"] == "done"


async def _all_events(api: ApiServer, path: str = "/sessions/chat/events", **params: Any) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = (await api.get(path, params=params or None)).json()["data"]
    return shown


async def test_a_stream_that_is_cut_at_every_event_goes_on_exactly_there(api: ApiServer) -> None:
    await _conversation(api)
    expected = [each["event"] for each in await _all_events(api)]
    seen: list[Frame] = []
    after: str | None = None
    while len(seen) < len(expected):
        async with api.stream("/sessions/chat/events", after=after) as response:
            async for frame in events_in(response):
                seen.append(frame)
                after = frame.id
                break
    assert [frame.data for frame in seen] == expected


async def test_pages_of_one_event_are_the_whole_as_well(api: ApiServer) -> None:
    await _conversation(api)
    expected = await _all_events(api)
    seen: list[dict[str, Any]] = []
    while len(seen) < len(expected):
        after = {"after": seen[-1]["cursor"]} if seen else {}
        seen += await _all_events(api, limit=1, **after)
    assert seen == expected


async def test_a_stream_shows_what_happens_after_it_began(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    async with asyncio.timeout(HANG_S), api.stream("/sessions/s-1/events") as response:
        types = []
        async for frame in events_in(response):
            types.append(frame.data["entry"]["record"]["type"])
            if types == ["started", "paused"]:
                await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug"})
                await api.post("/sessions/s-1/queries/q-1/answer", {"response": "yes"})
    assert types == ["started", "paused", "answered", "paused", "answered", "completed"]


async def test_a_stream_that_has_ended_is_not_begun_again(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    await api.post("/sessions/s-1/cancel")
    last = (await _all_events(api, "/sessions/s-1/events"))[-1]["cursor"]
    async with api.stream("/sessions/s-1/events", after=last) as response:
        assert response.status_code == 204


async def test_a_request_waits_for_the_next_event(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    page = (await api.get("/sessions/s-1/events")).json()
    waiting = asyncio.create_task(api.get("/sessions/s-1/events", params={"after": page["next"], "wait_s": 30}))
    await asyncio.sleep(0)
    await api.post("/sessions/s-1/cancel")
    [event] = (await soon(waiting)).json()["data"][:1]
    assert event["event"]["entry"]["record"]["type"] == "cancelled"


async def test_a_turn_can_be_followed_from_the_cursor_of_its_report(api: ApiServer) -> None:
    await api.post("/agents/agent/sessions", {"id": "chat"})
    report = (await api.post("/sessions/chat/turns", {"input": "hi", "wait_s": 30})).json()
    path = report["events_url"].removeprefix("/api/v1")
    types = [each["event"]["type"] for each in await _all_events(api, path)]
    assert types == ["turn_began", "message", "message", "turn_ended"]


async def test_a_stream_about_all_sessions_shows_those_that_change(api: ApiServer) -> None:
    async with asyncio.timeout(HANG_S), api.stream("/events") as response:
        starting = asyncio.create_task(
            api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
        )
        async for frame in events_in(response):
            if frame.type == "session" and frame.data["session_id"] == "s-1":
                assert frame.data["summary"]["state"] in ("running", "paused")
                break
        await starting


async def test_a_server_that_closes_says_so_in_its_streams(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    async with asyncio.timeout(HANG_S), api.stream("/sessions/s-1/events") as response:
        types = []
        async for frame in events_in(response):
            types.append(frame.type)
            if len(types) == 2:
                api.door.close()
    assert types == ["entry", "entry", "bye"]
    reply = await api.get("/sessions")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")
