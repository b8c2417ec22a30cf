"""The kind `python`: strategies in sandboxed Python, resumed from a snapshot, or rebuilt by replay where there is none.

What runs them is imported with the first of them: the interpreter's client takes a while to load.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.core.records import Program
from holdfast.programs.errors import ProgramNotFoundError
from holdfast.programs.sandbox.limits import HOT_BYTES
from holdfast.programs.sandbox.source import KIND, source_of

if TYPE_CHECKING:
    from holdfast.programs.contract import Fold
    from holdfast.programs.sandbox.check import Checker
    from holdfast.programs.sandbox.instance import PythonInstance
    from holdfast.programs.sandbox.workers import Workers


class PythonKind:
    """Sandboxed Python, in workers of this engine."""

    kind = KIND

    def __init__(self, *, workers: int | None = None, hot_bytes: int = HOT_BYTES) -> None:
        self.deaths: dict[str, int] = {}
        """How often in a row a worker died during a step of a session; the replays in between do not count."""
        self.replay_deaths: dict[str, int] = {}
        """The same, of the replays."""
        self._most_workers = workers
        self._hot: OrderedDict[PythonInstance, int] = OrderedDict()
        self._hot_bytes = hot_bytes
        self._held = 0

    @cached_property
    def workers(self) -> Workers:
        """The processes and threads that run the steps."""
        from holdfast.programs.sandbox.workers import Workers

        return Workers(self._most_workers)

    @cached_property
    def checker(self) -> Checker:
        """Looks at sources before they are run."""
        from holdfast.programs.sandbox.check import Checker

        return Checker(self.workers)

    def knows(self, program: Program) -> bool:
        try:
            source_of(program)
        except ProgramNotFoundError:
            return False
        return True

    async def admit(self, program: Program) -> None:
        await self.checker.admit(program.name, source_of(program))

    def create(self, fold: Fold) -> PythonInstance:
        from holdfast.programs.sandbox.instance import PythonInstance

        return PythonInstance(fold, self)

    def restore(self, fold: Fold, snapshot: bytes) -> PythonInstance:
        instance = self.create(fold)
        instance.state, instance.has_begun = snapshot, True
        self.hold(instance)
        return instance

    def close(self) -> None:
        self._hot.clear()
        if "workers" in vars(self):
            self.workers.close()

    # --- what is kept in memory --------------------------------------------------------------------

    def hold(self, instance: PythonInstance) -> None:
        """Remember how much an instance holds. The least recently used ones release theirs."""
        self.let_go(instance)
        self._hot[instance] = instance.size
        self._held += self._hot[instance]
        while self._held > self._hot_bytes and len(self._hot) > 1:
            longest, size = self._hot.popitem(last=False)
            self._held -= size
            longest.state = None

    def let_go(self, instance: PythonInstance) -> None:
        self._held -= self._hot.pop(instance, 0)
