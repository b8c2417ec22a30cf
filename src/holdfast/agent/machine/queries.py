"""The queries that only agents ask: for the next input, the model's reply, a summary, a tool call, a subagent, and an
approval."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from holdfast.agent.machine.approval import check_decision
from holdfast.agent.machine.errors import InvalidDecisionError, NotAnInputError
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Answer, ChildQuery, HumanQuery, LlmQuery, Query, ToolQuery, Value
from holdfast.core.values import Json


class InputQuery(Query, frozen=True, tag="input"):
    """The next input of an agent that waits between turns; answered with a `TurnInput`."""

    kind = "input"
    is_patient = True
    is_question = False

    @property
    def is_plain(self) -> bool:
        return self.timeout_ms is None

    def check_answer(self, session_id: str, answer: Answer) -> None:
        if not (isinstance(answer, Value) and isinstance(answer.value, dict) and "turn" in answer.value):
            raise NotAnInputError(session_id, self.id)


class ReplyQuery(LlmQuery, frozen=True, kw_only=True, tag="reply"):
    """The model's next reply in a turn; answered with a `RecordedReply`.

    The prompt is empty: the model is shown the conversation, which is in the journal.
    """

    prompt: str = ""
    iteration: int = 1
    """The number of this call of the model in its turn, from 1."""
    remark: str = ""
    """What the runtime says in the conversation before the model is asked."""

    @property
    def is_plain(self) -> bool:
        return self == ReplyQuery(
            id=self.id, iteration=self.iteration, remark=self.remark, context_tokens=self.context_tokens
        )

    def to_json(self) -> dict[str, Json]:
        return {**super().to_json(), "iteration": self.iteration}

    @property
    def text(self) -> str:
        return f"the model, call {self.iteration} of the turn"


class SummaryQuery(LlmQuery, frozen=True, kw_only=True, tag="summary"):
    """A summary of the conversation by the model. The prompt, if there is one, says what to pay attention to."""

    keep: int
    """About how many tokens of the latest messages are kept verbatim instead of being summed up."""


ServedBy: TypeAlias = Literal["process", "host", "subagent", "nobody"]
"""Who runs a tool that a model was offered: a process that has it, or the host if it was only declared; a subagent does
what is delegated. Nobody runs one that the model has made up."""


class CellTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that a cell can call by a name."""

    name: str
    """The tool's own name, which need not be an identifier."""
    parameters: list[str] = []
    """The names of its parameters, in the order in which a call may give them without names."""
    served_by: ServedBy = "process"


class CallQuery(ToolQuery, frozen=True, kw_only=True, tag="call"):
    """A tool call of the model."""

    call_id: str
    """The model's own id of the call."""
    edited: bool = False
    """Whether the arguments come from whoever approved the call, and not from the model."""
    served_by: ServedBy = "process"

    @property
    def group(self) -> str:
        return f"tool:{self.served_by}:{self.name}"

    @property
    def tool_needed(self) -> str | None:
        match self.served_by:
            case "process":
                return self.name
            case "nobody":
                return ""
            case "host" | "subagent":
                return None


class DelegateQuery(ChildQuery, frozen=True, kw_only=True, tag="delegate"):
    """A task for a subagent, whose name is the `program`; answered as `delegation.subagent_result` reads it."""

    task: str
    seed: dict[str, Json] = msgspec.field(default_factory=dict)
    """Values that it is given with the task."""
    output: dict[str, Json] | None = None
    """JSON schema of the value that it must give back; None for what its definition says."""
    call_id: str = ""
    """The model's own id of the call; empty if a program asks."""
    edited: bool = False
    """Whether the arguments come from whoever approved the call, and not from the model."""
    program_kind: Literal["native", "any", "agent"] = "agent"

    def to_json(self) -> dict[str, Json]:
        shown: dict[str, Json] = {"program": self.program, "task": self.task}
        return {**shown, "seed": self.seed} if self.seed else shown

    @property
    def text(self) -> str:
        return f"{self.program}: {self.task}"


class ApprovalCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call that somebody is asked to approve."""

    id: str
    """The model's own."""
    tool: str
    arguments: dict[str, Json] = {}
    reason: str = ""
    """Why approval is needed."""


class ApprovalQuery(HumanQuery, frozen=True, kw_only=True, tag="approval"):
    """Whether a tool call may run; answered as `approval.decision_of` reads it."""

    approves: ApprovalCall
    is_patient: ClassVar[bool] = True

    def to_json(self) -> dict[str, Json]:
        return {**super().to_json(), "approves": msgspec.to_builtins(self.approves)}

    def check_answer(self, session_id: str, answer: Answer) -> None:
        call = self.approves
        try:
            check_decision(call.tool, call.arguments, answer)
        except InvalidValueError as error:
            raise InvalidDecisionError(session_id, self.id, call.tool, str(error)) from None


AGENT_QUERIES: tuple[type[Query], ...] = (
    InputQuery,
    ReplyQuery,
    SummaryQuery,
    CallQuery,
    DelegateQuery,
    ApprovalQuery,
)
