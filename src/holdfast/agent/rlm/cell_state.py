"""A cell as it waits: what it is run with, what it has done so far, and which of its calls wait for which queries."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.agent.machine.calls import CallProgress
from holdfast.agent.machine.queries import CellTool, ServedBy
from holdfast.agent.machine.turn import CellOutcome
from holdfast.agent.rlm.variables import Bindings
from holdfast.core.queries import Answer, Query
from holdfast.core.values import Json


class CellCall(msgspec.Struct, kw_only=True):
    """A call of the host that a cell has made, and that has no value yet."""

    call: int
    """The interpreter's number of the call."""
    function: str
    """Its name, which decides what becomes of the answers."""
    is_awaited: bool = False
    """Whether the cell goes on, and awaits the value later."""
    queries: list[str] = []
    """The queries that it waits for, in their order; of a tool, the latest one."""
    arrived: dict[str, Answer] = {}
    detail: Json = None
    progress: CallProgress | None = None
    """Of a tool: how far the call has come."""
    served_by: ServedBy = "process"


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a cell has just made: of a tool, or one that asks these queries."""

    call: int
    function: str
    is_awaited: bool = False
    tool: CellTool | None = None
    arguments: dict[str, Json] = {}
    queries: list[Query] = []
    detail: Json = None
    parts: int = 1
    """Among how many subagents what the turn has left is divided."""


class CellProgress(NamedTuple):
    """What one step of a cell came to: calls to wait for, or its end."""

    requests: list[CallRequest]
    bindings: Bindings | None = None
    """What it left behind, if it has ended."""
    remark: str = ""
    """What the model is told, if it has ended."""


class CellState(msgspec.Struct, kw_only=True):
    """A cell that has begun."""

    number: int
    """Counted from 1 in its turn."""
    code: str
    at: int
    """When it began (unix ms): the time that it sees."""
    position: int = 0
    """The position of the reply that it is from: what came later is not in its `history`."""
    tools: dict[str, CellTool] | None = None
    """The tools that it mentions, by the names that it calls them by; None if that is not known."""
    dump: bytes = b""
    """The interpreter; empty before it has begun, and if it cannot be kept."""
    is_packed: bool = False
    suspensions: int = 0
    llm_calls: int = 0
    """Calls of models, for the limit of the turn."""
    printed: str = ""
    printed_chars: int = 0
    """How many characters were printed, of which `printed` has the first and the last."""
    forgotten: list[str] = []
    end: CellOutcome = CellOutcome()
    """How it has ended its turn, if it has. The first call that does so counts."""
    seed: Bindings | None = None
    """The variables that a new frame begins with."""
    calls: dict[int, CellCall] = {}
    """Calls without a value, by the interpreter's number."""
    waiting: int | None = None
    """The plain call that it waits in; None if all its tasks wait for awaited calls."""
    settled: dict[int, dict[str, Json]] = {}
    """What awaited calls have come to, until the interpreter is told."""
    fresh: list[str] = []
    """Queries of the last step: those that fail if it is refused."""
    read_bytes: int = 0
    """Bytes of projections that it has read."""
    main: str = ""
    """The interpreter's own name of the cell's text."""

    @property
    def printed_text(self) -> str:
        """What was printed; of a long text, its beginning and its end, with how much is missing."""
        missing = self.printed_chars - len(self.printed)
        if not missing:
            return self.printed
        half = len(self.printed) // 2
        return f"{self.printed[:half]}\n[… {missing:,} characters were not kept …]\n{self.printed[half:]}"
