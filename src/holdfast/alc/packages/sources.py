"""What the source of an install means: a directory here, or a git repository at a revision."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from holdfast.alc.packages.errors import SourceError

_SCP = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!//)[^\s:]+", re.ASCII)
_SCHEME = re.compile(r"(?:https?|ssh|git|file)://\S+", re.ASCII)
_HOST_PATH = re.compile(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?/\S+", re.ASCII)
_REV_AFTER_GIT = re.compile(r"(?P<url>.+\.git)@(?P<rev>[^@]+)")
_REV_AT_END = re.compile(r"(?P<url>.*[/:][^/@:]+)@(?P<rev>[^/@:]+)")
_REV = re.compile(r"[A-Za-z0-9_][\w./+-]{0,250}", re.ASCII)


class SourceAddress(msgspec.Struct, frozen=True):
    """Where packages come from. `url` for git, `path` for a directory."""

    given: str
    path: str | None = None
    url: str | None = None
    rev: str | None = None

    @property
    def base_name(self) -> str:
        """The last part of the place, which names a package that does not name itself."""
        last = re.split(r"[/:]", (self.url or self.path or "").rstrip("/"))[-1]
        return last.removesuffix(".git")


def parse_source(given: str, rev: str | None = None) -> SourceAddress:
    """The source that someone wrote, with `URL@rev` taken apart."""
    if not given.strip() or given.startswith("-") or "\0" in given or "::" in given:
        raise SourceError(given, "give a directory or the URL of a git repository")
    directory = Path(os.path.abspath(os.path.expanduser(given)))
    if directory.is_dir():
        if rev is None and not _is_bare(directory):
            return SourceAddress(given, path=str(directory))
        return SourceAddress(given, url=str(directory), rev=_checked(given, rev))
    url = given
    if rev is None:
        match = _REV_AFTER_GIT.fullmatch(given) or _REV_AT_END.fullmatch(given)
        if match is not None:
            url, rev = match["url"], match["rev"]
    _checked(given, rev)
    local = Path(os.path.abspath(os.path.expanduser(url)))
    if _SCHEME.fullmatch(url):
        return SourceAddress(given, url=url, rev=rev)
    if local.is_dir():  # `./repository@v1`
        return SourceAddress(given, url=str(local), rev=rev)
    if given.startswith(("/", "./", "../", "~")) or given in (".", ".."):
        raise SourceError(given, "there is no such directory")
    if _SCP.fullmatch(url):
        return SourceAddress(given, url=url, rev=rev)
    if _HOST_PATH.fullmatch(url):
        return SourceAddress(given, url=f"https://{url}", rev=rev)
    raise SourceError(given, "there is no such directory, and it is not the URL of a git repository")


def public_url(url: str) -> str:
    """A URL without a password or token in it, as it may be kept in files that others read."""
    return re.sub(r"^(https?://)[^/@]*@", r"\1", url)


def _checked(given: str, rev: str | None) -> str | None:
    if rev is not None and (not _REV.fullmatch(rev) or ".." in rev):
        raise SourceError(given, f"{rev[:80]!r} is not a branch, a tag or a commit")
    return rev


def _is_bare(directory: Path) -> bool:
    return (directory / "HEAD").is_file() and (directory / "objects").is_dir() and (directory / "refs").is_dir()
