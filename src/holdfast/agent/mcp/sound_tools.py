"""Takes tools that violate the protocol out of a server's listings, so that one of them does not refuse the others.

The client of `mcp` validates a listing as a whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, Tool
from pydantic import ValidationError

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams


@asynccontextmanager
async def with_sound_tools(
    streams: AbstractAsyncContextManager[TransportStreams], on_malformed: Callable[[list[str]], None]
) -> AsyncIterator[TransportStreams]:
    """The streams of a transport. The names of tools that were taken out go to `on_malformed`."""
    async with streams as (read, write):
        yield _SoundTools(read, on_malformed), write


class _SoundTools:
    """What a server says, with only those tools in its listings that are as the protocol wants them."""

    def __init__(
        self, inner: ReadStream[SessionMessage | Exception], on_malformed: Callable[[list[str]], None]
    ) -> None:
        self._inner = inner
        self._on_malformed = on_malformed

    @property
    def last_context(self) -> Any:
        """The context of the sender, which the client of `mcp` looks for."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._sifted(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._sifted(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def _sifted(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        match item:
            case SessionMessage(message=JSONRPCResponse(result={"tools": list() as listed} as result)):
                problems = [_malformed_name(each) for each in listed]
                if any(problems):
                    result["tools"] = [each for each, name in zip(listed, problems, strict=True) if name is None]
                    self._on_malformed([name for name in problems if name is not None])
            case _:
                pass
        return item


def _malformed_name(tool: Any) -> str | None:
    """The name of a tool that violates the protocol, or what stands for it; None if it does not."""
    try:
        Tool.model_validate(tool, by_name=False)
    except ValidationError:
        name = tool.get("name") if isinstance(tool, dict) else None
        return name if isinstance(name, str) and name else "(without a name)"
    return None
