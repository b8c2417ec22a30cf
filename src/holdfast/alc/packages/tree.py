"""The files of a package: copied safely, counted into a checksum, and put in place all at once."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.alc.packages.errors import UnsafePackageError
from holdfast.programs.files import sync_directory

MAX_FILES = 20_000
"""Files of one package; a hundred times the largest known, so that a wrong directory is noticed."""
MAX_BYTES = 512 << 20
"""Bytes of one package, for the same reason."""
MAX_DEPTH = 64
"""Directories inside each other."""

_LEFT_OUT = {".git"}
_STAGING = ".staging-"
_REPLACED = ".replaced-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def checksum(directory: Path) -> str:
    """A hash over the sorted paths and contents of a package, the same on every machine."""
    digest = hashlib.sha256()
    for path, kind in sorted(_walk(directory, directory.name), key=lambda found: os.fsencode(found[0])):
        file = directory / path
        content = os.fsencode(os.readlink(file)) if kind == "link" else b""
        size = len(content) if kind == "link" else file.stat().st_size
        digest.update(f"{kind} {size} ".encode() + os.fsencode(path) + b"\0" + content)
        if kind == "file":
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def copy_package(source: Path, target: Path, name: str) -> None:
    """Copy a whole package to a new directory. A link that leaves it, or anything but files, is refused."""
    target.mkdir(parents=True)
    files = size = 0
    top = source.resolve()
    for path, kind in _walk(source, name):
        files += 1
        origin, copy = source / path, target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            leads = os.readlink(origin)
            inside = not os.path.isabs(leads) and Path(os.path.realpath(origin)).is_relative_to(top)
            if not inside:
                raise UnsafePackageError(name, f"the link {path} leads out of the package, to {leads!r}")
            os.symlink(leads, copy)
            continue
        size += origin.stat().st_size
        if files > MAX_FILES or size > MAX_BYTES:
            raise UnsafePackageError(name, f"it has more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB")
        _copy_file(origin, copy, name)


def _copy_file(origin: Path, copy: Path, name: str) -> None:
    # O_NOFOLLOW: a file that became a link since it was looked at must not be followed.
    descriptor = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as source:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafePackageError(name, f"{origin.name} is no file any more")
        with copy.open("xb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            target.flush()
            os.fchmod(target.fileno(), 0o755 if found.st_mode & 0o100 else 0o644)
            os.fsync(target.fileno())  # so that after a power cut the renamed directory has its contents


def _walk(directory: Path, name: str, below: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The files and links of a package as (path, kind)."""
    if depth > MAX_DEPTH:
        raise UnsafePackageError(name, f"its directories are more than {MAX_DEPTH} deep")
    with os.scandir(directory / below) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.name in _LEFT_OUT:
                continue
            if entry.is_symlink():
                yield path, "link"
            elif entry.is_dir(follow_symlinks=False):
                yield from _walk(directory, name, path, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield path, "file"
            else:
                raise UnsafePackageError(name, f"{path} is neither a file nor a directory")


# --- in place, all at once ---------------------------------------------------------------------


@contextmanager
def staging(packages: Path) -> Iterator[Path]:
    """A directory beside the packages, on the same file system, removed when the work ends or its process has died."""
    packages.mkdir(parents=True, exist_ok=True)
    clear_stale(packages)
    directory, held = _own_directory(packages)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(held)


def _own_directory(packages: Path) -> tuple[Path, int]:
    while True:
        directory = packages / f"{_STAGING}{os.getpid()}-{secrets.token_hex(4)}"
        directory.mkdir()
        held = -1
        with contextlib.suppress(FileNotFoundError):
            held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.fstat(held).st_ino == directory.stat().st_ino:
                return directory, held
        if held >= 0:
            os.close(held)  # another process cleared it before it was locked


def clear_stale(packages: Path) -> list[str]:
    """Remove what killed processes left; a directory that somebody still works in is locked, and stays."""
    removed = []
    for directory in packages.glob(f"{_STAGING}*"):
        try:
            held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory.name)
        except BlockingIOError:
            pass
        finally:
            os.close(held)
    return removed


def put_in_place(staged: Path, target: Path) -> None:
    """Make a staged directory the one at `target`. Whoever looks, and whatever crashes, sees the old or the new one."""
    if not os.path.lexists(target):
        os.rename(staged, target)
    elif not _exchange(staged, target):
        aside = target.with_name(f"{_REPLACED}{target.name}")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(target, aside)  # a crash from here to the next line is mended by `finish_replacing`
        os.rename(staged, target)
        shutil.rmtree(aside, ignore_errors=True)
    sync_directory(target.parent)


def finish_replacing(packages: Path) -> None:
    """Put back what a crash left aside, on file systems that cannot exchange two directories at once."""
    for aside in packages.glob(f"{_REPLACED}*"):
        target = packages / aside.name.removeprefix(_REPLACED)
        if os.path.lexists(target):
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(aside, target)


def take_away(directory: Path, stage: Path) -> None:
    """Remove a directory so that it is there in full or not at all."""
    gone = stage / f"gone-{secrets.token_hex(4)}"
    os.rename(directory, gone)
    sync_directory(directory.parent)
    shutil.rmtree(gone, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two directories in one step; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    result = rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(second))
