"""`CellRun`: one cell from its begin to its end: stepped in a worker, its calls asked as queries of pauses in between.

    begin ──▶ step in a worker ──calls──▶ asked ──answers──▶ step … ──▶ ended

A call of a tool goes through the same approval as any (`machine.calls`). Everything here follows from the journal, so a
cell that is run again on recorded answers asks the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from holdfast.agent.machine.approval import Rule
from holdfast.agent.machine.calls import CallGrants, Calls, ChildTerms
from holdfast.agent.machine.conversation import FULL
from holdfast.agent.machine.delegation import SubagentResult, subagent_result
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import DelegateQuery
from holdfast.agent.machine.records import BoundRecord, CallRecord
from holdfast.agent.machine.turn import STOP_CODES, CallTools, CellOutcome, StoppedOutcome, ToolCallOutcome
from holdfast.agent.rlm.cell_state import CallRequest, CellCall, CellProgress, CellState
from holdfast.agent.rlm.variables import Bindings, VariableTable
from holdfast.core.budget import RemainingBudget
from holdfast.core.ids import query_id
from holdfast.core.queries import Answer, Failure, Query, Value
from holdfast.core.values import Json, encode
from holdfast.core.wake import Wake
from holdfast.programs.sandbox.calls import as_text
from holdfast.programs.sandbox.values import Payload, failure_of, raised, returned


class CellMeans(NamedTuple):
    """What a cell is run with, apart from what it is."""

    session_id: str
    turn: str
    policy: Policy
    granted: list[Rule]
    terms: Callable[[int], ChildTerms]
    """What each of so many subagents may take of the turn."""
    table: VariableTable
    budget: RemainingBudget | None
    seed: int
    first_query: int
    """The number of the next query."""
    is_replay: bool = False
    """Whether the step is recorded, and run again."""


class CellWorkers(Protocol):
    """Where cells are stepped."""

    def step(
        self, state: CellState, means: CellMeans, payload: Payload | dict[int, Payload] | None
    ) -> Awaitable[CellProgress]:
        """Begin the cell, or go on with what its calls have come to."""
        ...


class CellPause(NamedTuple):
    """The cell waits."""

    queries: list[Query]
    wake: Wake
    notes: list[CallRecord]
    withdrawn: list[str]


class CellEnded(NamedTuple):
    """The cell is over."""

    bindings: Bindings
    remark: str
    notes: list[CallRecord]
    withdrawn: list[str]
    stop: Failure | None = None
    """Why the turn was stopped, if somebody did that while the cell waited."""


class CellRun:
    """One cell."""

    def __init__(self, state: CellState) -> None:
        self.state = state
        self._notes: list[CallRecord] = []
        self._withdrawn: list[str] = []
        self._asked: list[Query] = []
        self.recorded: BoundRecord | None = None
        """How the present step ends, if the journal has that already: then the cell is not run again."""

    async def begin(self, workers: CellWorkers, means: CellMeans) -> CellPause | CellEnded:
        """Run the cell until it waits or ends."""
        return await self._go_on(workers, means, None)

    async def resume(
        self, workers: CellWorkers, means: CellMeans, answers: Sequence[tuple[str, Answer]]
    ) -> CellPause | CellEnded:
        """Go on with answers."""
        self._begin_step()
        for asked, answer in answers:
            if isinstance(answer, Failure) and answer.code in STOP_CODES:
                left = [query for query in self.waiting_for if query not in dict(answers)]
                return CellEnded(Bindings(), "", self._notes, left, stop=answer)
            self._take(asked, answer, means)
        self._run_granted(means)
        return await self._answered(workers, means)

    async def refused(self, workers: CellWorkers, means: CellMeans, failure: Failure) -> CellPause | CellEnded:
        """Go on after the queries of the last step could not be asked."""
        fresh = list(self.state.fresh)
        self._begin_step()
        for asked in fresh:
            self._take(asked, failure, means)
        return await self._answered(workers, means)

    @property
    def waiting_for(self) -> list[str]:
        """The queries without an answer."""
        return [asked for call in self.state.calls.values() for asked in call.queries if asked not in call.arrived]

    # --- inside ------------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._notes, self._withdrawn, self._asked, self.state.fresh = [], [], [], []

    async def _answered(self, workers: CellWorkers, means: CellMeans) -> CellPause | CellEnded:
        state = self.state
        if state.waiting is None:
            return self._pause() if not state.settled else await self._go_on(workers, means, self._take_settled())
        payload = state.settled.pop(state.waiting, None)
        return self._pause() if payload is None else await self._go_on(workers, means, payload)

    def _take_settled(self) -> dict[int, Payload]:
        settled, self.state.settled = self.state.settled, {}
        return settled

    async def _go_on(
        self, workers: CellWorkers, means: CellMeans, payload: Payload | dict[int, Payload] | None
    ) -> CellPause | CellEnded:
        state = self.state
        while True:
            if self.recorded is not None:
                outcome = CellProgress([], self.recorded.bindings, self.recorded.remark)
            else:
                outcome = await workers.step(state, means, payload)
            if outcome.bindings is not None:
                left = [asked for asked in self.waiting_for if asked not in state.fresh]
                return CellEnded(outcome.bindings, outcome.remark, self._notes, [*self._withdrawn, *left])
            for request in outcome.requests:
                self._ask(request, means)
            if state.waiting is not None and state.waiting in state.settled:
                payload = state.settled.pop(state.waiting)  # refused without a question
            elif state.waiting is None and state.settled:
                payload = self._take_settled()
            else:
                return self._pause()

    def _pause(self) -> CellPause:
        self.state.fresh = [query.id for query in self._asked]
        return CellPause(self._asked, self._wake(), self._notes, self._withdrawn)

    def _wake(self) -> Wake:
        """When the cell goes on. Its tasks are opaque: it waits for all models that it asked, and as soon as it also
        waits for anything else, for the first answer."""
        calls = self.state.calls
        if self.state.waiting is not None:
            call = calls[self.state.waiting]
            if len(calls) > 1:
                return "first"
            return "all" if len(call.queries) == 1 else "all_or_failure"
        is_of_models = all(call.function == "llm" for call in calls.values())
        return "all_or_failure" if is_of_models else "first"

    def _number(self, query: Query, means: CellMeans) -> Query:
        numbered = msgspec.structs.replace(query, id=query_id(means.first_query + len(self._asked)))
        self._asked.append(numbered)
        return numbered

    def _ask(self, request: CallRequest, means: CellMeans) -> None:
        call = CellCall(
            call=request.call, function=request.function, is_awaited=request.is_awaited, detail=request.detail
        )
        if request.tool is None:
            call.queries = [self._number(query, means).id for query in request.queries]
            self.state.calls[request.call] = call
            return
        tool = request.tool
        wished = ToolUseBlock(f"cell-{self.state.number}.{request.call}", tool.name, request.arguments)
        served_by = {tool.name: tool.served_by}
        calls = Calls(CallTools([wished], served_by), means.policy, means.granted, means.terms(request.parts))
        call.served_by, call.progress = tool.served_by, calls.progress[0]
        self.state.calls[request.call] = call
        self._advance(call, calls, calls.begin(), means)

    def _take(self, asked: str, answer: Answer, means: CellMeans) -> None:
        """Take an answer to the query of a call."""
        call = next((each for each in self.state.calls.values() if asked in each.queries), None)
        if call is None:
            return  # a call whose value nobody waits for any more
        if call.progress is None:
            call.arrived[asked] = as_text(answer) if call.function in _OF_MODELS else answer
            self._settle_if_over(call)
            return
        calls = self._restored(call, asked, means)
        is_run = call.progress.stage == "run"
        following = calls.answered(asked, answer)
        if is_run and (isinstance(answer, Value) or call.function == "agent"):
            call.arrived[asked] = answer
        self._advance(call, calls, following, means)

    def _run_granted(self, means: CellMeans) -> None:
        """Run the calls that no longer need approval, because calls like them were approved for good."""
        for call in list(self.state.calls.values()):
            if call.progress is not None and call.progress.stage == "confirm" and means.granted:
                calls = self._restored(call, call.queries[0], means)
                if following := calls.granted():
                    self._withdrawn += calls.withdrawals()
                    self._advance(call, calls, following, means)

    def _restored(self, call: CellCall, asked: str, means: CellMeans) -> Calls:
        assert call.progress is not None
        grants = CallGrants(means.policy, means.granted, means.terms(1))
        return Calls.of_one({call.progress.tool: call.served_by}, call.progress, asked, grants)

    def _advance(self, call: CellCall, calls: Calls, queries: list[Query], means: CellMeans) -> None:
        """Ask what a tool call needs next; or settle it, if it has come to its end."""
        self._notes += calls.refusals()
        if queries:
            call.queries = [self._number(_with_schema(query, call.detail), means).id for query in queries]
            calls.asked(call.queries)
            return
        assert call.progress is not None
        assert call.progress.done is not None
        whole = next(iter(call.arrived.values()), None)
        if call.function == "agent" and whole is not None:
            self._settle(call, _agent_result(subagent_result(whole)))
        else:
            self._settle(call, self._tool_result(call.progress.tool, call.progress.done, whole))

    def _tool_result(self, tool: str, done: ToolCallOutcome, answer: Answer | None) -> Payload:
        if done.frame is not None:
            self._end(CellOutcome(frame=done.frame))
            return {"exc_type": "SystemExit", "message": ""}
        if done.finish is not msgspec.UNSET:
            self._end(CellOutcome(is_finished=True, finish=done.finish, tool=tool))
            return {"exc_type": "SystemExit", "message": ""}
        if not done.is_error:
            return returned(_whole(answer, done.content))
        content = done.content
        if done.stops:
            stopped = StoppedOutcome("tool_failure", str(content)[:400], tool=tool, value=content)
            self._end(CellOutcome(stopped=stopped))
            return {"exc_type": "SystemExit", "message": ""}
        if isinstance(content, dict) and isinstance(content.get("error"), str):
            code = content.get("code")
            return raised("TimeoutError" if code == "timeout" else "RuntimeError", f"{tool}: {content['error']}")
        return raised("RuntimeError", f"{tool}: {content if isinstance(content, str) else encode(content).decode()}")

    def _end(self, outcome: CellOutcome) -> None:
        if not self.state.end.is_called:
            self.state.end = outcome

    def _settle_if_over(self, call: CellCall) -> None:
        """Settle a call that asks queries of its own: when all are answered, or, for all but `llm_each`, one failed."""
        failed = next((each for each in call.arrived.values() if isinstance(each, Failure)), None)
        is_each = call.function == "llm_each"
        if failed is not None and not is_each:
            self._withdrawn += [asked for asked in call.queries if asked not in call.arrived]
            self._settle(call, raised(*failure_of(failed)))
        elif len(call.arrived) == len(call.queries):
            values = [_value(call.arrived[asked]) for asked in call.queries]
            if is_each and failed is not None and all(isinstance(each, Failure) for each in call.arrived.values()):
                self._settle(call, raised(*failure_of(failed)))
            else:
                is_list = call.function in ("llm_batch", "llm_each")
                self._settle(call, returned(values if is_list else values[0]))

    def _settle(self, call: CellCall, payload: Payload) -> None:
        del self.state.calls[call.call]
        self.state.settled[call.call] = payload


_OF_MODELS = frozenset(["llm", "llm_batch", "llm_each"])


def _value(answer: Answer) -> Json:
    return answer.value if isinstance(answer, Value) else None


def _with_schema(query: Query, schema: Json) -> Query:
    """The query for a subagent, with the schema of the value that it must give back."""
    return msgspec.structs.replace(query, output=schema) if isinstance(query, DelegateQuery) and schema else query


def _agent_result(result: SubagentResult) -> Payload:
    """What a call of a subagent gives: its value, or an exception that says how it ended."""
    if result.status == "ok":
        return returned(result.content)
    return raised("TimeoutError" if result.status == "timeout" else "RuntimeError", f"{result.status}: {result.error}")


def _whole(answer: Answer | None, shown: Json) -> Json:
    """The whole result of a tool, also where a model would be shown a part of it."""
    match answer:
        case Value(value={"$tool": dict(marked)}) if FULL in marked:
            return marked[FULL]
        case _:
            return shown
