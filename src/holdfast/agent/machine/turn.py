"""The turn: one input worked to one outcome. A machine without I/O: effects out, answers in.

Rules of this file
------------------
- A turn is in one of three states: it waits for the model, it waits for tools, or it is over. `Turn.effect` says which,
  and what exactly; reading it again gives the same effect.
- The transitions are `replied` and `failed` from the model, `tools_done` and `stopped` from the tools, `cell_done` from
  a cell, and `extended` from the end. Each returns the next effect; one that the turn does not wait for is an error,
  and changes nothing.
- Nothing here reads a clock, counts tokens or knows a provider. What a decision needs is in its arguments, which come
  from the journal, so a turn that is run again on the same answers takes the same course.

The theory
----------
    begin ──▶ CallModel ──reply without calls──▶ EndTurn
                 ▲  │                               │
                 │  └──reply with calls──▶ CallTools ──results──┐
                 └──────────────────────────────────┴───────────┘

In the mode `rlm` a cell takes the place of the tool calls: RunCell instead of CallTools.

The turn continues from its end if something was said meanwhile, or if the model answered in words instead of submitting
the value that was asked for.

Every limit is checked when the next effect is chosen, never in between: an effect that has begun is waited for, and is
part of the conversation. A turn that reaches a limit is stopped. That is an outcome like any other: it is committed,
and the session continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.agent.machine.messages import (
    ContentBlock,
    ReasoningBlock,
    TextBlock,
    ToolUseBlock,
    plain_text,
    with_content,
)
from holdfast.agent.machine.queries import CellTool, ServedBy
from holdfast.agent.machine.turn_limits import Limits
from holdfast.core.queries import Failure
from holdfast.core.values import Json

if TYPE_CHECKING:
    from holdfast.agent.rlm.replies import ReplyDecision


# --- what goes out -------------------------------------------------------------------------------------


class CallModel(msgspec.Struct, frozen=True, tag="call_model"):
    """Ask the model, with the conversation as it is."""

    iteration: int
    """Counted from 1 in each turn."""
    remark: str = ""
    """What the runtime itself says in the conversation before."""


class CallTools(msgspec.Struct, frozen=True, tag="call_tools"):
    """Run these calls, at the same time; the model gets their results in this order."""

    calls: list[ToolUseBlock]
    served_by: dict[str, ServedBy] = {}
    """Who runs which tool, as `RecordedReply` says it."""


class RunCell(msgspec.Struct, frozen=True, tag="run_cell"):
    """Run the code that the model has written. Only in the mode `rlm`."""

    number: int
    """Counted from 1 in each turn."""
    code: str


class EndTurn(msgspec.Struct, frozen=True, tag="end"):
    """The turn is over."""

    outcome: TurnOutcome


Effect: TypeAlias = CallModel | CallTools | RunCell | EndTurn

T = TypeVar("T", CallModel, CallTools, RunCell, EndTurn)


# --- outcomes ------------------------------------------------------------------------------------------


class MessageOutcome(msgspec.Struct, frozen=True, tag="message"):
    """The model answered; its message is the last of the conversation."""


class ValueOutcome(msgspec.Struct, frozen=True, tag="value"):
    """The model submitted a value where one was asked for."""

    value: Json


class ToolValueOutcome(msgspec.Struct, frozen=True, tag="tool_value"):
    """A tool ended the turn with a value."""

    tool: str
    value: Json


class CommandOutcome(msgspec.Struct, frozen=True, tag="command", omit_defaults=True):
    """The turn was a command of the host, and is done."""

    command: str
    value: Json = None


class FrameSwitchOutcome(msgspec.Struct, frozen=True, tag="frame_switch"):
    """A tool opened a new frame: the conversation continues in a fresh window, with a task."""

    frame: str
    task: str


StopReason: TypeAlias = Literal[
    "budget",
    "cancelled",
    "incomplete",
    "invalid_input",
    "max_turns",
    "refused",
    "tool_failure",
    "provider_error",
    "plugin_abort",
    "runtime_error",
    "submitted_error",
    "tool_error",
]


class StoppedOutcome(msgspec.Struct, frozen=True, tag="stopped", omit_defaults=True):
    """The turn ended without an answer. What was said until then is kept."""

    reason: StopReason
    detail: str = ""
    """In words, for people."""
    limit: str | None = None
    """The limit that was reached, if one was."""
    tool: str | None = None
    value: Json = None
    by: str | None = None
    """Who stopped it, if somebody did and gave a name."""
    at: int | None = None
    """When they stopped it (unix ms)."""


TurnOutcome: TypeAlias = (
    MessageOutcome | ValueOutcome | ToolValueOutcome | CommandOutcome | FrameSwitchOutcome | StoppedOutcome
)


def outcome_word(outcome: TurnOutcome) -> str:
    """How a turn ended, in one word: what it gave, or why it was stopped."""
    return outcome.reason if isinstance(outcome, StoppedOutcome) else str(outcome.__struct_config__.tag)


# --- what comes in -------------------------------------------------------------------------------------


class RecordedReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model's reply, as the journal keeps it."""

    content: list[ContentBlock]
    stop: Literal["end", "tool_use", "length", "refusal", "other"] = "end"
    model: str = ""
    """The model that answered; empty if it is the one that the policy names."""
    attempts: list[dict[str, Json]] = []
    """Calls that failed before this one: which model, and why."""
    served_by: dict[str, ServedBy] = {}
    """Who runs the tools that it calls, by name, where that is not a process: the host, or nobody."""
    cut: bool = False
    """Whether the model was stopped at the end of its cell."""
    tools: dict[str, CellTool] | None = None
    """The tools that its cell mentions, by the names that it calls them by; None if there is no cell."""

    def to_value(self) -> Json:
        """The value that the journal keeps: of a reply of plain text, the text alone."""
        text = plain_text(self.content)
        if text is not None and self.stop == "end" and not self.model and not self.attempts and self.tools is None:
            return text
        value: dict[str, Json] = msgspec.to_builtins(self)
        if text is not None:
            value["content"] = text
        return value

    @property
    def calls(self) -> list[ToolUseBlock]:
        if len(self.content) == 1 and type(self.content[0]) is TextBlock:  # as most have
            return []
        return [block for block in self.content if isinstance(block, ToolUseBlock)]

    @property
    def text(self) -> str:
        if len(self.content) == 1 and type(self.content[0]) is TextBlock:
            return self.content[0].text
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def says_something(self) -> bool:
        """Whether it has any text to read or any call to run."""
        for block in self.content:
            if block.text if type(block) is TextBlock else type(block) is not ReasoningBlock:
                return True
        return False


