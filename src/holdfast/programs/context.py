"""`ctx`: everything a native strategy may ask, know and say."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.budget import Remaining
from holdfast.core.limits import DEFAULT_MAX_TOKENS
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, TimerQuery, ToolQuery
from holdfast.core.records import LoggedRecord, ProgressedRecord, StatRecord
from holdfast.core.values import Json, checked, own_copy, own_copy_of, repaired
from holdfast.programs.registry import Function, Strategy, find

if TYPE_CHECKING:
    from holdfast.programs.native import NativeInstance, QueryFuture

STATE_TOOL = "holdfast.state"
"""The tool behind `ctx.state`; the engine answers it from the store, in the transaction that records the answer."""


class Context:
    """What a strategy is given. Questions are futures: `await` one, or pass several to `asyncio.gather`."""

    def __init__(self, run: NativeInstance) -> None:
        started = run.session.started
        self._run = run
        self.data: Json = own_copy(started.ctx) if started else None
        """What the session was started with."""
        self.random = random.Random(started.seed if started else 0)
        """A generator that gives the same numbers in every replay."""
        self.stats = Stats(run)
        self.state = StateArea(run, started.program.name if started else "default")

    @property
    def session_id(self) -> str:
        """The id the session was started under. A fork has the id of the session it comes from, or it would diverge."""
        started = self._run.session.started
        return started.forked_from.origin if started and started.forked_from else self._run.session.id

    @property
    def task(self) -> str:
        """`data["task"]`, the usual input of a strategy; empty if there is none."""
        task = self.get("task", "")
        return task if isinstance(task, str) else str(task)

    def get(self, key: str, default: Json = None) -> Json:
        """A field of what the session was started with."""
        return self.data.get(key, default) if isinstance(self.data, dict) else default

    def __getitem__(self, key: str) -> Json:
        return self.data[key]

    # --- questions ---------------------------------------------------------------------------------

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

    def llm_batch(self, items: Sequence[str | Mapping[str, Json]]) -> asyncio.Future[list[Any]]:
        """Ask several prompts in one pause, for a list of answers. Items are prompts, or `llm`'s arguments."""
        queries = [_item(item) for item in items]
        if not queries:
            done: asyncio.Future[list[Any]] = self._run.loop.create_future()
            done.set_result([])
            return done
        return asyncio.gather(*(self._run.ask(query) for query in queries))

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
        """Run another program as a session of its own; the answer is its result, or its failure."""
        found = find(program).program
        return self._run.ask(ChildQuery(program=found.name, source=found.source, ctx=ctx))

    # --- what it may know --------------------------------------------------------------------------

    def now(self) -> float:
        """The time in unix seconds, as recorded: it stands still between two pauses, and replays the same."""
        return self._run.loop.time()

    def uuid(self) -> uuid.UUID:
        """A new UUID, the same in every replay."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def budget_remaining(self) -> Remaining | None:
        """What is left of the session's budget; None if it has none."""
        return self._run.remaining

    # --- what it may say ---------------------------------------------------------------------------

    def log(self, message: object, level: str = "info") -> None:
        """Write a line to the session's log."""
        self._run.notes.append(checked(LoggedRecord(message=repaired(str(message)), level=level), "log line"))

    def progress(self, step: int, total: int, message: str | None = None) -> None:
        """Say how far the strategy is."""
        progress = ProgressedRecord(step=step, total=total, message=message and repaired(message))
        self._run.notes.append(checked(progress, "progress"))


class Stats:
    """Figures a strategy records about itself; the last value of a key counts."""

    def __init__(self, run: NativeInstance) -> None:
        self._run = run

    def record(self, key: str, value: Json) -> None:
        self._run.notes.append(own_copy_of(checked(StatRecord(key=key, value=value), "stat")))


class StateArea:
    """Durable values under keys, shared by all sessions that use the namespace (the strategy's name, unless chosen)."""

    def __init__(self, run: NativeInstance, namespace: str) -> None:
        self._run = run
        self._namespace = namespace

    def __call__(self, namespace: str) -> StateArea:
        """The values of another namespace."""
        return StateArea(self._run, namespace)

    def _ask(self, op: str, **arguments: Json) -> QueryFuture:
        return self._run.ask(
            ToolQuery(name=STATE_TOOL, arguments={"op": op, "namespace": self._namespace, **arguments})
        )

    async def get(self, key: str, default: Json = None) -> Json:
        item = await self._ask("get", key=key)
        return item["value"] if item["version"] else default

    async def set(self, key: str, value: Json) -> None:
        await self._ask("put", key=key, value=value)

    async def delete(self, key: str) -> bool:
        deleted: bool = await self._ask("delete", key=key)
        return deleted

    async def keys(self, prefix: str = "") -> list[str]:
        found: list[str] = await self._ask("list", prefix=prefix)
        return found

    async def update(self, key: str, change: Callable[[Json], Json], default: Json = None) -> Json:
        """Replace a value by a function of it, atomically against all other sessions and processes."""
        while True:
            item = await self._ask("get", key=key)
            value = change(item["value"] if item["version"] else default)
            if await self._ask("put", key=key, value=value, expected=item["version"]):
                return value


def _item(item: str | Mapping[str, Json]) -> LlmQuery:
    if isinstance(item, str):
        return LlmQuery(prompt=item)
    given = dict(item)
    known = {name: given.pop(name) for name in LlmQuery.__struct_fields__ if name in given and name != "options"}
    return LlmQuery(**known, options={**given.pop("options", {}), **given})
