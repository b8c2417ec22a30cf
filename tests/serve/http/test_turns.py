"""Agents over HTTP: turns that outlive the request, inputs that wait, and settings that last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Approve, Rule, Runtime, tool
from holdfast.core.queries import Usage
from holdfast.testing.patience import HANG_S
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, stream, tool_call
from tests.serve.http.api_server import ApiServer, api_server, events_in
from tests.serve.http.conftest import SAID


@pytest.fixture
async def chat(api: ApiServer) -> ApiServer:
    reply = await api.post("/agents/agent/sessions", {"id": "chat", "spec": {"instructions": "Be brief."}})
    assert (reply.status_code, reply.json()["policy"]["instructions"]) == (201, "Be brief.")
    return api


async def test_a_turn_is_begun_and_its_result_fetched_later(chat: ApiServer) -> None:
    begun = await chat.post("/sessions/chat/turns", {"input": "hi", "id": "t-1"})
    assert begun.headers["location"].endswith("/sessions/chat/turns/t-1")
    shown = (await chat.get("/sessions/chat/turns/t-1", params={"wait_s": 30})).json()
    assert (shown["status"], shown["result"]["messages"][-1]["content"][0]["text"]) == ("done", SAID)


async def test_the_same_turn_again_is_joined_and_other_input_refused(chat: ApiServer) -> None:
    body = {"input": "hi", "id": "t-1", "wait_s": 30}
    first, again = [await chat.post("/sessions/chat/turns", body) for _ in range(2)]
    assert again.json()["replayed"]
    assert again.json()["result"]["messages"] == first.json()["result"]["messages"]
    other = await chat.post("/sessions/chat/turns", {**body, "input": "ho"})
    assert (other.status_code, other.json()["title"]) == (409, "turn conflict")
    assert len((await chat.get("/sessions/chat/conversation")).json()["messages"]) == 2


async def test_a_key_makes_a_turn_one(chat: ApiServer) -> None:
    key = {"idempotency-key": "k"}
    replies = [await chat.post("/sessions/chat/turns", {"input": "hi", "wait_s": 30}, headers=key) for _ in range(2)]
    assert len({each.json()["turn"] for each in replies}) == 1
    assert len((await chat.get("/sessions/chat/conversation")).json()["messages"]) == 2


async def test_a_turn_that_nobody_knows_is_not_found(chat: ApiServer) -> None:
    reply = await chat.get("/sessions/chat/turns/t-9")
    assert (reply.status_code, reply.json()["title"]) == (404, "unknown turn")


async def test_turns_are_listed_with_what_each_has_used(tmp_path: Path) -> None:
    said = [reply("So.", usage=Usage(prompt_tokens=10 * number, completion_tokens=1)) for number in (1, 2, 3)]
    provider = ScriptedProvider(said)
    async with Runtime(f"sqlite:///{tmp_path}/h.db", provider=provider) as runtime, api_server(runtime) as api:
        await api.post("/agents/agent/sessions", {"id": "chat"})
        for number in range(3):
            await api.post("/sessions/chat/turns", {"input": f"turn {number}", "id": f"t-{number}", "wait_s": 30})
        last = (await api.get("/sessions/chat/turns", params={"limit": 2})).json()
        shown = [(row["turn"], row["text"], row["outcome"], row["usage"]["input"]) for row in last["data"]]
        assert shown == [("t-2", "turn 2", "message", 30), ("t-1", "turn 1", "message", 20)]
        rest = (await api.get("/sessions/chat/turns", params={"limit": 2, "before": last["next"]})).json()
        assert ([row["turn"] for row in rest["data"]], rest["next"]) == (["t-0"], None)


async def test_a_conversation_is_read_from_its_end(chat: ApiServer) -> None:
    for text in ("one", "two", "three"):
        await chat.post("/sessions/chat/turns", {"input": text, "wait_s": 30})
    last = (await chat.get("/sessions/chat/conversation", params={"limit": 2})).json()
    assert last["messages"][0]["content"][0]["text"] == "three"
    before = {"limit": 10, "before": last["before"]}
    rest = (await chat.get("/sessions/chat/conversation", params=before)).json()
    assert (len(rest["messages"]), rest["before"]) == (4, None)
    assert (await chat.get("/sessions/chat/conversation", params={"before": "n-99"})).status_code == 400


async def test_settings_last_and_are_seen_by_whoever_opens_the_session(chat: ApiServer) -> None:
    patched = await chat.client.patch("/sessions/chat/policy", json={"instructions": "Be long."})
    assert patched.json()["instructions"] == "Be long."
    await chat.post("/sessions/chat/turns", {"input": "hi", "wait_s": 30})
    assert (await chat.get("/sessions/chat/policy")).json()["instructions"] == "Be long."
    wrong = await chat.client.patch("/sessions/chat/policy", json={"instruction": "x"})
    assert (wrong.status_code, "instruction" in wrong.json()["detail"]) == (400, True)


async def test_an_item_waits_and_becomes_a_turn(chat: ApiServer) -> None:
    sent = await chat.post("/sessions/chat/items", {"input": "later", "id": "i-1"})
    assert sent.status_code == 202
    assert (await chat.post("/sessions/chat/items", {"input": "later", "id": "i-1"})).json()["replayed"]
    assert (await chat.post("/sessions/chat/items", {"input": "other", "id": "i-1"})).status_code == 409
    assert [each["id"] for each in (await chat.get("/sessions/chat/items")).json()] == ["i-1"]
    assert len((await chat.post("/sessions/chat/drain", {"limit": 1})).json()) == 1
    assert (await chat.get("/sessions/chat/items/i-1")).json()["status"] == "done"


async def test_an_item_that_waits_can_be_withdrawn(chat: ApiServer) -> None:
    await chat.post("/sessions/chat/items", {"input": "later", "id": "i-1"})
    reply = await chat.client.delete("/sessions/chat/items/i-1", params={"only_waiting": True, "reason": "too late"})
    assert (reply.json()["status"], reply.json()["cancelled"]["reason"]) == ("cancelled", "too late")
    assert (await chat.client.delete("/sessions/chat/items/i-9")).status_code == 404


async def test_a_stream_of_a_turn_ends_where_a_person_is_needed_and_the_turn_goes_on_after_the_answer(
    tmp_path: Path,
) -> None:
    ran: list[str] = []

    @tool
    def delete_file(name: str) -> str:
        """Delete a file."""
        ran.append(name)
        return "gone"

    script: list[ScriptStep] = [tool_call("delete_file", name="a"), "done"]
    rules = Approve([Rule.confirm("delete_*")])
    async with (
        Runtime(
            f"sqlite:///{tmp_path}/h.db", provider=ScriptedProvider(script), tools=[delete_file], plugins=[rules]
        ) as runtime,
        api_server(runtime) as api,
    ):
        await api.post("/agents/agent/sessions", {"id": "chat"})
        body = {"input": "clean up", "id": "t-1"}
        async with asyncio.timeout(HANG_S), api.stream("/sessions/chat/turns", body=body) as response:
            frames = [frame async for frame in events_in(response)]
        assert frames[-1].type == "waiting"
        [query] = frames[-1].data["queries"]
        assert not ran
        await api.post(f"/sessions/chat/queries/{query['id']}/answer", {"response": {"decision": "approve"}})
        shown = (await api.get("/sessions/chat/turns/t-1", params={"wait_s": 30})).json()
        assert (shown["status"], ran) == ("done", ["a"])


async def test_pieces_of_text_are_joined_and_the_settled_message_is_the_whole(tmp_path: Path) -> None:
    words = [f"word{number} " for number in range(200)]
    provider = ScriptedProvider([stream(*words, every_s=0.001)])
    async with Runtime(f"sqlite:///{tmp_path}/h.db", provider=provider) as runtime, api_server(runtime) as api:
        await api.post("/agents/agent/sessions", {"id": "chat"})
        async with asyncio.timeout(HANG_S), api.stream("/sessions/chat/turns", body={"input": "talk"}) as response:
            frames = [frame async for frame in events_in(response)]
    pieces = [frame.data["text"] for frame in frames if frame.type == "text"]
    settled = [frame.data["message"] for frame in frames if frame.type == "message"][-1]
    assert settled["content"][0]["text"] == "".join(words)
    assert "".join(words).startswith("".join(pieces)[: len(words[0])])
    assert len(pieces) < len(words)


async def test_a_client_that_leaves_does_not_stop_the_turn(tmp_path: Path) -> None:
    provider = ScriptedProvider([stream(*["a "] * 50, every_s=0.01)])
    async with Runtime(f"sqlite:///{tmp_path}/h.db", provider=provider) as runtime, api_server(runtime) as api:
        await api.post("/agents/agent/sessions", {"id": "chat"})
        async with api.stream("/sessions/chat/turns", body={"input": "talk", "id": "t-1"}) as response:
            async for _ in events_in(response):
                break
        shown = (await api.get("/sessions/chat/turns/t-1", params={"wait_s": 30})).json()
        assert shown["result"]["messages"][-1]["content"][0]["text"] == "a " * 50


async def test_a_running_turn_is_stopped_by_whoever_may(tmp_path: Path) -> None:
    provider = ScriptedProvider([stream(*["a "] * 10_000, every_s=0.01)])
    async with Runtime(f"sqlite:///{tmp_path}/h.db", provider=provider) as runtime, api_server(runtime) as api:
        await api.post("/agents/agent/sessions", {"id": "chat"})
        await api.post("/sessions/chat/turns", {"input": "talk", "id": "t-1"})
        receipt = (await api.post("/sessions/chat/turns/current/cancel", {"reason": "enough"})).json()
        assert (receipt["state"], receipt["turn"]) == ("stopped", "t-1")
        again = (await api.post("/sessions/chat/turns/current/cancel")).json()
        assert again["state"] == "idle"


async def test_items_that_left_the_inbox_are_listed_with_what_became_of_them(chat: ApiServer) -> None:
    await chat.post("/sessions/chat/items", {"input": "one", "id": "i-1"})
    await chat.post("/sessions/chat/items", {"input": "two", "id": "i-2"})
    await chat.client.delete("/sessions/chat/items/i-2", params={"only_waiting": "true", "reason": "too late"})
    assert (await chat.post("/sessions/chat/drain", {"wait_s": 30})).status_code == 200
    await chat.post("/sessions/chat/items", {"input": "three", "id": "i-3"})
    found = (await chat.get("/sessions/chat/past-items")).json()
    assert [(each["id"], each["text"], each["status"]) for each in found["data"]] == [
        ("i-2", "two", "cancelled"),
        ("i-1", "one", "done"),
    ]
    assert found["data"][0]["cancelled"]["reason"] == "too late"
    page = (await chat.get("/sessions/chat/past-items", params={"limit": 1})).json()
    rest = (await chat.get("/sessions/chat/past-items", params={"limit": 1, "before": page["next"]})).json()
    assert ([each["id"] for each in rest["data"]], rest["next"]) == (["i-1"], None)
