"""Calling until a model answers: retries by class of error, waits, fallbacks, and what consumers are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.providers.openai import OpenAIProvider
from holdfast.agent.providers.provider import (
    RETRIED,
    Fault,
    ModelRequest,
    Provider,
    ProviderError,
    ReasoningDelta,
    StreamItem,
    TextDelta,
)
from holdfast.agent.providers.retry import (
    ERROR_CHARS,
    CallFailedError,
    CallItem,
    CallResult,
    FailedAttempt,
    ProviderModel,
    ResetDelta,
    RetryPolicy,
    call,
)
from holdfast.testing.model_server import ModelServer
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, ScriptStep, fault, reasoning, reply, stream, tool_call
from tests.agent.providers.helpers import ask
from tests.tables import each_row

FAULTS: tuple[Fault, ...] = (
    "rate_limit",
    "overloaded",
    "timeout",
    "network",
    "bad_stream",
    "auth",
    "invalid_request",
    "context_length",
    "other",
)
NOT_RETRIED = [each for each in FAULTS if each not in RETRIED]


class Watched:
    """A call with all that it emits, and the waits that it makes, which take no time here."""

    def __init__(self, retry: RetryPolicy | None = None, random: float = 1.0) -> None:
        self.emitted: list[CallItem] = []
        self.waits: list[float] = []
        self._retry = retry
        self._random = random

    async def __call__(self, *choices: Provider | ProviderModel, request: ModelRequest | None = None) -> CallResult:
        listed = [each if isinstance(each, ProviderModel) else ProviderModel(each, "m") for each in choices]
        return await call(
            listed,
            request or ask(),
            retry=self._retry,
            emit=self._emit,
            sleep=self._sleep,
            random=lambda: self._random,
        )

    async def _emit(self, item: CallItem) -> None:
        self.emitted.append(item)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    @property
    def shown(self) -> str:
        """The text that a consumer shows who heeds every reset."""
        text = ""
        for item in self.emitted:
            match item:
                case TextDelta(text=piece):
                    text += piece
                case ResetDelta():
                    text = ""
        return text


class Odd:
    """A provider that does what no provider should."""

    id = "odd"

    def __init__(self, *items: StreamItem, error: Exception | None = None) -> None:
        self._items, self._error = items, error

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
        for item in self._items:
            yield item
        if self._error is not None:
            raise self._error


def faults(attempts: Sequence[dict[str, Any]]) -> list[str]:
    return [attempt["fault"] for attempt in attempts]


# --- one answer ----------------------------------------------------------------------------------------


async def test_an_answer_at_once_is_passed_on_delta_by_delta() -> None:
    watched = Watched()
    called = await watched(ScriptedProvider([[reasoning("Hm."), stream("a", "b")]]))
    assert watched.emitted == [ReasoningDelta("Hm."), TextDelta("a"), TextDelta("b")]
    assert (called.provider, called.model, called.attempts) == ("scripted", "m", [])
    assert called.reply.content[-1] == TextBlock("ab")


async def test_the_model_of_the_choice_is_asked() -> None:
    provider = ScriptedProvider(["ok"])
    await Watched()(ProviderModel(provider, "large"), request=ask(model="small"))
    assert provider.requests[0].model == "large"


async def test_without_a_choice_there_is_nothing_to_call() -> None:
    with pytest.raises(ValueError, match="at least one choice"):
        await Watched()()


# --- retries -------------------------------------------------------------------------------------------


@each_row("kind", sorted(RETRIED))
async def test_what_may_go_well_later_is_tried_again(kind: Fault) -> None:
    provider = ScriptedProvider([fault(kind), fault(kind), "ok"])
    called = await Watched()(provider)
    assert called.reply.content == [TextBlock("ok")]
    assert faults(called.attempts) == [kind, kind]
    assert len(provider.requests) == 3


@each_row("kind", NOT_RETRIED)
async def test_what_cannot_go_well_is_not_tried_again(kind: Fault) -> None:
    provider, watched = ScriptedProvider([fault(kind), "never"]), Watched()
    with pytest.raises(CallFailedError) as caught:
        await watched(provider)
    assert caught.value.fault == kind
    assert (len(provider.requests), watched.waits, watched.emitted) == (1, [], [])


async def test_four_attempts_are_made_and_no_more() -> None:
    provider = ScriptedProvider([fault("overloaded")], loop=True)
    with pytest.raises(CallFailedError) as caught:
        await Watched()(provider)
    assert len(provider.requests) == len(caught.value.attempts) == 4


async def test_every_attempt_has_the_same_key() -> None:
    provider = ScriptedProvider([fault("network"), "ok"])
    await Watched()(provider, request=ask(key="k"))
    assert [request.key for request in provider.requests] == ["k", "k"]


async def test_waits_double_and_are_capped() -> None:
    watched = Watched(RetryPolicy(attempts=8))
    with pytest.raises(CallFailedError):
        await watched(ScriptedProvider([fault("overloaded")], loop=True))
    assert watched.waits == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


async def test_waits_are_drawn_from_all_of_their_length() -> None:
    for random, waits in ((0.0, [0.0, 0.0, 0.0]), (0.5, [0.25, 0.5, 1.0])):
        watched = Watched(random=random)
        with pytest.raises(CallFailedError):
            await watched(ScriptedProvider([fault("overloaded")], loop=True))
        assert watched.waits == waits


async def test_retry_after_is_honoured_instead_of_the_growing_wait() -> None:
    watched = Watched()
    await watched(ScriptedProvider([fault("rate_limit", retry_after_s=7), fault("overloaded", retry_after_s=0), "ok"]))
    assert watched.waits == [7.0, 0.0]


async def test_retry_after_is_capped_at_a_minute() -> None:
    watched = Watched()
    await watched(ScriptedProvider([fault("rate_limit", retry_after_s=3600), "ok"]))
    assert watched.waits == [60.0]


async def test_an_unlimited_number_of_attempts_does_not_overflow_the_wait() -> None:
    assert RetryPolicy(attempts=10_000).delay_s(5_000, ProviderError("x"), lambda: 1.0) == 10.0


def test_a_retry_without_an_attempt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        RetryPolicy(attempts=0)


async def test_a_retry_is_announced_with_its_reason_and_its_wait() -> None:
    watched = Watched()
    await watched(ScriptedProvider([fault("rate_limit", "slow down", retry_after_s=7), "ok"]))
    assert watched.emitted == [
        FailedAttempt(
            attempt=1,
            provider="scripted",
            model="m",
            fault="rate_limit",
            error="slow down",
            delay_s=7.0,
            next_provider="scripted",
            next_model="m",
        ),
        TextDelta("ok"),
    ]


# --- text that is taken back ---------------------------------------------------------------------------


async def test_reset_retracts_the_text_of_a_failed_attempt() -> None:
    watched = Watched()
    called = await watched(ScriptedProvider([fault("bad_stream", after=["Hel", "lo"]), stream("Good ", "day")]))
    kinds = [type(item).__name__ for item in watched.emitted]
    assert kinds == ["TextDelta", "TextDelta", "ResetDelta", "FailedAttempt", "TextDelta", "TextDelta"]
    assert watched.emitted[2] == ResetDelta(1)
    assert watched.shown == "Good day"
    assert called.reply.content == [TextBlock("Good day")]


async def test_an_attempt_that_said_nothing_is_not_retracted() -> None:
    watched = Watched()
    await watched(ScriptedProvider([fault("network"), "ok"]))
    assert not any(isinstance(item, ResetDelta) for item in watched.emitted)


async def test_reasoning_is_retracted_too() -> None:
    watched = Watched()
    await watched(Odd(ReasoningDelta("Hm.")), ScriptedProvider(["ok"]))
    assert watched.emitted[:2] == [ReasoningDelta("Hm."), ResetDelta(1)]


async def test_the_text_of_the_last_attempt_is_retracted_if_it_fails() -> None:
    watched = Watched(RetryPolicy(attempts=1))
    with pytest.raises(CallFailedError):
        await watched(ScriptedProvider([fault("bad_stream", after=["Hel"])]))
    assert watched.emitted == [TextDelta("Hel"), ResetDelta(1)]


async def test_resets_name_the_attempt_counted_through_all_choices() -> None:
    watched = Watched(RetryPolicy(attempts=2))
    first = ScriptedProvider([fault("network"), fault("bad_stream", after=["a"])])
    second = ScriptedProvider([fault("bad_stream", after=["b"]), "ok"])
    await watched(first, second)
    assert [item.attempt for item in watched.emitted if isinstance(item, ResetDelta)] == [2, 3]
    assert [item.attempt for item in watched.emitted if isinstance(item, FailedAttempt)] == [1, 2, 3]


# --- fallbacks -----------------------------------------------------------------------------------------


@each_row("kind", FAULTS)
async def test_whatever_the_reason_the_next_choice_is_tried(kind: Fault) -> None:
    first, second = ScriptedProvider([fault(kind)], loop=True), ScriptedProvider(["ok"], id="other")
    called = await Watched()(ProviderModel(first, "large"), ProviderModel(second, "small"))
    assert (called.provider, called.model) == ("other", "small")
    assert len(first.requests) == (4 if kind in RETRIED else 1)
    assert set(faults(called.attempts)) == {kind}


async def test_the_next_choice_is_not_waited_for() -> None:
    watched = Watched(RetryPolicy(attempts=1))
    await watched(ScriptedProvider([fault("rate_limit", retry_after_s=50)]), ScriptedProvider(["ok"], id="other"))
    (announced,) = [item for item in watched.emitted if isinstance(item, FailedAttempt)]
    assert (announced.delay_s, announced.next_provider, watched.waits) == (0.0, "other", [])


async def test_every_failed_attempt_is_recorded() -> None:
    first = ScriptedProvider([fault("network", "cut"), fault("auth", "no")])
    called = await Watched()(ProviderModel(first, "large"), ProviderModel(ScriptedProvider(["ok"]), "small"))
    assert called.attempts == [
        {"provider": "scripted", "model": "large", "fault": "network", "error": "cut"},
        {"provider": "scripted", "model": "large", "fault": "auth", "error": "no"},
    ]


async def test_another_choice_has_another_key() -> None:
    provider = ScriptedProvider([fault("auth"), fault("network"), "ok"])
    await Watched()(ProviderModel(provider, "large"), ProviderModel(provider, "small"), request=ask(key="k"))
    assert [request.key for request in provider.requests] == ["k", "k/1", "k/1"]


async def test_when_all_fail_the_error_is_the_last_and_lists_all() -> None:
    first = ScriptedProvider([fault("overloaded")], loop=True)
    second = ScriptedProvider([fault("rate_limit", "slow down", status=429, retry_after_s=9)], loop=True)
    with pytest.raises(CallFailedError) as caught:
        await Watched(RetryPolicy(attempts=2))(ProviderModel(first, "large"), ProviderModel(second, "small"))
    error = caught.value
    assert (error.fault, error.status, error.retry_after_s) == ("rate_limit", 429, 9)
    assert faults(error.attempts) == ["overloaded", "overloaded", "rate_limit", "rate_limit"]
    assert str(error) == "slow down (4 attempts, all failed: large overloaded ×2, small rate_limit ×2)"


async def test_a_single_failure_is_told_in_its_own_words() -> None:
    with pytest.raises(CallFailedError, match=r"^no such model$"):
        await Watched()(ScriptedProvider([fault("invalid_request", "no such model")]))


async def test_errors_are_cut_short_in_the_ledger_and_can_be_kept() -> None:
    called = await Watched()(ScriptedProvider([fault("network", "\ud83d" + "x" * 10_000), "ok"]))
    assert called.attempts[0]["error"] == "?" + "x" * (ERROR_CHARS - 1)


# --- providers that do not keep to the protocol --------------------------------------------------------


async def test_a_stream_without_a_reply_is_a_bad_stream_and_tried_again() -> None:
    with pytest.raises(CallFailedError) as caught:
        await Watched()(Odd(TextDelta("Hel")))
    assert faults(caught.value.attempts) == ["bad_stream"] * 4


async def test_any_other_error_of_a_provider_is_contained_and_the_next_choice_tried() -> None:
    called = await Watched()(Odd(error=KeyError("x")), ScriptedProvider(["ok"]))
    (attempt,) = called.attempts
    assert (attempt["fault"], attempt["error"]) == ("other", "odd: KeyError: 'x'")


async def test_a_provider_that_fails_before_it_streams_is_contained_as_well() -> None:
    class Broken(Odd):
        def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            raise RuntimeError("not set up")

    called = await Watched()(Broken(), ScriptedProvider(["ok"]))
    assert called.attempts[0]["error"] == "odd: RuntimeError: not set up"


async def test_a_timeout_of_the_providers_own_is_a_timeout() -> None:
    called = await Watched()(Odd(error=TimeoutError("deep down")), ScriptedProvider(["ok"]))
    assert set(faults(called.attempts)) == {"timeout"}


# --- time and consumers --------------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_ended_and_tried_again() -> None:
    provider = ScriptedProvider([reply("late", delay_s=30), "ok"])
    called = await Watched(RetryPolicy(call_timeout_s=0.05))(provider)
    (attempt,) = called.attempts
    assert (attempt["fault"], attempt["error"]) == ("timeout", "scripted: no reply within 0.05 s")


async def test_the_time_limit_is_for_the_whole_call_not_for_each_piece() -> None:
    provider = ScriptedProvider([stream(*"abcdefghij", every_s=0.05)])
    with pytest.raises(CallFailedError) as caught:
        await Watched(RetryPolicy(call_timeout_s=0.2, attempts=1))(provider)
    assert caught.value.fault == "timeout"


async def test_sink_backpressure_slows_the_model_down() -> None:
    produced: list[str] = []

    class Counting(Odd):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            async for item in ScriptedProvider([stream(*"abc")]).stream(request):
                produced.append(type(item).__name__)
                yield item

    gate = asyncio.Semaphore(0)

    async def emit(item: CallItem) -> None:
        await gate.acquire()

    task = asyncio.create_task(call([ProviderModel(Counting(), "m")], ask(), emit=emit))
    for read in (1, 2, 3):
        await asyncio.sleep(0.01)
        assert len(produced) == read
        gate.release()
    await task
    assert produced == ["TextDelta", "TextDelta", "TextDelta", "ModelReply"]


async def test_time_that_the_consumer_takes_is_not_the_models() -> None:
    async def emit(item: CallItem) -> None:
        await asyncio.sleep(0.1)

    retry = RetryPolicy(call_timeout_s=0.2, attempts=1)
    called = await call([ProviderModel(ScriptedProvider([stream(*"abcd")]), "m")], ask(), retry=retry, emit=emit)
    assert called.reply.content == [TextBlock("abcd")]


async def test_a_consumer_that_takes_an_item_at_once_is_not_awaited() -> None:
    taken: list[CallItem] = []
    called = await call([ProviderModel(ScriptedProvider([stream(*"ab")]), "m")], ask(), emit=taken.append)
    assert taken == [TextDelta("a"), TextDelta("b")]
    assert called.reply.content == [TextBlock("ab")]


async def test_the_model_has_the_rest_of_its_time_after_a_slow_consumer() -> None:
    class Stuck(Odd):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            yield TextDelta("a")
            await asyncio.sleep(30)

    async def emit(item: CallItem) -> None:
        await asyncio.sleep(0.1)

    retry = RetryPolicy(call_timeout_s=0.05, attempts=1)
    with pytest.raises(CallFailedError) as caught:
        await soon(call([ProviderModel(Stuck(), "m")], ask(), retry=retry, emit=emit))
    assert caught.value.fault == "timeout"


async def test_an_error_of_the_consumer_ends_the_call_and_is_its_own() -> None:
    told: list[str] = []

    class Telling(Odd):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            told.append("asked")
            try:
                yield TextDelta("a")
            finally:
                told.append("closed")

    async def emit(item: CallItem) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        await call([ProviderModel(Telling(), "m")], ask(), emit=emit)
    assert told == ["asked", "closed"]
    assert caught.value.__context__ is None


async def test_cancelling_ends_the_call_at_once_and_closes_the_stream() -> None:
    closed = asyncio.Event()

    class Slow(Odd):
        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamItem]:
            try:
                yield TextDelta("a")
                await asyncio.sleep(30)
            finally:
                closed.set()

    watched = Watched()
    task = asyncio.create_task(watched(Slow(), ScriptedProvider(["never"])))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed.is_set()
    assert watched.emitted == [TextDelta("a")]


async def test_cancelling_while_it_waits_ends_the_wait() -> None:
    async def emit(item: CallItem) -> None:
        pass

    provider = ScriptedProvider([fault("rate_limit", retry_after_s=50), "never"])
    task = asyncio.create_task(call([ProviderModel(provider, "m")], ask(), emit=emit))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(provider.requests) == 1


# --- over a real line ----------------------------------------------------------------------------------


async def test_a_call_survives_all_that_a_line_does_to_it() -> None:
    script: list[ScriptStep] = [
        fault("rate_limit", retry_after_s=2),
        fault("network"),
        fault("bad_stream", after=["Hel", "lo"]),
        [stream("Good ", "day"), tool_call("add", a=2, b=40)],
    ]
    watched = Watched()
    async with ModelServer(script) as server:
        provider = OpenAIProvider(server.url)
        called = await watched(provider, request=ask(key="k"))
        await provider.aclose()
    assert faults(called.attempts) == ["rate_limit", "network", "bad_stream"]
    assert watched.waits == [2.0, 1.0, 2.0]
    assert watched.shown == "Good day"
    assert called.reply.stop == "tool_use"
    assert [received.headers["idempotency-key"] for received in server.received] == ["k"] * 4


async def test_the_fallback_may_be_another_service() -> None:
    async with ModelServer([fault("context_length")]) as small, ModelServer(["I can read that."]) as large:
        first, second = OpenAIProvider(small.url, id="small"), OpenAIProvider(large.url, id="large")
        called = await Watched()(first, second)
        await first.aclose()
        await second.aclose()
    assert (called.provider, faults(called.attempts)) == ("large", ["context_length"])
