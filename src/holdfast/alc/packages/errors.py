"""What can go wrong when packages are managed, one class a kind."""

from __future__ import annotations

from holdfast.core.errors import ExitCode, HoldfastError


class PackageNameError(HoldfastError):
    """A name that no package may have."""

    name: str
    why: str
    kind = "invalid_package_name"

    def __str__(self) -> str:
        return f"invalid package name {self.name[:80]!r}: {self.why}"


class PackageNotFoundError(HoldfastError):
    """No package has this name, where it was looked for."""

    name: str
    why: str
    kind = "package_not_found"
    exit_code = ExitCode.NOT_FOUND

    def __str__(self) -> str:
        return f"package '{self.name}' not found: {self.why}"


class PackageExistsError(HoldfastError):
    """Something is already there, and would be lost."""

    name: str
    path: str
    why: str
    kind = "package_exists"
    exit_code = ExitCode.CONFLICT

    def __str__(self) -> str:
        return f"package '{self.name}' is already at {self.path}: {self.why}"


class UnsafePackageError(HoldfastError):
    """The files of a package may not be copied."""

    name: str
    why: str
    kind = "unsafe_package"

    def __str__(self) -> str:
        return f"package '{self.name}' is refused: {self.why}"


class SourceError(HoldfastError):
    """A source that has no package, or cannot be understood."""

    source: str
    why: str
    kind = "package_source"

    def __str__(self) -> str:
        return f"cannot install from {self.source!r}: {self.why}"


class GitError(HoldfastError):
    """git could not do what it was asked."""

    url: str
    why: str
    kind = "git"
    exit_code = ExitCode.UNAVAILABLE

    def __str__(self) -> str:
        return f"git: {self.url}: {self.why}"


class ProjectFileError(HoldfastError):
    """A project, or one of its files, is missing or cannot be used."""

    path: str
    why: str
    kind = "project_file"

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
