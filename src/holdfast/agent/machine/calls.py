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
    ApproveDecision,
    DenyDecision,
    Rule,
    decision_of,
    is_granted,
    ruling,
)
from holdfast.agent.machine.conversation import tool_done
from holdfast.agent.machine.messages import ToolUseBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.queries import ApprovalCall, ApprovalQuery, CallQuery
from holdfast.agent.machine.records import CallRecord
from holdfast.agent.machine.turn import FINISH_TOOL, GIVE_UP_TOOL, CallTools, ToolCallOutcome
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


class _Progress:
    """How far one call has come."""

    def __init__(self, call: ToolUseBlock) -> None:
        self.call = call
        self.tool, self.arguments = wish(call)
        self.stage: Literal["callback", "confirm", "run"] = "run"
        self.ruling = ALLOWED
        self.done: ToolCallOutcome | None = None
        self.edited = False
        """Whether somebody approved the call and changed its arguments."""


class Calls:
    """The calls of one reply."""

    def __init__(self, effect: CallTools, policy: Policy, granted: list[Rule]) -> None:
        self._policy = policy
        self._served_by = effect.served_by
        self._granted = granted
        """What was approved for the rest of the session; this class adds to it."""
        self._calls = [_Progress(call) for call in effect.calls]
        self._asking: list[_Progress] = []
        """Calls whose queries are about to be asked, in that order."""
        self._waiting: dict[str, _Progress] = {}
        self._refused: list[CallRecord] = []
        self._withdrawn: list[str] = []

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
                each.done, following = self._result(each.tool, answer), None
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
        return [self._run(self._waiting.pop(asked)) for asked in approved]

    def withdrawals(self) -> list[str]:
        """The queries that were withdrawn since this was last called."""
        withdrawn, self._withdrawn = self._withdrawn, []
        return withdrawn

    def refusals(self) -> list[CallRecord]:
        """The calls that were refused since this was last called."""
        refused, self._refused = self._refused, []
        return refused

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

    def _wished(self, each: _Progress) -> Query | None:
        if each.tool in HARMLESS:
            return self._run(each)
        if each.tool.startswith(OWN_TOOLS):  # with these, programs ask the runtime; they are not for models
            return self._end(each, {"error": f"there is no tool '{each.tool}'", "code": "unknown_tool"})
        return self._judged(each)

    def _judged(self, each: _Progress) -> Query | None:
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

    def _authorized(self, each: _Progress, answer: Answer) -> Query | None:
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

    def _confirmed(self, each: _Progress, *, is_needed: bool) -> Query | None:
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

    def _decided(self, each: _Progress, answer: Answer) -> Query | None:
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

    def _run(self, each: _Progress) -> Query:
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

    def _ask(self, each: _Progress, stage: Literal["callback", "confirm", "run"], query: Query) -> Query:
        each.stage = stage
        self._asking.append(each)
        return query

    def _refuse(self, each: _Progress, reason: str) -> Query | None:
        return self._end(each, {"error": f"not approved: {reason}", "code": "denied"})

    def _end(self, each: _Progress, content: Json) -> Query | None:
        """End a call with this result without running it. There is nothing more to ask."""
        each.done = ToolCallOutcome(content=content, is_error=True, executed=False)
        self._refused.append(CallRecord(call_id=each.call.id, done=each.done))
        return None

    def _result(self, tool: str, answer: Answer) -> ToolCallOutcome:
        done = tool_done(answer)
        deadline = self._policy.deadlines.get(tool)
        if deadline is None or not isinstance(answer, Failure) or answer.code != "timeout":
            return done
        return msgspec.structs.replace(done, stops=deadline.stops)
