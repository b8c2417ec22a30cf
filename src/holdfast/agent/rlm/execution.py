"""The code execution context: runs code beside the turns of a session, on its variables, for hosts and other modes.

What is run here asks nobody and leaves nothing: calls of tools, models and subagents belong to a turn, where they are
recorded. Variables of an rlm agent can be read, and what happens to them is forgotten.
"""

from __future__ import annotations

import msgspec

from holdfast.agent.errors import CodeExecutionStoppedError, CodeExecutionUnavailableError
from holdfast.agent.machine.calls import ChildTerms
from holdfast.agent.machine.policy import RLM, Policy
from holdfast.agent.machine.turn import TurnUsage
from holdfast.agent.rlm.cell_run import CellMeans
from holdfast.agent.rlm.cell_state import CellState
from holdfast.agent.rlm.check import check_cell
from holdfast.agent.rlm.functions import RESERVED
from holdfast.agent.rlm.variables import VariableTable
from holdfast.agent.rlm.workers import SandboxCells
from holdfast.core.values import Json
from holdfast.programs.errors import InstanceLostError

PYTHON = "python"
"""The language of cells."""

NO_CALLS = "only a turn can call it: its calls are recorded there"


class ExecRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Code to run."""

    language: str = PYTHON
    code: str
    accept_finish: bool = False
    """Whether `finish(value)` ends it with a value; otherwise that is an error."""


class ExecResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of it."""

    told: str
    """Output, errors and limits, as a model would be told."""
    printed: str = ""
    is_finished: bool = False
    value: Json = None
    """What it finished with."""
    is_error: bool = False


class CodeExecutionContext(msgspec.Struct, frozen=True):
    """What code of one session is run with."""

    session_id: str
    policy: Policy
    table: VariableTable
    cells: SandboxCells
    at: int
    """The time that the code sees (unix ms)."""

    async def execute(self, request: ExecRequest) -> ExecResult:
        """Run code. Raises `CodeExecutionUnavailableError` and `CodeExecutionStoppedError`."""
        if self.policy.mode != RLM:
            raise CodeExecutionUnavailableError(self.session_id, f"its mode is '{self.policy.mode}', and not '{RLM}'")
        if request.language != PYTHON:
            raise CodeExecutionUnavailableError(self.session_id, f"it runs {PYTHON}, and not '{request.language}'")
        reserved = RESERVED.union(self.policy.projections)
        if problems := check_cell(request.code, reserved):
            return ExecResult(told="[ERROR] " + "\n".join(problems), is_error=True)
        state = CellState(number=0, code=request.code, at=self.at, tools={})
        try:
            done = await self.cells.step(state, self._means(), None)
        except InstanceLostError as error:
            raise CodeExecutionStoppedError(self.session_id, str(error)) from error
        if done.bindings is None:
            names = ", ".join(sorted({call.function for call in done.requests}))
            return ExecResult(told=f"[ERROR] {names}: {NO_CALLS}", printed=state.printed_text, is_error=True)
        end = state.end
        if end.is_called and not (end.is_finished and request.accept_finish):
            return ExecResult(told="[ERROR] it ended a turn, and there is none", is_error=True)
        is_error = "[ERROR]" in done.remark or "[POLICY]" in done.remark
        return ExecResult(
            told=done.remark,
            printed=state.printed_text,
            is_finished=end.is_finished,
            value=end.finish,
            is_error=is_error,
        )

    def _means(self) -> CellMeans:
        return CellMeans(
            session_id=self.session_id,
            turn="",
            policy=self.policy,
            granted=[],
            terms=lambda parts: ChildTerms(TurnUsage()),
            table=self.table.copy(),
            budget=None,
            seed=0,
            first_query=0,
        )
