"""Where the tools for packages work: the user's directory, and the project that a call names."""

from __future__ import annotations

from holdfast.alc.packages.directories import PackageDirectories
from holdfast.serve.mcp.directories import directory


def directories_of(project_root: str | None) -> PackageDirectories:
    """The directories of a call. A project that is named and not there is an error: no other one is taken for it."""
    if project_root is None:
        return PackageDirectories()
    return PackageDirectories(directory(project_root, "project_root"))
