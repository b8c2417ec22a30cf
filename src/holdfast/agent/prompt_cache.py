"""`PromptCache`: keeps the rendered prompt of a session until a layer changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from holdfast.agent.machine.prompt import PromptLayer, render, required_tools


class _Kept(msgspec.Struct, frozen=True):
    """A text, and everything that it was made from."""

    layers: tuple[PromptLayer, ...]
    gates: frozenset[str]
    """Tools that a contribution requires."""
    open_gates: frozenset[str]
    """Those of them that were available."""
    text: str


class PromptCache:
    """The last prompt of one session. While its layers and tools are the same, the same object is returned.

    Layers that are the same objects are not compared further, so they must not be changed in place. Only tools that a
    contribution requires count; others may come and go.
    """

    def __init__(self) -> None:
        self.hits = 0
        self.misses = 0
        self._kept: _Kept | None = None

    def render(self, layers: Sequence[PromptLayer], tools: Collection[str] = ()) -> str:
        """The result of `holdfast.agent.machine.prompt.render`, rendered again only if something differs."""
        kept = self._kept
        # Comparing layers goes no further where the objects are the same.
        if kept is not None and kept.layers == tuple(layers) and (not kept.gates or _are_open(kept, tools)):
            self.hits += 1
            return kept.text
        self.misses += 1
        gates = required_tools(layers)
        open_gates = frozenset(name for name in gates if name in tools)
        self._kept = _Kept(tuple(layers), gates, open_gates, render(layers, open_gates))
        return self._kept.text

    def clear(self) -> None:
        """Forget the text. The counters stay."""
        self._kept = None


def _are_open(kept: _Kept, tools: Collection[str]) -> bool:
    return all((name in tools) == (name in kept.open_gates) for name in kept.gates)
