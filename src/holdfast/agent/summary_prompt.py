"""What a model is asked when a conversation is summed up."""

from __future__ import annotations

from collections.abc import Sequence

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
"""Tokens that a summary may take: some pages, and a small part of most windows."""

RESULT_CHARS = 2_000
"""Characters of a tool's result that whoever sums up is shown: enough to tell what it was."""

TRIES = 3
"""How often a model is asked for a summary that finds what is to be summed up too long; each time it is half of it."""

CHARS_PER_TOKEN = 3
"""Of what is to be summed up, so that it fits into the window also where it is dense."""

_CUTS = (20_000, 5_000, 1_000)
"""Characters of each message that are shown, where all of them together are too many."""

_NOT_FOR_SUMMARIES = frozenset(
    ["tool_choice", "parallel_tool_calls", "response_format", "n", "stop", "stop_sequences", "logit_bias"]
)
"""Options of generation that are for answers and calls of tools: services refuse some of them without tools."""

SUMMARY_SYSTEM = (
    "You write the notes by which a long conversation goes on after most of it has been put away. Whoever goes on sees"
    " your notes and the latest messages, and nothing else. Keep every fact that may still matter: names, numbers,"
    " paths, decisions, wishes. Invent nothing. Do not answer the conversation, and do not address anybody."
)

_HEADINGS = """Use these headings, and leave out those with nothing to say:
## Goal
## Wishes and limits
## Done
## Under way
## Blocked
## Decisions and why
## Next steps
## Facts to keep"""

_FORMER = "These are the notes until now. Carry on what still matters of them, and mend what is no longer so."


def summary_request(policy: Policy, task: str, key: str) -> ModelRequest:
    """The call that a summary is asked for by."""
    params = {name: value for name, value in policy.generation.items() if name not in _NOT_FOR_SUMMARIES}
    return ModelRequest(
        model=policy.model,
        messages=[AgentMessage("user", [TextBlock(task)])],
        system=SUMMARY_SYSTEM,
        params={**params, "max_tokens": summary_tokens(policy)},
        key=key,
    )


def summary_tokens(policy: Policy) -> int:
    """Tokens that a summary may take: in a small window a part of it."""
    if policy.window is None:
        return SUMMARY_TOKENS
    return max(1, min(SUMMARY_TOKENS, threshold(policy.window, policy.compaction) // 4))


def most_chars(policy: Policy) -> int | None:
    """Characters that may be summed up at once, where the window is known."""
    return None if policy.window is None else CHARS_PER_TOKEN * (policy.window - summary_tokens(policy))


def summary_task(
    messages: Sequence[AgentMessage], instructions: str = "", *, former: str = "", most: int | None = None
) -> str:
    """The task to sum up these messages, with the notes about what was said before them, in about `most` characters."""
    before = f"\n\n{_FORMER}\n<notes>\n{former}\n</notes>" if former else ""
    wishes = f"\n\nAbove all: {instructions}" if instructions.strip() else ""
    task = f"Sum up this conversation. {_HEADINGS}{wishes}{before}\n\n<conversation>\n"
    told = _told_in(messages, None if most is None else most - len(task))
    return f"{task}{told}\n</conversation>"


def _told_in(messages: Sequence[AgentMessage], room: int | None) -> str:
    """The messages as text. If that is too much, long ones are cut; if it still is, the oldest are left out."""
    told = _all_told(messages, None)
    for cut in _CUTS:
        if room is None or sum(map(len, told)) <= room:
            break
        told = _all_told(messages, cut)
    first = len(told)
    while first and (room is None or (room := room - len(told[first - 1])) >= 0):
        first -= 1
    left_out = [f"[{first} earlier messages are left out]"] if first else []
    return "\n\n".join([*left_out, *told[first:]])


def _all_told(messages: Sequence[AgentMessage], cut: int | None) -> list[str]:
    return [text for message in messages if (text := _told(message, cut))]


def _told(message: AgentMessage, cut: int | None) -> str:
    parts: list[str] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append(_cut(text, cut))
            case ImageBlock():
                parts.append("[a picture]")
            case ToolUseBlock(name=name, input=given):
                parts.append(f"[calls {name} with {_cut(encode(given).decode(), RESULT_CHARS)}]")
            case ToolResultBlock(content=content, is_error=is_error):
                text = content if isinstance(content, str) else encode(content).decode()
                parts.append(f"[{'fails' if is_error else 'gets'}: {_cut(text, RESULT_CHARS)}]")
            case ReasoningBlock():
                pass
    return f"{message.role}: " + "\n".join(parts) if parts else ""


def _cut(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most} more characters)"
