"""Finding spec files: which they are, and the root that their `require` and their `PWD` start from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.alc.specs.errors import NoSpecsError

_LOOKED_FOR = "spec/**/*_spec.lua and tests/**/test_*.lua"


@dataclass(frozen=True)
class Specs:
    """The spec files of a package or of a collection of packages."""

    root: Path
    """The directory that holds the packages: first on the require path, and the specs' `PWD`."""
    files: list[Path]
    """Sorted, each below the root."""
    package: Path | None = None
    """The package, if one was given and not a collection. Its own files can be required by their bare names."""

    @property
    def search_path(self) -> list[Path]:
        """Where `require` looks, in this order."""
        return [self.root] if self.package is None else [self.root, self.package]

    def name(self, file: Path) -> str:
        """What a file is called in results: its path from the root."""
        return file.relative_to(self.root).as_posix()


def discover(directory: Path, filter: str | None = None) -> Specs:
    """The specs of a package (a directory with an `init.lua`) or of a collection (a directory of packages).

    `filter` keeps files whose path from the root contains it. A spec file that is a link to another one counts as a
    file of its own, as it does for the tools that packages are published with. Raises `NoSpecsError` if none is left.
    """
    if not directory.is_dir():
        why = "a file; give the directory of the package, and --filter to choose files" if directory.exists() else ""
        raise NoSpecsError(str(directory), why or "there is no such directory")
    given = directory.resolve()
    package = given if (given / "init.lua").is_file() else None
    root = given if package is None else given.parent
    found = Specs(root, sorted(set(_spec_files(given))), package)
    if not found.files:
        raise NoSpecsError(
            str(directory), f"no spec files in it or in the packages below it (looked for {_LOOKED_FOR})"
        )
    if filter is None:
        return found
    kept = [file for file in found.files if filter in found.name(file)]
    if not kept:
        raise NoSpecsError(str(directory), f"none of its {len(found.files)} spec files has '{filter}' in its path")
    return Specs(root, kept, package)


def _spec_files(directory: Path) -> Iterator[Path]:
    for home in [directory, *_visible_folders(directory)]:
        yield from spec_files_below(home / "spec")
        for folder in _below(home / "tests"):
            yield from _files(folder, "test_*.lua")


def spec_files_below(folder: Path) -> Iterator[Path]:
    """The files that end with `_spec.lua` in a folder and below it."""
    for each in _below(folder):
        yield from _files(each, "*_spec.lua")


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    yield from (file for file in folder.glob(pattern) if file.is_file())


def _below(folder: Path) -> Iterator[Path]:
    """A folder and all below it. Links to folders are not followed: they may lead around in a circle."""
    if folder.is_dir():
        yield folder
        for inner in _visible_folders(folder):
            if not inner.is_symlink():
                yield from _below(inner)


def _visible_folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
