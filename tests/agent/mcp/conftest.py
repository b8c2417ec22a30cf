"""The friendly server, over both transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agent.mcp.client import McpClient
from tests.agent.mcp.helpers import Friendly, HttpProcess, over_http, script


@pytest.fixture(scope="package")
def http_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("friendly")


@pytest.fixture(scope="package")
def http_friendly(http_folder: Path) -> Iterator[HttpProcess]:
    """One for all tests that do not end it: it takes its time to start."""
    with over_http("friendly", "http", http_folder) as served:
        yield served


@pytest.fixture(params=["stdio", "http"])
def friendly(request: pytest.FixtureRequest, tmp_path: Path) -> Friendly:
    if request.param == "stdio":
        return Friendly(McpClient.stdio("srv", script("friendly", "stdio", tmp_path)), tmp_path)
    served: HttpProcess = request.getfixturevalue("http_friendly")
    folder: Path = request.getfixturevalue("http_folder")
    for note in folder.iterdir():
        note.unlink()
    return Friendly(McpClient.http("srv", served.url()), folder)
