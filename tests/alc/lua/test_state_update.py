"""`alc.state.update`: a change that others cannot come between."""

from __future__ import annotations

from typing import Any

from tests.alc.lua.scripted import Query, run
from tests.tables import each_row


class Store:
    """The state tool's `get` and `put` on a dict; `meddle` writes between a program's look and its change."""

    def __init__(self, meddle: list[Any] | None = None) -> None:
        self.items: dict[tuple[str, str], tuple[Any, int]] = {}
        self.meddle = meddle or []
        self.puts = 0

    def __call__(self, query: Query) -> Any:
        if query["kind"] == "llm":
            return "answered"
        assert query["name"] == "holdfast.state"
        given = query["arguments"]
        place = (given["namespace"], given["key"])
        if given["op"] == "get":
            value, version = self.items.get(place, (None, 0))
            found = {"value": value, "version": version}
            if self.meddle:
                self.items[place] = (self.meddle.pop(0), version + 1)
            return found
        assert given["op"] == "put"
        self.puts += 1
        assert self.puts < 10, "it goes on for ever"
        version = self.items.get(place, (None, 0))[1]
        if given["expected"] != version:
            return False
        self.items[place] = (given["value"], version + 1)
        return True


def test_update_starts_from_the_default_and_then_from_what_is_there() -> None:
    store = Store()
    code = """
        local add = function(n) return n + 1 end
        return {alc.state.update('n', add, 10), alc.state.update('n', add, 10)}
    """
    assert run(code, store).result == [11, 12]
    assert store.items == {("default", "n"): (12, 2)}


def test_update_is_tried_again_when_someone_else_was_faster() -> None:
    store = Store(meddle=[100, 200])
    code = """
        local seen = {}
        local last = alc.state.update('n', function(n) seen[#seen + 1] = n return n + 1 end, 0)
        return {last, seen}
    """
    assert run(code, store).result == [201, [0, 100, 200]]
    assert store.items == {("default", "n"): (201, 3)}
    assert store.puts == 3


def test_a_default_that_fn_changed_is_fresh_in_the_next_attempt() -> None:
    class Vanishing(Store):
        """Someone writes the key and removes it again, between the look and the change."""

        def __call__(self, query: Query) -> Any:
            if query["arguments"]["op"] == "put" and self.puts == 0:
                self.puts += 1
                return False
            return super().__call__(query)

    store = Vanishing()
    code = "return alc.state.update('log', function(t) table.insert(t.lines, 'x') return t end, {lines = {}})"
    assert run(code, store).result == {"lines": ["x"]}
    assert store.items == {("default", "log"): ({"lines": ["x"]}, 1)}


def test_update_uses_the_namespace_of_the_task() -> None:
    store = Store()
    run("alc.state.update('k', function() return {1} end)", store, ctx={"_ns": "team"})
    assert store.items == {("team", "k"): ([1], 1)}


def test_update_keeps_null_for_nil_and_gives_a_stored_null_to_fn() -> None:
    store = Store()
    code = """
        local first = alc.state.update('k', function() return nil end, 5)
        return {first == nil, alc.state.update('k', function(v) return v == nil end, 5)}
    """
    assert run(code, store).result == [True, True]


def test_fn_may_ask_a_question() -> None:
    store = Store()
    assert (
        run("return alc.state.update('k', function(v) return v .. alc.llm('q') end, 'so ')", store).result
        == "so answered"
    )


@each_row(
    ("arguments", "why"),
    [
        ("nil, print", "test:1: alc.state.update: key must be a string, got nil"),
        ("'k', 5", "test:1: alc.state.update: fn must be a function, got number"),
        ("'k', function() return print end", "cannot serialize <function>"),
        ("'k', function() error('mine', 0) end", "mine"),
    ],
)
def test_update_says_what_is_wrong_and_writes_nothing(arguments: str, why: str) -> None:
    store = Store()
    assert run(f"alc.state.update({arguments})", store).error == why
    assert store.items == {}


def test_a_number_is_a_key_as_text() -> None:
    store = Store()
    run("alc.state.update(7, function() return 1 end)", store)
    assert store.items == {("default", "7"): (1, 1)}
