"""The pages of the console beside the API: looked up in a table, with strict headers, below any path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from holdfast import Runtime
from holdfast.serve.console.files import SECURITY_HEADERS, console_files
from holdfast.serve.http.site import web_app

TOKEN = "a-token-for-this-machine-only"


@asynccontextmanager
async def _client(tmp_path: Path, root: str = "") -> AsyncIterator[httpx2.AsyncClient]:
    async with Runtime(f"sqlite:///{tmp_path}/s.db") as runtime:
        transport = httpx2.ASGITransport(web_app(runtime, local_token=TOKEN), root_path=root)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


async def test_files_and_pages_are_sent_with_their_headers(tmp_path: Path) -> None:
    script = next(path for path in console_files() if path.endswith(".js"))
    async with _client(tmp_path) as client:
        file, page = await client.get(script), await client.get("/s/some-session")
        assert file.content == console_files()[script].content
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert page.headers["cache-control"] == "no-cache"
        assert "<html" in page.text
        for each in (file, page):
            assert {name: each.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        head = await client.head("/")
        assert (head.content, head.headers["content-length"]) == (b"", str(len(page.content)))


async def test_no_path_leads_out_of_the_table(tmp_path: Path) -> None:
    async with _client(tmp_path) as client:
        for path in ("/assets/../index.html", "/assets/", "/etc/passwd", "/assets/%2e%2e/x", "/none", "/api/v1x"):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.post("/")).status_code == 404


async def test_the_api_is_where_it_was(tmp_path: Path) -> None:
    async with _client(tmp_path) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/api/v1/sessions")).status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert "console" in (await client.get("/api/v1/server", headers=headers)).json()["features"]


async def test_a_page_knows_the_path_that_the_application_is_mounted_at(tmp_path: Path) -> None:
    async with _client(tmp_path, root="/holdfast") as client:
        assert 'content="/holdfast"' in (await client.get("/holdfast/s/1")).text
        assert (await client.get("/holdfast/healthz")).json() == {"status": "ok"}
