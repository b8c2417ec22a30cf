"""How a model hands over its cells: as a fenced block of its reply, or by calling the one tool that it is shown.

That is between the runtime and the provider. Either way the journal has the reply as text with a fenced block, and all
that follows from it is the same; a call becomes such a block when the reply comes, and becomes a call again when the
conversation is sent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.agent.machine.messages import AgentMessage, ContentBlock, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.policy import Emission
from holdfast.agent.providers.provider import ModelReply, ToolSpec
from holdfast.agent.rlm.fence import find_cell
from holdfast.core.values import encode

RUN_CODE = ToolSpec(
    "run_code",
    "Run one cell of Python. You are shown what it printed, the value of its last expression, and what became of its"
    " variables.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code of the cell."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
"""The tool by which a model hands over a cell."""

NOT_RUN = "It was not run."
"""The result of a call that none has followed."""


def in_fences(reply: ModelReply) -> ModelReply:
    """A reply in which the first call of `run_code` is a fenced block. Calls after it are left out, as cells are."""
    content: list[ContentBlock] = []
    for block in reply.content:
        if isinstance(block, ToolUseBlock) and block.name == RUN_CODE.name and isinstance(block.input, dict):
            code = block.input.get("code")
            if isinstance(code, str):
                said = "".join(each.text for each in content if isinstance(each, TextBlock))
                others = [each for each in content if not isinstance(each, TextBlock)]
                text = f"{said.rstrip()}\n\n{fenced(code)}".lstrip("\n")
                return msgspec.structs.replace(reply, content=[*others, TextBlock(text)])
        content.append(block)
    return reply


def fenced(code: str) -> str:
    """A block with the code, in more backticks than any line of it begins with."""
    most = max((len(found) for found in re.findall(r"^ {0,3}(`{3,})", code, re.MULTILINE)), default=2)
    marks = "`" * (most + 1)
    return f"{marks}python\n{code.rstrip()}\n{marks}"


def as_sent(messages: Sequence[AgentMessage], emission: Emission) -> list[AgentMessage]:
    """A conversation as the provider is sent it.

    A call of a tool that the model was not shown is told in words: providers refuse calls without results.
    """
    sent: list[AgentMessage] = []
    told: set[int] = set()
    """The messages that were sent as the result of a call."""
    for number, message in enumerate(messages):
        if message.role != "assistant":
            sent += [message] if number not in told else []
            continue
        said = _in_words(message)
        found = find_cell(said.text) if emission == "tool" else None
        if found is None or not found.is_closed:
            sent.append(said)
            continue
        call, answer = f"cell-{number}", _feedback(messages, number)
        told |= {answer} if answer is not None else set()
        result = NOT_RUN if answer is None else messages[answer].text
        sent += [_with_call(said, found.text, found.code, call), AgentMessage("tool", [ToolResultBlock(call, result)])]
    return sent


def _feedback(messages: Sequence[AgentMessage], number: int) -> int | None:
    """The number of the message that says what came of the cell in another one; None if there is none."""
    for following in range(number + 1, len(messages)):
        if messages[following].role == "assistant":
            return None
        if messages[following].role == "signal":
            return following
    return None


def _in_words(message: AgentMessage) -> AgentMessage:
    if not any(isinstance(block, ToolUseBlock) for block in message.content):
        return message
    content: list[ContentBlock] = [
        TextBlock(f"[call of {block.name} with {encode(block.input).decode()}]")
        if isinstance(block, ToolUseBlock)
        else block
        for block in message.content
    ]
    return AgentMessage(message.role, content)


def _with_call(message: AgentMessage, text: str, code: str, call: str) -> AgentMessage:
    """The message with a call in place of its block."""
    lines = text.split("\n")
    opening = next(number for number in range(len(lines)) if find_cell("\n".join(lines[: number + 1])).is_open)
    prose = "\n".join(lines[:opening]).strip()
    others = [block for block in message.content if not isinstance(block, TextBlock)]
    said = [TextBlock(prose)] if prose else []
    return AgentMessage(message.role, [*others, *said, ToolUseBlock(call, RUN_CODE.name, {"code": code})])
