"""Sessions over HTTP: started once, answered once, shown, forked, compared, cancelled and deleted."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from tests.serve.http.api_server import ApiServer
from tests.serve.http.programs import two_questions

START = {"program": two_questions.name, "llm": "host"}


async def started(api: ApiServer, session_id: str = "s-1") -> str:
    reply = await api.post("/sessions", {**START, "id": session_id})
    assert reply.status_code == 201, reply.text
    return session_id


async def test_a_session_is_started_answered_and_its_result_read(api: ApiServer) -> None:
    reply = await api.post("/sessions", START)
    assert reply.status_code == 201
    event = reply.json()
    assert (event["status"], event["query_id"]) == ("needs_response", "q-0")
    path = reply.headers["location"].removeprefix("/api/v1")
    event = (await api.post(f"{path}/answers", {"answers": [{"response": "bug"}]})).json()
    assert (event["kind"], event["choices"]) == ("human", ["yes", "no"])
    event = (await api.post(f"{path}/queries/q-1/answer", {"response": "yes"})).json()
    assert (event["status"], event["result"]) == ("completed", ["bug", "yes"])
    assert (await api.get(f"{path}/result")).json()["result"] == ["bug", "yes"]


async def test_the_journal_says_whose_token_an_answer_came_with(api: ApiServer) -> None:
    await started(api)
    made = (await api.post("/tokens", {"name": "ann", "scopes": ["answers:write"]})).json()
    async with api.as_holder_of(made["token"]) as ann:
        assert (await ann.post("/sessions/s-1/queries/q-0/answer", json={"response": "bug"})).status_code == 200
    entries = (await api.get("/sessions/s-1/journal", params={"type": "answered"})).json()["data"]
    assert [entry["record"]["by"] for entry in entries] == ["ann"]


async def test_the_same_start_again_is_the_same_session(api: ApiServer) -> None:
    key = {"idempotency-key": "order 17"}
    replies = [await api.post("/sessions", START, headers=key) for _ in range(2)]
    assert [each.status_code for each in replies] == [201, 200]
    assert len({each.json()["session_id"] for each in replies}) == 1
    assert replies[1].headers["idempotency-replayed"] == "true"
    assert len((await api.get("/sessions")).json()["data"]) == 1


async def test_starts_sent_at_once_with_one_key_make_one_session(api: ApiServer) -> None:
    key = {"idempotency-key": "k"}
    replies = await asyncio.gather(*(api.post("/sessions", START, headers=key) for _ in range(8)))
    assert {each.status_code for each in replies} <= {200, 201}
    assert len({each.json()["session_id"] for each in replies}) == 1
    assert len((await api.get("/sessions")).json()["data"]) == 1


async def test_a_key_with_another_content_is_a_conflict_that_says_what_differs(api: ApiServer) -> None:
    key = {"idempotency-key": "k"}
    await api.post("/sessions", START, headers=key)
    reply = await api.post("/sessions", {**START, "ctx": {"task": "other"}}, headers=key)
    assert reply.status_code == 409
    assert "its ctx differs" in reply.json()["detail"]


async def test_keys_of_two_tokens_are_not_the_same(api: ApiServer) -> None:
    key = {"idempotency-key": "k"}
    first = (await api.post("/sessions", START, headers=key)).json()
    made = (await api.post("/tokens", {"name": "ann", "scopes": ["sessions:write"]})).json()
    async with api.as_holder_of(made["token"]) as ann:
        second = (await ann.post("/sessions", json=START, headers=key)).json()
    assert first["session_id"] != second["session_id"]


async def test_the_same_answer_again_gets_the_same_reply_and_another_one_a_conflict(api: ApiServer) -> None:
    await started(api)
    body = {"answers": [{"query_id": "q-0", "response": "bug"}]}
    first, again = [await api.post("/sessions/s-1/answers", body) for _ in range(2)]
    assert again.json() == {**first.json(), "replayed": True}
    other = await api.post("/sessions/s-1/answers", {"answers": [{"query_id": "q-0", "response": "wish"}]})
    assert (other.status_code, other.json()["recorded"], other.json()["given"]) == (409, '"bug"', '"wish"')


async def test_an_answer_can_be_an_error(api: ApiServer) -> None:
    await started(api)
    event = (await api.post("/sessions/s-1/queries/q-0/answer", {"error": "the model is out of order"})).json()
    assert event["status"] == "error"
    assert "the model is out of order" in event["error"]


async def test_an_answer_without_a_response_is_refused_and_changes_nothing(api: ApiServer) -> None:
    await started(api)
    reply = await api.post("/sessions/s-1/queries/q-0/answer", {})
    assert reply.status_code == 400
    assert "give a `response`" in reply.json()["detail"]
    assert (await api.get("/sessions/s-1")).json()["position"] == 2
    assert (await api.post("/sessions/s-1/queries/q-0/answer", {"response": None})).status_code == 200


async def test_several_answers_are_taken_all_or_none(api: ApiServer) -> None:
    await started(api)
    answers = [{"query_id": "q-0", "response": "bug"}, {"query_id": "q-9", "response": "yes"}]
    assert (await api.post("/sessions/s-1/answers", {"answers": answers})).status_code == 404
    assert (await api.get("/sessions/s-1")).json()["position"] == 2


async def test_code_runs_in_the_sandbox_and_a_file_is_not_run(api: ApiServer) -> None:
    code = "def run(ctx):\n    return llm('what?') + '!'\n"
    event = (await api.post("/sessions", {"code": code, "llm": "host", "wait_s": 20})).json()
    assert event["prompt"] == "what?"
    for program in ("/etc/passwd.py", "evil.py:f", "os:system", "../x.lua"):
        reply = await api.post("/sessions", {"program": program})
        assert reply.status_code == 403, reply.text
        assert "is not run for a request" in reply.json()["detail"]


async def test_a_page_leads_to_the_next(api: ApiServer) -> None:
    for number in range(5):
        await started(api, f"s-{number}")
    first = (await api.get("/sessions", params={"limit": 3})).json()
    second = (await api.get("/sessions", params={"limit": 3, "after": first["next"]})).json()
    ids = [row["session_id"] for row in [*first["data"], *second["data"]]]
    assert ids == ["s-4", "s-3", "s-2", "s-1", "s-0"]
    assert second["next"] is None


async def test_listings_take_the_filters_of_the_python_api(api: ApiServer) -> None:
    await started(api, "a-1")
    await started(api, "b-1")
    await api.post("/sessions/b-1/cancel", {"reason": "not needed"})

    async def ids(**params: object) -> list[str]:
        return [row["session_id"] for row in (await api.get("/sessions", params=params)).json()["data"]]

    assert await ids(state="paused") == ["a-1"]
    assert await ids(state=["paused", "cancelled"]) == ["b-1", "a-1"]
    assert await ids(id_prefix="b") == ["b-1"]
    assert await ids(waiting_for="llm") == ["a-1"]
    assert await ids(program="nothing") == []


async def test_what_waits_is_listed_over_all_sessions(api: ApiServer) -> None:
    await started(api, "a-1")
    await started(api, "b-1")
    await api.post("/sessions/b-1/queries/q-0/answer", {"response": "bug"})
    waiting = (await api.get("/queries")).json()["data"]
    assert {(each["session_id"], each["query"]["kind"]) for each in waiting} == {("a-1", "llm"), ("b-1", "human")}
    people = (await api.get("/queries", params={"kind": "human"})).json()["data"]
    assert [each["query"]["choices"] for each in people] == [["yes", "no"]]


async def test_a_session_that_has_not_changed_is_not_sent_again(api: ApiServer) -> None:
    await started(api)
    tag = (await api.get("/sessions/s-1")).headers["etag"]
    assert (await api.get("/sessions/s-1", headers={"if-none-match": tag})).status_code == 304
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug"})
    assert (await api.get("/sessions/s-1", headers={"if-none-match": tag})).status_code == 200


async def test_a_session_that_has_changed_meanwhile_is_not_cancelled(api: ApiServer) -> None:
    await started(api)
    tag = (await api.get("/sessions/s-1")).headers["etag"]
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug"})
    reply = await api.post("/sessions/s-1/cancel", headers={"if-match": tag})
    assert (reply.status_code, (await api.get("/sessions/s-1")).json()["phase"]) == (412, "paused")


async def test_a_deleted_session_is_gone_and_deleting_it_again_does_nothing(api: ApiServer) -> None:
    await started(api)
    assert [(await api.client.delete("/sessions/s-1")).status_code for _ in range(2)] == [204, 204]
    reply = await api.get("/sessions/s-1")
    assert (reply.status_code, reply.json()["type"]) == (410, "urn:holdfast:error:session_deleted")


async def test_a_fork_continues_from_its_point_and_can_be_compared(api: ApiServer) -> None:
    await started(api)
    await api.post("/sessions/s-1/queries/q-0/answer", {"response": "bug"})
    key = {"idempotency-key": "f"}
    made = [await api.post("/sessions/s-1/forks", {"before": "q-0"}, headers=key) for _ in range(2)]
    assert [each.status_code for each in made] == [201, 200]
    fork = made[0].json()["session_id"]
    assert made[1].json()["session_id"] == fork
    await api.post(f"/sessions/{fork}/queries/q-0/answer", {"response": "wish"})
    compared = (await api.get("/comparisons", params={"left": "s-1", "right": fork})).json()
    assert "answer" in compared["difference"]
    assert (await api.get("/sessions/s-1/fork-points")).json()


async def test_a_result_that_is_not_there_yet_is_no_error(api: ApiServer) -> None:
    await started(api)
    reply = await api.get("/sessions/s-1/result")
    assert (reply.status_code, reply.json()["status"]) == (202, "running")


async def test_an_export_of_the_api_can_be_imported(api: ApiServer) -> None:
    from holdfast.store.export import parse_export

    await started(api)
    reply = await api.get("/sessions/s-1/export")
    session_id, entries, _ = parse_export(reply.content.splitlines(keepends=True))
    assert (session_id, [entry.position for entry in entries]) == ("s-1", [1, 2])


async def test_a_summary_that_cannot_be_read_is_made_anew(api: ApiServer, tmp_path: Path) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    with contextlib.closing(sqlite3.connect(tmp_path / "served.db")) as other, other:
        other.execute("UPDATE sessions SET state = 'nonsense' WHERE id = 's-1'")
    assert (await api.get("/sessions")).json()["damaged"] == ["s-1"]
    row = (await api.post("/sessions/s-1/repair")).json()
    assert (row["session_id"], row["summary"]["state"]) == ("s-1", "paused")
    listed = (await api.get("/sessions")).json()
    assert ([each["session_id"] for each in listed["data"]], listed["damaged"]) == (["s-1"], [])


async def test_messages_that_nobody_has_taken_are_listed_for_administrators(api: ApiServer) -> None:
    await api.post("/sessions", {"program": two_questions.name, "llm": "host", "id": "s-1"})
    assert (await api.get("/sessions/s-1/mailbox")).json() == {"data": []}
    token, _ = await api.door.tokens.create("ann", ["sessions:read"])
    async with api.as_holder_of(token) as ann:
        assert (await ann.get("/sessions/s-1/mailbox")).status_code == 403
