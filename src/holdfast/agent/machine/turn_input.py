"""`TurnInput`: what a turn begins with, in the one form that is sent, recorded and read."""

from __future__ import annotations

from binascii import b2a_base64

import msgspec

from holdfast.agent.machine.inbox import Command, Item
from holdfast.agent.machine.messages import AgentMessage, ContentBlock, plain_text, with_content
from holdfast.agent.machine.policy import Policy, Spec
from holdfast.agent.machine.prompt import PromptLayer
from holdfast.core.queries import Answer, Failure, Value
from holdfast.core.values import Json


class NewConversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conversation begins anew with this turn: from nothing, or from these messages."""

    messages: list[AgentMessage] = []
    policy: Policy | None = None
    """In force from this turn on; None leaves the present one."""

    def under(self, policy: Policy) -> NewConversation:
        """The same under another policy."""
        return msgspec.structs.replace(self, policy=policy)


class TurnInput(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a turn begins with: the answer to an `InputQuery`."""

    turn: str
    """The turn's id. The same id again is the same turn."""
    content: list[ContentBlock]
    begin: NewConversation | None = None
    output: dict[str, Json] | None = None
    """JSON schema of the value that the turn must end with, or None if it need not end with one."""
    command: Command | None = None
    """What the host wants done, if the input is a command instead of content."""
    prompt: PromptLayer | None = None
    """The highest layer of the system text, for this turn alone."""
    items: list[str] = []
    """The items of the inbox that it is made of, if any."""
    spec: Spec | None = None
    """Where the policy differs for this turn alone."""

    def to_answer(self) -> Value:
        """The answer that brings it to a session. A content of plain text is kept as the text alone."""
        value: dict[str, Json] = msgspec.to_builtins(self, builtin_types=(bytes,))
        for block in value["content"]:
            if block["type"] == "image":
                block["image"]["data"] = _base64_in_pieces(block["image"]["data"])
        if value.get("begin") is not None:
            value["begin"] = msgspec.to_builtins(self.begin)
        if (text := plain_text(self.content)) is not None:
            value["content"] = text
        return Value(value=value)


PIECE_BYTES = 3 * 256 * 1024
"""Bytes of a picture that are encoded at once: a millisecond in which no other thread runs. Three become four."""


def _base64_in_pieces(data: bytes) -> str:
    return "".join(
        b2a_base64(data[start : start + PIECE_BYTES], newline=False).decode()
        for start in range(0, len(data), PIECE_BYTES)
    )


def task_of(ctx: Json) -> TurnInput | None:
    """The task that a subagent was started with; None if it is no subagent.

    Other programs have tasks too, and any program may be started with anything: what is no input is no task.
    """
    task = ctx.get("task") if isinstance(ctx, dict) else None
    try:
        return None if task is None else msgspec.convert(with_content(task), TurnInput)
    except (msgspec.ValidationError, ValueError):
        return None


def input_of(answer: Answer) -> TurnInput:
    """The input that an answer brings. Raises `ValueError` if it brings none."""
    if isinstance(answer, Failure):
        raise ValueError(answer.message)
    return msgspec.convert(with_content(answer.value), TurnInput)


def input_from(turn: str, items: list[Item]) -> TurnInput:
    """The input of a turn that is made of items of the inbox."""
    return TurnInput(
        turn=turn,
        content=[block for item in items for block in item.content],
        items=[item.id for item in items],
        command=items[0].command,
        output=items[0].output,
    )
