"""A scripted model: replies written in advance, given in order. For tests, and to try things without a service.

    ScriptedProvider(["Hello!", tool_call("add", a=2, b=40), fault("rate_limit", retry_after_s=1), "It is 42."])

A step of the script answers one call:
- text, or `stream("It ", "is ", "42.")` where the pieces matter;
- `tool_call(…)`, `reasoning(…)`, or a list of any of these, which is one reply;
- `reply(…)` to set its usage, why it stopped, or how long it takes;
- `fault(…)`, at once or after some text;
- a function of the request that returns one of these, async or not.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Literal, TypeAlias, Union, assert_never

import msgspec

from holdfast.agent.machine.messages import ContentBlock, ReasoningBlock, TextBlock, ToolUseBlock
from holdfast.agent.providers.arguments import read_arguments
from holdfast.agent.providers.provider import (
    Fault,
    ModelReply,
    ModelRequest,
    ProviderError,
    ReasoningDelta,
    Stop,
    StreamItem,
    TextDelta,
)
from holdfast.core.queries import Usage
from holdfast.core.values import Json, encode, preview


class ScriptedStream(msgspec.Struct, frozen=True):
    """Text that arrives in these pieces."""

    deltas: list[str]
    every_s: float = 0.0
    """How long each piece takes."""


class ScriptedReasoningBlock(msgspec.Struct, frozen=True):
    """Reasoning."""

    text: str
    signature: str | None = None


class ScriptedToolCall(msgspec.Struct, frozen=True):
    """A call of a tool."""

    name: str
    arguments: dict[str, Json] | str
    """Text stands for what the model wrote, JSON or not."""
    id: str = ""
    """If empty, the next free number in the conversation: `call_1`, `call_2`, …"""


ReplyPart: TypeAlias = str | ScriptedStream | ScriptedReasoningBlock | ScriptedToolCall


class ScriptedReply(msgspec.Struct, frozen=True, kw_only=True):
    """One whole reply."""

    parts: list[ReplyPart]
    usage: Usage | None = None
    stop: Stop | None = None
    """None: `tool_use` if there are calls, `end` if not."""
    model: str = ""
    """The model that answered; empty for the one requested."""
    delay_s: float = 0.0
    """How long the first piece takes."""


class ScriptedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A call that fails."""

    fault: Fault
    message: str
    retry_after_s: float | None = None
    status: int | None = None
    after: list[str] = []
    """Pieces of text that arrive first."""
    delay_s: float = 0.0


