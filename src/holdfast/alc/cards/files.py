"""The files of the cards: written whole or not at all, created once, read with a bound, locked while they change."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.alc.cards.errors import CardFilesError, UnreadableCardError
from holdfast.alc.cards.limits import LOCK_WAIT_S
from holdfast.alc.cards.names import check_name

CARD_SUFFIX = ".toml"
SAMPLES_SUFFIX = ".samples.jsonl"

_CHUNK_BYTES = 1024 * 1024
_LOCK_POLL_S = 0.005


class CardFiles:
    """One directory of cards: `<package>/<card id>.toml`, its samples beside it, and the alias table.

    - A file appears under its name complete and synced. A writer that was killed may leave a `.saving-….tmp` file,
      which is never read or listed and may be removed.
    - `create` succeeds for one caller only, in whichever process.
    - What cannot be used raises `CardFilesError`, a file that cannot be read `UnreadableCardError`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()

    # --- finding ---------------------------------------------------------------------------------

    def card_path(self, pkg: str, card_id: str) -> Path:
        return self.directory / check_name(pkg, "pkg") / (check_name(card_id, "card_id") + CARD_SUFFIX)

    def find(self, card_id: str) -> Path | None:
        """The file of a card, in whichever package it is; in the first by name if there are several."""
        name = check_name(card_id, "card_id") + CARD_SUFFIX
        with self.guarded():
            return next((path for folder in self._folders(None) if (path := folder / name).is_file()), None)

    def all(self, pkg: str | None = None) -> Iterator[Path]:
        """The files of all cards, or of one package's, by package and name."""
        with self.guarded():
            for folder in self._folders(pkg):
                yield from (folder / name for name in _names(folder) if name.endswith(CARD_SUFFIX))

    def _folders(self, pkg: str | None) -> Iterator[Path]:
        names = _names(self.directory) if pkg is None else [check_name(pkg, "pkg")]
        return (folder for name in names if (folder := self.directory / name).is_dir())

    # --- reading ---------------------------------------------------------------------------------

    def read(self, path: Path, most: int) -> bytes | None:
        """The bytes of a file, None if there is no such file."""
        with self.guarded(), open_regular(path) as handle:
            if handle is None:
                return None
            size = os.fstat(handle).st_size
            if size > most:
                raise UnreadableCardError(str(path), f"it has {size} bytes, and at most {most} are read")
            return b"".join(_chunks(handle))

    # --- writing ---------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other writers of this directory out, in this process and in others."""
        with self.guarded():
            make_directory(self.directory)
            handle = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._wait_for(handle)
                yield
            finally:
                os.close(handle)

    def _wait_for(self, handle: int) -> None:
        give_up_at = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up_at:
                    why = f"another process has been writing to it for {LOCK_WAIT_S:.0f} seconds; see whether it hangs"
                    raise CardFilesError(str(self.directory), why) from None
            time.sleep(_LOCK_POLL_S)

    def create(self, path: Path, pieces: Iterable[bytes]) -> bool:
        """Write a new file; False, and nothing is written, if there is one of that name."""
        with self.guarded(), _temporary(path, pieces) as written:
            try:
                os.link(written, path)
            except FileExistsError:
                return False
        self.settle(path)
        return True

    def replace(self, path: Path, pieces: Iterable[bytes]) -> None:
        """Write a file, in place of the one that may be there."""
        with self.guarded(), _temporary(path, pieces) as written:
            os.replace(written, path)
        self.settle(path)

    def settle(self, path: Path) -> None:
        """Make the name of a file durable: without this, power loss could undo it."""
        with self.guarded():
            _sync(path.parent)

    def copy_from(self, source: Path, path: Path) -> None:
        """Write a file with what another has, also if that is replaced meanwhile."""
        with self.guarded():
            while True:
                with open_regular(source) as handle:
                    if handle is None:
                        raise UnreadableCardError(str(source), "it is gone")
                    self.replace(path, _chunks(handle))
                    copied = os.fstat(handle)
                # A later writer may have copied its file before us, and we have put the older one over it.
                if os.path.samestat(copied, os.stat(source)):
                    return

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn what the system refuses into an error that names the directory."""
        try:
            yield
        except OSError as error:
            raise CardFilesError(str(self.directory), str(error)) from error


def samples_path(card: Path) -> Path:
    """Where the samples of a card are."""
    return card.with_name(card_id_of(card) + SAMPLES_SUFFIX)


def card_id_of(card: Path) -> str:
    """The id of a card, from the name of its file."""
    return card.name.removesuffix(CARD_SUFFIX)


@contextmanager
def open_regular(path: Path) -> Iterator[int | None]:
    """A regular file opened for reading, None if it is not there. The handle is closed at the end."""
    try:
        # Without O_NONBLOCK, opening a pipe that somebody put here would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise UnreadableCardError(str(path), "it is not a regular file")
        yield handle
    finally:
        os.close(handle)


def _chunks(handle: int) -> Iterator[bytes]:
    while chunk := os.read(handle, _CHUNK_BYTES):
        yield chunk


def _names(folder: Path) -> list[str]:
    """Sorted names in a folder. Those that are not valid Unicode are no card's and are left out."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if name.isascii() or _is_unicode(name))


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _temporary(path: Path, pieces: Iterable[bytes]) -> Iterator[Path]:
    """A synced file beside `path` with these bytes; removed at the end unless it was renamed."""
    make_directory(path.parent)
    temporary = path.with_name(f".saving-{secrets.token_hex(8)}.tmp")
    # Unlike those of `tempfile`, these files may be read by whom the umask allows: cards are shared.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, durably."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        _sync(directory.parent)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
