"""`Provider`, the protocol of model providers: a request in, deltas out, then the reply.

A provider is one object for one model service. It makes one attempt and reports its outcome; `retry` retries and falls
back for all providers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from holdfast.agent.machine.messages import AgentMessage, ContentBlock
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import Usage
from holdfast.core.values import Json

Stop: TypeAlias = Literal["end", "tool_use", "length", "refusal", "other"]
"""Why a model stopped: it was done, calls tools, reached the token limit, refused, or something else."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: dict[str, Json]
    """JSON schema of the arguments, an object."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of one model call."""

    model: str
    messages: list[AgentMessage]
    """The conversation, the oldest first: roles user, assistant and tool."""
    system: str = ""
    tools: list[ToolSpec] = []
    params: dict[str, Json] = {}
    """`temperature`, `max_tokens`, and any other option of the service by its own name."""
    key: str = ""
    """An idempotency key, the same for every attempt at this call."""


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """A piece of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    """A piece of the model's reasoning."""

    text: str


class ModelReply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    """The whole reply. It comes last, and once; a stream that ends without it is an error."""

    content: list[ContentBlock]
    """Reasoning, text and tool calls, in the order of the model."""
    stop: Stop = "end"
    usage: Usage | None = None
    model: str = ""
    """The model that answered, as the service names it."""


StreamItem: TypeAlias = TextDelta | ReasoningDelta | ModelReply


@runtime_checkable
class Provider(Protocol):
    """A model service."""

    id: str
    """What sessions record: `openai`, `anthropic`, … The same in every process that may continue them."""

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        """Call the model once. Yields deltas as they come and the reply at the end; raises `ProviderError`.

        Cancelling the iteration ends the call.
        """
        ...


def own_model(provider: Provider) -> str:
    """The model that a provider is asked for if none is named: the one that it has itself, or one of its own name."""
    return getattr(provider, "model", "") or provider.id


Fault: TypeAlias = Literal[
    "rate_limit", "overloaded", "timeout", "network", "bad_stream", "auth", "invalid_request", "context_length", "other"
]
"""The class of an error, by which it is retried or not."""

RETRIED: frozenset[Fault] = frozenset(["rate_limit", "overloaded", "timeout", "network", "bad_stream"])
"""Errors after which the same call may succeed."""


class ProviderError(HoldfastError):
    """A model call failed."""

    kind = "provider_error"

    def __init__(
        self, message: str, *, fault: Fault = "other", status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.fault: Fault = fault
        self.status = status
        """The HTTP status, if there was one."""
        self.retry_after_s = retry_after_s
        """How long the service asks to wait."""

    @property
    def is_retried(self) -> bool:
        """Whether the same call may succeed later."""
        return self.fault in RETRIED
