"""Programs from npm that tests run: installed once, into a cache folder that is never committed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright._impl._driver import compute_driver_executable

CACHE = Path(__file__).parents[3] / ".venv" / "node"
INSTALL_TIMEOUT_S = 180
"""Seconds for one install: some hundred MB from a registry that is slow today."""


class NodeMissingError(Exception):
    """There is no npm, or a package cannot be installed: the reason why a test is skipped."""


def installed(*packages: str) -> Path:
    """The `node_modules` that holds exactly these packages (`name@version`), installed if they are not there yet."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NodeMissingError("node and npm are not on the PATH")
    target = CACHE / "+".join(packages).replace("/", "-")
    modules = target / "node_modules"
    if modules.is_dir():
        return modules
    CACHE.mkdir(parents=True, exist_ok=True)
    with _alone(CACHE / ".lock"):
        if not modules.is_dir():
            _install(npm, packages, target)
    return modules


def node_22() -> Path:
    """A binary of Node 22 or later: that of the system, or the one that Playwright brings for itself."""
    system = shutil.which("node")
    if system is not None:
        told = subprocess.run([system, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
        if int(told.lstrip("v").partition(".")[0] or 0) >= 22:
            return Path(system)
    return Path(compute_driver_executable()[0])


def _install(npm: str, packages: tuple[str, ...], target: Path) -> None:
    """Into another folder first, so that one which is there is whole."""
    fresh = target.with_name(f".fresh-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        (fresh / "package.json").write_text('{"private": true}')
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", *packages]
        try:
            done = subprocess.run(
                command, cwd=fresh, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NodeMissingError(f"npm did not install {packages} in {INSTALL_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise NodeMissingError(f"npm cannot install {packages}: {done.stderr.strip()[-300:]}")
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time: test workers ask for the same packages at once."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
