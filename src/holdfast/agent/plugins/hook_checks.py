"""Whether what plugins made of a request or a reply can be used: each function says what is wrong, if anything is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.agent.machine.messages import AgentMessage, ToolResultBlock, ToolUseBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, ToolSpec
from holdfast.core.errors import HoldfastError
from holdfast.core.values import check_value

_PICTURES = (bytes,)
"""Left as they are when messages are looked through."""


def problem_in_messages(shown: object, before: Sequence[AgentMessage]) -> str | None:
    """What is wrong with messages that are to be shown to a model in place of others."""
    if not isinstance(shown, list):
        return f"it gave {type(shown).__name__}, which is no list of messages"
    if before and not shown:
        return "it left nothing to be shown"
    try:
        msgspec.convert(
            msgspec.to_builtins(shown, builtin_types=_PICTURES), list[AgentMessage], builtin_types=_PICTURES
        )
    except (TypeError, ValueError, RecursionError) as error:
        return f"it gave what is no list of messages: {error}"
    if strange := next((each for each in shown if not isinstance(each, AgentMessage)), None):
        return f"it gave a message of the type {type(strange).__name__}"
    # What a host brought along may be odd from the start: that is not the plugin's doing.
    return broken_pair(shown) if broken_pair(before) is None else None


def broken_pair(messages: Sequence[AgentMessage]) -> str | None:
    """Which call of a tool is without its result, or the other way round."""
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
    """What is wrong with a request that is to be sent in place of another."""
    if not isinstance(made, ModelRequest):
        return f"it gave {type(made).__name__}, which is no request"
    try:
        for name in ("model", "system", "key"):
            if not isinstance(getattr(made, name), str):
                return f"'{name}' of its request is no text"
        if not made.model:
            return "its request is to no model"
        check_value(made.params, "params")
        tools = msgspec.convert(msgspec.to_builtins(made.tools), list[ToolSpec])
    except (TypeError, ValueError, RecursionError, HoldfastError) as error:
        return f"it gave a request that makes no sense: {error}"
    if twice := [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]:
        return f"its request has several tools of the name '{twice[0]}'"
    return problem_in_messages(made.messages, before.messages)


def problem_in_reply(made: object) -> str | None:
    """What is wrong with a reply that is to be recorded in place of another."""
    if not isinstance(made, ModelReply):
        return f"it gave {type(made).__name__}, which is no reply"
    try:
        plain = msgspec.to_builtins(made)
        check_value(plain, "reply")
        msgspec.convert(plain, ModelReply)
    except (TypeError, ValueError, RecursionError, HoldfastError) as error:
        return f"it gave a reply that makes no sense: {error}"
    return None
