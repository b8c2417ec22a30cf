"""The prompt that asks a model to summarize a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from holdfast.agent.machine.compaction import threshold
from holdfast.agent.machine.messages import (
    AgentMessage,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.machine.policy import Policy
from holdfast.agent.providers.provider import ModelRequest
from holdfast.core.values import encode

SUMMARY_TOKENS = 4_000
"""Tokens that a summary may take: a few pages, and a small part of most windows."""

RESULT_CHARS = 2_000
"""Characters of a tool's result that the summarizing model sees: enough to tell what it was."""

TRIES = 3
"""How often a model is asked if it finds the conversation too long to summarize; each time it gets half as much."""

CHARS_PER_TOKEN = 3
"""Of the text to summarize; low enough that dense text fits the window, too."""

_CUTS = (20_000, 5_000, 1_000)
"""Characters shown of each message if all of them together are too long; tried in this order."""

_NOT_FOR_SUMMARIES = frozenset(
    ["tool_choice", "parallel_tool_calls", "response_format", "n", "stop", "stop_sequences", "logit_bias"]
)
"""Generation options that only suit answers and tool calls. Some model services refuse them without tools."""

SUMMARY_SYSTEM = (
    "You write the notes from which a long conversation continues after most of it has been removed. Whoever continues"
    " it sees your notes and the latest messages, and nothing else. Keep every fact that may still matter: names,"
    " numbers, paths, decisions, requests. Invent nothing. Do not reply to the conversation, and do not address anyone."
)

_HEADINGS = """Use these headings, and leave out those that have no content:
## Goal
## Requirements and limits
## Done
## In progress
## Blocked
## Decisions and reasons
## Next steps
## Facts to keep"""

_FORMER = "These are the notes so far. Keep what still matters, and correct what is no longer true."


def summary_request(policy: Policy, task: str, key: str) -> ModelRequest:
    """The model request for a summary."""
    params = {name: value for name, value in policy.generation.items() if name not in _NOT_FOR_SUMMARIES}
    return ModelRequest(
        model=policy.model,
        messages=[AgentMessage("user", [TextBlock(task)])],
        system=SUMMARY_SYSTEM,
        params={**params, "max_tokens": summary_tokens(policy)},
        key=key,
    )


def summary_tokens(policy: Policy) -> int:
    """Tokens that a summary may take; in a small window, a part of it."""
    if policy.window is None:
        return SUMMARY_TOKENS
    return max(1, min(SUMMARY_TOKENS, threshold(policy.window, policy.compaction) // 4))


def most_chars(policy: Policy) -> int | None:
    """Characters that can be summarized at once, or None if the window is unknown."""
    return None if policy.window is None else CHARS_PER_TOKEN * (policy.window - summary_tokens(policy))


def summary_task(
    messages: Sequence[AgentMessage], instructions: str = "", *, former: str = "", most: int | None = None
) -> str:
    """The task to summarize these messages in about `most` characters; `former` are the notes on what came before."""
    before = f"\n\n{_FORMER}\n<notes>\n{former}\n</notes>" if former else ""
    focus = f"\n\nAbove all: {instructions}" if instructions.strip() else ""
    task = f"Summarize this conversation. {_HEADINGS}{focus}{before}\n\n<conversation>\n"
    text = _conversation_text(messages, None if most is None else most - len(task))
    return f"{task}{text}\n</conversation>"


def _conversation_text(messages: Sequence[AgentMessage], room: int | None) -> str:
    """The messages as text. If that is too long, long ones are cut; if it still is, the oldest are left out."""
    texts = _message_texts(messages, None)
    for cut in _CUTS:
        if room is None or sum(map(len, texts)) <= room:
            break
        texts = _message_texts(messages, cut)
    first = len(texts)
    while first and (room is None or (room := room - len(texts[first - 1])) >= 0):
        first -= 1
    left_out = [f"[{first} earlier messages omitted]"] if first else []
    return "\n\n".join([*left_out, *texts[first:]])


def _message_texts(messages: Sequence[AgentMessage], cut: int | None) -> list[str]:
    return [text for message in messages if (text := _message_text(message, cut))]


def _message_text(message: AgentMessage, cut: int | None) -> str:
    parts: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append(_cut(text, cut))
            case ImageBlock():
                parts.append("[image]")
            case ToolUseBlock(name=name, input=arguments):
                parts.append(f"[calls {name} with {_cut(encode(arguments).decode(), RESULT_CHARS)}]")
            case ToolResultBlock(content=content, is_error=is_error):
                text = content if isinstance(content, str) else encode(content).decode()
                parts.append(f"[{'error' if is_error else 'result'}: {_cut(text, RESULT_CHARS)}]")
            case ReasoningBlock():
                pass
            case _:
                assert_never(block)
    return f"{message.role}: " + "\n".join(parts) if parts else ""


def _cut(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most} more characters)"
