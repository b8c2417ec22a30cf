"""Checks of what hooks return in place of messages, requests and replies: each function returns a problem, or None."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.agent.machine.messages import AgentMessage, ToolResultBlock, ToolUseBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, ToolSpec
from holdfast.core.errors import HoldfastError
from holdfast.core.values import check_value

_BINARY_TYPES = (bytes,)
"""Left as they are when messages are checked."""


def problem_in_messages(shown: object, before: Sequence[AgentMessage]) -> str | None:
    """What is wrong with messages that would replace others in a model's view."""
    if not isinstance(shown, list):
        return f"it returned {type(shown).__name__}, which is not a list of messages"
    if before and not shown:
        return "it left no messages"
    try:
        msgspec.convert(
            msgspec.to_builtins(shown, builtin_types=_BINARY_TYPES), list[AgentMessage], builtin_types=_BINARY_TYPES
        )
    except (TypeError, ValueError, RecursionError) as error:
        return f"it returned an invalid list of messages: {error}"
    if strange := next((each for each in shown if not isinstance(each, AgentMessage)), None):
        return f"it returned a message of the type {type(strange).__name__}"
    # A conversation from the host may have had broken pairs before: the plugin is not to blame.
    return broken_pair(shown) if broken_pair(before) is None else None


def broken_pair(messages: Sequence[AgentMessage]) -> str | None:
    """The first tool call without its result, or result without its call; None if there is none."""
    waiting: Counter[str] = Counter()  # models may give the same id twice
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                if not waiting[block.tool_use_id]:
                    return f"it shows the result of call '{block.tool_use_id}' without the call"
                waiting[block.tool_use_id] -= 1
        if message.role != "tool" and (left := +waiting):
            return f"it shows call '{next(iter(left))}' without its result"
        waiting.update(block.id for block in message.content if isinstance(block, ToolUseBlock))
    left = +waiting
    return f"it shows call '{next(iter(left))}' without its result" if left else None


def problem_in_request(made: object, before: ModelRequest) -> str | None:
    """What is wrong with a request that would replace another."""
    if not isinstance(made, ModelRequest):
        return f"it returned {type(made).__name__}, which is not a request"
    try:
        for name in ("model", "system", "key"):
            if not isinstance(getattr(made, name), str):
                return f"'{name}' of its request is not text"
        if not made.model:
            return "its request names no model"
        check_value(made.params, "params")
        tools = msgspec.convert(msgspec.to_builtins(made.tools), list[ToolSpec])
    except (TypeError, ValueError, RecursionError, HoldfastError) as error:
        return f"it returned an invalid request: {error}"
    if twice := [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]:
        return f"its request has several tools named '{twice[0]}'"
    return problem_in_messages(made.messages, before.messages)


def problem_in_reply(made: object) -> str | None:
    """What is wrong with a reply that would replace another."""
    if not isinstance(made, ModelReply):
        return f"it returned {type(made).__name__}, which is not a reply"
    try:
        plain = msgspec.to_builtins(made)
        check_value(plain, "reply")
        msgspec.convert(plain, ModelReply)
    except (TypeError, ValueError, RecursionError, HoldfastError) as error:
        return f"it returned an invalid reply: {error}"
    return None
