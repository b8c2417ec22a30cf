"""What a session has done and spent so far: a part of the fold, changed only by `core.state`.

The types of fields are evaluated here, and not kept as text: msgspec would compile every text again in each process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from holdfast.core.budget import Budget, ChildShare, Price, price_for
from holdfast.core.limits import MAX_MODELS, RECENT_LOGS
from holdfast.core.queries import Answer, LlmQuery, Usage, Value, sum_of_usage
from holdfast.core.records import LoggedRecord, ProgressedRecord
from holdfast.core.tokens import TokenCount, measure_text
from holdfast.core.values import Json, value_bytes


class OpenCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An `llm` query without an answer: what it was estimated at, and what is set aside for its answer."""

    query_id: str
    prompt_tokens: int
    reserved_tokens: int
    reserved_cost: float
    started_at: int


def measure_query(query: LlmQuery) -> tuple[int, int, int]:
    """Characters, bytes and estimated tokens of what a model is asked, its system prompt included."""
    chars, size, tokens = measure_text(query.prompt)
    tokens += query.context_tokens
    if query.system is None:
        return chars, size, tokens
    system_chars, system_size, system_tokens = measure_text(query.system)
    return chars + system_chars, size + system_size, tokens + system_tokens


def measure_answer(answer: Answer) -> tuple[int, int, int]:
    """Characters, bytes and estimated tokens of what was answered; a failure has none."""
    if type(answer) is not Value:
        return 0, 0, 0
    value = answer.value
    if type(value) is str:
        return measure_text(value)
    chars, size = value_bytes(value)
    return chars, size, (size + 3) // 4


class ChildrenUsage(msgspec.Struct, omit_defaults=True):
    """What the children of a session have reported as spent."""

    llm_calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def to_json(self) -> dict[str, Any]:
        shown = {"llm_calls": self.llm_calls, "tokens": self.tokens}
        return {**shown, "cost": round(self.cost, 9)} if self.cost else shown


class BackgroundUsage(msgspec.Struct, omit_defaults=True):
    """What background work has spent on behalf of a session."""

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def to_json(self) -> dict[str, Any]:
        return ChildrenUsage(self.llm_calls, self.tokens, self.cost).to_json()


