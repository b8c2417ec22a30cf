"""Endpoints about Lua packages: which there are, whether they are sound, and, where that is allowed, changing them."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from holdfast.client.reports import InstalledReport, PackagesReport, RemovedReport
from holdfast.programs.kinds import load_object
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, Parameters, RequestBody
from holdfast.serve.http.problems import ApiError

endpoints = Endpoints()

_PACKAGES = "holdfast.alc.packages"
"""Where packages are at home, imported when the first one is asked for."""

_SCHEMES = ("https://", "http://", "ssh://", "git://")
"""How the address of a repository begins."""


class InstallBody(RequestBody, frozen=True, kw_only=True):
    """Where packages come from."""

    sources: list[str]
    """Git repositories, each `URL` or `URL@REV`. Directories of the server are not taken."""
    name: str | None = None
    """The name of a single package."""
    force: bool = False
    """Replace packages that came from elsewhere."""


class RemoveParameters(Parameters, frozen=True, kw_only=True):
    """Where a package is removed from."""

    scope: Literal["project", "global", "all"] | None = None
    """`project`, if that names it, else `global`."""


@endpoints.add("GET", "/packages", "strategies:read", reply=PackagesReport)
async def list_packages(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the Lua packages of this server, and where each comes from."""
    listing, fill_in = _part("package_list:listing"), _part("run_meta:fill_in")
    found = await asyncio.to_thread(lambda: listing(_directories()))
    await fill_in(found)
    shown = [_public(each.to_json()) for each in found.packages]
    return JsonReply(PackagesReport(shown, found.warnings))


@endpoints.add("GET", "/packages/doctor", "admin", reply=dict[str, Any])
async def check_packages(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Check every package: its files, requirements, checksum and links."""
    report = await asyncio.to_thread(lambda: _part("health:doctor")(_directories()))
    return JsonReply(report.to_json())


@endpoints.add("POST", "/packages/install", "admin", body=InstallBody, reply=InstalledReport)
async def install_packages(call: ApiCall[NoParameters, InstallBody]) -> JsonReply:
    """Install packages from git repositories, if the server was started with `--allow-packages`."""
    _check_allowed(call)
    body = call.body
    for source in body.sources:
        if not source.startswith(_SCHEMES):
            why = f"'{source[:200]}' is no URL of a repository; directories of a server are installed there"
            raise ApiError(403, "forbidden", why)
    options = _part("install:Options")(name=body.name, force=body.force, in_project=False)
    report = await asyncio.to_thread(lambda: _part("install:install")(_directories(), body.sources, options))
    packages = [msgspec.to_builtins(each) for each in report.packages]
    return JsonReply(InstalledReport(packages, [str(each) for each in report.errors], report.warnings))


@endpoints.add("DELETE", "/packages/{name}", "admin", query=RemoveParameters, reply=RemovedReport)
async def remove_package(call: ApiCall[RemoveParameters, None]) -> JsonReply:
    """Remove a package, if the server was started with `--allow-packages`."""
    _check_allowed(call)
    name, scope = call.path["name"], call.query.scope
    report = await asyncio.to_thread(lambda: _part("links:remove")(_directories(), name, scope=scope))
    return JsonReply(RemovedReport(report.removed, report.scope))


def _part(home: str) -> Any:
    return load_object(f"{_PACKAGES}.{home}")


def _directories() -> Any:
    return _part("directories:PackageDirectories")()


def _check_allowed(call: ApiCall[Any, Any]) -> None:
    if "packages" not in call.door.features:
        why = "a package is code: start the server with `--allow-packages` to change them over HTTP"
        raise ApiError(403, "forbidden", why)


def _public(shown: dict[str, Any]) -> dict[str, Any]:
    """A package without the paths of this machine."""
    paths = ("path", "resolved_source_path", "link_target", "source", "install_source")
    return {key: value for key, value in shown.items() if key not in paths}
