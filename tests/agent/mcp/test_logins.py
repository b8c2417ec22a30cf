"""Servers that want a login, and servers that have only the transport before streamable HTTP."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from holdfast.agent.mcp.client import McpClient
from holdfast.agent.mcp.errors import McpDefinitionError, McpUnavailableError
from holdfast.agent.mcp.oauth import OAuthLogin
from tests.agent.mcp.helpers import HttpProcess, hosting, over_http


@pytest.fixture(scope="module")
def locked() -> Iterator[HttpProcess]:
    with over_http("oauth_http") as served:
        yield served


async def browse(address: str) -> None:
    """What a person does with the address that they are shown: the browser comes back with a code."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        assert (await browser.get(address)).text == "You are logged in. Close this window."


async def test_who_has_logged_in_once_is_known_from_then_on(locked: HttpProcess, tmp_path: Path) -> None:
    login = OAuthLogin(locked.url(), file=tmp_path / "logins" / "one.json")
    await login.log_in(browse)
    assert stat.S_IMODE((tmp_path / "logins" / "one.json").stat().st_mode) == 0o600
    again = OAuthLogin(locked.url(), file=tmp_path / "logins" / "one.json")  # in another process, next week
    async with hosting(McpClient.http("srv", locked.url(), login=again)) as host:
        assert await host.call("srv_who") == "token-1"


async def test_who_has_not_logged_in_is_told_how(locked: HttpProcess, tmp_path: Path) -> None:
    with pytest.raises(McpUnavailableError, match=f"holdfast mcp --login {locked.url()}"):
        async with hosting(McpClient.http("srv", locked.url())):
            pass
    with pytest.raises(McpUnavailableError, match=f"it wants a login: holdfast mcp --login {locked.url()}"):
        async with hosting(McpClient.http("srv", locked.url(), login=OAuthLogin(locked.url(), file=tmp_path / "none"))):
            pass
    with pytest.raises(McpDefinitionError, match="either headers or a login"):
        McpClient.http("srv", locked.url(), headers={"a": "b"}, login=OAuthLogin(locked.url()))


async def test_a_login_that_comes_to_nothing_leaves_none(locked: HttpProcess, tmp_path: Path) -> None:
    login = OAuthLogin(locked.url(), file=tmp_path / "none.json")

    async def refuse(address: str) -> None:
        back = httpx2.URL(address).params["redirect_uri"]
        async with httpx2.AsyncClient() as browser:
            await browser.get(f"{back}?error=access_denied&error_description=not+today")

    with pytest.raises(McpUnavailableError, match="the login failed: not today"):
        await login.log_in(refuse)
    assert not login.is_known
    assert not login.forget()


async def test_a_server_that_has_only_sse_is_used_all_the_same(tmp_path: Path) -> None:
    with over_http("friendly", "sse", tmp_path) as served:
        server = McpClient.http("srv", served.url("sse"))
        async with hosting(server) as host:
            assert await host.call("srv_put", value="here") == "here"