@dataclass
class Metrics:
    """Counters of one session. Times are unix milliseconds; `now` is always given, never read.

    Not a struct, because its fields are written at every step, and those of structs are slow to write.
    """

    started_at: int = 0
    ended_at: int | None = None
    last_activity_at: int = 0
    pauses: int = 0
    rounds: int = 0
    llm_calls: int = 0
    failures: int = 0
    refused: int = 0
    prompt_chars: int = 0
    prompt_bytes: int = 0
    system_chars: int = 0
    response_chars: int = 0
    response_bytes: int = 0
    prompt_tokens: TokenCount = field(default_factory=TokenCount)
    response_tokens: TokenCount = field(default_factory=TokenCount)
    cost: float = 0.0
    reserved_tokens: int = 0
    reserved_cost: float = 0.0
    reserved_calls: int = 0
    """Model calls that are set aside for children; those that were asked here are counted already."""
    shares: dict[str, ChildShare] = field(default_factory=dict)
    """What is set aside for children that have not answered, by query. It is part of what is reserved."""
    children: ChildrenUsage = field(default_factory=ChildrenUsage)
    """What children have spent. It is part of the other sums as well."""
    background: BackgroundUsage = field(default_factory=BackgroundUsage)
    """What background work has spent on behalf of the session. It counts against the budget, and is no part of the
    other sums: a program measures its own calls by those, and background work ends at any time."""
    by_model: dict[str, Usage] = field(default_factory=dict)
    """The part of all that was spent of which whoever spent it has said on which model."""
    custom: dict[str, Json] = field(default_factory=dict)
    progress: ProgressedRecord | None = None
    recent_logs: list[tuple[int, LoggedRecord]] = field(default_factory=list)
    open: dict[str, OpenCall] = field(default_factory=dict)
    """Model calls without an answer, by query."""
    _own_ms: int = 0
    _waiting_ms: int = 0
    _waiting: bool = False

    def copied(self) -> "Metrics":
        """The same values in another object, to be written down: that slows down each later access to an object."""
        return Metrics(*[getattr(self, name) for name in _FIELDS])

    # --- folding -------------------------------------------------------------------------------

    def start(self, at: int) -> None:
        self.started_at = self.last_activity_at = at

    def tick(self, at: int, waiting: bool) -> None:
        """Book the time since the last record, then note what the time from here on counts as."""
        passed = at - self.last_activity_at
        if passed > 0:
            self.last_activity_at = at
            if self._waiting:
                self._waiting_ms += passed
            else:
                self._own_ms += passed
        self._waiting = waiting

    def ask(self, query: LlmQuery, prices: Mapping[str, Price], at: int) -> None:
        chars, size, tokens = measure_query(query)
        if query.system is not None:
            self.system_chars += len(query.system)
        most, cost = query.max_tokens, 0.0
        if prices and (price := price_for(query, prices)) is not None:
            cost = price.of(tokens, most)
            self.reserved_cost += cost
        self.open[query.id] = OpenCall(query.id, tokens, most, cost, at)
        self.llm_calls += 1
        self.prompt_chars += chars
        self.prompt_bytes += size
        self.reserved_tokens += most
        self.prompt_tokens.add(tokens)
        self.response_tokens.estimated += 1

    def log(self, record: LoggedRecord, at: int) -> None:
        self.recent_logs.append((at, record))
        if len(self.recent_logs) > RECENT_LOGS:
            del self.recent_logs[0]

    def withdraw(self, query_id: str) -> None:
        """A query nobody waits for any more frees what it had reserved; its prompt stays counted."""
        if (call := self.open.pop(query_id, None)) is not None:
            self.reserved_tokens -= call.reserved_tokens
            self._free_cost(call.reserved_cost)
        elif query_id in self.shares:
            self._return_share(query_id)

    def set_aside(self, shares: Mapping[str, ChildShare]) -> None:
        """Reserve what children may spend, by their queries."""
        for asked, share in shares.items():
            self.shares[asked] = share
            self.reserved_calls += share.llm_calls
            self.reserved_tokens += share.tokens
            self.reserved_cost += share.cost

    def answer(self, query: LlmQuery, answer: Answer, usage: Usage | None, price: Price | None) -> None:
        chars, size, response = measure_answer(answer)
        call = self.open.pop(query.id)
        self.reserved_tokens -= call.reserved_tokens
        if self.reserved_cost:
            self._free_cost(call.reserved_cost)
        self.response_chars += chars
        self.response_bytes += size
        prompt = call.prompt_tokens
        if usage is None:
            self.response_tokens.tokens += response
        else:
            prompt, response = self._correct(prompt, response, usage)
            if usage.by_model is not None:
                self._spend_on_models(usage.by_model)
        if usage is not None and usage.cost is not None:
            self.cost += usage.cost
        elif price is not None:
            self.cost += price.of(prompt, response)

    def _correct(self, prompt: int, response: int, usage: Usage) -> tuple[int, int]:
        """Count what whoever answered has counted, as far as it has; gives the tokens of both."""
        if usage.completion_tokens is None:
            self.response_tokens.tokens += response
        else:
            response = usage.completion_tokens
            self.response_tokens.correct(0, response)
        if usage.prompt_tokens is not None:
            self.prompt_tokens.correct(prompt, usage.prompt_tokens)
            prompt = usage.prompt_tokens
        return prompt, response

    def answer_child(self, asked: str, usage: Usage | None) -> None:
        """A child has ended: what it spent was spent on behalf of this session, and the rest of its share is free."""
        if asked in self.shares:
            self._return_share(asked)
        if usage is None:
            return
        calls, prompt, response = (
            spent or 0 for spent in (usage.llm_calls, usage.prompt_tokens, usage.completion_tokens)
        )
        cost = usage.cost or 0.0
        self._spend_on_models(usage.by_model or {})
        self.llm_calls += calls
        if prompt or response:  # nobody says how far the child's own count can be trusted
            self.prompt_tokens.add(prompt)
            self.response_tokens.add(response)
        self.cost += cost
        self.children.llm_calls += calls
        self.children.tokens += prompt + response
        self.children.cost += cost

    def spend_in_background(self, usage: Usage) -> None:
        """Count what background work has spent on behalf of this session."""
        spent = self.background
        spent.llm_calls += usage.llm_calls or 0
        spent.prompt_tokens += usage.prompt_tokens or 0
        spent.completion_tokens += usage.completion_tokens or 0
        spent.cost += usage.cost or 0.0
        self._spend_on_models(usage.by_model or {})

    def _spend_on_models(self, by_model: Mapping[str, Usage]) -> None:
        for model, spent in by_model.items():
            if model in self.by_model:
                self.by_model[model] = sum_of_usage(self.by_model[model], spent)
            elif len(self.by_model) < MAX_MODELS:
                self.by_model[model] = sum_of_usage(Usage(llm_calls=0), spent)

    def usage(self, by_model: dict[str, Usage] | None = None) -> Usage | None:
        """Everything that was spent, as it is reported to the parent; None if that is nothing. The program may know
        better on which models."""
        if not self.charged_calls and not self.charged_tokens and not self.charged_cost:
            return None
        total = Usage(
            prompt_tokens=self.prompt_tokens.tokens + self.background.prompt_tokens,
            completion_tokens=self.response_tokens.tokens + self.background.completion_tokens,
            cost=self.charged_cost or None,
            llm_calls=self.charged_calls,
        )
        found = by_model or (with_unknown_model(self.by_model, total) if self.by_model else None)
        return msgspec.structs.replace(total, by_model=found)

    def _return_share(self, asked: str) -> None:
        share = self.shares.pop(asked)
        self.reserved_calls -= share.llm_calls
        self.reserved_tokens -= share.tokens
        self._free_cost(share.cost)

    def _free_cost(self, cost: float) -> None:
        self.reserved_cost = self.reserved_cost - cost if self.open or self.shares else 0.0

    # --- reading -------------------------------------------------------------------------------

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens.tokens + self.response_tokens.tokens

    @property
    def charged_calls(self) -> int:
        """Model calls that count against the budget."""
        return self.llm_calls + self.background.llm_calls

    @property
    def charged_tokens(self) -> int:
        """Tokens that count against the budget."""
        return self.total_tokens + self.background.tokens

    @property
    def charged_cost(self) -> float:
        """Cost that counts against the budget."""
        return self.cost + self.background.cost

    def elapsed_ms(self, now: int) -> int:
        """Wall time from the start to the end, or to `now`."""
        return max(0, (self.ended_at if self.ended_at is not None else now) - self.started_at)

    def own_ms(self, now: int) -> int:
        """Time in which the program itself could run."""
        return self._own_ms + (0 if self._waiting else self._since(now))

    def waiting_ms(self, now: int) -> int:
        """Time in which the program waited for answers."""
        return self._waiting_ms + (self._since(now) if self._waiting else 0)

    def _since(self, now: int) -> int:
        return 0 if self.ended_at is not None else max(0, now - self.last_activity_at)

    def to_json(self, now: int, budget: Budget | None) -> dict[str, Any]:
        """The stats of a session as they go over the wire: what was counted, and what the program recorded."""
        prompt, response = self.prompt_tokens, self.response_tokens
        total = TokenCount()
        total.tokens = self.total_tokens
        total.estimated = prompt.estimated + response.estimated
        total.provided = prompt.provided + response.provided
        auto: dict[str, Any] = {
            "elapsed_ms": self.elapsed_ms(now),
            "own_ms": self.own_ms(now),
            "waiting_ms": self.waiting_ms(now),
            "llm_calls": self.llm_calls,
            "pauses": self.pauses,
            "rounds": self.rounds,
            "failures": self.failures,
            "refused": self.refused,
            "total_prompt_chars": self.prompt_bytes,  # bytes, as these two have always been
            "total_response_chars": self.response_bytes,
            "prompt_characters": self.prompt_chars,
            "response_characters": self.response_chars,
            "total_system_chars": self.system_chars,
            "total_prompt_bytes": self.prompt_bytes,
            "total_response_bytes": self.response_bytes,
            "prompt_tokens": {"tokens": prompt.tokens, "source": prompt.source},
            "response_tokens": {"tokens": response.tokens, "source": response.source},
            "total_tokens": {"tokens": total.tokens, "source": total.source},
        }
        if self.children.llm_calls or self.children.tokens or self.children.cost:
            auto["children"] = self.children.to_json()
        if self.background.llm_calls or self.background.tokens or self.background.cost:
            auto["background"] = self.background.to_json()
        if self.cost:
            auto["cost"] = round(self.cost, 9)
        if budget is not None:
            limits = {name: getattr(budget, name) for name in budget.__struct_fields__}
            auto["budget"] = {name: limit for name, limit in limits.items() if limit is not None}
        return {"auto": auto, "custom": dict(self.custom)}


_FIELDS = tuple(each.name for each in fields(Metrics))


def with_unknown_model(by_model: Mapping[str, Usage], total: Usage) -> dict[str, Usage]:
    """What was spent on each model, with the rest of a total under `""`."""
    known = Usage(llm_calls=0)
    for spent in by_model.values():
        known = sum_of_usage(known, spent)

    def rest(name: str) -> Any:
        return max(0, (getattr(total, name) or 0) - (getattr(known, name) or 0))

    unknown = Usage(
        prompt_tokens=rest("prompt_tokens"),
        completion_tokens=rest("completion_tokens"),
        cost=float(round(rest("cost"), 9)) or None,
        llm_calls=rest("llm_calls"),
    )
    found = dict(by_model)
    if unknown.prompt_tokens or unknown.completion_tokens or unknown.cost or unknown.llm_calls:
        found[""] = sum_of_usage(found[""], unknown) if "" in found else unknown
    return found
