"""Bulk operations: done by a session of its own, once, step by step, and for nobody who may not."""

from __future__ import annotations

from typing import Any

from holdfast.serve.http.bulk import BATCH, TOOL, bulk
from holdfast.testing.patience import until
from tests.serve.http.api_server import ApiServer
from tests.serve.http.programs import two_questions


async def _start(api: ApiServer, count: int, prefix: str = "s-") -> None:
    for number in range(count):
        await api.door.holdfast.start(two_questions, id=f"{prefix}{number}", llm="host", labels=["a"])


async def _finished(api: ApiServer, session_id: str) -> Any:
    async def result() -> Any:
        reply = await api.get(f"/sessions/{session_id}/result")
        return reply.json().get("result")

    return await until(result)


async def test_all_that_match_are_cancelled_and_the_progress_is_shown(api: ApiServer) -> None:
    await _start(api, BATCH + 3)
    body = {"action": "cancel", "where": {"label": ["a"], "state": ["paused"]}, "reason": "enough"}
    assert (await api.post("/bulk", {**body, "dry_run": True})).json() == {"bulk_id": None, "matched": BATCH + 3}
    reply = await api.post("/bulk", body)
    assert (reply.status_code, reply.json()["matched"]) == (202, BATCH + 3)
    bulk_id = reply.json()["bulk_id"]
    assert await _finished(api, bulk_id) == {"done": BATCH + 3, "refused": 0}
    counts = (await api.get("/sessions/counts", params={"label": "a"})).json()
    assert counts["by_state"] == {"cancelled": BATCH + 3}
    progress = (await api.get(f"/sessions/{bulk_id}")).json()["metrics"]["progress"]
    assert (progress["step"], progress["total"]) == (BATCH + 3, BATCH + 3)


async def test_the_same_request_again_is_the_same_bulk(api: ApiServer) -> None:
    await _start(api, 2)
    body, key = {"action": "label", "ids": ["s-0", "s-none"], "labels": ["b"]}, {"idempotency-key": "k"}
    first = (await api.post("/bulk", body, headers=key)).json()
    assert await _finished(api, first["bulk_id"]) == {"done": 1, "refused": 1}
    assert (await api.post("/bulk", body, headers=key)).json()["bulk_id"] == first["bulk_id"]
    rows = (await api.get("/sessions", params={"label": "b"})).json()["data"]
    assert [(row["session_id"], row["summary"]["labels"]) for row in rows] == [("s-0", ["a", "b"])]


async def test_no_client_and_no_program_gives_an_order_of_its_own(api: ApiServer) -> None:
    await _start(api, 1)
    order = {"action": "delete", "ids": ["s-0"], "by": "me"}
    ctx = {"order": order, "grant": "0" * 64, "matched": 1}
    await api.post("/sessions", {"program": bulk.name, "ctx": ctx, "id": "forged"})
    code = f"def run(ctx):\n    return alc.tool('{TOOL}')\n"
    await api.post("/sessions", {"code": code, "ctx": ctx, "id": "sandboxed"})

    async def has_ended() -> bool:
        return bool((await api.get("/sessions/forged")).json()["state"] == "terminal")

    await until(has_ended)
    assert "nobody who may" in (await api.get("/sessions")).text
    assert (await api.get("/sessions/s-0")).status_code == 200


async def test_a_token_reaches_only_its_own_sessions(api: ApiServer) -> None:
    await _start(api, 1, "shop-")
    await _start(api, 1)
    made = (await api.post("/tokens", {"name": "n", "scopes": ["sessions:write"], "id_prefix": "shop-"})).json()
    async with api.as_holder_of(made["token"]) as shop:
        named = await shop.post("/bulk", json={"action": "delete", "ids": ["s-0"]})
        assert named.status_code == 404
        matched = await shop.post("/bulk", json={"action": "delete", "where": {}, "dry_run": True})
        assert matched.json()["matched"] == 1


async def test_what_makes_no_sense_is_refused(api: ApiServer) -> None:
    for body in (
        {"action": "cancel"},
        {"action": "cancel", "ids": []},
        {"action": "cancel", "ids": ["s-0"], "where": {}},
        {"action": "label", "ids": ["s-0"]},
        {"action": "cancel", "ids": ["s-0"], "labels": ["a"]},
        {"action": "sing", "ids": ["s-0"]},
    ):
        assert (await api.post("/bulk", body)).status_code == 400, body
