"""One connection to a server. A single task enters and leaves the contexts of the client of `mcp`.

That client uses cancel scopes, which must be left by the task that entered them, whoever opens or closes the
connection. Requests may come from any task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from mcp.client.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Result,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

import holdfast
from holdfast.agent.mcp.errors import LostError, McpUnavailableError, NotRunError, RefusedError
from holdfast.agent.mcp.limits import CLOSE_S, ERROR_CHARS, LISTEN_S, RELISTEN_S
from holdfast.agent.mcp.sound_tools import with_sound_tools
from holdfast.agent.mcp.transport import NOT_RUN, Transport
from holdfast.core.values import Json

log = logging.getLogger("holdfast.mcp")

_ANSWER: TypeAdapter[Result] = TypeAdapter(CallToolResult | InputRequiredResult)


class Connection:
    """A connection, from its making to its end; `on_change` is called when the tools may have changed."""

    def __init__(
        self, server: str, transport: Callable[[asyncio.Event], Transport], on_change: Callable[[], None]
    ) -> None:
        self._server = server
        self._on_change = on_change
        self._over = asyncio.Event()
        self._transport = transport(self._over)
        self._ready = asyncio.Event()
        self._malformed: list[str] = []
        self._client: Client | None = None
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_refused_as_http(self) -> bool:
        """Whether the server takes no requests at its URL, as servers did before streamable HTTP."""
        return self._transport.is_refused_as_http

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    # --- its life ----------------------------------------------------------------------------------

    async def open(self, timeout_s: float) -> None:
        """Connect. Raises `McpUnavailableError`, and then nothing is left open."""
        self._task = asyncio.create_task(self._hold(), name=f"mcp:{self._server}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            why = await self._transport.why()
            await self.close()
            slow = f"it did not answer within {timeout_s:g} s"
            raise McpUnavailableError(self._server, f"{slow}; {why}" if why else slow, self._transport.stderr) from None
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._failure is not None:
            why = (await self._transport.why() or _error_text(self._failure))[:ERROR_CHARS]
            raise McpUnavailableError(self._server, why, self._transport.stderr) from None

    async def close(self) -> None:
        """End the connection. Returns when it has ended, after `CLOSE_S` at the latest."""
        self._over.set()
        if self._task is None:
            return
        if not self._ready.is_set():
            self._task.cancel()  # it still waits for the server
        await asyncio.wait([self._task], timeout=CLOSE_S)
        if not self._task.done():
            self._task.cancel()
            self._transport.kill()
            await asyncio.wait([self._task], timeout=1.0)

    async def _hold(self) -> None:
        try:
            info = Implementation(name="holdfast", version=holdfast.__version__)
            # No callbacks: the server learns that we offer neither sampling nor forms nor roots.
            streams = with_sound_tools(self._transport.streams(), self._note_malformed)
            client = Client(streams, client_info=info, message_handler=self._take, cache=None)
            async with client:
                listening = await self._listening(client)
                try:
                    self._client = client
                    self._ready.set()
                    await self._over.wait()
                finally:
                    await _stopped(listening)
        except Exception as error:
            self._failure = error
            log.debug("MCP server '%s': the connection ended: %s", self._server, _error_text(error))
        finally:
            self._over.set()
            self._ready.set()

    # --- requests ----------------------------------------------------------------------------------

    @property
    def has_tools(self) -> bool:
        """Whether the server says that it has tools."""
        assert self._client is not None
        return self._client.server_capabilities.tools is not None

    async def page(self, cursor: str | None) -> ListToolsResult:
        """A page of its tools. Those that violate the protocol are left out, and named by `take_malformed`."""
        assert self._client is not None
        params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        try:
            return await self._client.session.list_tools(params=params)
        except (MCPError, ValidationError) as error:
            raise self._request_error(error) from None

    def _note_malformed(self, names: list[str]) -> None:
        self._malformed += names

    def take_malformed(self) -> list[str]:
        """The names of tools that violate the protocol, of the pages since this was called last."""
        names, self._malformed = self._malformed, []
        return names

    async def call(self, name: str, arguments: dict[str, Json], on_progress: ProgressFnT) -> CallToolResult:
        """Call a tool. If this is cancelled, the server is notified.

        It is sent as a plain request, so that the result is not validated against the server's schema: a malicious
        schema could take for ever, and nothing here relies on it.
        """
        assert self._client is not None
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        try:
            answer = await self._client.session.send_request(request, _ANSWER, progress_callback=on_progress)
        except (MCPError, ValidationError) as error:
            raise self._request_error(error) from None
        if isinstance(answer, CallToolResult):
            return answer
        raise RefusedError("it needs input from a person during the call, which is not supported here")

    async def why_lost(self) -> str:
        """Why the connection is over, for people and models."""
        return await self._transport.why() or "it ended"

    def _request_error(self, error: MCPError | ValidationError) -> Exception:
        """The error of a request that has no result."""
        if isinstance(error, ValidationError):
            return RefusedError(f"its answer violates the protocol in {error.error_count()} places")
        if error.code == NOT_RUN:
            self._over.set()
            return NotRunError(error.message)
        why = error.message[:ERROR_CHARS]
        return LostError(why) if error.code == CONNECTION_CLOSED else RefusedError(why)

    # --- changes -----------------------------------------------------------------------------------

    async def _take(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._on_change()

    async def _listening(self, client: Client) -> asyncio.Task[None] | None:
        """From the 2026 protocol on, a server reports changes only to subscribers; before, it does so unasked."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return None
        agreed = asyncio.Event()
        task = asyncio.create_task(self._listen(client, agreed))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_S):
                await agreed.wait()
        return task

    async def _listen(self, client: Client, agreed: asyncio.Event) -> None:
        wait_s = 1.0
        while True:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    agreed.set()
                    async for _ in events:
                        wait_s = 1.0
                        self._on_change()
            except (MCPError, SubscriptionLost) as error:
                log.debug("MCP server '%s' does not report changes: %s", self._server, _error_text(error))
            agreed.set()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RELISTEN_S)
            self._on_change()  # changes may have been missed meanwhile


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _error_text(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, MCPError) else f"{type(error).__name__}: {error}"
