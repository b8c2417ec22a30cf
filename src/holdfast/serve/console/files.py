"""The built files of the console as a table that is made once. No path that a client sends is joined to a directory."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BUILT = Path(__file__).parent / "built"
"""Where `make web` puts what it builds."""

PAGES = frozenset(
    ("inbox", "sessions", "s", "compare", "chat", "strategies", "evals", "workers", "costs", "a", "settings")
)
"""The first parts of the paths of the console's pages, `/` apart. All of them are shown by the same document."""

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""What each file of the console is sent with: nothing but its own files runs, and no request leaves for elsewhere."""

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}

_DOCUMENT, _DIGEST = "index.html", "sources.txt"


@dataclass(frozen=True)
class ConsoleFile:
    """One built file."""

    content: bytes
    media_type: str
    is_immutable: bool
    """Whether its name changes with its content, so that a browser may keep it for ever."""

    @property
    def cache_control(self) -> str:
        return "public, max-age=31536000, immutable" if self.is_immutable else "no-cache"


@cache
def console_files() -> dict[str, ConsoleFile]:
    """All built files except the document, by their paths below the root: `/assets/…`, `/favicon.svg`."""
    found: dict[str, ConsoleFile] = {}
    for file in sorted(BUILT.rglob("*")):
        name = file.relative_to(BUILT).as_posix()
        if file.is_file() and name not in (_DOCUMENT, _DIGEST):
            kind = _MEDIA_TYPES.get(file.suffix, "application/octet-stream")
            found[f"/{name}"] = ConsoleFile(file.read_bytes(), kind, name.startswith("assets/"))
    return found


@cache
def console_page(root: str = "") -> ConsoleFile:
    """The document of every page, for a console that is mounted below `root` (`""`, `/holdfast`)."""
    at = html.escape(root.rstrip("/"), quote=True)
    text = (BUILT / _DOCUMENT).read_text()
    text = text.replace('"./', f'"{at}/').replace('name="root" content=""', f'name="root" content="{at}"')
    return ConsoleFile(text.encode(), _MEDIA_TYPES[".html"], False)


def is_page(path: str) -> bool:
    """Whether a path below the root is one of a page of the console."""
    return path == "/" or (path.startswith("/") and path[1:].partition("/")[0] in PAGES)


def built_from() -> str:
    """The digest of the sources that the built files were made from."""
    return (BUILT / _DIGEST).read_text().strip()


def sources_digest(web: Path) -> str:
    """The digest of the sources in `web/`: of the name and the content of each file that the build reads."""
    digest = hashlib.sha256()
    for file in sorted(_sources(web), key=lambda each: each.relative_to(web).as_posix()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(web).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def _sources(web: Path) -> Iterable[Path]:
    for folder in ("src", "public"):
        yield from (each for each in (web / folder).rglob("*") if each.is_file())
    yield from (web / name for name in ("index.html", "package.json", "tsconfig.json", "vite.config.ts"))
