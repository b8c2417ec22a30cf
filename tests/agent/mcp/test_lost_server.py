"""Connections that are lost, and made again: what becomes of calls under way, and what is never done twice."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx2
import pytest

from holdfast.agent.mcp.client import McpClient
from holdfast.agent.mcp.errors import McpUnavailableError
from holdfast.agent.mcp.limits import McpLimits
from holdfast.testing.patience import until
from tests.agent.mcp.helpers import hosting, over_http, script


async def test_a_call_under_way_when_the_server_dies_is_told_as_lost_and_not_repeated(tmp_path: Path) -> None:
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path))) as host:
        told = await host.error("srv_die")
        assert told["code"] == "connection_lost"
        assert "its process ended with exit code 3" in told["error"]
        assert "it may or may not have run" in told["error"]
        assert await host.call("srv_add", a=2, b=40) == "42"
        assert (tmp_path / "died").read_text() == "."


async def test_a_call_of_a_tool_that_only_reads_is_repeated_when_the_server_dies(tmp_path: Path) -> None:
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path))) as host:
        assert await host.call("srv_die_once") == "alive"
        assert (tmp_path / "died_once").read_text() == ".."


async def test_nothing_is_repeated_where_that_was_forbidden(tmp_path: Path) -> None:
    server = McpClient.stdio("srv", script("friendly", "stdio", tmp_path))
    async with hosting(server, recovery="never") as host:
        assert (await host.error("srv_die_once"))["code"] == "connection_lost"
        assert (tmp_path / "died_once").read_text() == "."


async def test_all_calls_under_way_are_told_when_their_server_is_killed(tmp_path: Path) -> None:
    async with hosting(McpClient.stdio("srv", script("friendly", "stdio", tmp_path))) as host:
        pid = int(await host.call("srv_whoami"))
        calls = [asyncio.create_task(host.error("srv_hang")) for _ in range(3)]
        await until(lambda: (tmp_path / "hung").exists() and (tmp_path / "hung").stat().st_size == 3)
        os.kill(pid, signal.SIGKILL)
        told = await asyncio.gather(*calls)
    assert {each["code"] for each in told} == {"connection_lost"}
    assert "was killed by signal 9" in told[0]["error"]


async def test_a_server_that_does_not_come_back_is_told_to_the_model_without_its_words(tmp_path: Path) -> None:
    command = tmp_path / "server"
    command.write_text(f"#!/bin/sh\nexec {script('crude')[0]} {script('crude')[1]} old\n")
    command.chmod(0o755)
    async with hosting(McpClient.stdio("old", [str(command)])) as host:
        await host.server.aclose()
        command.write_text("#!/bin/sh\necho the password is swordfish >&2\nexit 1\n")
        told = await host.error("old_look")
        with pytest.raises(McpUnavailableError, match="swordfish"):
            await host.server.list_tools()
    assert told["code"] == "unavailable"
    assert told["error"] == "server 'old' cannot be reached: its process ended with exit code 1"


async def test_a_session_that_an_http_server_has_forgotten_is_made_anew_and_the_call_with_it() -> None:
    with over_http("old_http") as served:
        async with hosting(McpClient.http("old", served.url())) as host, httpx2.AsyncClient() as client:
            assert await host.call("old_count") == "call 1"
            await client.get(served.url("forget"))
            assert await host.call("old_count") == "call 2"


async def test_an_http_server_that_was_away_is_found_again(tmp_path: Path) -> None:
    with over_http("friendly", "http", tmp_path) as served:
        async with hosting(McpClient.http("srv", served.url())) as host:
            assert await host.call("srv_add", a=1, b=1) == "2"
            served.kill()
            told = await host.error("srv_add", a=1, b=1)
            assert told["code"] == "unavailable"
            assert f"http://127.0.0.1:{served.port}/mcp cannot be reached" in told["error"]
            served.start()
            assert await host.call("srv_add", a=2, b=2) == "4"


async def test_an_http_call_under_way_when_the_server_dies_is_told_as_lost(tmp_path: Path) -> None:
    with over_http("friendly", "http", tmp_path) as served:
        async with hosting(McpClient.http("srv", served.url())) as host:
            calling = asyncio.create_task(host.error("srv_hang"))
            await until((tmp_path / "hung").exists)
            served.kill()
            assert (await calling)["code"] == "connection_lost"
            served.start()
            assert await host.call("srv_add", a=2, b=2) == "4"


# --- who may ------------------------------------------------------------------------------------------


async def test_headers_from_a_function_are_asked_for_again_where_they_are_refused() -> None:
    given: list[str] = []

    async def headers() -> dict[str, str]:
        given.append(f"Bearer TOKEN-{len(given) + 1}")
        return {"authorization": given[-1] if len(given) < 3 else "Bearer TOKEN-2"}

    with over_http("old_http") as served:
        async with hosting(McpClient.http("old", served.url("locked"), headers=headers)) as host:
            assert given[:2] == ["Bearer TOKEN-1", "Bearer TOKEN-2"]
            assert await host.call("old_count") == "call 1"


async def test_headers_that_are_refused_are_told_and_not_shown() -> None:
    with over_http("old_http") as served:
        server = McpClient.http("old", served.url("locked?key=sesame"), headers={"authorization": "Bearer TOKEN-1"})
        with pytest.raises(McpUnavailableError) as raised:
            await server.list_tools()
    assert "answered with HTTP 401" in str(raised.value)
    assert "TOKEN" not in str(raised.value)
    assert "sesame" not in str(raised.value)


async def test_a_function_for_headers_that_fails_is_told() -> None:
    async def headers() -> dict[str, str]:
        raise PermissionError("the vault is shut")

    server = McpClient.http("old", "http://127.0.0.1:9/mcp", headers=headers)
    with pytest.raises(
        McpUnavailableError, match="its headers could not be computed: PermissionError: the vault is shut"
    ):
        await server.list_tools()


async def test_an_answer_over_http_that_is_too_large_is_refused_and_the_connection_stays() -> None:
    with over_http("old_http") as served:
        async with hosting(McpClient.http("old", served.url())) as host:
            told = await host.error("old_count", bytes=9_000_000)
            assert told["code"] == "refused"
            assert "more than 8,388,608 bytes" in told["error"]
            assert await host.call("old_count") == "call 2"


async def test_a_port_where_nobody_answers_is_told_at_once() -> None:
    server = McpClient.http("gone", "http://127.0.0.1:9/mcp", timeouts=McpLimits(connect_s=5.0))
    with pytest.raises(McpUnavailableError, match=r"'gone'.*http://127\.0\.0\.1:9/mcp cannot be reached"):
        await server.list_tools()
