"""`ctx.stats`: figures that a native strategy records about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.records import StatRecord
from holdfast.core.values import Json, checked, own_copy, own_copy_of

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance


class StatsContext:
    """Figures a strategy records about itself; the last value of a key counts."""

    def __init__(self, run: NativeInstance) -> None:
        self._run = run
        self._recorded: dict[str, Json] = {}

    def record(self, key: str, value: Json) -> None:
        figure = own_copy_of(checked(StatRecord(key=key, value=value), "stat"))
        self._run.notes.append(figure)
        self._recorded[figure.key] = figure.value

    def get(self, key: str) -> Json:
        """A copy of what this strategy has recorded under a key; None if it has recorded nothing."""
        return own_copy(self._recorded.get(key))

    def llm_calls(self) -> int:
        """How many questions models were asked when the strategy last went on, those of ended children included."""
        return self._run.fold.session.metrics.llm_calls
