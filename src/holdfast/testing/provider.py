"""A scripted model: replies that are given beforehand, in order. For tests, and to try things without a service.

    ScriptedProvider(["Hello!", tool_call("add", a=2, b=40), fault("rate_limit", retry_after_s=1), "It is 42."])

A step of the script is what one call is answered with:
- text, or `stream("It ", "is ", "42.")` where it matters in which pieces it comes;
- `tool_call(…)`, `reasoning(…)`, or a list of several of all these, which are one reply;
- `reply(…)` to say its usage, why it stopped, or how long it takes;
- `fault(…)`, at once or after some text;
- a function of the request that gives one of these, async or not.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Literal, TypeAlias, Union

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


class Stream(msgspec.Struct, frozen=True):
    """Text that comes in these pieces."""

    deltas: list[str]
    every_s: float = 0.0
    """How long each piece takes."""


class Thought(msgspec.Struct, frozen=True):
    """Reasoning."""

    text: str
    signature: str | None = None


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool."""

    name: str
    arguments: dict[str, Json] | str
    """Text is what the model wrote, JSON or not."""
    id: str = ""
    """Given by the calls of the conversation so far, if empty: `call_1`, `call_2`, …"""


Part: TypeAlias = str | Stream | Thought | ToolCall


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """All of one reply."""

    parts: list[Part]
    usage: Usage | None = None
    stop: Stop | None = None
    """None: `tool_use` if there are calls, `end` if not."""
    model: str = ""
    """The model that answered; empty for the one that was asked for."""
    delay_s: float = 0.0
    """How long the first piece takes."""


class Faulty(msgspec.Struct, frozen=True, kw_only=True):
    """A call that fails."""

    fault: Fault
    message: str
    retry_after_s: float | None = None
    status: int | None = None
    after: list[str] = []
    """Pieces of text that come before."""
    delay_s: float = 0.0


class Raw(msgspec.Struct, frozen=True, kw_only=True):
    """A response in exactly these bytes. A `ModelServer` can give it, and nothing else can."""

    body: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = {}
    ending: Literal["end", "cut", "hold"] = "end"
    """What follows: the end of the response, the end of the connection, or nothing until the client goes away."""


Done: TypeAlias = Reply | Faulty | Raw
Step: TypeAlias = Part | list[Part] | Done | Callable[[ModelRequest], Union["Step", Awaitable["Step"]]]


def tool_call(name: str, /, **arguments: Json) -> ToolCall:
    """A call of a tool with these arguments."""
    return ToolCall(name, arguments)


def reasoning(text: str, signature: str | None = None) -> Thought:
    """What the model thinks aloud."""
    return Thought(text, signature)


def stream(*deltas: str, every_s: float = 0.0) -> Stream:
    """Text in these pieces."""
    return Stream(list(deltas), every_s)


def reply(
    *parts: Part, usage: Usage | None = None, stop: Stop | None = None, model: str = "", delay_s: float = 0.0
) -> Reply:
    """A reply, with what else there is to say of it."""
    return Reply(parts=list(parts), usage=usage, stop=stop, model=model, delay_s=delay_s)


def fault(
    fault: Fault,
    message: str = "",
    *,
    retry_after_s: float | None = None,
    status: int | None = None,
    after: Sequence[str] = (),
    delay_s: float = 0.0,
) -> Faulty:
    """A call that fails with an error of this class, after these pieces of text if there are any."""
    return Faulty(
        fault=fault,
        message=message or f"a scripted {fault}",
        retry_after_s=retry_after_s,
        status=status,
        after=list(after),
        delay_s=delay_s,
    )


class Script:
    """Steps, one for each call; begun again at the end if it is a loop."""

    def __init__(self, steps: Sequence[Step], *, loop: bool = False) -> None:
        self._steps = list(steps)
        self._loop = loop
        self.requests: list[ModelRequest] = []
        """All that was asked so far."""

    async def next(self, request: ModelRequest) -> Done:
        """What this request is answered with. Raises `ProviderError` when the script is at its end."""
        number = len(self.requests)
        self.requests.append(request)
        if not self._steps or (number >= len(self._steps) and not self._loop):
            asked = preview(request.messages[-1].text) if request.messages else "nothing"
            told = f"the script has {len(self._steps)} steps, and this is call {number + 1}, which asks {asked}"
            raise ProviderError(f"{told}: add a step, or make it a loop", fault="other")
        step: Step | Awaitable[Step] = self._steps[number % len(self._steps)]
        while not isinstance(step, (str, list, Stream, Thought, ToolCall, Reply, Faulty, Raw)):
            step = await step if inspect.isawaitable(step) else step(request)
        if isinstance(step, (Reply, Faulty, Raw)):
            return step
        return Reply(parts=step if isinstance(step, list) else [step])


def content_of(reply: Reply, request: ModelRequest) -> list[ContentBlock]:
    """A scripted reply as the blocks of a message. Calls are numbered through the conversation they belong to."""
    before = sum(isinstance(block, ToolUseBlock) for message in request.messages for block in message.content)
    content: list[ContentBlock] = []
    for part in reply.parts:
        match part:
            case str():
                content.append(TextBlock(part))
            case Stream(deltas=deltas):
                content.append(TextBlock("".join(deltas)))
            case Thought(text=text, signature=signature):
                content.append(ReasoningBlock(text, signature))
            case ToolCall(name=name, id=call_id):
                before += 1
                content.append(ToolUseBlock(call_id or f"call_{before}", name, read_arguments(arguments_text(part))))
    return content


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as a model writes them."""
    return call.arguments if isinstance(call.arguments, str) else encode(call.arguments).decode()


def stop_of(reply: Reply) -> Stop:
    """Why a scripted reply stopped."""
    return reply.stop or ("tool_use" if any(isinstance(part, ToolCall) for part in reply.parts) else "end")


class ScriptedProvider:
    """A provider whose answers are a script. Its requests are kept in `requests`."""

    def __init__(self, script: Script | Sequence[Step], *, loop: bool = False, id: str = "scripted") -> None:
        self.id = id
        self.script = script if isinstance(script, Script) else Script(script, loop=loop)

    @property
    def requests(self) -> list[ModelRequest]:
        """All that was asked so far."""
        return self.script.requests

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """The next step of the script; see `Provider.stream`."""
        step = await self.script.next(request)
        if isinstance(step, Raw):
            raise ProviderError("a step of bytes is for a ModelServer; this is no server", fault="other")
        if step.delay_s:
            await asyncio.sleep(step.delay_s)
        if isinstance(step, Faulty):
            for delta in step.after:
                yield TextDelta(delta)
            raise ProviderError(step.message, fault=step.fault, status=step.status, retry_after_s=step.retry_after_s)
        for part in step.parts:
            match part:
                case str():
                    yield TextDelta(part)
                case Thought(text=text):
                    yield ReasoningDelta(text)
                case Stream(deltas=deltas, every_s=every_s):
                    for delta in deltas:
                        if every_s:
                            await asyncio.sleep(every_s)
                        yield TextDelta(delta)
        yield ModelReply(
            content=content_of(step, request),
            stop=stop_of(step),
            usage=step.usage,
            model=step.model or request.model,
        )
