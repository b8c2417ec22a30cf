"""The web application of a server: the HTTP API, and beside it the pages of the console."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from holdfast.serve.console.files import SECURITY_HEADERS, ConsoleFile, console_files, console_page, is_page
from holdfast.serve.http.app import ApiApp
from holdfast.serve.http.paths import OUTSIDE, PREFIX


class WebApp:
    """An ASGI application: whatever is not the API's is a file or a page of the console."""

    def __init__(self, api: ApiApp) -> None:
        self.api = api
        api.door.features.add("console")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            root = scope.get("root_path", "")
            path = scope["path"].removeprefix(root)
            if path != PREFIX and not path.startswith(f"{PREFIX}/") and path not in OUTSIDE:
                found = _find(path or "/", root)
                if found is not None:
                    await _send_file(scope, send, found)
                    return
        await self.api(scope, receive, send)


def _find(path: str, root: str) -> ConsoleFile | None:
    """The file or page at a path. Paths are looked up in a table, and never joined to a directory."""
    file = console_files().get(path)
    return console_page(root) if file is None and is_page(path) else file


async def _send_file(scope: Scope, send: Send, file: ConsoleFile) -> None:
    headers = {
        "content-type": file.media_type,
        "cache-control": file.cache_control,
        "content-length": str(len(file.content)),
        **SECURITY_HEADERS,
    }
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else file.content})
