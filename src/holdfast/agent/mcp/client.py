"""`McpClient`: offers the tools of one MCP server to a runtime. All sessions of a process share its connection.

It connects when it is first needed, and reconnects when it is needed again after the connection was lost. `aclose`
ends the connection; the next use makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypedDict, Unpack

from holdfast.agent.mcp.errors import (
    LostError,
    McpDefinitionError,
    McpUnavailableError,
    NotRunError,
    RefusedError,
    check_installed,
)
from holdfast.agent.mcp.limits import (
    BACKOFF_S,
    LISTING_BYTES,
    MAX_BACKOFF_S,
    MAX_PAGES,
    REFRESH_EVERY_S,
    REMARK_CHARS,
    SETTLE_S,
    McpLimits,
)
from holdfast.agent.mcp.tool_list import McpCatalog, McpCatalogBuilder, OfferedTool, ToolFilter
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools.context import ToolContext, ToolError
from holdfast.agent.tools.tool import ToolRetryPolicy, ToolSettings
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.mcp.connection import Connection
    from holdfast.agent.mcp.http import Headers
    from holdfast.agent.mcp.oauth import OAuthLogin
    from holdfast.agent.mcp.transport import Transport

log = logging.getLogger("holdfast.mcp")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")

Dial: TypeAlias = Callable[[asyncio.Event], "Transport"]
"""Makes the transport of a connection; setting the event says that the connection is over."""


class McpOptions(TypedDict, total=False):
    """Options of a client, whatever its transport."""

    prefix: str
    """The prefix of its tools' names here. By default the server's name and `_`; empty for none."""
    allow: Sequence[str] | None
    """The tools to offer, by the server's own names or patterns such as `get_*`; None for all."""
    deny: Sequence[str]
    """Tools not to offer, even if they are allowed."""
    optional: bool
    """Whether to continue without its tools if it cannot be reached. It is tried again when tools are refreshed."""
    timeouts: McpLimits


