"""Everything that `ctx` can ask: models, people, tools, the clock, other strategies; and what is composed of that.

One question is a future, and is asked whether it is awaited or not. What is composed of several is a coroutine, which
begins when it is awaited or passed to `asyncio.gather`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec

from holdfast.core.limits import DEFAULT_MAX_TOKENS
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, TimerQuery, ToolQuery
from holdfast.core.records import LoggedRecord
from holdfast.core.values import Json, check_value, encode, fingerprint, own_copy, repaired
from holdfast.programs import model_text
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.lookup import registered_program
from holdfast.programs.prompts import JSON_ONLY, MAX_CACHED, json_repair_prompt
from holdfast.programs.registry import Function, Strategy, find

if TYPE_CHECKING:
    from holdfast.programs.native.kind import NativeInstance, QueryFuture

T = TypeVar("T")

Item: TypeAlias = str | Mapping[str, Json]
"""One question of several: its prompt, or `llm`'s arguments."""

Stage: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | Awaitable[dict[str, Any]]]
"""A function in a pipe: from a ctx to a ctx."""


class ContextQueries:
    """The questions of one strategy."""

    def __init__(self, run: NativeInstance) -> None:
        self._run = run
        self._answers = _Answers()

    # --- one question ------------------------------------------------------------------------------

    def llm(
        self,
        prompt: str,
        *,
        system: str | None = None,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        grounded: bool = False,
        underspecified: bool = False,
        timeout_ms: int | None = None,
        **options: Json,
    ) -> QueryFuture:
        """Ask a language model; the answer is its text. Other options are passed on to whoever answers.

        With `timeout_ms`, an answer that does not come in time is a failure with the code `timeout`.
        """
        query = LlmQuery(
            prompt=prompt,
            system=system,
            max_tokens=max_tokens,
            grounded=grounded,
            underspecified=underspecified,
            timeout_ms=timeout_ms,
            options=options,
        )
        return self._run.ask(query)

    def ground(self, claim: str, **options: Any) -> QueryFuture:
        """Ask with `grounded` set: the host should look the claim up."""
        return self.llm(claim, **{**options, "grounded": True})

    def specify(self, prompt: str, **options: Any) -> QueryFuture:
        """Ask with `underspecified` set: the host should find out what is meant."""
        return self.llm(prompt, **{**options, "underspecified": True})

    def ask(self, prompt: str, *, choices: Sequence[str] = (), timeout_ms: int | None = None) -> QueryFuture:
        """Ask a person."""
        return self._run.ask(HumanQuery(prompt=prompt, choices=list(choices), timeout_ms=timeout_ms))

    def tool(self, name: str, /, **arguments: Json) -> QueryFuture:
        """Call a tool; whoever drives it, or anyone else, answers. To wait only so long, use `asyncio.timeout`."""
        return self._run.ask(ToolQuery(name=name, arguments=arguments))

    def sleep(self, seconds: float) -> QueryFuture:
        """Wait, however often the process is restarted meanwhile."""
        return self._run.ask(TimerQuery(delay_ms=max(0, round(seconds * 1000))))

    def child(self, program: Strategy | Function | str, ctx: Json = None) -> QueryFuture:
        """Run another program as a session of its own; the answer is its result, or its failure.

        A name is that of a native strategy that is registered, as `module:name` or by its last part; else that of a Lua
        package or of a strategy in sandboxed Python.
        """
        return self._run.ask(_child(program, ctx))

    # --- one question, and a use of its answer -----------------------------------------------------

    async def llm_safe(self, prompt: str, *, default: Any = "", **options: Any) -> Any:
        """Ask; `default` if there is no answer, because the host failed or the budget is spent. The log says why."""
        try:
            return await self.llm(prompt, **options)
        except QueryFailedError as error:
            self._warn(f"llm_safe: {error}")
            return default

    async def llm_json(self, prompt: str, **options: Any) -> Any:
        """Ask for JSON: a dict or list, or None if the second answer has none either.

        If the answer has none, the model is asked once more, with its answer and the request in the new question.
        """
        raw = _as_said(await self.llm(prompt, **options))
        value = model_text.json_extract(raw)
        if value is not None:
            return value
        self._warn("llm_json: the answer is not JSON, asking once more")
        raw = _as_said(await self.llm(json_repair_prompt(prompt, raw), **{**options, "system": JSON_ONLY}))
        value = model_text.json_extract(raw)
        if value is None:
            self._warn("llm_json: the second answer is not JSON either")
        return value

    async def cache(
        self, prompt: str, *, cache_key: str | None = None, cache_skip: bool = False, **options: Any
    ) -> Any:
        """Ask; the same question with the same options gets the first answer again, without asking.

        `cache_key` names the question instead; `cache_skip` asks anew, and keeps nothing. The newest answers are kept
        for this run. A question repeated before its answer has arrived is asked again.
        """
        if cache_skip:
            return await self.llm(prompt, **options)
        asked = [prompt, options] if cache_key is None else cache_key
        check_value(asked, "question to cache")
        key, answers = fingerprint(asked), self._answers
        if key in answers.kept:
            answers.hits += 1
        else:
            answers.keep(key, await self.llm(prompt, **options))
        return own_copy(answers.kept[key])

    def cache_info(self) -> dict[str, int]:
        """The state of the cache: `entries`, `hits`, `misses`, and the `max_entries` that it keeps."""
        answers = self._answers
        counts = {"entries": len(answers.kept), "hits": answers.hits, "misses": answers.misses}
        return {**counts, "max_entries": MAX_CACHED}

    def cache_clear(self) -> None:
        """Forget all cached answers, and the counts."""
        self._answers = _Answers()

    # --- several at once ---------------------------------------------------------------------------

    def llm_batch(self, items: Sequence[Item], **options: Json) -> asyncio.Future[list[Any]]:
        """Ask several prompts in one pause, for a list of answers. Items are prompts, or `llm`'s arguments.

        `options` apply to all of them; an item's own arguments take precedence.
        """
        queries = _questions(items, options, "llm_batch")
        if not queries:
            done: asyncio.Future[list[Any]] = self._run.loop.create_future()
            done.set_result([])
            return done
        return asyncio.gather(*(self._run.ask(query) for query in queries))

    async def llm_each(self, items: Sequence[Item], **options: Json) -> list[Any]:
        """As `llm_batch`, but the answer to a question that failed is None, and the log says why; the others continue.

        If all of them failed, or could not be asked, the first failure is raised.
        """
        queries = _questions(items, options, "llm_each")
        answers = await asyncio.gather(*map(self._run.ask, queries), return_exceptions=True)
        failures = {number: each for number, each in enumerate(answers, 1) if isinstance(each, QueryFailedError)}
        if failures and len(failures) == len(queries):
            raise failures[1]
        for number, failure in failures.items():
            self._warn(f"llm_each: item {number} failed: {failure}")
        return [None if isinstance(each, QueryFailedError) else each for each in answers]

    async def parallel(
        self,
        items: Sequence[T],
        prompt: Callable[[T], Item],
        *,
        post: Callable[[Any, T], Any] | None = None,
        **options: Json,
    ) -> list[Any]:
        """One question for every item, all in one pause: the answers, or what `post(answer, item)` makes of them.

        `options` apply to all questions; a dict that `prompt` returns may have its own.
        """
        items = list(items)
        answers = await self.llm_batch([prompt(item) for item in items], **options)
        return answers if post is None else [post(answer, item) for answer, item in zip(answers, items, strict=True)]

    async def fork(
        self,
        strategies: Sequence[str | Strategy | Function],
        ctx: Json,
        *,
        on_error: Literal["skip", "abort"] = "skip",
    ) -> list[dict[str, Any]]:
        """Run strategies side by side, each as a child session with a copy of `ctx`.

        Returns the outcome of each: `{"strategy": …, "ok": True, "result": …}`, or `"ok": False` and its `"error"`.
        With `abort` the first failure is raised, after all have ended.
        """
        _check_strategies(strategies, "fork")
        if on_error not in ("skip", "abort"):
            raise ValueError(f"fork: on_error must be 'skip' or 'abort', got {on_error!r}")
        children = [_child(given, ctx) for given in strategies]  # all are found, or none is begun
        outcomes = await asyncio.gather(*map(self._run.ask, children), return_exceptions=True)
        entries: list[dict[str, Any]] = []
        for child, outcome in zip(children, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                entries.append({"strategy": child.program, "ok": True, "result": outcome})
            elif on_error == "skip":
                entries.append({"strategy": child.program, "ok": False, "error": _error_text(outcome)})
            else:
                code = getattr(outcome, "code", "failed")
                raise QueryFailedError(f"fork: strategy '{child.program}' failed: {_error_text(outcome)}", code)
        return entries

    # --- one after the other -----------------------------------------------------------------------

    async def pipe(
        self,
        strategies: Sequence[str | Strategy | Stage],
        ctx: dict[str, Any],
        *,
        on_error: Literal["abort", "skip", "continue"] = "abort",
    ) -> dict[str, Any]:
        """Run strategies one after the other on a copy of `ctx`, and return the last ctx.

        A name or a `Strategy` is run as a child session. A function is called with the ctx, a dict, and may be `async`.
        Each returns a ctx. What it leaves in `ctx["result"]` becomes the next one's `ctx["task"]`, a dict or list as
        JSON. `ctx["pipe_history"]` has `{strategy, result}` or `{strategy, error}` for each. With `skip` or `continue`
        a stage that fails is skipped, and ctx stays as it was.
        """
        _check_strategies(strategies, "pipe")
        if not isinstance(ctx, dict):
            raise TypeError(f"pipe: ctx must be dict, got {type(ctx).__name__}")
        if on_error not in ("abort", "skip", "continue"):
            raise ValueError(f"pipe: on_error must be 'abort', 'skip' or 'continue', got {on_error!r}")
        stages = [_child(given) if isinstance(given, str | Strategy) else given for given in strategies]
        history: list[Json] = []
        current: dict[str, Any] = {**ctx, "pipe_history": history}
        for number, stage in enumerate(stages, 1):
            name = stage.program if isinstance(stage, ChildQuery) else f"(inline-{number})"
            before = dict(current)
            try:
                left = await self._run_stage(stage, current)
            except Exception as error:
                if on_error == "abort":
                    raise
                self._warn(f"pipe: stage '{name}' failed: {_error_text(error)}")
                current = before
                entry: dict[str, Json] = {"strategy": name, "error": _error_text(error)}
            else:
                if not isinstance(left, dict):
                    raise TypeError(f"pipe: strategy '{name}' must return a dict (ctx), got {type(left).__name__}")
                current, result = left, left.get("result")
                entry = {"strategy": name, "result": result}
                if result is not None and number < len(stages):
                    current["task"] = model_text.as_text(result, f"pipe: the result of '{name}'")
            # What a stage returns may be a dict of its own, without the history.
            if isinstance(found := current.get("pipe_history"), list):
                history = found
            history.append(entry)
            current["pipe_history"] = history
        return current

    async def _run_stage(self, stage: ChildQuery | Stage, ctx: dict[str, Any]) -> Any:
        if isinstance(stage, ChildQuery):
            return await self._run.ask(msgspec.structs.replace(stage, ctx=ctx))
        left = stage(ctx)
        return await left if inspect.isawaitable(left) else left

    def _warn(self, message: str) -> None:
        self._run.notes.append(LoggedRecord(message=repaired(message), level="warn"))


class _Answers:
    """Answers by what was asked, the newest of them."""

    def __init__(self) -> None:
        self.kept: dict[bytes, Json] = {}
        self.hits = self.misses = 0

    def keep(self, key: bytes, answer: Json) -> None:
        self.misses += 1
        self.kept[key] = answer
        if len(self.kept) > MAX_CACHED:
            del self.kept[next(iter(self.kept))]


def _questions(items: Sequence[Item], shared: Mapping[str, Json], what: str) -> list[LlmQuery]:
    return [_question(item, shared, f"{what}: item {number}") for number, item in enumerate(items, 1)]


def _question(item: Item, shared: Mapping[str, Json], what: str) -> LlmQuery:
    if not isinstance(item, str | Mapping):
        raise TypeError(f"{what} must be a prompt or a dict with one, got {type(item).__name__}")
    given = {**shared, **({"prompt": item} if isinstance(item, str) else item)}
    if "prompt" not in given:
        raise TypeError(f"{what} has no 'prompt'")
    known = {name: given.pop(name) for name in LlmQuery.__struct_fields__ if name in given and name != "options"}
    return LlmQuery(**known, options={**given.pop("options", {}), **given})


def _child(given: Strategy | Function | str, ctx: Json = None) -> ChildQuery:
    if isinstance(given, str) and ":" not in given:
        return ChildQuery(program=given, ctx=ctx, program_kind="any")
    if isinstance(given, str):
        return ChildQuery(program=registered_program(given).name, ctx=ctx)
    return ChildQuery(program=find(given).name, ctx=ctx)


def _check_strategies(given: object, what: str) -> None:
    if not isinstance(given, list | tuple) or not given:
        raise TypeError(f"{what}: strategies must be a list, and not empty")
    for number, each in enumerate(given, 1):
        if not isinstance(each, str | Strategy) and not callable(each):
            kind = type(each).__name__
            raise TypeError(f"{what}: strategy {number} must be a name, a strategy or a function, got {kind}")


def _as_said(answer: Json) -> str:
    return answer if isinstance(answer, str) else encode(answer).decode()


def _error_text(error: BaseException) -> str:
    return str(error) if isinstance(error, QueryFailedError) else f"{type(error).__name__}: {error}"
