"""Indices of sources beyond what is installed: directories, git repositories and index files, fetched with a bound and
kept for an hour."""

from __future__ import annotations

import json
import os
import time
import tomllib
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

from holdfast.alc.hub.index import INDEX_FILE, HubIndex, IndexEntry, index_of_tree, read_index
from holdfast.alc.hub.source_tree import MAX_FILE_BYTES, opened
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import SourceError
from holdfast.alc.packages.records import Records
from holdfast.alc.packages.sources import parse_source, public_url
from holdfast.core.errors import HoldfastError
from holdfast.programs.files import write_atomically
from holdfast.programs.paths import algocline_home

CACHE_S = 3600.0
"""Seconds for which an index from the network is used again."""

HTTP_TIMEOUT_S = 30.0
"""Seconds in which an index has to arrive."""

MAX_SOURCES = 50
"""Sources that one search asks: more would take minutes where they do not answer."""


def known_sources(where: PackageDirectories) -> list[str]:
    """The sources that somebody here has named: in the configuration, by registering them, or by installing from them.

    None other is asked: a search reaches the network only where the user has been before.
    """
    found: dict[str, None] = {}
    for home in dict.fromkeys((where.home, algocline_home(where.environ))):
        url = _collection_url(home / "config.toml")
        found |= dict.fromkeys([url] if url else [])
        found |= dict.fromkeys(_registered(home / "hub_registries.json"))
        records = Records(home)
        entries = [records.get(name) for name in records.names()]
        found |= dict.fromkeys(each.source.url for each in entries if each is not None and each.source.url)
    return list(found)[:MAX_SOURCES]


def _collection_url(config: Path) -> str:
    try:
        hub = tomllib.loads(config.read_text(encoding="utf-8")).get("hub")
    except (OSError, ValueError):
        return ""
    url = hub.get("collection_url") if isinstance(hub, dict) else None
    return url.strip() if isinstance(url, str) else ""


def _registered(file: Path) -> list[str]:
    try:
        raw = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    entries = raw.get("registries") if isinstance(raw, dict) else None
    sources = [each.get("source") for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    return [each for each in sources if isinstance(each, str) and each]


def merged_index(where: PackageDirectories, sources: Iterable[str], warnings: list[str]) -> list[IndexEntry]:
    """The packages of all sources; of several with one name, that of the first source. What fails is a warning."""
    entries: dict[str, IndexEntry] = {}
    for source in sources:
        try:
            for entry in fetch_index(where, source).packages:
                entries.setdefault(entry.name, entry)
        except (HoldfastError, OSError) as error:
            warnings.append(f"{public_url(source)}: {error}")
    return list(entries.values())


def fetch_index(where: PackageDirectories, source: str) -> HubIndex:
    """The index of a source: its `hub_index.json`, or made from its packages."""
    if os.path.isdir(os.path.expanduser(source)):
        return _index_of(source, where.environ)
    cache = where.home / "hub_cache" / f"{_fnv64(source)}.json"
    try:
        if 0 <= time.time() - cache.stat().st_mtime < CACHE_S:
            return read_index(cache.read_bytes(), source)
    except (OSError, SourceError):
        pass  # there is none, or one that cannot be read: it is fetched
    url = index_url(source)
    index = read_index(_download(url), public_url(source)) if url is not None else _index_of(source, where.environ)
    cache.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(cache, index.to_bytes())
    return index


def index_url(source: str) -> str | None:
    """The address of the index file of a source that has one on the web; None for what git has to fetch."""
    trimmed = source.rstrip("/").removesuffix(".git")
    if trimmed.startswith(("https://", "http://")) and trimmed.endswith(".json"):
        return trimmed
    if trimmed.startswith("https://github.com/"):
        parts = trimmed.removeprefix("https://github.com/").split("/")
        if len(parts) == 2 and all(parts):
            return f"https://raw.githubusercontent.com/{parts[0]}/{parts[1]}/main/{INDEX_FILE}"
    return None


def _index_of(source: str, environ: Mapping[str, str]) -> HubIndex:
    parse_source(source)  # refuses what git could take for an option or a command
    with opened(source, environ) as tree:
        data = tree.read(INDEX_FILE)
        return index_of_tree(tree) if data is None else read_index(data, tree.given)


def _opener() -> urllib.request.OpenerDirector:
    """What fetches from the web and nothing else: no redirection leads to a file of this machine."""
    opener = urllib.request.OpenerDirector()
    handlers: list[type[urllib.request.BaseHandler]] = [
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
    ]
    for handler in handlers:
        opener.add_handler(handler())
    opener.addheaders = [("User-Agent", "holdfast")]
    return opener


def _download(url: str) -> bytes:
    opener = _opener()
    try:
        with opener.open(url, timeout=HTTP_TIMEOUT_S) as reply:
            data: bytes = reply.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise SourceError(public_url(url), f"its index cannot be fetched ({error})") from None
    if len(data) > MAX_FILE_BYTES:
        raise SourceError(public_url(url), f"its index has more than {MAX_FILE_BYTES >> 20} MiB")
    return data


def _fnv64(text: str) -> str:
    digest = 0xCBF29CE484222325
    for byte in text.encode("utf-8", "replace"):
        digest = ((digest ^ byte) * 0x100000001B3) & (2**64 - 1)
    return f"{digest:016x}"
