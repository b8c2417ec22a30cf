"""Questions over HTTP: all that waits in one list, answered alone, together, or by a link; who decided what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from holdfast import Runtime
from holdfast.testing.patience import HANG_S, soon
from tests.serve.http.api_server import ApiServer, Frame, events_in
from tests.serve.http.programs import two_questions

START = {"program": two_questions.name, "llm": "host"}


async def _waiting(api: ApiServer, **params: Any) -> list[tuple[str, str]]:
    data = (await api.get("/queries", params=params)).json()["data"]
    return [(each["session_id"], each["query"]["id"]) for each in data]


async def test_all_questions_of_a_store_are_listed_the_oldest_first(api: ApiServer) -> None:
    for number in range(3):
        await api.post("/sessions", {**START, "id": f"s-{number}", "title": f"No. {number}", "labels": [f"l{number}"]})
    await api.post("/sessions/s-0/queries/q-0/answer", {"response": "bug"})
    assert await _waiting(api) == [("s-1", "q-0"), ("s-2", "q-0"), ("s-0", "q-1")]
    assert await _waiting(api, kind="human") == [("s-0", "q-1")]
    assert await _waiting(api, label="l2") == [("s-2", "q-0")]
    assert await _waiting(api, session="s-1") == [("s-1", "q-0")]
    (shown,) = (await api.get("/queries", params={"kind": "human"})).json()["data"]
    assert shown["query"] == {"id": "q-1", "kind": "human", "prompt": "File it?", "choices": ["yes", "no"]}
    assert (shown["title"], shown["labels"], shown["program"]) == ("No. 0", ["l0"], two_questions.name)


async def test_a_list_of_questions_reads_no_session_whole(api: ApiServer, monkeypatch: Any) -> None:
    for number in range(5):
        await api.post("/sessions", {**START, "id": f"s-{number}"})
    read: list[str] = []
    store = api.door.store
    whole = type(store).read

    async def counted(self: Any, session_id: str, *args: Any, **given: Any) -> Any:
        read.append(session_id)
        return await whole(self, session_id, *args, **given)

    monkeypatch.setattr(type(store), "read", counted)
    assert len(await _waiting(api)) == 5
    assert read == []


async def test_the_input_of_an_agent_and_what_a_model_answers_are_no_questions(api: ApiServer) -> None:
    await api.post("/agents/agent/sessions", {"id": "chat"})
    await api.post("/sessions", {"program": two_questions.name, "llm": "some-model", "id": "s-1"})
    assert await _waiting(api) == []


async def test_questions_of_several_sessions_are_answered_each_by_itself(api: ApiServer) -> None:
    for number in range(2):
        await api.post("/sessions", {**START, "id": f"s-{number}"})
    answers = [
        {"session_id": "s-0", "query_id": "q-0", "response": "bug"},
        {"session_id": "s-none", "query_id": "q-0", "response": "bug"},
        {"session_id": "s-1", "query_id": "q-0", "response": "wish"},
    ]
    first = (await api.post("/answers", {"answers": answers})).json()["data"]
    assert [each["status"] for each in first] == ["accepted", "refused", "accepted"]
    assert first[1]["problem"]["type"].endswith("session_not_found")
    again = (await api.post("/answers", {"answers": answers})).json()["data"]
    assert [each["status"] for each in again] == ["replayed", "refused", "replayed"]
    assert sorted(await _waiting(api)) == [("s-0", "q-1"), ("s-1", "q-1")]


async def test_what_was_answered_lately_says_by_whom(api: ApiServer) -> None:
    await api.post("/sessions", {**START, "id": "s-1"})
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug"})
    (decided,) = (await api.get("/answered")).json()["data"]
    assert (decided["session_id"], decided["query_id"], decided["by"]) == ("s-1", "q-0", "local")
    assert (decided["answer"], decided["text"]) == ({"response": "bug"}, "Bug, wish or question?")


async def test_a_link_shows_one_question_and_takes_its_answer_without_a_token(api: ApiServer) -> None:
    await api.post("/sessions", {**START, "id": "s-1", "title": "Mail"})
    made = (await api.post("/sessions/s-1/queries/q-0/link", {"expires_s": 3600})).json()
    signed = made["url"].rpartition("/a/")[2]
    async with api.as_holder_of(None) as nobody:
        shown = (await nobody.get(f"/links/{signed}")).json()
        assert (shown["title"], shown["query"]["prompt"], shown["answered"]) == ("Mail", "Bug, wish or question?", None)
        assert (await nobody.get("/sessions/s-1")).status_code == 401
        answered = (await nobody.post(f"/links/{signed}/answer", json={"response": "bug", "by": "Ann"})).json()
        assert answered["answered"]["by"] == "link:Ann"
        again = await nobody.post(f"/links/{signed}/answer", json={"response": "bug", "by": "Ann"})
        assert again.json() == answered
        other = await nobody.post(f"/links/{signed}/answer", json={"response": "wish"})
        assert (other.status_code, other.json()["type"]) == (409, "urn:holdfast:error:answer_conflict")
        for forged in (signed[:-1] + ("A" if signed[-1] != "A" else "B"), "x.y", "", "..", signed.partition(".")[0]):
            assert (await nobody.get(f"/links/{forged}")).status_code == 404


async def test_a_link_is_followed_as_a_stream_until_somebody_has_answered(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1", "wait_s": 30})
    signed = (await api.post("/sessions/s-1/queries/q-0/link")).json()["url"].rpartition("/")[2]
    async with (
        asyncio.timeout(HANG_S),
        api.as_holder_of(None) as nobody,
        nobody.stream("GET", f"/links/{signed}", headers={"accept": "text/event-stream"}) as stream,
    ):
        frames = events_in(stream)
        first = await anext(frames)
        assert (first.type, first.data["query"]["id"], first.data["answered"]) == ("question", "q-0", None)
        await api.door.holdfast.feed("s-1", {"q-0": "bug"}, by="bob")
        rest = [frame.data async for frame in frames]  # it ends by itself
    assert [(each["query"], each["answered"]["by"]) for each in rest] == [(None, "bob")]


async def test_a_link_ends_with_its_time_and_is_made_only_for_what_waits(api: ApiServer) -> None:
    from holdfast.serve.http.links import QuestionLink

    await api.post("/sessions", {**START, "id": "s-1"})
    old = await api.door.links.sign(QuestionLink("s-1", "q-0", api.door.holdfast.now() - 1))
    assert (await api.get(f"/links/{old}")).status_code == 410
    assert (await api.post("/sessions/s-1/queries/q-7/link")).status_code == 404
    assert (await api.post("/sessions/s-1/queries/q-0/link", {"expires_s": 1})).status_code == 400


async def test_every_server_of_a_store_knows_its_links(api: ApiServer) -> None:
    from tests.serve.http.api_server import api_server

    await api.post("/sessions", {**START, "id": "s-1"})
    signed = (await api.post("/sessions/s-1/queries/q-0/link")).json()["url"].rpartition("/a/")[2]
    async with Runtime(api.door.store.url) as runtime, api_server(runtime) as other:
        assert (await other.get(f"/links/{signed}")).json()["session_id"] == "s-1"


async def test_one_stream_tells_of_rows_questions_and_deletions(api: ApiServer) -> None:
    await api.post("/sessions", {**START, "id": "s-1"})
    async with api.stream("/events") as response:
        frames = events_in(response)
        assert (await soon(_next(frames, "questions"))).data["asks"] == 1
        await api.post("/sessions", {**START, "id": "s-2"})
        assert (await soon(_next(frames, "session"))).data["summary"]["asks"] == 1
        assert (await soon(_next(frames, "questions"))).data["asks"] == 2
        await api.client.delete("/sessions/s-2")
        assert (await soon(_next(frames, "deleted"))).data["session_id"] == "s-2"


async def test_a_stream_of_several_sessions_goes_on_at_every_event(api: ApiServer) -> None:
    for session_id in ("s-1", "s-2"):
        await api.post("/sessions", {**START, "id": session_id})
        await api.post(f"/sessions/{session_id}/queries/q-0/answer", {"response": "bug"})
    path = "/events?session=s-1&session=s-2"
    seen: dict[str, list[Any]] = {"s-1": [], "s-2": []}
    after: str | None = None
    while len(seen["s-1"]) < 4 or len(seen["s-2"]) < 4:
        async with api.stream(path, after=after) as response:
            frame = await soon(_next(events_in(response), "entry"))
        seen[frame.data["session_id"]].append(frame.data["position"])
        after = frame.id
    assert seen == {"s-1": [1, 2, 3, 4], "s-2": [1, 2, 3, 4]}
    assert (await api.get("/events", params={"session": "s-none"})).status_code == 404
    assert (await api.get("/events", params={"session": "s-1", "after": "nonsense!"})).status_code == 400


async def _next(frames: AsyncIterator[Frame], kind: str) -> Frame:
    async for frame in frames:
        if frame.type == kind:
            return frame
    raise AssertionError(f"the stream has ended without '{kind}'")
