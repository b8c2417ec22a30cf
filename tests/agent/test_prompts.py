"""The prompt cache: the same text object as long as nothing differs, and a new one as soon as something does."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from holdfast.agent.machine.prompt import Contribution, PromptLayer, PromptTemplate, Section, layer_of, render
from holdfast.agent.prompt_cache import PromptCache

CORE = layer_of(Contribution("intro", "You are a clerk."), "Be polite.")
SESSION = layer_of(Contribution("guidance", "Search first.", requires_tool="search"), Contribution("project", "Tabs."))
TOOLS = ["read", "search", "write"]


def copied(layer: PromptLayer) -> PromptLayer:
    """An equal layer that shares no object with the given one, as it is when it is read from a journal."""
    return msgspec.json.decode(msgspec.json.encode(layer), type=PromptLayer)


def test_an_unchanged_session_gets_the_very_same_text_in_every_turn() -> None:
    cache = PromptCache()
    first = cache.render([CORE, SESSION], TOOLS)

    assert first == render([CORE, SESSION], TOOLS)
    for _ in range(99):
        assert cache.render([CORE, SESSION], TOOLS) is first
    assert (cache.hits, cache.misses) == (99, 1)


def test_equal_layers_read_again_are_a_hit_too() -> None:
    cache = PromptCache()
    first = cache.render([CORE, SESSION], TOOLS)

    assert cache.render((copied(CORE), copied(SESSION)), set(TOOLS)) is first
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_order_of_plugins_changes_no_byte() -> None:
    plugins = [layer_of(f"plugin {number}") for number in range(4)]
    cache = PromptCache()
    first = cache.render([CORE, *plugins])

    assert cache.render([CORE, *reversed(plugins)]).encode() == first.encode()


def test_the_order_of_slots_in_a_layer_is_a_hit() -> None:
    cache = PromptCache()
    first = cache.render([SESSION], TOOLS)

    assert cache.render([PromptLayer(slots=dict(reversed(SESSION.slots.items())))], TOOLS) is first
    assert cache.hits == 1


def test_tools_that_no_contribution_requires_may_come_and_go() -> None:
    cache = PromptCache()
    first = cache.render([CORE, SESSION], TOOLS)

    assert cache.render([CORE, SESSION], [f"tool-{number}" for number in range(63)] + ["search"]) is first
    assert cache.render([CORE, SESSION], ["search"]) is first
    assert cache.misses == 1


def test_a_required_tool_that_goes_and_comes_back_changes_the_text() -> None:
    cache = PromptCache()
    first = cache.render([CORE, SESSION], TOOLS)
    without = cache.render([CORE, SESSION], ["read"])

    assert "Search first." in first
    assert without == render([CORE, SESSION])
    assert cache.render([CORE, SESSION], TOOLS) == first
    assert (cache.hits, cache.misses) == (0, 3)


def test_a_list_of_tools_that_was_changed_in_place_is_noticed() -> None:
    cache, tools = PromptCache(), ["read"]
    cache.render([CORE, SESSION], tools)
    tools.append("search")

    assert "Search first." in cache.render([CORE, SESSION], tools)


def test_a_changed_layer_a_layer_more_and_another_template_are_misses() -> None:
    cache = PromptCache()
    stacks = [
        [CORE, SESSION],
        [CORE],
        [SESSION, CORE],
        [CORE, SESSION, layer_of("more")],
        [CORE, layer_of(resets=["guidance"])],
        [CORE, layer_of(template=PromptTemplate((Section("guidance"), Section("intro"))))],
    ]
    for stack in stacks:
        assert cache.render(stack, TOOLS) == render(stack, TOOLS)
    assert (cache.hits, cache.misses) == (0, len(stacks))


def test_a_layer_of_one_turn_leaves_the_beginning_as_it_was() -> None:
    cache = PromptCache()
    usual = cache.render([CORE, SESSION], TOOLS)
    once = cache.render([CORE, SESSION, layer_of(Contribution("context", "It is noon."))], TOOLS)

    assert once == usual + "\n\n# Context\n\nIt is noon."
    assert cache.render([CORE, SESSION], TOOLS).encode() == usual.encode()


def test_after_clear_the_text_is_made_anew() -> None:
    cache = PromptCache()
    first = cache.render([CORE, SESSION], TOOLS)
    cache.clear()

    assert cache.render([CORE, SESSION], TOOLS) == first
    assert (cache.hits, cache.misses) == (0, 2)


layers = st.sampled_from([CORE, SESSION, copied(SESSION), layer_of("x"), layer_of(resets=["guidance"]), PromptLayer()])
calls = st.tuples(st.lists(layers, max_size=3), st.sets(st.sampled_from(["search", "read"])))


@given(st.lists(calls, min_size=1, max_size=12))
def test_whatever_is_asked_for_the_cache_says_what_rendering_says(
    asked: list[tuple[list[PromptLayer], set[str]]],
) -> None:
    cache = PromptCache()
    for stack, tools in asked:
        assert cache.render(stack, tools) == render(stack, tools)
    assert cache.hits + cache.misses == len(asked)
