"""Lua packages of a server: listed, checked and, where its operator allows that, installed and removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from holdfast.client.api_client import ApiClient
from holdfast.client.reports import InstalledReport, PackagesReport, RemovedReport


class PackagesClient:
    """What a server is asked about its packages."""

    _client: ApiClient

    async def packages(self) -> PackagesReport:
        """The Lua packages of the server, and where each comes from."""
        return msgspec.convert(await self._client.get("/packages"), PackagesReport)

    async def check_packages(self) -> dict[str, Any]:
        """What is wrong with the packages: their files, requirements, checksums and links.

        The token has to be an administrator's.
        """
        report: dict[str, Any] = await self._client.get("/packages/doctor")
        return report

    async def install_packages(
        self, sources: Sequence[str], *, name: str | None = None, force: bool = False
    ) -> InstalledReport:
        """Install packages from git repositories, each `URL` or `URL@REV`.

        The token has to be an administrator's, and the server must have been started with `--allow-packages`.
        """
        body = {"sources": list(sources), "name": name, "force": force}
        return msgspec.convert(await self._client.post("/packages/install", body), InstalledReport)

    async def remove_package(
        self, name: str, *, scope: Literal["project", "global", "all"] | None = None
    ) -> RemovedReport:
        """Remove a package: from the server's project if that names it, else from its user's directory.

        As for `install_packages`, the server has to allow it.
        """
        path = f"/packages/{quote(name, safe='')}"
        return msgspec.convert(await self._client.request("DELETE", path, params={"scope": scope}), RemovedReport)