class McpClient:
    """A client of one MCP server: `Runtime(…, tools=[McpClient.stdio("files", ["mcp-files", "."])])`."""

    def __init__(self, name: str, dial: Dial, **options: Unpack[McpOptions]) -> None:
        if not _NAME.match(name):
            raise McpDefinitionError(name, "a name consists of 1 to 32 letters, digits, '_' and '-'")
        check_installed(name)
        self.id = f"mcp:{name}"
        self.name = name
        self.timeouts = options.get("timeouts", McpLimits())
        self._dial = dial
        self._dial_sse: Dial | None = None
        """For a server at a URL: how to reach one that has no streamable HTTP."""
        self._prefix = options.get("prefix", f"{name}_")
        self._filter = ToolFilter(options.get("allow"), options.get("deny", ()))
        self._is_optional = options.get("optional", False)
        self._catalog: McpCatalog | None = None
        """The latest list of its tools."""
        self._begun = self._taken = 0
        """How many listings were begun, and which of them was used last."""
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._failures = 0
        """Failed attempts to connect since the last success."""
        self._failed_at = 0.0
        self._watchers: list[Callable[[], Awaitable[None]]] = []
        self._notifying: asyncio.Task[None] | None = None
        self._has_changed = False

    @classmethod
    def stdio(
        cls,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Unpack[McpOptions],
    ) -> Self:
        """Connect to a server that is started as a child process. It gets the variables in `env` and few of ours."""
        if isinstance(command, str) or not command:
            raise McpDefinitionError(name, "its command must be a list of the program and its arguments")
        variables = dict(env or {})

        def dial(over: asyncio.Event) -> Transport:
            from holdfast.agent.mcp.stdio import ChildSpec, StdioTransport

            return StdioTransport(ChildSpec(list(command), variables, cwd), over)

        return cls(name, dial, **options)

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Headers | None = None,
        login: OAuthLogin | None = None,
        **options: Unpack[McpOptions],
    ) -> Self:
        """Connect to a server at a URL: by streamable HTTP, or by its predecessor (SSE) if the server has only that.

        If `headers` is an async function, it is called again after a 401. With a `login`, requests carry its tokens
        instead, which are refreshed when they expire.
        """
        if headers is not None and login is not None:
            raise McpDefinitionError(name, "it takes either headers or a login")
        if not url.startswith(("http://", "https://")):
            raise McpDefinitionError(name, "its URL must begin with https:// or http://")
        connect_s = options.get("timeouts", McpLimits()).connect_s

        def dial(_: asyncio.Event) -> Transport:
            from holdfast.agent.mcp.http import HttpTransport, auth_of

            return HttpTransport(url, login.auth() if login is not None else auth_of(headers or {}), connect_s)

        def dial_sse(_: asyncio.Event) -> Transport:
            from holdfast.agent.mcp.http import auth_of
            from holdfast.agent.mcp.sse import SseTransport

            return SseTransport(url, login.auth() if login is not None else auth_of(headers or {}), connect_s)

        made = cls(name, dial, **options)
        made._dial_sse = dial_sse
        return made

    def __repr__(self) -> str:
        return f"<McpClient {self.name}>"

    # --- tool provider -----------------------------------------------------------------------------

    async def list_tools(self) -> list[ToolSpec]:
        """The server's tools as they are now, by name."""
        self._begun += 1
        number = self._begun
        try:
            catalog = await self._listed()
            if number > self._taken:  # else a later listing was faster
                self._taken, self._catalog = number, catalog
        except McpUnavailableError as error:
            if not self._is_optional:
                raise
            log.warning("%s; it is optional, so its tools stay as they were until the next refresh", error)
        tools = self._catalog.tools if self._catalog is not None else {}
        return [ToolSpec(name, tool.description, tool.parameters) for name, tool in tools.items()]

    def settings_of(self, name: str) -> ToolSettings:
        """How one of its tools is run: the server's hints decide whether a lost call may be repeated."""
        recovery = self._tool(name).recovery
        # This class enforces the time limits of a call; this one is only a safety net.
        settings: ToolSettings = {
            "recovery": recovery,
            "timeout_s": self.timeouts.call_max_s + self.timeouts.connect_s + 30,
        }
        if recovery != "never":
            settings["retry"] = ToolRetryPolicy(max_attempts=2, base_delay_s=0.0)
        return settings

    async def call(self, name: str, arguments: dict[str, Json], ctx: ToolContext) -> Any:
        """Call a tool by its name here."""
        tool = self._tool(name)
        try:
            try:
                return await self._call(tool, arguments, ctx)
            except NotRunError:
                return await self._call(tool, arguments, ctx)  # on a new connection: the first did not accept it
        except NotRunError as error:
            raise ToolError(f"'{name}' was not run: {error}", code="unavailable", retryable=True) from None
        except RefusedError as error:
            raise ToolError(f"server '{self.name}' refused '{name}': {error}", code="refused") from None

    def watch(self, watcher: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Call `watcher` whenever the tools may have changed. Call the function this returns to stop."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    async def aclose(self) -> None:
        """End the connection. Running calls fail as if it had been lost."""
        tasks = [task for task in (self._notifying, self._connecting) if task is not None]
        self._notifying = self._connecting = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- calls -------------------------------------------------------------------------------------

    def _tool(self, name: str) -> OfferedTool:
        found = self._catalog.tools.get(name) if self._catalog is not None else None
        if found is None:
            raise ToolError(f"server '{self.name}' no longer has a tool '{name}'", code="unknown_tool")
        return found

    async def _call(self, tool: OfferedTool, arguments: dict[str, Json], ctx: ToolContext) -> Any:
        from holdfast.agent.mcp.results import value_of

        try:
            connection = await self._connected()
        except McpUnavailableError as error:
            log.warning("%s", error)  # its stderr is for people only: it may hold secrets
            why = f"server '{self.name}' cannot be reached: {error.why}"
            raise ToolError(why, code="unavailable", retryable=True) from None
        now = asyncio.get_running_loop().time
        hard = now() + self.timeouts.call_max_s
        clock = asyncio.timeout_at(min(now() + self.timeouts.call_s, hard))

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            with contextlib.suppress(RuntimeError):  # progress arrived after the time limit
                clock.reschedule(min(now() + self.timeouts.call_s, hard))
            ctx.progress(_plain(progress), None if total is None else _plain(total), (message or "")[:REMARK_CHARS])

        try:
            async with clock:
                result = await connection.call(tool.own, arguments, on_progress)
        except TimeoutError:
            is_hard = clock.when() == hard
            limit = self.timeouts.call_max_s if is_hard else self.timeouts.call_s
            which = "its time limit" if is_hard else "without any progress from the server"
            message = f"'{ctx.tool or tool.own}' was stopped after {limit:g} s, {which}"
            raise ToolError(message, code="timeout") from None
        except LostError:
            await self._raise_lost(connection, tool)
        self._failures = 0
        return value_of(result, tool.own)

    async def _raise_lost(self, connection: Connection, tool: OfferedTool) -> NoReturn:
        why = await connection.why_lost()
        may_repeat = tool.recovery != "never"
        unknown = "" if may_repeat else "; it may or may not have run, so find out before you call it again"
        raise ToolError(
            f"the connection to server '{self.name}' was lost during the call: {why}{unknown}",
            code="connection_lost",
            retryable=may_repeat,
        ) from None

    # --- listing -----------------------------------------------------------------------------------

    async def _listed(self) -> McpCatalog:
        try:
            try:
                listing = await self._pages(await self._connected())
            except (NotRunError, LostError):
                listing = await self._pages(await self._connected())  # listing again does no harm
        except TimeoutError:
            why = f"it did not list its tools within {self.timeouts.list_s:g} s"
            raise McpUnavailableError(self.name, why) from None
        except (NotRunError, LostError, RefusedError) as error:
            raise McpUnavailableError(self.name, f"its tools cannot be listed: {error}") from None
        for warning in listing.warnings if self._catalog is None or listing != self._catalog else ():
            log.warning("MCP server '%s': %s", self.name, warning)
        self._failures = 0
        return listing

    async def _pages(self, connection: Connection) -> McpCatalog:
        builder, cursors = McpCatalogBuilder(self._filter), set[str]()
        cursor: str | None = None
        async with asyncio.timeout(self.timeouts.list_s):
            while connection.has_tools:
                page = await connection.page(cursor)
                builder.take(page.tools)
                builder.refuse_malformed(connection.take_malformed())
                cursor = page.next_cursor
                if cursor is None:
                    break
                cursors.add(cursor)
                if len(cursors) < builder.pages or builder.pages >= MAX_PAGES or builder.size > LISTING_BYTES:
                    log.warning(
                        "MCP server '%s': its tool list does not end; those listed so far are offered", self.name
                    )
                    break
        return builder.build(self._prefix)

    # --- the connection ----------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        """The connection. The first caller makes it; others wait for the same one."""
        if self._connection is not None and not self._connection.is_over:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if connecting.cancelled() and current is not None and not current.cancelling():
                raise McpUnavailableError(self.name, "it was closed") from None
            raise

    async def _connect(self) -> Connection:
        from holdfast.agent.mcp.connection import Connection

        before, self._connection = self._connection, None
        if before is not None:
            await before.close()
        if self._failures:
            wait_s = min(BACKOFF_S * 2 ** (self._failures - 1), MAX_BACKOFF_S)
            await asyncio.sleep(max(0.0, self._failed_at + wait_s - time.monotonic()))
        made = Connection(self.name, self._dial, self._changed)
        self._failures += 1  # until something succeeds
        self._failed_at = time.monotonic()
        try:
            await made.open(self.timeouts.connect_s)
        except McpUnavailableError:
            if self._dial_sse is None or not made.is_refused_as_http:
                raise
            made = Connection(self.name, self._dial_sse, self._changed)
            await made.open(self.timeouts.connect_s)
            self._dial = self._dial_sse
        self._connection = made
        if self._catalog is not None:
            self._changed()  # nothing was reported while there was no connection
        return made

    # --- changes -----------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._has_changed = True
        if self._watchers and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        """Call the watchers: once for changes that come together, and not too often."""
        await asyncio.sleep(SETTLE_S)
        while self._has_changed:
            self._has_changed = False
            for watcher in list(self._watchers):
                try:
                    await watcher()
                except Exception as error:
                    log.warning("MCP server '%s': its tools stay as they were: %s", self.name, error)
            await asyncio.sleep(REFRESH_EVERY_S)


def _plain(number: float) -> float:
    return int(number) if number.is_integer() else number
