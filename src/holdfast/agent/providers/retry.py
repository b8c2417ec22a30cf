"""Calls a model until it answers: retries by class of error, then the next choice, for all providers.

The rules
---------
- An error that may pass (`provider.RETRIED`) is retried, after the wait that the service asks for, or a random wait
  that grows. After any other error the same model is not asked again.
- When a choice has failed, for whatever reason, the next one is tried at once. Another model may accept a longer
  conversation, or have another key.
- The deltas of a failed attempt are retracted: `ResetDelta` is emitted before the next attempt.
- Every failed attempt is reported: to the caller, with the reply, and in the error if none succeeds.
"""

from __future__ import annotations

import asyncio
import random as _random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias

import msgspec

from holdfast.agent.machine.messages import ContentBlock, TextBlock
from holdfast.agent.providers.provider import (
    Fault,
    ModelReply,
    ModelRequest,
    Provider,
    ProviderError,
    ReasoningDelta,
    StreamItem,
    TextDelta,
)
from holdfast.core.values import Json, repaired
from holdfast.engine.containment import passes_through

ERROR_CHARS = 400
"""Characters of an error that is recorded with the reply."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how long one model is tried."""

    attempts: int = 4
    """Calls of one model, the first included."""
    base_delay_s: float = 0.5
    """The longest wait before the second attempt; it doubles with each further one."""
    delay_cap_s: float = 10.0
    """The longest wait that grows by itself."""
    retry_after_cap_s: float = 60.0
    """The longest wait that a service can ask for. Longer ones are cut: the next choice is better by then."""
    call_timeout_s: float | None = 300.0
    """How long the model may take for one attempt. Time spent waiting for the consumer is not counted."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")

    def delay_s(self, failed: int, error: ProviderError, random: Callable[[], float]) -> float:
        """The wait after the attempt number `failed` of a choice; `random` returns numbers from 0 to 1.

        The wait is drawn uniformly, so that callers that failed together do not retry together.
        """
        if error.retry_after_s is not None:
            return min(error.retry_after_s, self.retry_after_cap_s)
        return random() * min(self.delay_cap_s, self.base_delay_s * 2.0 ** min(failed - 1, 60))


class ProviderModel(msgspec.Struct, frozen=True):
    """A model, and the provider that serves it."""

    provider: Provider
    model: str


class ResetDelta(msgspec.Struct, frozen=True, tag="reset"):
    """An attempt failed after its first delta: discard all its deltas."""

    attempt: int
    """Counted from 1, through all choices."""


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True, tag="retrying"):
    """An attempt failed, and the next one follows after a wait. Comes between two attempts, after the `ResetDelta`."""

    attempt: int
    """The one that failed, counted from 1, through all choices."""
    provider: str
    model: str
    fault: Fault
    error: str
    delay_s: float
    next_provider: str
    next_model: str


CallItem: TypeAlias = TextDelta | ReasoningDelta | FailedAttempt | ResetDelta


class StreamCutter(Protocol):
    """Decides, while a reply streams, that the rest of it is not wanted."""

    def feed(self, delta: str) -> bool:
        """Take the next text; whether nothing more is wanted."""
        ...

    def end(self) -> None:
        """The reply is over."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is wanted."""
        ...

    @property
    def text(self) -> str:
        """The reply as far as it is wanted."""
        ...


Emit: TypeAlias = Callable[[CallItem], Awaitable[None] | None]
"""Takes an item: at once, or by what it returns, which is awaited."""


class CallResult(msgspec.Struct, frozen=True):
    """A model has answered."""

    reply: ModelReply
    provider: str
    """The id of the provider that answered."""
    model: str
    """The model that was requested; `reply.model` is what the service says."""
    attempts: list[dict[str, Json]]
    """The attempts that failed before, each with `provider`, `model`, `fault` and `error`."""
    is_cut: bool = False
    """Whether the rest of the reply was not wanted. Its usage is then not known, unless the whole of it had come."""


class CallFailedError(ProviderError):
    """No choice answered. Its class is that of the last error."""

    def __init__(self, last: ProviderError, attempts: list[dict[str, Json]]) -> None:
        before = f" ({len(attempts)} attempts, all failed: {_summary(attempts)})" if len(attempts) > 1 else ""
        super().__init__(f"{last}{before}", fault=last.fault, status=last.status, retry_after_s=last.retry_after_s)
        self.attempts = attempts


