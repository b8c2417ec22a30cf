"""Tokens: who is let in, to what, and for how long."""

from __future__ import annotations

import pytest

from holdfast.serve.http import tokens
from holdfast.serve.http.problems import ApiError
from holdfast.serve.http.rates import Rates
from holdfast.testing.patience import until
from tests.serve.http.api_server import ApiServer
from tests.serve.http.programs import two_questions

START = {"program": two_questions.name, "llm": "host"}


async def _token(api: ApiServer, *scopes: str, **more: object) -> str:
    made = (await api.post("/tokens", {"name": "ann", "scopes": list(scopes), **more})).json()
    return str(made["token"])


@pytest.mark.parametrize("given", ["", "Bearer", "Basic abc", "Bearer hf_x_y", "Bearer nothing", "Bearer hf__"])
async def test_whoever_has_no_token_is_told_how_to_send_one(api: ApiServer, given: str) -> None:
    async with api.as_holder_of(None) as nobody:
        reply = await nobody.get("/sessions", headers={"authorization": given} if given else {})
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, 'Bearer realm="holdfast"')
    assert "send `Authorization: Bearer TOKEN`" in reply.json()["detail"]


async def test_the_store_does_not_know_the_secret_of_a_token(api: ApiServer) -> None:
    token = await _token(api, "sessions:read")
    [token_id] = await api.door.store.list_state(tokens.NAMESPACE)
    item = await api.door.store.get_state(tokens.NAMESPACE, token_id)
    assert item is not None
    assert token.partition(f"hf_{token_id}_")[2] not in str(item.value)
    listed = (await api.get("/tokens")).text
    assert "digest" not in listed


async def test_a_revoked_token_is_not_let_in_again(api: ApiServer) -> None:
    token = await _token(api, "sessions:read")
    async with api.as_holder_of(token) as ann:
        assert (await ann.get("/sessions")).status_code == 200
        await api.client.delete(f"/tokens/{token.split('_')[1]}")
        assert (await ann.get("/sessions")).status_code == 401


async def test_a_token_ends_when_it_says(api: ApiServer) -> None:
    token = await _token(api, "sessions:read", expires_at=api.door.holdfast.now() - 1)
    async with api.as_holder_of(token) as ann:
        assert (await ann.get("/sessions")).status_code == 401


async def test_a_token_with_a_prefix_sees_no_other_session(api: ApiServer) -> None:
    for session_id in ("ann-1", "bob-1"):
        await api.post("/sessions", {**START, "id": session_id})
    token = await _token(api, "sessions:read", "sessions:write", "answers:write", id_prefix="ann-")
    async with api.as_holder_of(token) as ann:
        assert [row["session_id"] for row in (await ann.get("/sessions")).json()["data"]] == ["ann-1"]
        assert (await ann.get("/sessions", params={"id_prefix": "bob"})).json()["data"] == []
        assert [each["session_id"] for each in (await ann.get("/queries")).json()["data"]] == ["ann-1"]
        for path in ("", "/journal", "/events", "/observation", "/export", "/fork-points"):
            assert (await ann.get(f"/sessions/bob-1{path}")).status_code == 404
        assert (await ann.post("/sessions/bob-1/cancel", json={})).status_code == 404
        assert (await ann.get("/comparisons", params={"left": "ann-1", "right": "bob-1"})).status_code == 404
        assert (await ann.post("/sessions", json={**START, "id": "bob-2"})).status_code == 404
        assert (await ann.post("/sessions/ann-1/forks", json={"id": "bob-2"})).status_code == 404
        assert (await ann.post("/sessions", json=START)).status_code == 400
        assert (await ann.post("/sessions", json={**START, "id": "ann-2"})).status_code == 201


def test_writes_beyond_the_rate_are_told_when_to_come_back() -> None:
    now = 0.0
    rates = Rates(lambda: now, per_s=2, burst=3)
    for _ in range(3):
        rates.check_write("a")
    with pytest.raises(ApiError) as refused:
        rates.check_write("a")
    assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "1")
    rates.check_write("b")  # another token has its own
    now = 0.5
    rates.check_write("a")


async def test_streams_beyond_the_limit_are_refused_until_one_is_closed(api: ApiServer) -> None:
    await api.post("/sessions", {**START, "id": "s-1"})
    api.door.rates.streams = 1
    async with api.stream("/sessions/s-1/events") as first:
        assert first.status_code == 200
        async with api.stream("/sessions/s-1/events") as second:
            assert second.status_code == 429

    async def is_free() -> bool:
        async with api.stream("/sessions/s-1/events") as again:
            return bool(again.status_code == 200)

    await until(is_free)
