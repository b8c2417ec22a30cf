"""Layer 1 of `alc`: the cache, and questions made of `alc.llm` and `alc.llm_batch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.alc.lua.scripted import Ended, Fails, Query, call, run
from tests.tables import each_row


def echo(query: Query) -> str:
    return f"answer to {query['prompt']}"


def counting() -> Callable[[Query], str]:
    numbers: Iterator[int] = iter(range(1, 10_000))
    return lambda query: f"{query['prompt']} #{next(numbers)}"


def queries(ended: Ended) -> list[Query]:
    return [query for pause in ended.asked for query in pause]


# --- cache ------------------------------------------------------------------------------------------------------------


def test_the_same_question_is_asked_once() -> None:
    code = """
        local a, b = alc.cache("hi", {system = "s"}), alc.cache("hi", {system = "s"})
        return {a, b, alc.cache_info()}
    """
    ended = run(code, counting())
    info = {"entries": 1, "hits": 1, "misses": 1, "max_entries": 256}
    assert ended.result == ["hi #1", "hi #1", info]
    assert len(ended.asked) == 1
    assert [text.split(" ")[1] for text in ended.logged("debug")] == ["miss", "hit"]


@each_row(
    ("first", "second"),
    [
        ('"hi"', '"Hi"'),
        ('"a b"', '"a  b"'),
        ('"hi"', '"hi", {grounded = true}'),
        ('"hi", {grounded = true}', '"hi", {underspecified = true}'),
        ('"hi", {temperature = 0.1}', '"hi", {temperature = 0.2}'),
        ('"hi", {model = "a"}', '"hi", {model = "b"}'),
        ('"hi", {system = "x"}', '"hi"'),
        ('"hi", {max_tokens = 1}', '"hi", {max_tokens = 2}'),
        ('"hi\\0s"', '"hi", {system = "s"}'),
        ('"hi", {meta = {1, 2}}', '"hi", {meta = {1, {2}}}'),
        ('"hi", {meta = {a = "b"}}', '"hi", {meta = {ab = ""}}'),
        ('"hi", {tag = "1"}', '"hi", {tag = 1}'),
        ('"\\xfe"', '"\\xff"'),
    ],
)
def test_questions_that_differ_in_anything_are_asked_each(first: str, second: str) -> None:
    ended = run(f"return {{alc.cache({first}), alc.cache({second}), alc.cache({first})}}", counting())
    one, two, again = ended.result
    assert one == again != two
    assert len(ended.asked) == 2


def test_equal_options_written_in_another_order_are_the_same_question() -> None:
    code = 'return {alc.cache("q", {a = 1, b = {x = 1, y = 2}}), alc.cache("q", {b = {y = 2, x = 1}, a = 1})}'
    assert len(run(code, counting()).asked) == 1


def test_a_cache_key_names_the_question_instead() -> None:
    code = 'return {alc.cache("a", {cache_key = "k"}), alc.cache("b", {cache_key = "k"}), alc.cache("k")}'
    assert run(code, counting()).result == ["a #1", "a #1", "k #2"]


def test_cache_skip_asks_anew_and_keeps_nothing() -> None:
    code = (
        'alc.cache("a", {cache_skip = true}) alc.cache("a") alc.cache("a", {cache_skip = true}) return alc.cache_info()'
    )
    ended = run(code, counting())
    assert len(ended.asked) == 3
    assert ended.result == {"entries": 1, "hits": 0, "misses": 1, "max_entries": 256}


def test_options_of_the_cache_do_not_reach_the_host() -> None:
    code = 'alc.cache("a", {cache_key = "k", cache_skip = true, cache_x = 1, temperature = 1, system = "s"})'
    (query,) = queries(run(code, echo))
    assert query["options"] == {"temperature": 1}
    assert query["system"] == "s"


def test_the_options_given_are_left_alone() -> None:
    assert run('local o = {cache_key = "k"} alc.cache("a", o) return o', echo).result == {"cache_key": "k"}


def test_the_oldest_of_257_answers_is_forgotten() -> None:
    code = """
        for i = 1, 257 do alc.cache("q" .. i) end
        local full = alc.cache_info().entries
        alc.cache("q2")
        alc.cache("q257")
        local hits = alc.cache_info().hits
        alc.cache("q1")
        return {full, hits, alc.cache_info().hits, alc.cache_info().misses, alc.cache_info().entries}
    """
    assert run(code, counting()).result == [256, 2, 2, 258, 256]


def test_a_hit_does_not_make_an_answer_younger() -> None:
    code = """
        alc.cache("old")
        for i = 1, 255 do alc.cache("q" .. i) end
        alc.cache("old")
        alc.cache("one more")
        return alc.cache("old")
    """
    assert run(code, counting()).result == "old #258"


def test_clearing_forgets_answers_and_counters_and_entries() -> None:
    code = """
        alc.cache("a") alc.cache("a") alc.cache_clear()
        local info = alc.cache_info()
        return {info, alc.cache("a"), alc.cache_info()}
    """
    empty, answer, after = run(code, counting()).result
    assert empty == {"entries": 0, "hits": 0, "misses": 0, "max_entries": 256}
    assert answer == "a #2"
    assert after == {"entries": 1, "hits": 0, "misses": 1, "max_entries": 256}


def test_a_failure_is_not_kept() -> None:
    replies: Iterator[Any] = iter([Fails("down"), "up"])
    code = 'local ok = pcall(alc.cache, "a") return {ok, alc.cache("a"), alc.cache_info().misses}'
    assert run(code, lambda _query: next(replies)).result == [False, "up", 1]


def test_the_cache_asks_through_a_wrapped_llm() -> None:
    code = """
        local seen = {}
        alc.llm = function(prompt, opts) seen[#seen + 1] = prompt .. tostring(opts.cache_key) return "mine" end
        return {alc.cache("a", {cache_key = "k"}), alc.cache("b", {cache_key = "k"}), #seen, seen[1]}
    """
    assert run(code).result == ["mine", "mine", 1, "anil"]


def test_an_option_that_nothing_tells_apart_is_not_cached() -> None:
    code = "local f = function() end alc.cache('a', {fn = f}) alc.cache('a', {fn = f}) return alc.cache_info().entries"
    ended = run(code, echo)
    assert (ended.result, len(ended.asked)) == (0, 2)


# --- questions --------------------------------------------------------------------------------------------------------


def test_ground_and_specify_set_their_flag_on_a_copy_of_the_options() -> None:
    code = """
        local o = {system = "s", temperature = 1, grounded = false}
        alc.ground("a", o) alc.specify("b", o) alc.ground("c") alc.specify("d", alc.null)
        return o
    """
    ended = run(code, echo)
    first, second, third, fourth = queries(ended)
    assert ended.result == {"system": "s", "temperature": 1, "grounded": False}
    assert (first["grounded"], first["system"], first["options"]) == (True, "s", {"temperature": 1})
    assert second["underspecified"] is True
    assert not second.get("grounded")
    assert third["grounded"] is True
    assert fourth["underspecified"] is True


def test_llm_safe_gives_the_answer_or_the_default_when_the_host_failed() -> None:
    replies: Iterator[Any] = iter(["fine", Fails("rate limited")])
    code = 'return {alc.llm_safe("a", {system = "s"}, "x"), alc.llm_safe("b", nil, "fallback")}'
    ended = run(code, lambda _query: next(replies))
    assert ended.result == ["fine", "fallback"]
    assert ended.logged("warn") == ["alc.llm_safe: rate limited"]
    assert queries(ended)[0]["system"] == "s"


def test_llm_safe_without_a_default_gives_nil() -> None:
    assert run('return alc.llm_safe("a") == nil', lambda _query: Fails("no")).result is True


def test_llm_safe_lets_through_what_is_not_a_text() -> None:
    code = """
        local signal = {}
        alc.llm = function() error(signal) end
        local ok, why = pcall(alc.llm_safe, "a", nil, "default")
        return {ok, why == signal}
    """
    assert run(code).result == [False, True]


def test_llm_json_gives_the_table_and_the_raw_answer() -> None:
    ended = run('return {alc.llm_json("q", {max_tokens = 7})}', lambda _query: 'Here: {"a": 1}')
    assert ended.result == [{"a": 1}, 'Here: {"a": 1}']
    assert len(ended.asked) == 1


def test_llm_json_asks_once_more_with_the_bad_answer_and_the_request() -> None:
    replies: Iterator[str] = iter(["sorry, no", "[1]"])
    code = 'return {alc.llm_json("list them", {max_tokens = 7, system = "mine", temperature = 1})}'
    ended = run(code, lambda _query: next(replies))
    first, second = queries(ended)
    assert ended.result == [[1], "[1]"]
    assert first["system"] == "mine"
    assert "list them" in second["prompt"]
    assert "sorry, no" in second["prompt"]
    assert "JSON" in second["system"]
    assert "mine" not in second["system"]
    assert (second["max_tokens"], second["options"]) == (7, {"temperature": 1})
    assert len(ended.logged("warn")) == 1


def test_llm_json_gives_up_after_one_retry() -> None:
    replies: Iterator[str] = iter(["no", "still no"])
    ended = run('local v, raw = alc.llm_json("q") return {v == nil, raw}', lambda _query: next(replies))
    assert ended.result == [True, "still no"]
    assert len(ended.asked) == 2
    assert len(ended.logged("warn")) == 2


@each_row(
    ("left", "is_enough"),
    [
        (None, True),
        ({"llm_calls": 1, "elapsed_ms": 5, "tokens": 1}, True),
        ({"llm_calls": None, "elapsed_ms": None, "tokens": 3}, True),
        ({"llm_calls": 0, "elapsed_ms": 5, "tokens": 1}, False),
        ({"llm_calls": 1, "elapsed_ms": 0, "tokens": None}, False),
        ({"llm_calls": 1, "elapsed_ms": 5, "tokens": 0}, False),
    ],
)
def test_budget_check_looks_at_every_limit_that_is_set(left: dict[str, int | None] | None, is_enough: bool) -> None:
    assert run("return alc.budget_check()", left=left).result is is_enough


# --- parallel ---------------------------------------------------------------------------------------------------------


def test_parallel_asks_for_all_items_in_one_pause() -> None:
    code = """
        local order = {}
        local out = alc.parallel({"a", "b"}, function(item, i)
            order[#order + 1] = "build " .. i
            return item .. i
        end, {
            system = "s", max_tokens = 9, temperature = 1,
            post_fn = function(answer, item, i) order[#order + 1] = "post " .. i return {answer, item, i} end,
        })
        return {out, order}
    """
    ended = run(code, echo)
    out, order = ended.result
    (pause,) = ended.asked
    assert out == [["answer to a1", "a", 1], ["answer to b2", "b", 2]]
    assert order == ["build 1", "build 2", "post 1", "post 2"]
    assert [query["prompt"] for query in pause] == ["a1", "b2"]
    assert {query["system"] for query in pause} == {"s"}
    assert {query["max_tokens"] for query in pause} == {9}
    assert [query["options"] for query in pause] == [{"temperature": 1}] * 2
    assert ended.logged("warn") == []


def test_parallel_uses_a_table_of_prompt_fn_as_it_is() -> None:
    code = (
        'return alc.parallel({1}, function() return {prompt = "p", max_tokens = 3} end, {system = "s", max_tokens = 9})'
    )
    ended = run(code, echo)
    (query,) = queries(ended)
    assert ended.result == ["answer to p"]
    assert query["max_tokens"] == 3
    assert query.get("system") is None


def test_parallel_goes_through_a_wrapped_batch() -> None:
    code = """
        alc.llm_batch = function(items) return {items[1].prompt .. "!"} end
        return alc.parallel({"a"}, function(item) return item end)
    """
    assert run(code).result == ["a!"]


@each_row(
    ("arguments", "why"),
    [
        ("nil, print", "items must be a non-empty array"),
        ("{}, print", "items must be a non-empty array"),
        ("'abc', print", "items must be a non-empty array"),
        ("{1}, 'x'", "prompt_fn must be a function"),
        ("{1}", "prompt_fn must be a function"),
        ("{1, 2}, function(n) return n == 1 and 'x' or {} end", "prompt_fn returned table without .prompt at index 2"),
        ("{1}, function() return {prompt = 5} end", "prompt_fn returned table without .prompt at index 1"),
        ("{1}, function() end", "prompt_fn must return string or table, got nil at index 1"),
        ("{1}, function() return 5 end", "prompt_fn must return string or table, got number at index 1"),
    ],
)
def test_parallel_says_what_is_wrong_before_it_asks(arguments: str, why: str) -> None:
    assert run(f"\nalc.parallel({arguments})").error == f"test:2: alc.parallel: {why}"


def test_the_functions_are_all_there() -> None:
    names = """
        cache cache_info cache_clear ground specify llm_safe llm_json budget_check parallel pipe
        match_enum match_bool chunk parse_score parse_number json_extract json_encode json_decode
        list_items vote fingerprint map reduce filter tuning hash fmt log_fmt
    """
    missing = call(
        "alc.filter(ctx.names, function(name) return type(alc[name]) ~= 'function' end)", names=names.split()
    )
    assert missing == {}