class RawReply(msgspec.Struct, frozen=True, kw_only=True):
    """A response in exactly these bytes. Only a `ModelServer` can send it."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = {}
    ending: Literal["end", "cut", "hold"] = "end"
    """What follows: the end of the response, the end of the connection, or nothing until the client goes away."""


ScriptedAnswer: TypeAlias = ScriptedReply | ScriptedFailure | RawReply
_READY = (
    str,
    list,
    ScriptedStream,
    ScriptedReasoningBlock,
    ScriptedToolCall,
    ScriptedReply,
    ScriptedFailure,
    RawReply,
)
"""What a step comes to in the end: anything else is code that makes the next step."""

ScriptStep: TypeAlias = (
    ReplyPart
    | list[ReplyPart]
    | ScriptedAnswer
    | Callable[[ModelRequest], Union["ScriptStep", Awaitable["ScriptStep"]]]
)


def tool_call(name: str, /, **arguments: Json) -> ScriptedToolCall:
    """A call of a tool with these arguments."""
    return ScriptedToolCall(name, arguments)


def reasoning(text: str, signature: str | None = None) -> ScriptedReasoningBlock:
    """What the model thinks aloud."""
    return ScriptedReasoningBlock(text, signature)


def stream(*deltas: str, every_s: float = 0.0) -> ScriptedStream:
    """Text in these pieces."""
    return ScriptedStream(list(deltas), every_s)


def reply(
    *parts: ReplyPart, usage: Usage | None = None, stop: Stop | None = None, model: str = "", delay_s: float = 0.0
) -> ScriptedReply:
    """A reply with its usage, why it stopped, which model gave it and how long it takes."""
    return ScriptedReply(parts=list(parts), usage=usage, stop=stop, model=model, delay_s=delay_s)


def fault(
    fault: Fault,
    message: str = "",
    *,
    retry_after_s: float | None = None,
    status: int | None = None,
    after: Sequence[str] = (),
    delay_s: float = 0.0,
) -> ScriptedFailure:
    """A call that fails with this kind of fault, after these pieces of text."""
    return ScriptedFailure(
        fault=fault,
        message=message or f"a scripted {fault}",
        retry_after_s=retry_after_s,
        status=status,
        after=list(after),
        delay_s=delay_s,
    )


class ModelScript:
    """Steps, one for each call; a loop starts again at its end."""

    def __init__(self, steps: Sequence[ScriptStep], *, loop: bool = False) -> None:
        self._steps = list(steps)
        self._loop = loop
        self.requests: list[ModelRequest] = []
        """Every request so far."""

    async def next(self, request: ModelRequest) -> ScriptedAnswer:
        """The answer to this request. Raises `ProviderError` when the script is at its end."""
        number = len(self.requests)
        self.requests.append(request)
        if not self._steps or (number >= len(self._steps) and not self._loop):
            asked = preview(request.messages[-1].text) if request.messages else "nothing"
            what = f"the script has {len(self._steps)} steps, and this is call {number + 1}, which asks {asked}"
            raise ProviderError(f"{what}: add a step, or make it a loop", fault="other")
        step: ScriptStep | Awaitable[ScriptStep] = self._steps[number % len(self._steps)]
        while not isinstance(step, _READY):
            step = await step if inspect.isawaitable(step) else step(request)
        if isinstance(step, (ScriptedReply, ScriptedFailure, RawReply)):
            return step
        return ScriptedReply(parts=step if isinstance(step, list) else [step])


def content_of(reply: ScriptedReply, request: ModelRequest) -> list[ContentBlock]:
    """A scripted reply as the blocks of a message. Calls are numbered throughout the conversation."""
    has_calls = any(type(part) is ScriptedToolCall for part in reply.parts)
    before = _calls_in(request) if has_calls else 0
    content: list[ContentBlock] = []
    for part in reply.parts:
        match part:
            case str():
                content.append(TextBlock(part))
            case ScriptedStream(deltas=deltas):
                content.append(TextBlock("".join(deltas)))
            case ScriptedReasoningBlock(text=text, signature=signature):
                content.append(ReasoningBlock(text, signature))
            case ScriptedToolCall(name=name, id=call_id):
                before += 1
                content.append(ToolUseBlock(call_id or f"call_{before}", name, read_arguments(arguments_text(part))))
    return content


def _calls_in(request: ModelRequest) -> int:
    return sum(isinstance(block, ToolUseBlock) for message in request.messages for block in message.content)


def arguments_text(call: ScriptedToolCall) -> str:
    """The arguments of a call as a model writes them."""
    return call.arguments if isinstance(call.arguments, str) else encode(call.arguments).decode()


def stop_of(reply: ScriptedReply) -> Stop:
    """Why a scripted reply stopped."""
    return reply.stop or ("tool_use" if any(isinstance(part, ScriptedToolCall) for part in reply.parts) else "end")


class ScriptedProvider:
    """A provider that answers from a script, and keeps the `requests` it got."""

    def __init__(self, script: ModelScript | Sequence[ScriptStep], *, loop: bool = False, id: str = "scripted") -> None:
        self.id = id
        self.script = script if isinstance(script, ModelScript) else ModelScript(script, loop=loop)

    @property
    def requests(self) -> list[ModelRequest]:
        """Every request so far."""
        return self.script.requests

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """The next step of the script; see `Provider.stream`."""
        step = await self.script.next(request)
        if isinstance(step, RawReply):
            raise ProviderError("a step of bytes needs a ModelServer; a ScriptedProvider has no wire", fault="other")
        if step.delay_s:
            await asyncio.sleep(step.delay_s)
        if isinstance(step, ScriptedFailure):
            for delta in step.after:
                yield TextDelta(delta)
            raise ProviderError(step.message, fault=step.fault, status=step.status, retry_after_s=step.retry_after_s)
        for part in step.parts:
            match part:
                case str():
                    yield TextDelta(part)
                case ScriptedReasoningBlock(text=text):
                    yield ReasoningDelta(text)
                case ScriptedStream(deltas=deltas, every_s=every_s):
                    for delta in deltas:
                        if every_s:
                            await asyncio.sleep(every_s)
                        yield TextDelta(delta)
                case ScriptedToolCall():
                    pass  # a call comes whole, with the reply
                case _:
                    assert_never(part)
        yield ModelReply(
            content=content_of(step, request),
            stop=stop_of(step),
            usage=step.usage,
            model=step.model or request.model,
        )
