"""What only a server has, asked of it by the client with and without `await`: links, past items, packages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Failure, Runtime
from holdfast.client.links import LinksClient
from holdfast.client.packages import PackagesClient
from holdfast.client.sync import SyncHoldfastClient
from holdfast.client.wire import RemoteError
from holdfast.core.errors import UnknownQueryError
from holdfast.testing.provider import ScriptedProvider
from tests.serve.http.api_server import TOKEN, ApiServer, api_server
from tests.serve.http.git_server import served_package
from tests.serve.http.programs import two_questions


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    url = f"sqlite:///{tmp_path}/h.db"
    async with Runtime(url, provider=ScriptedProvider(["one"])) as runtime, api_server(runtime) as server:
        yield server


async def test_a_link_lets_somebody_without_a_token_answer_its_question(server: ApiServer) -> None:
    async with holdfast.connect(server.url, TOKEN) as hf, holdfast.connect(server.url) as nobody:
        await hf.start(two_questions.name, llm="host", id="s-1")
        link = await hf.link("s-1", "q-0", expires_s=3600)
        shown = await nobody.linked_question(link.url)
        assert shown.query is not None
        assert (shown.session_id, shown.query["prompt"]) == ("s-1", "Bug, wish or question?")
        assert shown.expires_at == link.expires_at
        answered = (await nobody.answer_link(link.url, "bug", by="Ann")).answered
        assert answered is not None
        assert (answered.by, answered.answer) == ("link:Ann", {"response": "bug"})
        assert (await nobody.linked_question(link.url)).query is None
        with pytest.raises(UnknownQueryError):
            await hf.link("s-1", "q-0")
        failing = await hf.link("s-1", "q-1")
        await nobody.answer_link(failing.url, Failure(message="nobody is there"))
        assert (await hf.event("s-1")).status == "error"
        with pytest.raises(RemoteError, match="link"):
            await nobody.linked_question(link.url + "x")


async def test_what_has_left_an_inbox_is_listed_a_page_at_a_time(server: ApiServer) -> None:
    async with holdfast.connect(server.url, TOKEN) as hf:
        session = await hf.session("chat").open()
        for number in range(3):
            await session.enqueue(f"later {number}").id(f"i-{number}")
        assert (await session.past_items()).data == []
        for number in range(2):
            await session.cancel(item=f"i-{number}", reason="not needed")
        first = await session.past_items(limit=1)
        assert [(each.id, each.text, each.status) for each in first.data] == [("i-1", "later 1", "cancelled")]
        cancelled = first.data[0].cancelled
        assert cancelled is not None
        assert cancelled.reason == "not needed"
        rest = await hf.past_items("chat", before=first.next, limit=1)
        assert ([each.id for each in rest.data], rest.next) == (["i-0"], None)


async def test_packages_are_installed_listed_checked_and_removed(server: ApiServer, tmp_path: Path) -> None:
    async with holdfast.connect(server.url, TOKEN) as hf:
        with pytest.raises(RemoteError, match="--allow-packages"):
            await hf.install_packages(["https://example.org/x"])
        server.door.features.add("packages")
        with served_package(tmp_path / "repositories") as url:
            report = await hf.install_packages([url])
        assert [(each["name"], each["action"]) for each in report.packages] == [("greeter", "installed")]
        (listed,) = (await hf.packages()).data
        assert (listed["name"], listed["version"]) == ("greeter", "1.0.0")
        assert (await hf.check_packages())["healthy"] == ["greeter"]
        removed = await hf.remove_package("greeter")
        assert (removed.removed, removed.scope) == ("greeter", "global")
        assert (await hf.packages()).data == []
        with pytest.raises(RemoteError, match="greeter"):
            await hf.remove_package("greeter", scope="global")


async def test_the_client_without_await_says_the_same(server: ApiServer, tmp_path: Path) -> None:
    def use() -> None:
        with SyncHoldfastClient(server.url, TOKEN) as hf:
            hf.start(two_questions.name, llm="host", id="s-1")
            link = hf.link("s-1", "q-0")
            assert hf.linked_question(link.url).query is not None
            assert hf.answer_link(link.url, "bug").query is None
            assert hf.past_items("chat").data == []
            with served_package(tmp_path / "repositories") as url:
                assert hf.install_packages([url]).errors == []
            assert [each["name"] for each in hf.packages().data] == ["greeter"]
            assert hf.check_packages()["healthy"] == ["greeter"]
            assert hf.remove_package("greeter").removed == "greeter"

    server.door.features.add("packages")
    async with holdfast.connect(server.url, TOKEN) as hf:
        await (await hf.session("chat").open()).enqueue("later").id("i-0")
    await asyncio.to_thread(use)


def test_no_word_of_links_and_packages_is_missing_without_await() -> None:
    for client in (LinksClient, PackagesClient):
        for name, method in inspect.getmembers(client, inspect.iscoroutinefunction):
            own = getattr(SyncHoldfastClient, name)
            assert list(inspect.signature(own).parameters) == list(inspect.signature(method).parameters), name
