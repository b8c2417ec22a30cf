"""Calling a model until it answers: retries by class of error, then the next choice. In one place for all providers.

The rules
---------
- What may go well later (`provider.RETRIED`) is tried again, after the wait that the service asks for, or one that
  grows and is drawn at random. Whatever else is the matter, the same model is not asked again.
- When a choice is used up, whatever the reason, the next one is tried at once. Another model may take a longer
  conversation, or another key.
- What a failed attempt has said is taken back: `ResetDelta` is emitted before anything of the next attempt.
- Every failed attempt is told: to the caller, in the reply's ledger and in the error if none succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as _random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

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

ERROR_CHARS = 400
"""Characters of an error in the ledger, which is kept with the reply for ever."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long one choice is held to."""

    attempts: int = 4
    """Calls of one model, the first included."""
    base_delay_s: float = 0.5
    """The longest wait before the second attempt; it doubles with each further one."""
    delay_cap_s: float = 10.0
    """The longest wait that grows by itself."""
    retry_after_cap_s: float = 60.0
    """The longest wait that a service can ask for. Longer ones are cut: by then the next choice is the better one."""
    call_timeout_s: float | None = 300.0
    """How long the model may take for one attempt. Time in which the consumer holds it up is not counted."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")

    def delay_s(self, failed: int, error: ProviderError, random: Callable[[], float]) -> float:
        """The wait after the attempt number `failed` of a choice; `random` gives numbers from 0 to 1.

        Any part of the growing wait is as likely as another, so that those who failed together do not meet again.
        """
        if error.retry_after_s is not None:
            return min(error.retry_after_s, self.retry_after_cap_s)
        return random() * min(self.delay_cap_s, self.base_delay_s * 2.0 ** min(failed - 1, 60))


class ProviderModel(msgspec.Struct, frozen=True):
    """A model, and who is asked for it."""

    provider: Provider
    model: str


class ResetDelta(msgspec.Struct, frozen=True, tag="reset"):
    """An attempt failed after it had said something; all deltas of it are to be taken back."""

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
Emit: TypeAlias = Callable[[CallItem], Awaitable[None]]


class CallResult(msgspec.Struct, frozen=True):
    """A model has answered."""

    reply: ModelReply
    provider: str
    """The id of the provider that answered."""
    model: str
    """The model that was asked for; `reply.model` is what the service says it was."""
    attempts: list[dict[str, Json]]
    """The attempts that failed before, each with `provider`, `model`, `fault` and `error`."""


class CallFailedError(ProviderError):
    """No choice answered. Its class is that of the last attempt's error."""

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
) -> CallResult:
    """Call the first choice that answers. Raises `CallFailedError` if none does.

    `request.model` is replaced by the choice's. `emit` is awaited for every item before the model is read on, so a
    consumer that cannot keep up slows the model down; what it raises ends the call. Cancelling ends the call.
    """
    if not choices:
        raise ValueError("there is no model to call: give at least one choice")
    retry = retry or RetryPolicy()
    failed: list[dict[str, Json]] = []
    last: ProviderError | None = None
    for number, choice in enumerate(choices):
        # A service that knows the key would give, or refuse, what it said to another model's request.
        key = f"{request.key}/{number}" if request.key and number else request.key
        asked = msgspec.structs.replace(request, model=choice.model, key=key)
        for attempt in range(1, retry.attempts + 1):
            said = _Said(emit)
            try:
                reply = await _attempt(choice.provider, asked, said, retry.call_timeout_s)
            except ProviderError as error:
                last = error
            else:
                return CallResult(reply, choice.provider.id, choice.model, failed)
            told = repaired(str(last))[:ERROR_CHARS]
            record = {"provider": choice.provider.id, "model": choice.model, "fault": last.fault, "error": told}
            failed.append(record)
            if said.anything:
                await emit(ResetDelta(len(failed)))
            again = last.is_retried and attempt < retry.attempts
            following = choice if again else next(iter(choices[number + 1 :]), None)
            if following is None:
                break
            delay_s = retry.delay_s(attempt, last, random) if again else 0.0
            await emit(
                FailedAttempt(
                    attempt=len(failed),
                    provider=choice.provider.id,
                    model=choice.model,
                    fault=last.fault,
                    error=told,
                    delay_s=delay_s,
                    next_provider=following.provider.id,
                    next_model=following.model,
                )
            )
            if not again:
                break
            await sleep(delay_s)
    assert last is not None
    raise CallFailedError(last, failed) from last


class _Said:
    """Passes deltas on, and knows whether there were any."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.anything = False

    async def pass_on(self, delta: TextDelta | ReasoningDelta) -> None:
        self.anything = True
        await self._emit(delta)


async def _attempt(provider: Provider, request: ModelRequest, said: _Said, timeout_s: float | None) -> ModelReply:
    """One call. Whatever the provider raises is a `ProviderError`; what the consumer raises is its own."""
    loop = asyncio.get_running_loop()
    left = timeout_s
    items = _open(provider, request)
    try:
        while True:
            since = loop.time()
            item = await _next(provider, items, left, timeout_s)
            if left is not None:
                left = max(0.0, left - (loop.time() - since))
            if isinstance(item, ModelReply):
                return item
            await said.pass_on(item)
    finally:
        await _close(items)


def _open(provider: Provider, request: ModelRequest) -> AsyncIterator[StreamItem]:
    try:
        return provider.stream(request)
    except ProviderError:
        raise
    except Exception as error:
        raise _not_its_own(provider, error) from error


async def _next(
    provider: Provider, items: AsyncIterator[StreamItem], left: float | None, timeout_s: float | None
) -> StreamItem:
    limit = asyncio.timeout(left)
    try:
        async with limit:
            return await anext(items)
    except StopAsyncIteration:
        raise ProviderError(f"{provider.id}: the stream ended without a reply", fault="bad_stream") from None
    except ProviderError:
        raise
    except TimeoutError as error:
        why = f"no reply within {timeout_s:g} s" if limit.expired() else f"timed out: {error}"
        raise ProviderError(f"{provider.id}: {why}", fault="timeout") from error
    except Exception as error:
        raise _not_its_own(provider, error) from error


def _not_its_own(provider: Provider, error: Exception) -> ProviderError:
    """A provider is anybody's code, and a fault in it must not take the session with it."""
    return ProviderError(f"{provider.id}: {type(error).__name__}: {error}", fault="other")


async def _close(items: AsyncIterator[StreamItem]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        with contextlib.suppress(Exception):  # the call has come to something already
            await close()


def _summary(attempts: list[dict[str, Json]]) -> str:
    counts: dict[str, int] = {}
    for attempt in attempts:
        name = f"{attempt['model']} {attempt['fault']}"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items())