async def call(
    choices: Sequence[ProviderModel],
    request: ModelRequest,
    *,
    emit: Emit,
    retry: RetryPolicy | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    random: Callable[[], float] = _random.random,
    cutter: Callable[[], StreamCutter] | None = None,
) -> CallResult:
    """Call the first choice that answers. Raises `CallFailedError` if none does.

    `request.model` is replaced by the choice's. What `emit` returns for an item is awaited before the next one is read,
    so a slow consumer slows the model down; an exception of it ends the call, and so does cancelling. `cutter` makes
    what cuts a reply off, anew for each attempt.
    """
    if not choices:
        raise ValueError("there is no model to call; pass at least one choice")
    retry = retry or RetryPolicy()
    failed: list[dict[str, Json]] = []
    last: ProviderError | None = None
    for number, choice in enumerate(choices):
        # With the same key, a service would repeat its answer to another model's request, or refuse.
        key = f"{request.key}/{number}" if request.key and number else request.key
        asked = msgspec.structs.replace(request, model=choice.model, key=key)
        for attempt in range(1, retry.attempts + 1):
            deltas = _DeltaSink(emit, cutter() if cutter is not None else None)
            try:
                reply = await _attempt(choice.provider, asked, deltas, retry.call_timeout_s)
            except ProviderError as error:
                last = error
            else:
                return CallResult(reply, choice.provider.id, choice.model, failed, deltas.is_cut)
            message = repaired(str(last))[:ERROR_CHARS]
            record = {"provider": choice.provider.id, "model": choice.model, "fault": last.fault, "error": message}
            failed.append(record)
            if deltas.any_sent:
                await _taken(emit(ResetDelta(len(failed))))
            again = last.is_retried and attempt < retry.attempts
            following = choice if again else next(iter(choices[number + 1 :]), None)
            if following is None:
                break
            delay_s = retry.delay_s(attempt, last, random) if again else 0.0
            failure = FailedAttempt(
                attempt=len(failed),
                provider=choice.provider.id,
                model=choice.model,
                fault=last.fault,
                error=message,
                delay_s=delay_s,
                next_provider=following.provider.id,
                next_model=following.model,
            )
            await _taken(emit(failure))
            if not again:
                break
            await sleep(delay_s)
    assert last is not None
    raise CallFailedError(last, failed) from last


class _DeltaSink(msgspec.Struct):
    """Passes deltas on, and remembers whether there were any."""

    emit: Emit
    cutter: StreamCutter | None = None
    any_sent: bool = False

    def pass_on(self, delta: TextDelta | ReasoningDelta) -> Awaitable[None] | None:
        self.any_sent = True
        if self.cutter is not None and isinstance(delta, TextDelta):
            before = len(self.cutter.text)
            self.cutter.feed(delta.text)
            delta = TextDelta(self.cutter.text[before:])
        return self.emit(delta)

    @property
    def is_cut(self) -> bool:
        return self.cutter is not None and self.cutter.is_closed

    def cut_reply(self, whole: ModelReply | None) -> ModelReply:
        """The reply as far as it is wanted; `whole` is what the model has said in the end, if it came to that."""
        if self.cutter is None:
            assert whole is not None
            return whole
        if whole is not None and not self.cutter.is_closed:
            said = "".join(block.text for block in whole.content if isinstance(block, TextBlock))
            self.cutter.feed(said[len(self.cutter.text) :])
            self.cutter.end()
            if not self.cutter.is_closed:
                return whole
        content: list[ContentBlock] = [TextBlock(self.cutter.text)]
        return ModelReply(content=content) if whole is None else msgspec.structs.replace(whole, content=content)


async def _taken(taking: Awaitable[None] | None) -> None:
    if taking is not None:
        await taking


async def _attempt(
    provider: Provider, request: ModelRequest, deltas: _DeltaSink, timeout_s: float | None
) -> ModelReply:
    """One attempt. All that the provider raises becomes a `ProviderError`; what the consumer raises passes through."""
    limit = asyncio.timeout(timeout_s)
    items: AsyncIterator[StreamItem] | None = None
    try:
        async with limit:
            while True:
                try:
                    if items is None:
                        items = provider.stream(request)
                    item = await anext(items)
                except BaseException as error:
                    _raise_fault(provider, error)
                if isinstance(item, ModelReply):
                    return item if deltas.cutter is None else deltas.cut_reply(item)
                taking = deltas.pass_on(item)
                if taking is not None:
                    await _untimed(taking, limit)
                if deltas.cutter is not None and deltas.cutter.is_closed:
                    return deltas.cut_reply(None)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ProviderError(f"{provider.id}: no reply within {timeout_s:g} s", fault="timeout") from error
    finally:
        if items is not None:
            await _close(items)


async def _untimed(taking: Awaitable[None], limit: asyncio.Timeout) -> None:
    """Wait for the consumer, which does not count as time of the model."""
    loop, ends = asyncio.get_running_loop(), limit.when()
    began = loop.time()
    limit.reschedule(None)
    await taking
    if ends is not None:
        limit.reschedule(ends + loop.time() - began)


def _raise_fault(provider: Provider, error: BaseException) -> NoReturn:
    """Raise the `ProviderError` for what a provider raised, a panic of a native library included."""
    if isinstance(error, ProviderError) or passes_through(error):
        raise error
    if isinstance(error, StopAsyncIteration):
        raise ProviderError(f"{provider.id}: the stream ended without a reply", fault="bad_stream") from None
    if isinstance(error, TimeoutError):
        raise ProviderError(f"{provider.id}: timed out: {error}", fault="timeout") from error
    raise ProviderError(f"{provider.id}: {type(error).__name__}: {error}", fault="other") from error


async def _close(items: AsyncIterator[StreamItem]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        try:
            await close()
        except BaseException as error:
            if passes_through(error):
                raise  # otherwise the call already has an outcome


def _summary(attempts: list[dict[str, Json]]) -> str:
    counts: dict[str, int] = {}
    for attempt in attempts:
        name = f"{attempt['model']} {attempt['fault']}"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items())
