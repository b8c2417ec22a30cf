"""A directory that somebody else wrote: fetched or read where it is, walked and read without leaving it.

Links are never followed, anything but files and directories is refused, and so is what is too deep, too large or too
much. Whoever publishes a tree decides nothing about the machine that reads it.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast.alc.packages.errors import SourceError
from holdfast.alc.packages.git import fetch
from holdfast.alc.packages.sources import parse_source, public_url

MAX_ENTRIES = 50_000
"""Files and directories of one tree: many times the largest known collection."""

MAX_DEPTH = 32
"""Directories inside each other."""

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Bytes of one file that is read as text: far above any module, index or card."""


class SourceTree:
    """The files of one source."""

    def __init__(self, root: Path, given: str, rev: str | None = None) -> None:
        self.root = root
        self.given = given
        """How the source was named, without a password."""
        self.rev = rev
        """The commit, where it is a repository."""
        self._descriptor_flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

    def directories(self, below: str = "") -> list[str]:
        """The names of the directories in one, sorted; links are none, and neither are hidden ones."""
        return sorted(
            entry.name for entry in self._entries(below) if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
        )

    def files(self, below: str = "") -> list[str]:
        """The names of the files in a directory, sorted; links are none."""
        return sorted(entry.name for entry in self._entries(below) if entry.is_file(follow_symlinks=False))

    def links(self, below: str = "") -> list[str]:
        """The names of the links in a directory, which are not followed."""
        return sorted(entry.name for entry in self._entries(below) if entry.is_symlink())

    def check(self) -> None:
        """Raise if the tree is too deep or too much, or has anything but files, directories and links."""
        seen = 0
        waiting = [("", 0)]
        while waiting:
            below, depth = waiting.pop()
            if depth > MAX_DEPTH:
                raise SourceError(self.given, f"its directories are more than {MAX_DEPTH} deep")
            for entry in self._entries(below):
                path = f"{below}/{entry.name}" if below else entry.name
                seen += 1
                if seen > MAX_ENTRIES:
                    raise SourceError(self.given, f"it has more than {MAX_ENTRIES} files")
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != ".git":
                        waiting.append((path, depth + 1))
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    raise SourceError(self.given, f"{path} is neither a file nor a directory")

    def read(self, *path: str) -> bytes | None:
        """A file; None if there is none. A link, also on the way to it, and a file that is too large are refused."""
        for part in path:
            if part in ("", ".", "..") or "/" in part or "\0" in part:
                raise SourceError(self.given, f"{'/'.join(path)!r} is not a file of it")
        place = self.root
        for part in path[:-1]:
            place = place / part
            if place.is_symlink():
                raise SourceError(self.given, f"{'/'.join(path)} is behind a link")
        name = "/".join(path)
        try:
            handle = os.open(place / path[-1], self._descriptor_flags)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SourceError(self.given, f"{name} cannot be read, or is a link ({error.strerror})") from None
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise SourceError(self.given, f"{name} is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise SourceError(self.given, f"{name} has more than {MAX_FILE_BYTES >> 20} MiB")
        return data

    def text(self, *path: str) -> str | None:
        """A file as text; what is no UTF-8 in it is replaced."""
        data = self.read(*path)
        return None if data is None else data.decode("utf-8", "replace")

    def _entries(self, below: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.root / below) as entries:
                found = []
                for entry in entries:
                    found.append(entry)
                    if len(found) > MAX_ENTRIES:
                        raise SourceError(self.given, f"it has more than {MAX_ENTRIES} files")
                return found
        except (FileNotFoundError, NotADirectoryError):
            return []


@contextmanager
def opened(given: str, environ: Mapping[str, str]) -> Iterator[SourceTree]:
    """The tree of a source, checked: a directory where it is, or a repository fetched for as long as it is used."""
    source = parse_source(given)
    if source.url is None:
        tree = SourceTree(Path(str(source.path)), given)
        tree.check()
        yield tree
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-source-") as folder:
        checkout = Path(folder) / "checkout"
        rev = fetch(source.url, source.rev, checkout, environ)
        tree = SourceTree(checkout, public_url(given), rev)
        tree.check()
        yield tree
