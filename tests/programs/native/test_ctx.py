"""`ctx` beyond single questions: composed ways of asking, figures, durable values, cards, reading; and its replay."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards.limits import LINEAGE_DEPTH
from holdfast.core.errors import InvalidValueError
from holdfast.core.events import FailedEvent, PausedEvent
from holdfast.core.queries import Failure, LlmQuery, Query
from holdfast.core.records import PausedRecord
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.programs import model_text as reading
from holdfast.programs.errors import QueryFailedError
from holdfast.programs.native.ctx import Context
from holdfast.programs.native.ctx.card import CardContext
from holdfast.programs.prompts import MAX_CACHED
from holdfast.programs.registry import strategy
from holdfast.testing.patience import soon
from tests.alc.lua import scripted
from tests.programs.surface import asked, converse, logged, quiet, result, run, shout, silent


@pytest.fixture
async def hf() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


# --- one question, and what becomes of it -------------------------------------------------------------------


async def test_ground_and_specify_mark_their_question(hf: Holdfast) -> None:
    async def marked(ctx: Context) -> list[str]:
        return [await ctx.ground("it rains", max_tokens=9, grounded=False), await ctx.specify("which?", model="m")]

    event = await hf.start(marked)
    assert asked(event) == [LlmQuery(id="q-0", prompt="it rains", max_tokens=9, grounded=True)]
    event = await hf.feed(event.session_id, "yes")
    assert asked(event) == [LlmQuery(id="q-1", prompt="which?", underspecified=True, options={"model": "m"})]
    assert result(await hf.feed(event.session_id, "both")) == ["yes", "both"]


async def test_llm_safe_gives_the_answer_or_the_default_and_logs_why(hf: Holdfast) -> None:
    async def careful(ctx: Context) -> list[Any]:
        return [
            await ctx.llm_safe("a", system="s"),
            await ctx.llm_safe("b", default={"no": "answer"}),
            await ctx.llm_safe("c"),
            await ctx.llm_safe("d", default=None),
        ]

    answers = {"a": "fine", "b": Failure("down"), "c": Failure("late", "timeout")}
    event = await hf.start(careful, budget={"max_llm_calls": 3})
    assert asked(event)[0].system == "s"
    pauses, event = await converse(hf, event, answers.__getitem__)
    assert pauses == [["a"], ["b"], ["c"]]
    assert result(event) == ["fine", {"no": "answer"}, "", None]
    *told, spent = await logged(hf, event.session_id)
    assert told == [("warn", "llm_safe: down"), ("warn", "llm_safe: late")]
    assert spent[1].startswith("llm_safe: budget_exceeded: max_llm_calls")


async def test_llm_safe_does_not_hide_a_question_that_cannot_be_asked(hf: Holdfast) -> None:
    async def wrong(ctx: Context) -> Any:
        try:
            return await ctx.llm_safe("a", thing=object())
        except InvalidValueError:
            return "told"

    assert await run(hf, wrong) == "told"


async def test_llm_json_gives_the_dict_or_list_of_the_first_answer(hf: Holdfast) -> None:
    async def json_of(ctx: Context) -> Any:
        return [await ctx.llm_json("a", max_tokens=5), await ctx.llm_json("b"), await ctx.llm_json("c")]

    answers = {"a": 'Sure: {"x": 1}', "b": "[]", "c": {"already": ["a", "dict"]}}
    assert await run(hf, json_of, answers.__getitem__) == [{"x": 1}, [], {"already": ["a", "dict"]}]


async def test_llm_json_asks_once_more_as_lua_does(hf: Holdfast) -> None:
    async def json_again(ctx: Context) -> Any:
        return await ctx.llm_json("three names", system="s", max_tokens=5, model="m")

    first = await hf.start(json_again)
    second = await hf.feed(first.session_id, "no idea")
    said = iter(["no idea", "still none"])
    in_lua = scripted.run(
        "return alc.llm_json('three names', {system = 's', max_tokens = 5, model = 'm'})", lambda _: next(said)
    )
    assert [query["prompt"] for (query,) in in_lua.asked] == [asked(first)[0].prompt, asked(second)[0].prompt]
    again = asked(second)[0]
    assert again.system == in_lua.asked[1][0]["system"]
    assert (again.max_tokens, again.options) == (5, {"model": "m"})
    last = await hf.feed(first.session_id, "still none")
    assert result(last) is None
    assert [level for level, _ in await logged(hf, last.session_id)] == ["warn", "warn"]


async def test_several_llm_json_are_asked_together(hf: Holdfast) -> None:
    async def together(ctx: Context) -> list[Any]:
        return list(await asyncio.gather(ctx.llm_json("a"), ctx.llm_json("b")))

    event = await hf.start(together)
    assert [query.prompt for query in asked(event)] == ["a", "b"]
    assert result(await hf.feed(event.session_id, {"q-0": "[1]", "q-1": "[2]"})) == [[1], [2]]


# --- the same question again ---------------------------------------------------------------------------------


async def test_the_same_question_is_asked_once_and_another_one_anew(hf: Holdfast) -> None:
    async def cached(ctx: Context) -> list[Any]:
        said = [await ctx.cache("a"), await ctx.cache("a"), await ctx.cache("a", model="m"), await ctx.cache("a ")]
        said += [await ctx.cache("a", n=1), await ctx.cache("a", n=1.0), await ctx.cache("a", n=True)]
        said += [await ctx.cache("x", cache_key="k"), await ctx.cache("y", cache_key="k")]
        said += [await ctx.cache("a", cache_skip=True)]
        info = ctx.cache_info()
        ctx.cache_clear()
        return [*said, await ctx.cache("a"), info, ctx.cache_info()]

    count = iter(range(100))
    *said, info, after = await run(hf, cached, lambda _: str(next(count)))
    assert said == ["0", "0", "1", "2", "3", "4", "5", "6", "6", "7", "8"]
    assert info == {"entries": 7, "hits": 2, "misses": 7, "max_entries": MAX_CACHED}
    assert after == {"entries": 1, "hits": 0, "misses": 1, "max_entries": MAX_CACHED}


async def test_the_cache_keeps_the_newest_answers_and_no_failures(hf: Holdfast) -> None:
    async def filling(ctx: Context) -> list[Any]:
        await asyncio.gather(ctx.cache("0"), return_exceptions=True)
        failures = ctx.cache_info()["misses"]
        for n in range(MAX_CACHED + 1):
            await ctx.cache(str(n))
        await ctx.cache("1")
        await ctx.cache("0")
        return [failures, ctx.cache_info()]

    hf.drive("llm", Once(Failure("down")))
    event = await soon(hf.start(filling))
    most = MAX_CACHED
    assert result(event) == [0, {"entries": most, "hits": 1, "misses": most + 2, "max_entries": most}]


class Once:
    """A model that gives one answer first, and then always the same."""

    def __init__(self, first: Any) -> None:
        self._first = [first]

    def __call__(self, query: Query) -> Any:
        return self._first.pop() if self._first else "fine"


async def test_a_cached_answer_is_not_changed_by_whoever_got_it(hf: Holdfast) -> None:
    async def changes(ctx: Context) -> Any:
        (await ctx.cache("a"))["x"].append(2)
        return await ctx.cache("a")

    assert await run(hf, changes, lambda _: {"x": [1]}) == {"x": [1]}


# --- several at once -----------------------------------------------------------------------------------------


async def test_options_of_a_batch_are_for_all_items_and_their_own_go_before(hf: Holdfast) -> None:
    async def batch(ctx: Context) -> Any:
        return await ctx.llm_batch(["a", {"prompt": "b", "max_tokens": 3, "role": "r"}], max_tokens=7, model="m")

    first, second = asked(await hf.start(batch))
    assert first == LlmQuery(id="q-0", prompt="a", max_tokens=7, options={"model": "m"})
    assert second == LlmQuery(id="q-1", prompt="b", max_tokens=3, options={"model": "m", "role": "r"})


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (["a", 5], "llm_batch: item 2 must be a prompt or a dict with one, got int"),
        ([{"system": "s"}], "llm_batch: item 1 has no 'prompt'"),
    ],
)
async def test_a_batch_says_which_item_is_wrong(hf: Holdfast, items: Any, told: str) -> None:
    async def wrong_batch(ctx: Context) -> Any:
        return await ctx.llm_batch(items)

    event = await hf.start(wrong_batch)
    assert isinstance(event, FailedEvent)
    assert told in event.error


async def test_parallel_asks_about_all_items_in_one_pause(hf: Holdfast) -> None:
    async def about(ctx: Context) -> list[Any]:
        plain = await ctx.parallel(["tea", "milk"], lambda item: f"describe {item}", max_tokens=50)
        made = await ctx.parallel(
            (1, 2), lambda n: {"prompt": f"n{n}", "max_tokens": n}, post=lambda answer, n: [answer, n], model="m"
        )
        return [plain, made, await ctx.parallel([], str)]

    event = await hf.start(about)
    assert [query.max_tokens for query in asked(event)] == [50, 50]
    event = await hf.feed(event.session_id, {"q-0": "hot", "q-1": "white"})
    assert [(query.prompt, query.max_tokens, query.options) for query in asked(event)] == [
        ("n1", 1, {"model": "m"}),
        ("n2", 2, {"model": "m"}),
    ]
    (_, paused) = [e.record async for e in hf.store.journal(event.session_id) if isinstance(e.record, PausedRecord)]
    assert paused.wake == "all_or_failure"
    event = await hf.feed(event.session_id, {"q-2": "one", "q-3": "two"})
    assert result(event) == [["hot", "white"], [["one", 1], ["two", 2]], []]


# --- what it may know ----------------------------------------------------------------------------------------


async def test_figures_can_be_read_back_and_calls_are_counted(hf: Holdfast) -> None:
    async def figures(ctx: Context) -> list[Any]:
        kept = {"n": [1]}
        ctx.stats.record("tries", kept)
        kept["n"].append(2)
        ctx.stats.get("tries")["n"].append(3)
        before = ctx.stats.llm_calls()
        await ctx.llm_batch(["a", "b"])
        ctx.stats.record("other", 1)
        ctx.stats.record("other", 2)
        return [ctx.stats.get("tries"), ctx.stats.get("other"), ctx.stats.get("none"), before, ctx.stats.llm_calls()]

    assert await run(hf, figures) == [{"n": [1]}, 2, None, 0, 2]


async def test_budget_check_says_whether_something_is_left_of_every_limit(hf: Holdfast) -> None:
    async def spends(ctx: Context) -> list[bool]:
        said = [ctx.budget_check()]
        await ctx.llm("a")
        return [*said, ctx.budget_check()]

    assert await run(hf, spends) == [True, True]
    assert await run(hf, spends, budget={"max_llm_calls": 1, "max_tokens": 10**6}) == [True, False]
    assert await run(hf, spends, budget={"max_llm_calls": 2}) == [True, True]


async def test_what_models_write_is_read_with_the_functions_of_ctx(hf: Holdfast) -> None:
    async def reads(ctx: Context) -> list[Any]:
        return [
            ctx.json_extract("see [1]"),
            ctx.list_items("1. a\n2. b", 1),
            ctx.match_enum("BLOKED", ["PASS", "BLOCKED"], threshold=0.8),
            ctx.match_bool("yes"),
            ctx.parse_score("none", 3),
            ctx.parse_number("n = 4", r"n = (\d+)"),
            ctx.vote(["a", "a "]),
            ctx.chunk("abc", mode="chars", size=2),
            ctx.fingerprint("A b") == reading.fingerprint("a  B"),
            ctx.tuning({"n": 1}, ctx.data, prefix="mine"),
        ]

    assert await run(hf, reads, ctx={"mine": {"n": 2}}) == [
        [1],
        ["a"],
        "BLOCKED",
        True,
        3,
        4,
        {"winner": "a", "count": 2, "total": 2},
        ["ab", "c"],
        True,
        {"n": 2},
    ]


# --- what it keeps -------------------------------------------------------------------------------------------


async def test_the_rest_of_the_durable_state(hf: Holdfast) -> None:
    async def keeps(ctx: Context) -> list[Any]:
        state = ctx.state("surface")
        said: list[Any] = [await state.has("k"), await state.set_nx("k", None), await state.set_nx("k", 2)]
        said += [await state.has("k"), await state.get("k", "default")]
        said += [await state.incr("n"), await state.incr("n", 2.5), await state.incr("m", -1, default=10)]
        said += [await ctx.state.list("surface"), await state.list(), await ctx.state.list()]
        said += [await ctx.state.show("surface", "n")]
        try:
            await ctx.state.show("surface", "gone")
        except KeyError as error:
            said.append(error.args[0])
        try:
            await state.incr("k")
        except QueryFailedError as error:
            said.append(error.code)
        return said

    assert await run(hf, keeps) == [
        *(False, True, False, True, None, 1, 3.5, 9),
        *(["k", "m", "n"], ["k", "m", "n"], [], 3.5),
        "state: 'gone' not found in namespace 'surface'",
        "invalid_value",
    ]


async def test_a_default_that_is_changed_by_an_update_stays_as_it_was(hf: Holdfast) -> None:
    async def updates(ctx: Context) -> list[Any]:
        default: list[int] = []

        def append(values: list[int]) -> list[int]:
            values.append(1)
            return values

        return [await ctx.state.update("l", append, default), await ctx.state.update("l", append, default), default]

    assert await run(hf, updates) == [[1], [1, 1], []]


@pytest.fixture
def _own_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_CARD_SINKS", f"file://{tmp_path}/mirror")


@pytest.mark.usefixtures("_own_cards")
async def test_every_operation_on_cards_reaches_the_box(hf: Holdfast, tmp_path: Path) -> None:
    async def cards(ctx: Context) -> dict[str, Any]:
        card = ctx.card
        made = await card.create({"pkg": {"name": "cot"}, "card_id": "c1", "stats": {"pass_rate": 0.5}})
        one = made["card_id"]
        await card.create({"pkg": {"name": "cot"}, "card_id": "c2", "metadata": {"prior_card_id": one}})
        return {
            "got": (await card.get(one))["stats"],
            "none": [await card.get("x"), await card.get_by_alias("x"), await card.lineage("x")],
            "appended": (await card.append(one, {"review": "good"}))["review"],
            "alias": await card.alias_set("best", one, pkg="cot", note="n"),
            "aliases": len(await card.alias_list(pkg="cot")) + len(await card.alias_list()),
            "by_alias": (await card.get_by_alias("best"))["card_id"],
            "listed": len(await card.list(pkg="cot")) + len(await card.list()),
            "found": await card.find(where={"review": {"exists": True}}, order_by="-card_id", limit=5),
            "ordered": [c["card_id"] for c in await card.find(order_by=("-card_id",), limit=1, offset=1)],
            "samples": (await card.write_samples(one, [{"n": 1}, {"n": 2}]))["count"],
            "read": await card.read_samples(one, offset=1, where={"n": {"gte": 1}}),
            "lineage": await card.lineage("c2", relation_filter=None),
            "filled": (await card.sink_backfill(f"file://{tmp_path}/mirror", dry_run=True))["skipped"],
            "created_at": (await card.get(one))["created_at"],
            "now": ctx.now(),
        }

    told = await run(hf, cards)
    assert told["got"] == {"pass_rate": 0.5}
    assert told["none"] == [None, None, None]
    assert (told["appended"], told["aliases"], told["by_alias"], told["listed"]) == ("good", 2, "c1", 4)
    assert told["alias"]["note"] == "n"
    assert [card["card_id"] for card in told["found"]] == told["ordered"] == ["c1"]
    assert (told["samples"], told["read"]) == (2, [{"n": 2}])
    assert [node["card_id"] for node in told["lineage"]["nodes"]] == ["c2", "c1"]
    assert told["filled"] == ["c1", "c2"]


@pytest.mark.usefixtures("_own_cards")
async def test_a_card_that_cannot_be_kept_is_a_failure_inside_the_program(hf: Holdfast) -> None:
    async def bad_card(ctx: Context) -> list[str]:
        try:
            await ctx.card.create({"stats": {}})
        except QueryFailedError as error:
            return [error.code, str(error)]
        return []

    code, text = await run(hf, bad_card)
    assert code == "invalid_card"
    assert "pkg" in text


def test_lineage_goes_as_far_by_default_as_the_box_does() -> None:
    assert inspect.signature(CardContext.lineage).parameters["depth"].default == LINEAGE_DEPTH


# --- after a restart -----------------------------------------------------------------------------------------


@strategy(name="surface-everything")
async def everything(ctx: Context) -> dict[str, Any]:
    found = await ctx.llm_json("as JSON")
    safe = await ctx.llm_safe("safe?", default="nothing")
    twice = [await ctx.cache("again"), await ctx.cache("again"), ctx.cache_info()["hits"]]
    ctx.stats.record("round", 1)
    many = await ctx.parallel(["x", "y"], lambda item: f"about {item}", post=lambda answer, item: answer + item)
    counted = [await ctx.state.incr("runs"), await ctx.state.set_nx("first", ctx.session_id)]
    made = await ctx.card.create({"pkg": {"name": "everything"}, "card_id": f"card-{ctx.get('name')}"})
    forked = await ctx.fork([silent, shout], {"task": "f"})
    piped = await ctx.pipe([shout, lambda state: {**state, "result": state["task"] + "."}], {"task": "p"})
    return {
        "found": found,
        "safe": safe,
        "twice": twice,
        "many": many,
        "counted": counted,
        "card": made["card_id"],
        "forked": forked,
        "piped": [piped["result"], len(piped["pipe_history"])],
        "stats": [ctx.stats.get("round"), ctx.stats.llm_calls(), ctx.budget_check()],
        "voted": ctx.vote([entry["ok"] for entry in forked]),
        "last": await ctx.llm("last"),
    }


def reply(prompt: str) -> Any:
    if prompt == "as JSON":
        return "none at first"
    if prompt.startswith("Your last answer"):
        return '```json\n{"a": 1}\n```'
    return Failure("down") if prompt == "safe?" else f"<{prompt}>"


@pytest.mark.usefixtures("_own_cards")
async def test_everything_replays_after_the_store_is_reopened_at_each_pause(tmp_path: Path) -> None:
    budget = {"max_llm_calls": 20}
    async with quiet(tmp_path) as hf:
        event = await soon(hf.start(everything, ctx={"name": "one"}, budget=budget))
        pauses, ended = await converse(hf, event, reply)
        whole = result(ended)
        event = await soon(hf.start(everything, ctx={"name": "two"}, budget=budget))
    seen = []
    while isinstance(event, PausedEvent):
        seen.append([query.prompt for query in asked(event)])
        answers = {query.id: reply(query.prompt) for query in asked(event)}
        async with quiet(tmp_path) as hf:
            event = await soon(hf.feed(event.session_id, answers))
    assert seen == pauses
    assert len(pauses) == 8
    assert result(event) == {**whole, "card": "card-two", "counted": [2, False]}
    assert whole["found"] == {"a": 1}
    assert whole["safe"] == "nothing"
    assert whole["twice"] == ["<again>", "<again>", 1]
    assert whole["many"] == ["<about x>x", "<about y>y"]
    assert whole["piped"] == ["<shout p>.", 2]
    assert whole["stats"] == [1, 8, True]
