"""Sessions as files and as envelopes, large values and pictures over HTTP, and in the words of the client."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.agent.machine.messages import AgentMessage, ImageBlock, ImageSource, TextBlock, plain_text
from holdfast.agent.session_builder import AgentState
from holdfast.client.agents import SessionClient
from holdfast.core.events import PausedEvent
from holdfast.testing.patience import HANG_S
from tests.serve.http.api_server import TOKEN, ApiServer
from tests.serve.http.programs import two_questions

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
JSONL = {"content-type": "application/jsonl"}


async def exported(api: ApiServer, session_id: str = "s-1") -> bytes:
    """The file of a session that waits for its first answer; the session itself is deleted."""
    await api.door.holdfast.start(two_questions, id=session_id, llm="host")
    content = (await api.get(f"/sessions/{session_id}/export")).content
    await api.door.holdfast.delete(session_id)
    return content


# --- files --------------------------------------------------------------------------------------------


async def test_an_imported_session_does_nothing_until_it_is_adopted(api: ApiServer) -> None:
    file = await exported(api)
    made = await api.client.post("/imports", params={"id": "s-2"}, content=file, headers=JSONL)
    assert (made.status_code, made.json()["state"]) == (201, "imported"), made.text
    assert made.headers["location"] == "/api/v1/sessions/s-2"
    refused = await api.post("/sessions/s-2/answers", {"answers": [{"query_id": "q-0", "response": "bug"}]})
    assert refused.status_code == 409, refused.text
    report = (await api.get("/sessions/s-2/adoption")).json()
    assert (report["state"], report["program"], report["adopted_state"]) == ("imported", two_questions.name, "paused")
    event = (await api.client.post("/sessions/s-2/adopt")).json()
    assert (event["status"], event["query_id"]) == ("needs_response", "q-0")
    journal = (await api.get("/sessions/s-2/journal", params={"type": "adopted"})).json()["data"]
    assert [each["record"]["by"] for each in journal] == ["local"]


async def test_adopting_needs_an_administrator(api: ApiServer) -> None:
    await api.client.post("/imports", params={"id": "s-2"}, content=await exported(api), headers=JSONL)
    made = (await api.post("/tokens", {"name": "ann", "scopes": ["sessions:read", "sessions:write"]})).json()
    async with api.as_holder_of(made["token"]) as ann:
        assert (await ann.get("/sessions/s-2/adoption")).status_code == 200
        assert (await ann.post("/sessions/s-2/adopt")).status_code == 403


@pytest.mark.parametrize(
    ("change", "headers", "status", "words"),
    [
        (lambda file: file[:-20], JSONL, 400, "nothing was imported"),
        (lambda file: file.replace(b"two", b"too", 1), JSONL, 400, "line 2"),
        (lambda file: b"", JSONL, 400, "not an export"),
        (lambda file: file, {"content-type": "application/json"}, 415, "application/jsonl"),
    ],
    ids=["cut", "changed", "empty", "media type"],
)
async def test_a_file_that_is_no_export_is_refused(
    api: ApiServer, change: Any, headers: dict[str, str], status: int, words: str
) -> None:
    file = await exported(api)
    reply = await api.client.post("/imports", params={"id": "s-2"}, content=change(file), headers=headers)
    assert (reply.status_code, words in reply.json()["detail"]) == (status, True), reply.text
    assert (await api.get("/sessions/s-2")).status_code == 404


async def test_a_token_imports_only_below_its_prefix(api: ApiServer) -> None:
    file = await exported(api)
    scopes = ["sessions:read", "sessions:write"]
    made = (await api.post("/tokens", {"name": "shop", "scopes": scopes, "id_prefix": "shop-"})).json()
    async with api.as_holder_of(made["token"]) as shop:
        assert (await shop.post("/imports", content=file, headers=JSONL)).status_code == 404
        assert (await shop.post("/imports?id=shop-1", content=file, headers=JSONL)).status_code == 201


async def test_the_client_moves_a_session_by_a_file(api: ApiServer, tmp_path: Path) -> None:
    async with holdfast.connect(api.url, TOKEN) as hf:
        await hf.start(two_questions.name, llm="host", id="s-1")
        assert await hf.export_session("s-1", tmp_path / "s-1.jsonl") == (tmp_path / "s-1.jsonl").stat().st_size
        receipt = await hf.import_session(tmp_path / "s-1.jsonl", "s-2")
        assert (receipt.session_id, receipt.state, receipt.replayed) == ("s-2", "imported", False)
        assert (await hf.import_session(tmp_path / "s-1.jsonl", "s-2")).replayed
        assert (await hf.adoption("s-2")).program == two_questions.name
        assert isinstance(await hf.adopt("s-2"), PausedEvent)


# --- large values -------------------------------------------------------------------------------------


async def test_a_large_value_is_fetched_by_itself(api: ApiServer) -> None:
    text = "a long answer " * 10_000
    await api.door.holdfast.start(two_questions, id="s-1", llm="host")
    await api.door.holdfast.feed("s-1", {"q-0": text})
    whole = (await api.get("/sessions/s-1/journal")).json()["data"]
    assert text in str(whole)
    page = (await api.get("/sessions/s-1/journal", params={"values": "blobs"})).json()["data"]
    assert [each["position"] for each in page] == [each["position"] for each in whole]
    ((position, mark),) = [(each["position"], _mark(each["record"])) for each in page if _mark(each["record"])]
    assert mark["bytes"] == len(text) + 2
    for params in ({}, {"position": position}):
        reply = await api.get(f"/sessions/s-1/blobs/{mark['$blob']}", params=params)
        assert (reply.json(), reply.headers["content-security-policy"]) == (text, "sandbox")
    async with holdfast.connect(api.url, TOKEN) as hf:
        assert await hf.blob("s-1", mark["$blob"], position) == text


async def test_a_value_of_another_session_is_not_there(api: ApiServer) -> None:
    for session_id in ("s-1", "s-2"):
        await api.door.holdfast.start(two_questions, id=session_id, llm="host")
    await api.door.holdfast.feed("s-1", {"q-0": "a long answer " * 10_000})
    page = (await api.get("/sessions/s-1/journal", params={"values": "blobs"})).json()["data"]
    (mark,) = [found for each in page if (found := _mark(each["record"]))]
    reply = await api.get(f"/sessions/s-2/blobs/{mark['$blob']}")
    assert (reply.status_code, reply.json()["type"]) == (404, "urn:holdfast:error:blob_not_found")


def _mark(value: Any) -> Any:
    """The reference to a large value in a record, if there is one."""
    if isinstance(value, dict):
        return value if "$blob" in value else next((found for each in value.values() if (found := _mark(each))), None)
    return next((found for each in value if (found := _mark(each))), None) if isinstance(value, list) else None


# --- pictures -----------------------------------------------------------------------------------------


async def test_a_picture_goes_up_with_a_turn_and_comes_down_by_its_digest(api: ApiServer) -> None:
    digest = hashlib.sha256(PICTURE).hexdigest()
    # What whoever sent it says of its type is not passed on.
    image = ImageBlock(ImageSource(media_type="image/svg+xml", data=PICTURE))
    async with holdfast.connect(api.url, TOKEN) as hf:
        session = await hf.session("chat").open()
        await session.turn([TextBlock("What is this?"), image]).run(wait=HANG_S)
        assert await session.attachments() == [digest]
        assert await session.attachment(digest) == PICTURE
    (listed,) = (await api.get("/sessions/chat/attachments")).json()["data"]
    assert (listed["media_type"], listed["bytes"]) == ("image/png", len(PICTURE))
    reply = await api.get(f"/sessions/chat/attachments/{digest}")
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["content-disposition"].startswith("attachment;")
    assert (await api.get(f"/sessions/chat/attachments/{'0' * 64}")).status_code == 404


# --- conversations ------------------------------------------------------------------------------------


async def _asked(session: SessionClient) -> list[str | None]:
    """What the user said in a conversation."""
    return [plain_text(message.content) for message in await session.messages() if message.role == "user"]


async def test_a_conversation_starts_over_with_a_turn(api: ApiServer) -> None:
    async with holdfast.connect(api.url, TOKEN) as hf:
        session = await hf.session("chat").open()
        await session.turn("first").run(wait=HANG_S)
        fresh = await hf.session("chat").open_fresh()
        await fresh.turn("second").run(wait=HANG_S)
        await fresh.turn("third").run(wait=HANG_S)
        said = await _asked(fresh)
        assert said == ["second", "third"]
        brought = AgentState(session_id="chat", messages=[AgentMessage("user", [TextBlock("from elsewhere")])])
        other = await hf.session("chat").spec(instructions="Be brief.").open_with_state(brought)
        await other.turn("fourth").run(wait=HANG_S)
        said = await _asked(other)
        assert said == ["from elsewhere", "fourth"]
        assert (await hf.session("chat").open()).policy.instructions == "Be brief."


async def test_an_envelope_goes_out_and_its_conversation_is_continued(api: ApiServer) -> None:
    async with holdfast.connect(api.url, TOKEN) as hf:
        session = await hf.session("chat").spec(instructions="Be brief.").open()
        await session.turn("hello").run(wait=HANG_S)
        envelope = await hf.export_envelope("chat")
        assert (envelope.system_message, len(envelope.messages)) == ("Be brief.", 2)
        receipt = await hf.import_envelope("copy", envelope, "and then?")
        copy = await hf.session("copy").open()
        await copy.turn_result(receipt.turn, timeout=HANG_S)
        said = await _asked(copy)
        assert (said, copy.policy.instructions) == (["hello", "and then?"], "Be brief.")
    bad = await api.post("/envelopes", {"envelope": {"schema_version": 1}, "input": "x"})
    assert (bad.status_code, bad.json()["type"]) == (400, "urn:holdfast:error:envelope")
