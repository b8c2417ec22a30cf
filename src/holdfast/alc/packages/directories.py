"""Where packages are managed: the user's directory and the project, looked up once for each operation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.alc.lua.packages import Roots, find_roots
from holdfast.programs.paths import find_project, home


@dataclass(frozen=True)
class PackageDirectories:
    """The directories of one operation, from an environment and from the project if one is named."""

    project: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def home(self) -> Path:
        """Holdfast's app directory."""
        return home(self.environ)

    @property
    def packages(self) -> Path:
        """The directory into which packages are installed."""
        return self.home / "packages"

    @property
    def root(self) -> Path | None:
        """The root of the project, if there is one."""
        return find_project(self.project, self.environ)

    def roots(self) -> Roots:
        """Where `require` looks now."""
        return find_roots(self.project, self.environ)
