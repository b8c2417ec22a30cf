"""SeamObserver: the places right before and after something becomes durable, noted down, and died at.

    seams = SeamObserver(Path("trace"), deadly=Seam("checkout", "after feed", 2))
    async with holdfast.open(seams.guard(open_store(url)), seam=seams) as hf:
        seams.step = "checkout"
        ...

The process kills itself with SIGKILL the second time that an answer has become durable in the step `checkout`. Without
a deadly seam the run is only traced, and `read_trace` gives all the places at which it could have died.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.errors import HoldfastError
from holdfast.engine.process_rows import NAMESPACE as PRESENCE
from holdfast.store import Store


class Seam(NamedTuple):
    """The n-th time (counted from 1) that a seam is reached in a step of a scenario."""

    step: str
    name: str
    number: int


_WRITES = (
    "append",
    "fork",
    "send",
    "delete",
    "release",
    "put_state",
    "delete_state",
    "repair",
)
"""What a store does that outlives the process."""

_committing: ContextVar[bool] = ContextVar("committing", default=False)


class SeamObserver:
    """Notes every seam that is reached, and dies at one of them. Given to `holdfast.open` as `seam`."""

    def __init__(
        self, trace: Path, deadly: Seam | None = None, refused: Callable[[str, str], None] | None = None
    ) -> None:
        """`refused` is called with the session and the kind of error for each write that the store refused."""
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._deadly = deadly
        self._refused = refused
        self._counts: Counter[tuple[str, str]] = Counter()
        self._listeners: dict[str, Callable[[], None]] = {}
        self.step = ""

    async def __call__(self, name: str) -> None:
        self._counts[self.step, name] += 1
        seam = Seam(self.step, name, self._counts[self.step, name])
        os.write(self._trace, (json.dumps(seam) + "\n").encode())
        if seam == self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        _committing.set(name.startswith("before ") and not name.endswith(" effect"))
        if name in self._listeners:
            self._listeners[name]()

    def at(self, name: str, do: Callable[[], None]) -> None:
        """Do something each time a seam of that name is reached."""
        self._listeners[name] = do

    def guard(self, store: Store) -> Store:
        """Make seams of those writes to the store that the engine has none for, so that none is left out.

        Their names are those of the store's methods: `before bare send`, `after bare send`. That a process is there is
        said by the clock, and nothing is promised about it: it has no seams.
        """
        for method in _WRITES:
            setattr(store, method, self._guarded(method, getattr(store, method)))
        return store

    def _guarded(
        self, method: str, write: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def guarded(*arguments: Any, **options: Any) -> Any:
            if arguments[0] == PRESENCE:
                return await write(*arguments, **options)
            bare = not _committing.get()
            if bare:
                await self(f"before bare {method}")
            _committing.set(False)
            try:
                receipt = await write(*arguments, **options)
            except HoldfastError as error:
                if self._refused is not None:
                    self._refused(str(getattr(arguments[0], "session_id", arguments[0])), error.kind)
                raise
            if bare:
                await self(f"after bare {method}")
            return receipt

        return guarded


def read_trace(trace: Path) -> list[Seam]:
    """The seams that a run has reached, in order."""
    return [Seam(*json.loads(line)) for line in trace.read_text().splitlines()]
