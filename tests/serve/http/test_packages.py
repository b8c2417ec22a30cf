"""Lua packages over HTTP: listed for everybody, changed only where the operator lets administrators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.http.api_server import ApiServer
from tests.serve.http.git_server import served_package


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("own_home")
async def test_a_package_is_installed_listed_checked_and_removed(api: ApiServer, tmp_path: Path) -> None:
    api.door.features.add("packages")
    with served_package(tmp_path / "repositories") as url:
        made = await api.post("/packages/install", {"sources": [url]})
    assert [(each["name"], each["action"]) for each in made.json()["packages"]] == [("greeter", "installed")], made.text
    (listed,) = (await api.get("/packages")).json()["data"]
    assert (listed["name"], listed["version"], listed["scope"]) == ("greeter", "1.0.0", "global")
    assert str(tmp_path) not in str(listed)
    assert (await api.get("/packages/doctor")).json()["healthy"] == ["greeter"]
    assert (await api.client.delete("/packages/greeter")).json()["removed"] == "greeter"
    assert (await api.get("/packages")).json()["data"] == []
    assert (await api.client.delete("/packages/greeter")).status_code == 404


@pytest.mark.usefixtures("own_home")
async def test_packages_are_changed_only_where_that_is_allowed(api: ApiServer) -> None:
    for reply in (
        await api.post("/packages/install", {"sources": ["https://example.org/x"]}),
        await api.client.delete("/packages/greeter"),
    ):
        assert reply.status_code == 403
        assert "--allow-packages" in reply.json()["detail"]


@pytest.mark.usefixtures("own_home")
async def test_directories_of_the_server_are_not_installed_for_a_request(api: ApiServer, tmp_path: Path) -> None:
    api.door.features.add("packages")
    for source in (str(tmp_path), f"file://{tmp_path}", "ext::sh -c true", "--upload-pack=x", "../x"):
        reply = await api.post("/packages/install", {"sources": [source]})
        assert reply.status_code == 403, (source, reply.text)
