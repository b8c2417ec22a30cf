"""OAuth for servers that want a login: who logged in once is known until the tokens are revoked.

A person logs in with `OAuthLogin.log_in`, or `holdfast mcp --login URL`: in a browser, which comes back to an address
of this machine. Tokens and the registration of this client are kept in a file that only its owner can read. Whoever
uses the server afterwards takes them from there, and refreshes them; where that is not possible any more, the request
is refused with how to log in again, and nobody is asked in the middle of a turn.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from holdfast.agent.mcp.errors import McpUnavailableError
from holdfast.agent.mcp.limits import LOGIN_S
from holdfast.programs.files import write_atomically
from holdfast.programs.paths import home

_FOLDER = "mcp-logins"
_PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nYou are logged in. Close this window."


class OAuthLogin:
    """The login of this user at one server."""

    def __init__(self, url: str, *, file: Path | None = None, scope: str | None = None) -> None:
        self.url = url
        name = hashlib.sha256(url.encode()).hexdigest()[:24]
        self._path = file or home() / _FOLDER / f"{name}.json"
        self._scope = scope

    @property
    def is_known(self) -> bool:
        """Whether somebody has logged in."""
        return self._path.exists()

    def auth(self) -> httpx2.Auth:
        """What adds the tokens to requests, and refreshes them."""
        return self._provider(_TokenFile(self._path), self._ask_nobody, self._no_code)

    async def log_in(self, show: Callable[[str], Awaitable[None]]) -> None:
        """Let a person log in: `show` shows them an address. Raises `McpUnavailableError` if that comes to nothing."""
        callback = _Callback()
        try:
            port = await callback.listen()
            provider = self._provider(_TokenFile(self._path, is_new=True), show, callback.code, port)
            async with asyncio.timeout(LOGIN_S), httpx2.AsyncClient(auth=provider, timeout=30) as http:
                reply = await http.post(self.url, json=_PING, headers=_PING_HEADERS)
        except (TimeoutError, OSError, OAuthFlowError, httpx2.HTTPError, ValidationError) as error:
            raise McpUnavailableError(self.url, f"the login failed: {str(error) or type(error).__name__}") from None
        finally:
            await callback.close()
        if reply.status_code == httpx2.codes.UNAUTHORIZED:
            raise McpUnavailableError(self.url, "it refuses the tokens that it gave")
        if not self.is_known:
            raise McpUnavailableError(self.url, "it wants no login")

    def forget(self) -> bool:
        """Forget the tokens; whether there were any."""
        was_known = self.is_known
        self._path.unlink(missing_ok=True)
        return was_known

    def _provider(
        self,
        storage: _TokenFile,
        show: Callable[[str], Awaitable[None]],
        code: Callable[[], Awaitable[AuthorizationCodeResult]],
        port: int = 80,
    ) -> OAuthClientProvider:
        back = AnyUrl(f"http://127.0.0.1:{port}/callback")
        metadata = OAuthClientMetadata(client_name="Holdfast", redirect_uris=[back], scope=self._scope)
        return OAuthClientProvider(self.url, metadata, storage, show, code)

    async def _ask_nobody(self, _: str) -> None:
        raise OAuthFlowError(f"it wants a login: holdfast mcp --login {self.url}")

    async def _no_code(self) -> AuthorizationCodeResult:
        raise OAuthFlowError("nobody is logging in")


_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_PING_HEADERS = {"accept": "application/json, text/event-stream"}
"""Any request will do: a server asks for the login before it looks at it."""


class _TokenFile:
    """Tokens and registration in one file, for the client of `mcp`."""

    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        """`is_new`: what is kept does not count, and is replaced once there are new tokens."""
        self.path = path
        self._kept: dict[str, Any] = {} if is_new else self._read()

    async def get_tokens(self) -> OAuthToken | None:
        kept = self._kept.get("tokens")
        return OAuthToken.model_validate(kept) if kept is not None else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._kept["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self.path, json.dumps(self._kept).encode())
        os.chmod(self.path, 0o600)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        kept = self._kept.get("client")
        return OAuthClientInformationFull.model_validate(kept) if kept is not None else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """It is kept with the first tokens: without any, there was no login."""
        self._kept["client"] = client_info.model_dump(mode="json", exclude_none=True)

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}


class _Callback:
    """The address of this machine to which the browser comes back with a code."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._came: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def listen(self) -> int:
        """Listen on a free port, which is returned."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def code(self) -> AuthorizationCodeResult:
        return await self._came

    async def close(self) -> None:
        self._came.cancel()
        if self._server is not None:
            self._server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readline()).decode(errors="replace").split(" ")[1:2]
        found = {name: values[0] for name, values in parse_qs(urlsplit("".join(target)).query).items()}
        writer.write(_PAGE)
        writer.close()
        if self._came.done():
            return
        if "error" in found:
            self._came.set_exception(OAuthFlowError(found.get("error_description", found["error"])))
        elif "code" in found:
            result = AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))
            self._came.set_result(result)
