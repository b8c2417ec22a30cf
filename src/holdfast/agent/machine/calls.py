"""The tool calls of a turn: each goes from the model's request, through any approval it needs, to a result.

    wish ──allowed──▶ run ──answer──▶ done
      ├──denied────────────────────▶ done
      ├──callback──▶ asked of the host's code ──▶ as it says
      └──confirm──▶ asked of a person ──approved──▶ run
                                     └──denied────▶ done

A call that waits for a person does not hold up the others. Everything a decision here depends on is in the journal: the
policy, what was granted, and what was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_never

import msgspec

from holdfast.agent.machine.approval import (
    ALLOWED,
    CHOICES,
    AlwaysDecision,
    ApprovalResult,
    ApproveDecision,
    DenyDecision,
    Rule,
    decision_of,
    is_granted,
    ruling,
)
from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.machine.delegation import (
    DELEGATE_TOOL,
    DelegateArguments,
    delegate_arguments,
    outcome_of_delegation,
)
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import ApprovalCall, ApprovalQuery, CallQuery, DelegateQuery, ServedBy
from holdfast.agent.machine.records import CallRecord
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL, CallTools, ToolCallOutcome, TurnUsage
from holdfast.core.budget import Budget
from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import OWN_TOOLS, Answer, Failure, Query, Value
from holdfast.core.values import Json
from holdfast.core.wake import Wake

AUTHORIZE = f"{OWN_TOOLS}authorize"
"""The runtime's own tool, which asks the host's code about a call."""

CALL_TOOL = "call_tool"
"""The tool with which a model calls a tool that is not in its list but that it has found."""

FIND_TOOLS = "find_tools"
"""The tool with which it finds them."""

HARMLESS = frozenset({FINISH_TOOL, GIVE_UP_TOOL, FIND_TOOLS, CALL_TOOL})
"""Tools with which a model only speaks to the runtime; they need no approval. A tool called through `call_tool` is
judged under its own name."""


def wish(call: ToolUseBlock) -> tuple[str, dict[str, Json]]:
    """The tool that a model means, and the arguments for it."""
    given = call.input if isinstance(call.input, dict) else {"_raw": call.input}
    if call.name == CALL_TOOL and isinstance(given.get("name"), str) and isinstance(given.get("arguments"), dict):
        return given["name"], given["arguments"]
    return call.name, given


class CallProgress(msgspec.Struct):
    """How far one call has come."""

    call: ToolUseBlock
    tool: str
    arguments: dict[str, Json]
    stage: Literal["callback", "confirm", "run"] = "run"
    ruling: ApprovalResult = ALLOWED
    done: ToolCallOutcome | None = None
    edited: bool = False
    """Whether somebody approved the call and changed its arguments."""


class ChildTerms(msgspec.Struct, frozen=True):
    """What the subagents of one reply may take of the turn that they are for."""

    spent: TurnUsage
    """Of the turn; it counts the subagents."""
    budget: Budget | None = None
    """For each of them."""
    timeout_ms: int | None = None


class CallGrants(msgspec.Struct, frozen=True):
    """What decides about calls: the policy, what was granted, and what subagents may take."""

    policy: Policy
    granted: list[Rule]
    terms: ChildTerms


class Calls:
    """The calls of one reply."""

    def __init__(self, effect: CallTools, policy: Policy, granted: list[Rule], terms: ChildTerms) -> None:
        self._policy = policy
        self._served_by = effect.served_by
        self._terms = terms
        self._granted = granted
        """What was approved for the rest of the session; this class adds to it."""
        self._calls = [CallProgress(call, *wish(call)) for call in effect.calls]
        self._asking: list[CallProgress] = []
        """Calls whose queries are about to be asked, in that order."""
        self._waiting: dict[str, CallProgress] = {}
        self._refused: list[CallRecord] = []
        self._withdrawn: list[str] = []

    @classmethod
    def of_one(cls, served_by: dict[str, ServedBy], progress: CallProgress, asked: str, grants: CallGrants) -> Calls:
        """A single call that waits for the answer to a query."""
        calls = cls(CallTools([], served_by), grants.policy, grants.granted, grants.terms)
        calls._calls, calls._waiting = [progress], {asked: progress}
        return calls

    @property
    def progress(self) -> list[CallProgress]:
        """How far each call has come."""
        return self._calls

    # --- transitions -------------------------------------------------------------------------------

    def begin(self) -> list[Query]:
        """The first queries."""
        return [query for each in self._calls if (query := self._wished(each)) is not None]

    def asked(self, ids: Sequence[str]) -> None:
        """Take the ids of the queries that were last returned, in their order."""
        self._waiting.update(zip(ids, self._asking, strict=True))
        self._asking = []

    def answered(self, asked: str, answer: Answer) -> list[Query]:
        """Take an answer, and return the queries that follow from it."""
        each = self._waiting.pop(asked)
        match each.stage:
            case "callback":
                following = self._authorized(each, answer)
            case "confirm":
                following = self._decided(each, answer)
            case "run":
                each.done, following = self._result(each, asked, answer), None
            case _:
                assert_never(each.stage)
        return [] if following is None else [following]

    def granted(self) -> list[Query]:
        """Run the calls that no longer need approval, because calls like them were approved for good."""
        approved = [
            asked
            for asked, each in self._waiting.items()
            if each.stage == "confirm" and is_granted(self._granted, each.tool, each.arguments)
        ]
        self._withdrawn += approved
        following = [self._run(self._waiting.pop(asked)) for asked in approved]
        return [query for query in following if query is not None]

    def withdrawals(self) -> list[str]:
        """The queries that were withdrawn since this was last called."""
        withdrawn, self._withdrawn = self._withdrawn, []
        return withdrawn

    def refusals(self) -> list[CallRecord]:
        """The calls that were refused since this was last called."""
        refused, self._refused = self._refused, []
        return refused

    @property
    def are_delegated(self) -> bool:
        """Whether subagents were asked, so that the turn has spent more than its own calls."""
        return any(self._is_delegated(each) for each in self._calls)

    @property
    def waiting(self) -> list[str]:
        """Queries without an answer."""
        return list(self._waiting)

    def left_by(self, answers: Sequence[tuple[str, Answer]]) -> list[str]:
        """Queries that are still without an answer after these."""
        answered = {asked for asked, _ in answers}
        return [asked for asked in self._waiting if asked not in answered]

    @property
    def wake(self) -> Wake:
        """`first` while a call awaits approval, so that it runs as soon as it is approved; otherwise `all`."""
        return "first" if any(each.stage != "run" for each in self._waiting.values()) else "all"

    @property
    def results(self) -> list[ToolCallOutcome]:
        """The results of all calls, in their order, once none waits."""
        return [each.done for each in self._calls if each.done is not None]

    # --- stages ------------------------------------------------------------------------------------

    def _wished(self, each: CallProgress) -> Query | None:
        if each.tool in HARMLESS:
            return self._run(each)
        if each.tool.startswith(OWN_TOOLS):  # with these, programs ask the runtime; they are not for models
            return self._end(each, {"error": f"there is no tool '{each.tool}'", "code": "unknown_tool"})
        return self._judged(each)

    def _judged(self, each: CallProgress) -> Query | None:
        """Apply the rules to a call, with its present arguments."""
        each.ruling = ruling(self._policy.approval, each.tool, each.arguments)
        if each.ruling.verdict == "deny":
            return self._refuse(each, each.ruling.reason or "the rules of this session do not allow it")
        if each.ruling.callbacks:
            arguments: dict[str, Json] = {
                "tool": each.tool,
                "arguments": each.arguments,
                "callbacks": each.ruling.callbacks,
            }
            timeout_ms = each.ruling.timeout_ms
            query = CallQuery(name=AUTHORIZE, arguments=arguments, call_id=each.call.id, timeout_ms=timeout_ms)
            return self._ask(each, "callback", query)
        return self._confirmed(each, is_needed=each.ruling.verdict == "confirm")

    def _authorized(self, each: CallProgress, answer: Answer) -> Query | None:
        reason = "" if isinstance(answer, Value) else f"the code that decides about it failed: {answer.message}"
        said = answer.value if isinstance(answer, Value) else {"verdict": "deny", "reason": reason}
        match said:
            case {"verdict": "allow"}:
                return self._confirmed(each, is_needed=each.ruling.verdict == "confirm")
            case {"verdict": "confirm", **more}:
                reason = str(more.get("reason", "")) or each.ruling.reason
                each.ruling = msgspec.structs.replace(each.ruling, reason=reason)
                return self._confirmed(each, is_needed=True)
            case {"verdict": "deny", "reason": str(reason)} if reason:
                return self._refuse(each, reason)
            case _:
                return self._refuse(each, "the code that decides about it did not allow it")

    def _confirmed(self, each: CallProgress, *, is_needed: bool) -> Query | None:
        """Ask for approval, unless it is not needed or was already granted."""
        if not is_needed or each.edited or is_granted(self._granted, each.tool, each.arguments):
            return self._run(each)
        query = ApprovalQuery(
            prompt=f"Run the tool '{each.tool}'?",
            choices=CHOICES,
            approves=ApprovalCall(each.call.id, each.tool, each.arguments, each.ruling.reason),
            timeout_ms=each.ruling.timeout_ms,
        )
        return self._ask(each, "confirm", query)

    def _decided(self, each: CallProgress, answer: Answer) -> Query | None:
        if isinstance(answer, Failure) and answer.code == "timeout":
            return self._refuse(each, "nobody approved it in time")
        try:
            decision = decision_of(answer)
        except InvalidValueError as error:
            return self._refuse(each, str(error))
        match decision:
            case DenyDecision(reason=reason):
                return self._refuse(each, reason or "the person asked did not approve it")
            case AlwaysDecision(match=match):
                self._granted.append(Rule(each.tool, "allow", match))
            case ApproveDecision(arguments=dict() as edited) if edited != each.arguments:
                each.arguments, each.edited = edited, True
                return self._judged(each)  # a person may not allow what the rules and the host's code do not
            case ApproveDecision():
                pass
        return self._run(each)

    def _is_delegated(self, each: CallProgress) -> bool:
        return each.tool == DELEGATE_TOOL and self._served_by.get(each.tool) == "subagent"

    def _run(self, each: CallProgress) -> Query | None:
        if self._is_delegated(each):
            return self._delegate(each)
        deadline = self._policy.deadlines.get(each.tool)
        query = CallQuery(
            name=each.tool,
            arguments=each.arguments,
            call_id=each.call.id,
            timeout_ms=None if deadline is None else deadline.ms,
            edited=each.edited,
            served_by=self._served_by.get(each.tool, "process"),
        )
        return self._ask(each, "run", query)

    def _delegate(self, each: CallProgress) -> Query | None:
        given, terms = delegate_arguments(each.arguments), self._terms
        if not isinstance(given, DelegateArguments):
            return self._end(each, {"error": given, "code": "invalid_arguments"})
        if self._served_by.get(f"{DELEGATE_TOOL}:{given.agent}") == "nobody":
            error = f"there is no subagent '{given.agent}'; the description of '{DELEGATE_TOOL}' names them"
            return self._end(each, {"error": error, "code": "unknown_agent"})
        most = self._policy.delegation.children
        if terms.spent.children >= most:
            error = f"this turn has started {most} subagents, and may start no more"
            return self._end(each, {"error": error, "code": "too_many_subagents"})
        terms.spent.children += 1
        own_ms = None if given.timeout_s is None else round(given.timeout_s * 1000)
        query = DelegateQuery(
            program=given.agent,
            task=given.task,
            seed=given.seed,
            call_id=each.call.id,
            edited=each.edited,
            budget=terms.budget,
            timeout_ms=min((ms for ms in (own_ms, terms.timeout_ms) if ms is not None), default=None),
        )
        return self._ask(each, "run", query)

    def _ask(self, each: CallProgress, stage: Literal["callback", "confirm", "run"], query: Query) -> Query:
        each.stage = stage
        self._asking.append(each)
        return query

    def _refuse(self, each: CallProgress, reason: str) -> Query | None:
        return self._end(each, {"error": f"not approved: {reason}", "code": "denied"})

    def _end(self, each: CallProgress, content: Json) -> Query | None:
        """End a call with this result without running it. There is nothing more to ask."""
        each.done = ToolCallOutcome(content=content, is_error=True, executed=False)
        self._refused.append(CallRecord(call_id=each.call.id, done=each.done))
        return None

    def _result(self, each: CallProgress, asked: str, answer: Answer) -> ToolCallOutcome:
        if self._is_delegated(each):
            return outcome_of_delegation(answer, asked)
        done = tool_done(answer)
        deadline = self._policy.deadlines.get(each.tool)
        if deadline is None or not isinstance(answer, Failure) or answer.code != "timeout":
            return done
        return msgspec.structs.replace(done, stops=deadline.stops)
