"""Logging in from a browser: codes that count once, cookies over HTTPS alone, and few tries."""

from __future__ import annotations

from holdfast.serve.http.logins import COOKIE
from tests.serve.http.api_server import TOKEN, ApiServer

HTTPS = {"x-forwarded-proto": "https"}


async def test_a_code_is_exchanged_for_the_token_once(api: ApiServer) -> None:
    code = api.door.logins.new_code(TOKEN)
    async with api.as_holder_of(None) as browser:
        reply = await browser.post("/login", json={"code": code})
        assert (reply.json()["token"], reply.json()["cookie"]) == (TOKEN, False)
        assert "set-cookie" not in reply.headers
        assert (await browser.post("/login", json={"code": code})).status_code == 401


async def test_a_code_that_is_too_old_counts_no_more(api: ApiServer) -> None:
    code = api.door.logins.new_code(TOKEN, lasts_s=0.0)
    async with api.as_holder_of(None) as browser:
        assert (await browser.post("/login", json={"code": code})).status_code == 401


async def test_over_https_a_cookie_counts_for_requests_of_scripts_alone(api: ApiServer) -> None:
    async with api.as_holder_of(None) as browser:
        reply = await browser.post("/login", json={"token": TOKEN}, headers=HTTPS)
        assert (reply.json()["token"], reply.json()["cookie"]) == (None, True)
        cookie = reply.headers["set-cookie"]
        assert all(word in cookie for word in ("__Host-hf=", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"))
        sent = {"cookie": f"{COOKIE}={TOKEN}"}
        assert (await browser.get("/me", headers=sent)).status_code == 401
        assert (await browser.get("/me", headers={**sent, "x-holdfast": "1"})).json()["name"] == "local"
        assert "Max-Age=0" in (await browser.post("/logout")).headers["set-cookie"]


async def test_after_five_tries_a_minute_nobody_may_try(api: ApiServer) -> None:
    async with api.as_holder_of(None) as browser:
        statuses = [(await browser.post("/login", json={"token": "hf_x_wrong"})).status_code for _ in range(6)]
        assert statuses == [401] * 5 + [429]


async def test_a_token_learns_what_it_may_do(api: ApiServer) -> None:
    made = (await api.post("/tokens", {"name": "ann", "scopes": ["answers:write"], "id_prefix": "a-"})).json()
    async with api.as_holder_of(made["token"]) as ann:
        me = (await ann.get("/me")).json()
    expected = {"name": "ann", "scopes": ["answers:write"], "id_prefix": "a-", "expires_at": None}
    assert me == {**expected, "token_id": made["id"]}
    listed = (await api.get("/tokens")).json()
    assert listed[0]["used_at"] is not None
