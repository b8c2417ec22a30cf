"""The turn: one input worked to one outcome. A machine without I/O: effects out, answers in.

Rules of this file
------------------
- A turn is in one of three places: it waits for the model, it waits for tools, or it is over. `Turn.effect` says which,
  and what exactly; asking again gives the same effect again.
- The only ways on are `replied` and `failed` from the model, `tools_done` and `stopped` from the tools. Each gives
  the next effect; one that the turn does not wait for is an error, and changes nothing.
- Nothing here reads a clock, counts tokens or knows a provider. What a decision needs is in its arguments, which are in
  the journal, so a turn that is run again on the same answers takes the same way.

The theory
----------
    begin ──▶ CallModel ──reply without calls──▶ End(Finished)
                 ▲  │                               │
                 │  └──reply with calls──▶ CallTools ──results──┐
                 └──────────────────────────────────┴───────────┘

From the end it goes on where something was said meanwhile, or where words came instead of the value that is wanted.

Every limit is looked at when the next effect is chosen, never in between: what was begun is waited for, and is part of
the conversation. A turn that meets a limit is stopped, and that is an outcome like any other: it is committed, and the
session goes on.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

import msgspec

from holdfast.agent.machine.messages import ContentBlock, ReasoningBlock, TextBlock, ToolUseBlock
from holdfast.core.queries import Failure
from holdfast.core.values import Json

DEFAULT_ITERATIONS = 24
"""Calls of the model in one turn: more than a person waits for, and few enough to be paid for by mistake."""

DEFAULT_NO_PROGRESS = 12
"""Replies in a row that executed nothing: empty ones, and those all of whose calls were no calls of a tool there is."""

DEFAULT_TOOL_CALLS = 200
"""Calls of tools in one turn."""

DEFAULT_REPAIRS = 5
"""Times a model is asked again for the value of a turn, after one that does not fit, or words instead of it."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a turn may go; None is no limit."""

    iterations: int | None = DEFAULT_ITERATIONS
    no_progress: int = DEFAULT_NO_PROGRESS
    tool_calls: int | None = DEFAULT_TOOL_CALLS
    tokens: int | None = None
    """Of all calls of the model together, prompts and replies."""
    cost: float | None = None
    wall_ms: int | None = None
    """From the input to the next choice of an effect; what is under way then is waited for."""
    repairs: int = DEFAULT_REPAIRS
    """Where the turn is to come to a value."""


# --- what goes out -------------------------------------------------------------------------------------


class CallModel(msgspec.Struct, frozen=True, tag="call_model"):
    """Ask the model, with the conversation as it is."""

    iteration: int
    """Counted from 1 in each turn."""
    remark: str = ""
    """What the runtime itself has to say before."""


class CallTools(msgspec.Struct, frozen=True, tag="call_tools"):
    """Run these calls, at the same time; their results are told in this order."""

    calls: list[ToolUseBlock]


class EndTurn(msgspec.Struct, frozen=True, tag="end"):
    """The turn is over."""

    outcome: TurnOutcome


Effect: TypeAlias = CallModel | CallTools | EndTurn

T = TypeVar("T", CallModel, CallTools, EndTurn)


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
    """A tool opened a new frame: the conversation goes on in a fresh window, with a task."""

    frame: str
    task: str


StopReason: TypeAlias = Literal[
    "cancelled",
    "incomplete",
    "invalid_input",
    "max_turns",
    "tool_failure",
    "provider_error",
    "plugin_abort",
    "runtime_error",
    "submitted_error",
    "tool_error",
]


class StoppedOutcome(msgspec.Struct, frozen=True, tag="stopped", omit_defaults=True):
    """The turn came to no answer. What was said until then is kept."""

    reason: StopReason
    detail: str = ""
    """In words, for people."""
    limit: str | None = None
    """The limit that was met, where one was."""
    tool: str | None = None
    value: Json = None
    by: str | None = None
    """Who stopped it, where somebody did and said so."""
    at: int | None = None
    """When they did (unix ms)."""


