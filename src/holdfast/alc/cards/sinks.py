"""Mirrors of the cards: every write is copied to them, one after the other, and what fails is only counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from holdfast.alc.cards.errors import CardError, InvalidSinkError, UnknownSinkError
from holdfast.alc.cards.files import CardFiles, card_id_of, samples_path
from holdfast.core.values import Json, repaired

Kind: TypeAlias = Literal["created", "appended", "samples", "aliases"]
KINDS: tuple[Kind, ...] = ("created", "appended", "samples", "aliases")


def sinks_from(text: str) -> list[Path]:
    """The directories that a list of `file:///absolute/path` URIs separated by `|` names, each once."""
    entries = [entry.strip() for entry in text.split("|")]
    return list(dict.fromkeys(_sink_path(entry) for entry in entries if entry))


def _sink_path(entry: str) -> Path:
    scheme, colon, rest = entry.partition(":")
    if not colon:
        raise InvalidSinkError(entry, "it is not a URI")
    if scheme != "file":
        raise InvalidSinkError(entry, f"the scheme '{scheme}' is not known")
    if not rest.startswith("//"):
        raise InvalidSinkError(entry, "the '//' after 'file:' is missing")
    host, slash, _ = rest[2:].partition("/")
    if host or not slash:
        raise InvalidSinkError(entry, f"'{host}' would be the name of a host" if host else "it has no path")
    path = rest[2:]
    if any(not _is_hex(piece[:2]) for piece in path.split("%")[1:]):
        raise InvalidSinkError(entry, "a '%' is not followed by two hex digits")
    try:
        decoded = unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        raise InvalidSinkError(entry, "the path is not UTF-8") from None
    if "\0" in decoded:
        raise InvalidSinkError(entry, "the path holds a NUL")
    return Path(decoded)


def _is_hex(digits: str) -> bool:
    return len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits)


def sink_uri(path: Path) -> str:
    """How a mirror is named in reports and in lists: only what would be read as something else is coded."""
    return "file://" + str(path).replace("%", "%25").replace("|", "%7C")


class _Sink:
    """One mirror and its counters."""

    def __init__(self, path: Path) -> None:
        self.files = CardFiles(path)
        self.uri = sink_uri(self.files.directory)
        self._ok = dict.fromkeys(KINDS, 0)
        self._err = dict.fromkeys(KINDS, 0)
        self._last_error: Json = None
        self._counting = threading.Lock()

    def take(self, kind: Kind, source: Path, relative: Path) -> str | None:
        """Copy a file here; the message if that failed."""
        try:
            self.files.copy_from(source, self.files.directory / relative)
        except CardError as error:
            message = repaired(str(error))
            with self._counting:
                self._err[kind] += 1
                self._last_error = {"kind": kind, "msg": message, "ts_ms": time.time_ns() // 1_000_000}
            return message
        with self._counting:
            self._ok[kind] += 1
        return None

    def stats(self) -> dict[str, Json]:
        with self._counting:
            last_error = dict(self._last_error) if self._last_error else None
            return {"sink": self.uri, "ok": dict(self._ok), "err": dict(self._err), "last_error": last_error}


class Sinks:
    """All mirrors of one directory of cards."""

    def __init__(self, primary: CardFiles, paths: Sequence[Path]) -> None:
        self._primary = primary
        self._sinks: list[_Sink] = []
        for path in paths:
            sink = _Sink(path)
            if sink.files.directory == primary.directory:
                raise InvalidSinkError(sink.uri, "it is the card directory itself")
            self._sinks.append(sink)

    def mirror(self, kind: Kind, source: Path) -> None:
        """Copy a file that was written to every mirror. What fails is counted, and no error."""
        for sink in self._sinks:
            sink.take(kind, source, self._relative(source))

    def stats(self) -> list[Json]:
        """What each mirror took and missed in this process."""
        return sorted((sink.stats() for sink in self._sinks), key=lambda row: str(row["sink"]))

    def backfill(self, uri: str, dry_run: bool) -> Json:
        """Copy what a mirror lacks. What it has is left as it is, even if it differs."""
        sink = self._find(uri)
        pushed: list[str] = []
        skipped: list[str] = []
        failed: list[list[str]] = []
        pushed_samples: list[str] = []
        for card in self._primary.all():
            card_id = card_id_of(card)
            there = sink.files.find(card_id)
            if there is not None:
                skipped.append(card_id)
            elif (message := None if dry_run else sink.take("created", card, self._relative(card))) is not None:
                failed.append([card_id, message])
                continue
            else:
                pushed.append(card_id)
            samples = samples_path(card)
            target = samples_path(there) if there else sink.files.directory / self._relative(samples)
            if not samples.is_file() or target.is_file():
                continue
            relative = target.relative_to(sink.files.directory)
            if (message := None if dry_run else sink.take("samples", samples, relative)) is not None:
                failed.append([card_id, f"samples: {message}"])
            else:
                pushed_samples.append(card_id)
        return {
            "sink": uri,
            "pushed": pushed,
            "skipped": skipped,
            "failed": failed,
            "pushed_samples": pushed_samples,
        }

    def _find(self, uri: str) -> _Sink:
        try:
            wanted = sinks_from(uri)
        except InvalidSinkError:
            wanted = []
        for sink in self._sinks:
            if wanted == [sink.files.directory]:
                return sink
        raise UnknownSinkError(uri, [sink.uri for sink in self._sinks])

    def _relative(self, path: Path) -> Path:
        return path.relative_to(self._primary.directory)
