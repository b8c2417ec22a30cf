"""The states of an agent: what its program waits for, and what it remembers for as long as a turn runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from holdfast.agent.machine.calls import Calls
from holdfast.agent.machine.turn import Effect, Turn
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.rlm.cell_run import CellRun

SummaryReason: TypeAlias = Literal["threshold", "overflow", "manual"]


class SummaryTask(msgspec.Struct, frozen=True):
    """A summary that is asked for."""

    reason: SummaryReason
    then: Effect | None
    """What follows; None if only the summary was asked for."""
    keep: int
    """Tokens of the latest messages that are kept verbatim."""
    instructions: str


class TurnRun(msgspec.Struct):
    """A turn, and what the program remembers for as long as it runs."""

    turn: Turn
    tokens_before: int
    cost_before: float
    """What the session had spent when the turn began."""
    said: str = ""
    """The last text of the model."""
    sent_before: int = 0
    """Tokens that had been sent to models before the present call."""
    summary_failed: bool = False
    """Whether a summary failed in this turn; if so, it is not tried again."""
    llm_calls: int = 0
    """Calls of models in cells of this turn."""
    output: dict[str, Json] | None = None
    """The schema of the value that it must end with, if it must."""


class Starting(msgspec.Struct, frozen=True):
    """Nothing was asked yet."""


class BetweenTurns(msgspec.Struct, frozen=True):
    """It waits for an input."""

    query: str


class Replying(msgspec.Struct, frozen=True):
    """It waits for the model."""

    run: TurnRun
    query: str


class Calling(msgspec.Struct, frozen=True):
    """It waits for tools, or for somebody to approve tool calls."""

    run: TurnRun
    calls: Calls


class SummingUp(msgspec.Struct, frozen=True):
    """It waits for a summary of the conversation."""

    run: TurnRun
    query: str
    summary: SummaryTask


class Commanding(msgspec.Struct, frozen=True):
    """It waits for a command of the host to be carried out."""

    run: TurnRun
    query: str
    command: str


class InCell(msgspec.Struct, frozen=True):
    """It waits inside a cell."""

    run: TurnRun
    cell: CellRun


InTurn: TypeAlias = Replying | Calling | SummingUp | Commanding | InCell
AgentState: TypeAlias = Starting | BetweenTurns | InTurn
