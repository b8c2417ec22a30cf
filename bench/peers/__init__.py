"""Other runtimes on the same work, each in an environment of its own. Here: the work, and what an adapter has to offer.

The program is the same for every peer: it asks N questions one after another, 1 KB out and 1 KB in, and ends with a
digest of the answers. An answer is acknowledged when it is durable and the next question can be seen. Modules here run
in the peers' interpreters, so none but `holdfast_peer` may need Holdfast.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

from bench import texts

TEXT_BYTES = 1024
"""Bytes of a question, and of an answer."""

RUNS = "HOLDFAST_BENCH_RUNS"
"""The environment variable with the file in which every run of the program's code between two questions is counted."""

TORN = "torn"
"""What is pending where an answer was stored, and the question that follows was not."""

Shown: TypeAlias = str | tuple[str, str]
"""A question, or `("done", digest)`."""

Pending: TypeAlias = int | str | None
"""The number of the question that is pending; None after the last one; or `TORN`."""


class Peer(Protocol):
    """A runtime with the program in it, on one SQLite file."""

    async def open(self, db: Path) -> None: ...

    async def close(self) -> None: ...

    async def start(self, session: str, pauses: int) -> Shown: ...

    async def feed(self, session: str, number: int, answer: str) -> Shown: ...

    async def pending(self, session: str) -> Pending:
        """What a session waits for, from what is stored."""
        ...

    async def mend(self, session: str) -> None:
        """Bring a torn session to its next question."""
        ...


def question(session: str, number: int) -> str:
    return _text(f"Q {session} {number} ", number)


def answer(session: str, number: int) -> str:
    return _text(f"A {session} {number} ", number + 128)


def _text(head: str, number: int) -> str:
    bodies = texts(TEXT_BYTES)
    return head + bodies[number % len(bodies)][len(head) :]


def digest(answers: Iterable[str]) -> str:
    found = hashlib.sha256()
    for each in answers:
        found.update(each.encode())
    return found.hexdigest()[:16]


def expected(session: str, pauses: int) -> str:
    """The digest that a session of so many questions has to end with."""
    return digest(answer(session, number) for number in range(pauses))


def ran(session: str, number: int) -> None:
    """The code of the program between two questions: counts that it ran, where that is asked for."""
    if RUNS in os.environ:
        with open(os.environ[RUNS], "a") as file:
            file.write(f"{session} {number}\n")