def reply_of(value: Json) -> RecordedReply:
    """A reply from an answer. A text is one, too: the usual form, and somebody who answers by hand needs no other.

    Raises `msgspec.ValidationError` for anything else.
    """
    if type(value) is str:
        return RecordedReply(content=[TextBlock(value)])
    return msgspec.convert(with_content(value), RecordedReply)


class ToolCallOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one tool call."""

    content: Json = None
    is_error: bool = False
    executed: bool = True
    """False for a tool that does not exist, and for arguments that it does not accept."""
    finish: Json = msgspec.UNSET
    """A value that ends the turn."""
    frame: FrameSwitchOutcome | None = None
    stops: bool = False
    """Whether its failure ends the turn."""
    gives_up: str | None = None
    """Why the model says that there is no value to submit."""


class CellOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a cell ended, apart from its variables."""

    is_finished: bool = False
    """Whether the turn ends with a value."""
    finish: Json = None
    """That value."""
    tool: str = ""
    """The tool that ended the turn with that value, if one did."""
    failed: str | None = None
    """Why the cell says that there can be no value."""
    frame: FrameSwitchOutcome | None = None
    """The fresh window in which the turn goes on."""
    stopped: StoppedOutcome | None = None
    """How a tool stopped the turn, if one did."""
    rejected: bool = False
    """Whether it finished with a value that is not of the type that was asked for."""

    @property
    def is_called(self) -> bool:
        """Whether the cell has ended its turn, or its frame."""
        others = (self.failed, self.frame, self.stopped)
        return self.is_finished or any(each is not None for each in others)


class TurnUsage(msgspec.Struct, kw_only=True):
    """What a turn has cost so far."""

    iterations: int = 1
    tool_calls: int = 0
    idle: int = 0
    """Replies in a row that executed nothing."""
    repairs: int = 0
    """How often the model was asked again for a value."""
    children: int = 0
    """Subagents that it has started."""
    cells: int = 0
    is_last: bool = False
    """Whether the model was asked for an answer because its iterations have run out: nothing more is run."""
    tokens: int = 0
    cost: float = 0.0


