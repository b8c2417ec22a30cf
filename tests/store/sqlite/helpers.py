"""What the tests of the SQLite file share: changes made behind its back, and other processes that use it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.patience import HANG_S

LARGE = "large " * 1_000


def edit(path: str, *statements: str) -> None:
    """Change the file as someone with the sqlite3 shell would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def found(path: str, query: str) -> list[tuple[Any, ...]]:
    """What somebody finds in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def settle(path: str) -> None:
    """Put everything into the one file, so that it can be copied or cut."""
    edit(path)
    assert not os.path.exists(f"{path}-wal")


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process with Holdfast in it."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> str:
    """The next line a process says."""
    assert process.stdout
    return process.stdout.readline().removesuffix("\n")


def lines_until_end(process: subprocess.Popen[str]) -> list[str]:
    """What a process said until its end, which must be a good one."""
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    return out.splitlines()


async def refused_to_open(path: str, error: type[Exception]) -> str:
    store = SqliteStore(path)
    with pytest.raises(error) as caught:
        await store.open()
    assert str(path) in str(caught.value)
    return str(caught.value)