TurnOutcome: TypeAlias = (
    MessageOutcome | ValueOutcome | ToolValueOutcome | CommandOutcome | FrameSwitchOutcome | StoppedOutcome
)


# --- what comes in -------------------------------------------------------------------------------------


class RecordedReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The model's reply, as the journal keeps it."""

    content: list[ContentBlock]
    stop: Literal["end", "tool_use", "length", "refusal", "other"] = "end"
    model: str = ""
    attempts: list[dict[str, Json]] = []
    """Calls that failed before this one: which model, and why."""

    @property
    def calls(self) -> list[ToolUseBlock]:
        return [block for block in self.content if isinstance(block, ToolUseBlock)]

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def says_something(self) -> bool:
        """Whether there is anything to read or to do."""
        return any(not isinstance(block, ReasoningBlock) and block != TextBlock("") for block in self.content)


def reply_of(value: Json) -> RecordedReply:
    """A reply from an answer; a bare text is one, too: whoever answers by hand need not know our format.

    Raises `msgspec.ValidationError` for anything else.
    """
    return (
        RecordedReply(content=[TextBlock(value)]) if isinstance(value, str) else msgspec.convert(value, RecordedReply)
    )


class ToolCallOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one call."""

    content: Json = None
    is_error: bool = False
    executed: bool = True
    """False for a tool that does not exist, and for arguments that it does not take."""
    finish: Json = msgspec.UNSET
    """A value that ends the turn."""
    frame: FrameSwitchOutcome | None = None
    stops: bool = False
    """Whether its failure ends the turn."""
    gives_up: str | None = None
    """Why the model says that there is no value to submit."""


class TurnUsage(msgspec.Struct, kw_only=True):
    """What a turn has cost so far."""

    iterations: int = 0
    tool_calls: int = 0
    idle: int = 0
    """Replies in a row that executed nothing."""
    repairs: int = 0
    """Times the model was asked again for a value."""
    tokens: int = 0
    cost: float = 0.0


class Turn(msgspec.Struct, kw_only=True):
    """One turn. All of it can be written down, and read back: it then waits for the same."""

    id: str
    began_at: int
    limits: Limits = Limits()
    wants_value: bool = False
    """Whether it is to come to a value that the model submits."""
    effect: Effect = CallModel(1)
    spent: TurnUsage = msgspec.field(default_factory=TurnUsage)

    def __post_init__(self) -> None:
        if self.spent.iterations == 0:
            self.spent.iterations = 1

    # --- the ways on -------------------------------------------------------------------------------

    def replied(self, reply: RecordedReply, at: int, *, tokens: int = 0, cost: float = 0.0) -> Effect:
        """The model has answered; the turn has cost so much by now."""
        self._expect(CallModel)
        self.spent.tokens, self.spent.cost = tokens, cost
        calls = reply.calls
        if calls:
            allowed = self.limits.tool_calls
            if allowed is not None and self.spent.tool_calls + len(calls) > allowed:
                told = f"it asked for {len(calls)} more tool calls, and {self.spent.tool_calls} of {allowed} were made"
                return self._end(StoppedOutcome("max_turns", told, "tool_calls"))
            self.spent.tool_calls += len(calls)
            return self._do(CallTools(calls))
        if reply.stop == "length":
            return self._end(StoppedOutcome("incomplete", "the model met its token limit before it was done"))
        if self.wants_value:
            return self._repair(at, REMINDER)
        if reply.says_something:
            return self._end(MessageOutcome())
        return self._again(at, executed=False)

    def failed(self, failure: Failure) -> Effect:
        """There is no reply: the call was cancelled, or failed for good."""
        self._expect(CallModel)
        return self._end(stop_of(failure, otherwise="provider_error"))

    def tools_done(self, results: list[ToolCallOutcome], at: int) -> Effect:
        """All calls have come to something, in their order. The first that ends the turn counts."""
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
        """Somebody stopped the turn while tools ran: a person, or a plugin."""
        self._expect(CallTools)
        return self._end(stop_of(failure, otherwise="tool_failure"))

    def goes_on(self, at: int) -> Effect | None:
        """There is more to answer before the turn is over: something was said meanwhile.

        None if the turn may not go on: it has come to an answer then, and what was said waits for the next.
        """
        self._expect(EndTurn)
        return self._again(at, executed=True) if self._limit(at) is None else None

    # --- choosing ----------------------------------------------------------------------------------

    def _expect(self, effect: type[T]) -> T:
        if not isinstance(self.effect, effect):
            found, wanted = (kind.__struct_config__.tag for kind in (type(self.effect), effect))
            raise ValueError(f"turn '{self.id}': it is at '{found}', and what it was told comes after '{wanted}'")
        return self.effect

    def _repair(self, at: int, remark: str = "") -> Effect:
        """Ask for the value once more, unless that was done often enough."""
        if self.spent.repairs >= self.limits.repairs:
            return self._end(StoppedOutcome("incomplete", _TOLD["repairs"], "repairs"))
        self.spent.repairs += 1
        return self._again(at, executed=True, remark=remark)

    def _again(self, at: int, *, executed: bool, remark: str = "") -> Effect:
        """Ask the model once more, unless a limit is met."""
        self.spent.idle = 0 if executed else self.spent.idle + 1
        met = self._limit(at)
        if met is not None:
            return self._end(StoppedOutcome("max_turns", _TOLD[met], met))
        self.spent.iterations += 1
        return self._do(CallModel(self.spent.iterations, remark))

    def _limit(self, at: int) -> str | None:
        limits, spent = self.limits, self.spent
        met = {
            "iterations": limits.iterations is not None and spent.iterations >= limits.iterations,
            "no_progress": spent.idle >= limits.no_progress,
            "tokens": limits.tokens is not None and spent.tokens >= limits.tokens,
            "cost": limits.cost is not None and spent.cost >= limits.cost,
            "wall_ms": limits.wall_ms is not None and at - self.began_at >= limits.wall_ms,
        }
        return next((name for name, is_met in met.items() if is_met), None)

    def _do(self, effect: Effect) -> Effect:
        self.effect = effect
        return effect

    def _end(self, outcome: TurnOutcome) -> Effect:
        return self._do(EndTurn(outcome))


FINISH_TOOL = "finish"
"""The tool by which a model submits a value, where one was asked for."""

GIVE_UP_TOOL = "give_up"
"""The tool by which it says that there is none."""

REMINDER = (
    f"This has to end with a call of '{FINISH_TOOL}' with the result; what you say otherwise is not read. "
    f"If there can be no result, call '{GIVE_UP_TOOL}' and say why."
)

_STOPS: dict[str, StopReason] = {"cancelled": "cancelled", "plugin_abort": "plugin_abort"}
"""Codes of failures by which somebody stops a turn, and what it is then."""

STOP_CODES = frozenset(_STOPS)

_TOLD = {
    "iterations": "the model was called as often as one turn allows",
    "no_progress": "the model answered again and again without saying or doing anything",
    "tokens": "the turn has used as many tokens as it may",
    "cost": "the turn has cost as much as it may",
    "wall_ms": "the turn has taken as long as it may",
    "repairs": "the model did not submit a result that fits, however often it was asked to",
}


def stop_of(failure: Failure, *, otherwise: StopReason) -> StoppedOutcome:
    """How a failure stops a turn: as whoever wanted that says, or else for this reason."""
    return StoppedOutcome(_STOPS.get(failure.code, otherwise), failure.message)


def _brief(content: Json) -> str:
    text = content if isinstance(content, str) else str(content)
    return text[:400]
