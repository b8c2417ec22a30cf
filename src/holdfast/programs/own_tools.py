"""The names of the tools that Holdfast itself answers: through them a program of any kind reaches what outlives it."""

from __future__ import annotations

from holdfast.core.queries import OWN_TOOLS

STATE_TOOL = f"{OWN_TOOLS}state"
"""Behind `ctx.state`. The engine answers it from the store, in the transaction that records the answer."""

CARD_TOOL = f"{OWN_TOOLS}card"
"""Behind `ctx.card`. A driver of the engine answers it, from files."""
