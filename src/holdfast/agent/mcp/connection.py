"""One connection to a server. One task enters and leaves the contexts of the client of `mcp`, and lives as long.

That client keeps cancel scopes, and those must be left by the task that has entered them, whoever wanted the
connection and whoever ends it. Requests may come from any task.
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
from holdfast.agent.mcp.limits import CLOSE_S, LISTEN_S, RELISTEN_S
from holdfast.agent.mcp.transport import NOT_RUN, Transport
from holdfast.core.values import Json

log = logging.getLogger("holdfast.mcp")

_ANSWER: TypeAdapter[Result] = TypeAdapter(CallToolResult | InputRequiredResult)


class Connection:
    """A connection that is being made, is there, or is over; `on_change` is told when the tools may be others."""

    def __init__(self, server: str, wire: Callable[[asyncio.Event], Transport], on_change: Callable[[], None]) -> None:
        self._server = server
        self._on_change = on_change
        self._over = asyncio.Event()
        self._wire = wire(self._over)
        self._ready = asyncio.Event()
        self._client: Client | None = None
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    # --- its life ----------------------------------------------------------------------------------

    async def open(self, timeout_s: float) -> None:
        """Connect. Raises `McpUnavailableError`, and then nothing is left of it."""
        self._task = asyncio.create_task(self._hold(), name=f"mcp:{self._server}")
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            why = await self._wire.why()
            await self.close()
            slow = f"it did not answer within {timeout_s:g} s"
            raise McpUnavailableError(self._server, f"{slow}; {why}" if why else slow, self._wire.stderr) from None
        except asyncio.CancelledError:
            await self.close()
            raise
        if self._failure is not None:
            why = await self._wire.why() or _words(self._failure)
            raise McpUnavailableError(self._server, why, self._wire.stderr) from None

    async def close(self) -> None:
        """End it. Comes back when it has ended, or after `CLOSE_S` at the latest."""
        self._over.set()
        if self._task is None:
            return
        if not self._ready.is_set():
            self._task.cancel()  # it waits for the server, and does not look up
        await asyncio.wait([self._task], timeout=CLOSE_S)
        if not self._task.done():
            self._task.cancel()
            self._wire.kill()
            await asyncio.wait([self._task], timeout=1.0)

    async def _hold(self) -> None:
        try:
            info = Implementation(name="holdfast", version=holdfast.__version__)
            # No callbacks: a server is told that nobody here samples, answers forms, or has roots.
            client = Client(self._wire.streams(), client_info=info, message_handler=self._take, cache=None)
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
            log.debug("MCP server '%s': the connection ended: %s", self._server, _words(error))
        finally:
            self._over.set()
            self._ready.set()

    # --- requests ----------------------------------------------------------------------------------

    @property
    def has_tools(self) -> bool:
        """Whether the server says that it has any."""
        assert self._client is not None
        return self._client.server_capabilities.tools is not None

    async def page(self, cursor: str | None) -> ListToolsResult:
        """A page of its tools."""
        assert self._client is not None
        params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        try:
            return await self._client.session.list_tools(params=params)
        except (MCPError, ValidationError) as error:
            raise self._told(error) from None

    async def call(self, name: str, arguments: dict[str, Json], on_progress: ProgressFnT) -> CallToolResult:
        """Call one of them. Whoever is cancelled while it waits has the server told so.

        Sent as a plain request, so that the result is not checked by the schema that the server has for it: a schema
        can be made to take for ever, and nothing here relies on it.
        """
        assert self._client is not None
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        try:
            answer = await self._client.session.send_request(request, _ANSWER, progress_callback=on_progress)
        except (MCPError, ValidationError) as error:
            raise self._told(error) from None
        if isinstance(answer, CallToolResult):
            return answer
        raise RefusedError("it wants to ask a person in the middle of the call, and nobody here can be asked")

    async def why_lost(self) -> str:
        """Why the connection is over, for people and models."""
        return await self._wire.why() or "it ended"

    def _told(self, error: MCPError | ValidationError) -> Exception:
        """What became of a request that has no result."""
        if isinstance(error, ValidationError):
            return RefusedError(f"its answer is not as the protocol says, in {error.error_count()} places")
        if error.code == NOT_RUN:
            self._over.set()
            return NotRunError(error.message)
        return LostError(error.message) if error.code == CONNECTION_CLOSED else RefusedError(error.message)

    # --- news --------------------------------------------------------------------------------------

    async def _take(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._on_change()

    async def _listening(self, client: Client) -> asyncio.Task[None] | None:
        """From 2026 on a server tells of changes only to those who ask; before, it does so by itself."""
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
                log.debug("MCP server '%s' tells of no changes: %s", self._server, _words(error))
            agreed.set()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RELISTEN_S)
            self._on_change()  # nobody has told what changed meanwhile


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, MCPError) else f"{type(error).__name__}: {error}"