class Turn(msgspec.Struct, kw_only=True):
    """One turn. It can be serialised and read back, and then waits for the same."""

    id: str
    began_at: int
    limits: Limits = Limits()
    wants_value: bool = False
    """Whether it must end with a value that the model submits."""
    effect: Effect = CallModel(1)
    spent: TurnUsage = msgspec.field(default_factory=TurnUsage)

    # --- transitions -------------------------------------------------------------------------------

    def replied(self, reply: RecordedReply, at: int, *, tokens: int = 0, cost: float = 0.0) -> Effect:
        """The model has answered. `tokens` and `cost` are those of the whole turn so far."""
        self._expect(CallModel)
        self.spent.tokens, self.spent.cost = tokens, cost
        calls = reply.calls
        if calls and self.spent.is_last:
            return self._limited("iterations")
        if calls:
            allowed = self.limits.tool_calls
            if allowed is not None and self.spent.tool_calls + len(calls) > allowed:
                more = "1 more tool call" if len(calls) == 1 else f"{len(calls)} more tool calls"
                detail = f"the model asked for {more} after {self.spent.tool_calls} of {allowed}"
                return self._end(StoppedOutcome("max_turns", detail, "tool_calls"))
            self.spent.tool_calls += len(calls)
            return self._do(CallTools(calls, reply.served_by))
        if reply.stop == "length":
            return self._end(StoppedOutcome("incomplete", "the model reached its token limit before it was done"))
        if reply.stop == "refusal":
            return self._end(StoppedOutcome("refused", REFUSED))
        if self.wants_value:
            return self._repair(at, REMINDER)
        if reply.says_something:
            return self._end(MessageOutcome())
        return self._again(at, executed=False)

    def replied_in_cells(
        self, reply: RecordedReply, decision: ReplyDecision, at: int, *, tokens: int = 0, cost: float = 0.0
    ) -> Effect:
        """As `replied`, in the mode `rlm`: `decision` says what follows from the text."""
        self._expect(CallModel)
        self.spent.tokens, self.spent.cost = tokens, cost
        if reply.stop == "refusal":
            return self._end(StoppedOutcome("refused", REFUSED))
        match decision.name:
            case "execute" if self.spent.is_last:
                return self._limited("iterations")
            case "execute":
                self.spent.cells += 1
                return self._do(RunCell(self.spent.cells, decision.cell))
            case "finish_prose":
                return self._end(MessageOutcome())
            case "request_finish":
                return self._repair(at, decision.remark)
            case _:
                return self._again(at, executed=False, remark=decision.remark)

    def cell_done(self, done: CellOutcome, at: int) -> Effect:
        """The cell has ended."""
        self._expect(RunCell)
        if done.rejected:
            return self._repair(at)
        if done.stopped is not None:
            return self._end(done.stopped)
        if done.failed is not None:
            return self._end(StoppedOutcome("submitted_error", done.failed))
        if done.is_finished:
            return self._end(ToolValueOutcome(done.tool, done.finish) if done.tool else ValueOutcome(done.finish))
        return self._again(at, executed=True)

    def failed(self, failure: Failure) -> Effect:
        """There is no reply: the call was cancelled, or failed for good."""
        self._expect(CallModel)
        return self._end(stop_of(failure, otherwise="provider_error"))

    def tools_done(
        self, results: list[ToolCallOutcome], at: int, *, tokens: int | None = None, cost: float | None = None
    ) -> Effect:
        """All calls have a result, in their order. The first that ends the turn counts.

        `tokens` and `cost` are those of the whole turn so far, if subagents were among the calls.
        """
        if tokens is not None and cost is not None:
            self.spent.tokens, self.spent.cost = tokens, cost
        each_done = list(zip(self._expect(CallTools).calls, results, strict=True))
        for call, done in each_done:
            if done.frame is not None:
                return self._end(done.frame)
            if done.finish is not msgspec.UNSET:
                is_final = call.name == FINISH_TOOL
                return self._end(ValueOutcome(done.finish) if is_final else ToolValueOutcome(call.name, done.finish))
            if done.gives_up is not None:
                return self._end(StoppedOutcome("submitted_error", done.gives_up, tool=call.name))
            if done.is_error and done.stops:
                return self._end(
                    StoppedOutcome("tool_failure", _brief(done.content), tool=call.name, value=done.content)
                )
        if self.wants_value and any(done.is_error and call.name == FINISH_TOOL for call, done in each_done):
            return self._repair(at)
        return self._again(at, executed=any(done.executed for done in results))

    def stopped(self, failure: Failure) -> Effect:
        """Somebody stopped the turn while tools or a cell ran: a person, or a plugin."""
        if not isinstance(self.effect, RunCell):
            self._expect(CallTools)
        return self._end(stop_of(failure, otherwise="tool_failure"))

    def extended(self, at: int) -> Effect | None:
        """Something was said meanwhile, so there is more to answer before the turn is over.

        None if a limit does not allow it: the turn then ends with its answer, and what was said waits for the next.
        """
        self._expect(EndTurn)
        return self._again(at, executed=True) if not self._reached(at) else None

    # --- choosing ----------------------------------------------------------------------------------

    def _expect(self, effect: type[T]) -> T:
        if not isinstance(self.effect, effect):
            found, wanted = (kind.__struct_config__.tag for kind in (type(self.effect), effect))
            raise ValueError(f"turn '{self.id}' is at '{found}', but was sent what belongs to '{wanted}'")
        return self.effect

    def _repair(self, at: int, remark: str = "") -> Effect:
        """Ask for the value once more, unless that was done often enough."""
        if self.spent.repairs >= self.limits.repairs:
            return self._end(StoppedOutcome("incomplete", _LIMIT_REACHED["repairs"], "repairs"))
        self.spent.repairs += 1
        return self._again(at, executed=True, remark=remark)

    def _again(self, at: int, *, executed: bool, remark: str = "") -> Effect:
        """Ask the model once more, unless a limit is reached."""
        self.spent.idle = 0 if executed else self.spent.idle + 1
        reached = self._reached(at)
        may_answer = self.limits.on_limit == "answer" and not (self.spent.is_last or self.wants_value)
        if reached == ["iterations"] and may_answer:
            self.spent.is_last, remark = True, f"{remark}\n\n{LAST_CALL}".lstrip()
        elif reached:
            return self._limited(reached[0])
        self.spent.iterations += 1
        return self._do(CallModel(self.spent.iterations, remark))

    def _limited(self, reached: str) -> Effect:
        return self._end(StoppedOutcome("max_turns", _LIMIT_REACHED[reached], reached))

    def _reached(self, at: int) -> list[str]:
        """The limits that are reached."""
        limits, spent = self.limits, self.spent
        reached = {
            "iterations": limits.iterations is not None and spent.iterations >= limits.iterations,
            "no_progress": spent.idle >= limits.no_progress,
            "tokens": limits.tokens is not None and spent.tokens >= limits.tokens,
            "cost": limits.cost is not None and spent.cost >= limits.cost,
            "wall_ms": limits.wall_ms is not None and at - self.began_at >= limits.wall_ms,
        }
        return [name for name, is_reached in reached.items() if is_reached]

    def _do(self, effect: Effect) -> Effect:
        self.effect = effect
        return effect

    def _end(self, outcome: TurnOutcome) -> Effect:
        self.effect = EndTurn(outcome)
        return self.effect


