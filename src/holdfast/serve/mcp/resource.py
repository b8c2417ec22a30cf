"""What a resource of the server is: a template of URIs, and a function that reads what is behind one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from holdfast.core.values import Json
from holdfast.serve.mcp.tools import McpCall
from holdfast.serve.mcp.uris import InvalidUriError, ResourceNotFoundError, UriParameter, UriTemplate

LUA = "text/x-lua"
PYTHON = "text/x-python"
JSON = "application/json"
MARKDOWN = "text/markdown"


@dataclass(frozen=True)
class ResourceRequest:
    """What was asked for: the holes of a template filled in."""

    call: McpCall
    uri: str
    names: Mapping[str, str]
    numbers: Mapping[str, int]

    def missing(self, why: str) -> ResourceNotFoundError:
        return ResourceNotFoundError(self.uri, why)

    def invalid(self, why: str) -> InvalidUriError:
        return InvalidUriError(self.uri, why)


@dataclass(frozen=True)
class Resource:
    """One resource, or a template of many."""

    template: str
    title: str
    description: str
    mime: str
    read: Callable[[ResourceRequest], Awaitable[Json]]
    numbers: tuple[UriParameter, ...] = ()
    is_there: Callable[[], bool] = lambda: True
    """Whether a resource without holes can be read now."""

    @property
    def pattern(self) -> UriTemplate:
        return UriTemplate(self.template)

    @property
    def name(self) -> str:
        path = self.template.partition("{?")[0].partition("://")[2]
        return path.replace("{", "").replace("}", "").replace("/", "-")
