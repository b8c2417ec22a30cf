"""The resources of the hub: the index of what is installed, and the page of a package."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.alc.hub.documents import narrative
from holdfast.alc.hub.index import installed_entry
from holdfast.alc.lua.meta import read_source
from holdfast.alc.lua.packages import find_package, find_roots
from holdfast.alc.mcp.hub import installed_index
from holdfast.alc.mcp.package_list import cleaned
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.package_list import PackageEntry
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json, repaired
from holdfast.programs.names import invalid_name_reason
from holdfast.serve.mcp.resource import JSON, MARKDOWN, Resource, ResourceRequest
from holdfast.serve.mcp.tools import in_thread


async def _index(request: ResourceRequest) -> Json:
    return cleaned(msgspec.to_builtins(await installed_index(request.call, PackageDirectories())))


async def _narrative(request: ResourceRequest) -> str:
    name = request.names["name"]
    if (why := invalid_name_reason(name)) is not None:
        raise request.invalid(why)
    page: str | None = await in_thread(_page, request, name)
    if page is None:
        raise request.missing(f"no package '{name}' is installed")
    return page


def _page(request: ResourceRequest, name: str) -> str | None:
    try:
        package = find_package(find_roots(), name)
    except HoldfastError as error:  # a pin that is not met, a link that leaves its root
        raise request.missing(str(error)) from None
    if package is None:
        return None
    source = repaired(read_source(Path(package.directory) / "init.lua") or "")
    return repaired(narrative(installed_entry(PackageEntry(package, None), {}), source))


RESOURCES = (
    Resource("alc://hub/index", "The hub's index", "The packages that are installed here, as an index.", JSON, _index),
    Resource(
        "alc://packages/{name}/narrative",
        "A package's page",
        "What a package says of itself, for people and models: a page of Markdown.",
        MARKDOWN,
        _narrative,
    ),
)