FINISH_TOOL = "finish"
"""The tool with which a model submits a value, if one was asked for."""

GIVE_UP_TOOL = "give_up"
"""The tool with which it says that there is none."""

REMINDER = (
    f"Call '{FINISH_TOOL}' with the result to finish; anything else you say is ignored. "
    f"If there can be no result, call '{GIVE_UP_TOOL}' and say why."
)

REFUSED = "the model refused to answer, or a content filter of its provider cut the reply off"

_STOPS: dict[str, StopReason] = {"cancelled": "cancelled", "plugin_abort": "plugin_abort"}
"""The failure codes with which somebody stops a turn, and the reason each one gives."""

STOP_CODES = frozenset(_STOPS)

LAST_CALL = "Nothing more can be run in this turn. Answer now, in words, with what you know."
"""What the model is told when it is asked for the last time."""

_LIMIT_REACHED = {
    "iterations": "it reached its limit of model calls",
    "no_progress": "the model answered repeatedly without saying or doing anything",
    "tokens": "it reached its token limit",
    "cost": "it reached its cost limit",
    "wall_ms": "it reached its time limit",
    "repairs": "the model was asked repeatedly, but submitted no valid result",
}
"""Why a turn was stopped, by the limit that it reached."""


def stop_of(failure: Failure, *, otherwise: StopReason) -> StoppedOutcome:
    """How a failure stops a turn: for the reason of whoever stopped it, or otherwise for this one."""
    return StoppedOutcome(_STOPS.get(failure.code, otherwise), failure.message)


def _brief(content: Json) -> str:
    text = content if isinstance(content, str) else str(content)
    return text[:400]
