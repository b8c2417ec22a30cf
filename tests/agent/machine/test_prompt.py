"""Layered prompts: what layers come to, in which order, and which bytes a change leaves alone."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from holdfast.agent.machine.prompt import (
    DEFAULT_TEMPLATE,
    SLOTS,
    Contribution,
    PromptLayer,
    PromptTemplate,
    Section,
    Slot,
    SlotLayer,
    layer_of,
    merged,
    render,
    required_tools,
)
from holdfast.core.errors import InvalidValueError
from tests.tables import each_row

CORE = layer_of(
    Contribution("intro", "You are a clerk."), Contribution("execution", "Work in small steps."), "Be polite."
)


# --- plain texts -----------------------------------------------------------------------------------------


@each_row(
    "text", ["Be brief.", "  indented\n\tand more\n\n", "{name} %s ${HOME} {{x}}", "# A heading\n\ntext", "漢字 ✓\r\n"]
)
def test_a_text_that_is_all_there_is_comes_out_byte_for_byte(text: str) -> None:
    assert render([layer_of(text)]) == text


@given(st.text())
def test_any_text_alone_comes_out_as_it_is_unless_it_is_blank(text: str) -> None:
    assert render([layer_of(text)]) == (text if text.strip() else "")


def test_nothing_said_is_an_empty_text() -> None:
    assert render([]) == ""
    assert render([PromptLayer(), layer_of("", " \n", Contribution("project", "\t"))]) == ""


def test_a_blank_text_beside_another_makes_no_difference() -> None:
    assert render([layer_of(" Be brief.\n"), layer_of("  ")]) == " Be brief.\n"


def test_braces_survive_beside_other_texts() -> None:
    text = render([layer_of("Answer as {json}.", Contribution("context", "{today} is %d"))])

    assert text == "Answer as {json}.\n\n# Context\n\n{today} is %d"


# --- order -----------------------------------------------------------------------------------------------


def test_sections_come_in_the_order_of_the_template_with_their_headings() -> None:
    layer = layer_of(
        Contribution("environment", "Linux"),
        Contribution("context", "It is noon."),
        Contribution("project", "Tabs, not spaces."),
    )

    assert render([CORE, layer]) == (
        "You are a clerk.\n\nWork in small steps.\n\nBe polite.\n\n"
        "# Project\n\nTabs, not spaces.\n\n# Context\n\nIt is noon.\n\n# Environment\n\nLinux"
    )


def test_a_section_is_ordered_by_priority_then_title_then_text() -> None:
    layer = layer_of(
        Contribution("guidance", "z", priority=-1),
        Contribution("guidance", "b", title="B"),
        Contribution("guidance", "a", title="B"),
        Contribution("guidance", "c", title="A"),
        Contribution("guidance", "no title"),
        Contribution("guidance", "last", priority=1),
    )

    assert render([layer]) == "z\n\nno title\n\n## A\n\nc\n\n## B\n\na\n\n## B\n\nb\n\nlast"


def test_what_is_said_twice_is_told_once_where_it_comes_first() -> None:
    layer = layer_of("b", " b\n", Contribution("guidance", "b", priority=-1), "a")

    assert render([layer]) == "b\n\na"


def test_the_same_text_under_another_title_or_in_another_slot_is_told_again() -> None:
    layer = layer_of("b", Contribution("guidance", "b", title="B"), Contribution("intro", "b"))

    assert render([layer]) == "b\n\nb\n\n## B\n\nb"


def test_what_may_change_comes_after_what_does_not() -> None:
    assert [section.slot for section in DEFAULT_TEMPLATE.sections] == list(SLOTS)
    before = render([CORE, layer_of(Contribution("context", "It is noon."))])
    after = render([CORE, layer_of(Contribution("context", "It is night."))])

    assert before == render([CORE]) + "\n\n# Context\n\nIt is noon."
    assert after == render([CORE]) + "\n\n# Context\n\nIt is night."


@each_row("slot", SLOTS)
def test_a_turn_layer_leaves_all_sections_before_its_own_as_they_were(slot: Slot) -> None:
    session = [layer_of(*(Contribution(each, f"the {each}") for each in SLOTS))]
    before, at = render(session), SLOTS.index(slot)
    after = render([*session, layer_of(Contribution(slot, "now, this"))])

    assert "now, this" in after
    for earlier in SLOTS[:at]:
        end = before.index(f"the {earlier}") + len(f"the {earlier}")
        assert after[:end] == before[:end]
    for later in SLOTS[at + 1 :]:
        assert after[after.index(f"the {later}") :] == before[before.index(f"the {later}") :]


# --- layers ----------------------------------------------------------------------------------------------


def test_layers_add_to_each_other() -> None:
    assert render([layer_of("a"), layer_of("b"), layer_of("c")]) == "a\n\nb\n\nc"


def test_a_reset_drops_what_lower_layers_say_of_that_slot_and_no_other() -> None:
    session = layer_of("Be rude.", resets=["guidance"])

    assert render([CORE, session]) == "You are a clerk.\n\nWork in small steps.\n\nBe rude."
    assert render([session, CORE]) == "You are a clerk.\n\nWork in small steps.\n\nBe polite.\n\nBe rude."


def test_a_reset_alone_empties_a_slot() -> None:
    assert render([CORE, layer_of(resets=["guidance", "execution"])]) == "You are a clerk."


def test_the_highest_template_is_the_one_in_force() -> None:
    session = layer_of(template=PromptTemplate((Section("guidance", "Heed"), Section("intro"))))
    turn = layer_of(template=PromptTemplate((Section("intro", "Who"),)))

    assert render([CORE, session]) == "# Heed\n\nBe polite.\n\nYou are a clerk."
    assert render([CORE, session, turn]) == "# Who\n\nYou are a clerk."
    assert render([CORE, turn, layer_of("more")]) == "# Who\n\nYou are a clerk."


def test_a_heading_is_told_even_if_its_section_is_all_there_is() -> None:
    assert render([layer_of(Contribution("project", " Tabs. "))]) == "# Project\n\nTabs."
    assert render([layer_of(Contribution("intro", " Tabs. ", title="T"))]) == "## T\n\nTabs."


# --- tools -----------------------------------------------------------------------------------------------


def test_a_text_that_requires_a_tool_is_told_only_where_there_is_that_tool() -> None:
    layer = layer_of("a", Contribution("guidance", "Search first.", requires_tool="search"))

    assert render([layer]) == "a"
    assert render([layer], ["searching", "read"]) == "a"
    assert render([layer], {"search"}) == "Search first.\n\na"


def test_a_duplicate_for_a_missing_tool_does_not_take_the_other_with_it() -> None:
    layer = layer_of("Search.", Contribution("guidance", "Search.", priority=-1, requires_tool="search"))

    assert render([layer]) == "Search."


def test_required_tools_are_those_that_any_contribution_names() -> None:
    layers = [CORE, layer_of(Contribution("intro", "x", requires_tool="a"), Contribution("project", "x"))]

    assert required_tools(layers) == {"a"}


# --- what is refused -------------------------------------------------------------------------------------


def test_a_template_without_sections_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="no sections; name some of the slots intro, execution"):
        PromptTemplate(())


def test_a_template_with_a_slot_twice_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="slot 'context' appears twice"):
        PromptTemplate((Section("context"), Section("intro"), Section("context", "Again")))


def test_an_unknown_slot_is_refused_and_the_known_ones_are_named() -> None:
    slot: Any = "guidence"
    for make in (
        lambda: Section(slot),
        lambda: Contribution(slot, "text"),
        lambda: PromptLayer(slots={slot: SlotLayer()}),
        lambda: layer_of(resets=[slot]),
    ):
        with pytest.raises(InvalidValueError, match=r'no slot "guidence"; the slots are intro, .*environment'):
            make()


def test_a_contribution_in_the_slot_of_another_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="contribution to 'intro' is in the slot 'context'"):
        PromptLayer(slots={"context": SlotLayer(contributions=(Contribution("intro", "x"),))})


@each_row("line", ["two\nlines", " padded", "ends\n"])
def test_headings_and_titles_are_one_line(line: str) -> None:
    with pytest.raises(InvalidValueError, match=r"heading of the section 'intro'.*not a single line"):
        Section("intro", line)
    with pytest.raises(InvalidValueError, match=r"title of a contribution.*not a single line"):
        Contribution("intro", "text", title=line)


# --- what is recorded ------------------------------------------------------------------------------------


def test_a_recorded_layer_is_small_stable_json() -> None:
    layer = layer_of(
        Contribution("project", "Tabs.", title="Style", priority=2, requires_tool="edit"),
        "Be brief.",
        resets=["intro"],
        template=PromptTemplate((Section("guidance"), Section("project", "P"))),
    )

    assert msgspec.json.encode(PromptLayer()) == b"{}"
    assert msgspec.json.encode(layer) == (
        b'{"template":{"sections":[{"slot":"guidance"},{"slot":"project","heading":"P"}]},"slots":{'
        b'"intro":{"reset":true},'
        b'"guidance":{"contributions":[{"slot":"guidance","text":"Be brief."}]},'
        b'"project":{"contributions":[{"slot":"project","text":"Tabs.","title":"Style","priority":2,'
        b'"requires_tool":"edit"}]}}}'
    )


# --- properties ------------------------------------------------------------------------------------------

texts = st.sampled_from(["a", " a", "b\n", "c {x}", "", "  "])
tools = st.sets(st.sampled_from(["t", "u"]))
contributions = st.builds(
    Contribution,
    st.sampled_from(SLOTS),
    texts,
    title=st.sampled_from(["", "A", "B"]),
    priority=st.integers(-1, 1),
    requires_tool=st.sampled_from([None, "t", "u"]),
)
templates = st.lists(st.sampled_from(SLOTS), min_size=1, unique=True).map(
    lambda slots: PromptTemplate(tuple(Section(slot, slot if slot > "g" else "") for slot in slots))
)
layers = st.builds(
    lambda given, resets, template: layer_of(*given, resets=resets, template=template),
    st.lists(contributions, max_size=6),
    st.sets(st.sampled_from(SLOTS), max_size=2),
    st.none() | templates,
)
stacks = st.lists(layers, max_size=4)


@given(stacks, tools)
def test_layers_laid_twice_say_no_more_than_once(stack: list[PromptLayer], there: set[str]) -> None:
    assert render(stack + stack, there) == render(stack, there)


@given(stacks, tools, st.data())
def test_the_order_of_registration_changes_no_byte(
    stack: list[PromptLayer], there: set[str], data: st.DataObject
) -> None:
    def shuffled(layer: PromptLayer) -> PromptLayer:
        slots = data.draw(st.permutations(list(layer.slots.items())))
        return PromptLayer(
            layer.template,
            {
                slot: SlotLayer(said.reset, tuple(data.draw(st.permutations(said.contributions))))
                for slot, said in slots
            },
        )

    assert render([shuffled(layer) for layer in stack], sorted(there)) == render(stack, there)


@given(st.lists(st.lists(contributions, max_size=4).map(lambda given: layer_of(*given)), max_size=4), tools, st.data())
def test_layers_without_resets_and_templates_can_be_laid_in_any_order(
    stack: list[PromptLayer], there: set[str], data: st.DataObject
) -> None:
    assert render(data.draw(st.permutations(stack)), there) == render(stack, there)


@given(stacks, stacks, tools)
def test_layers_merged_before_say_the_same(low: list[PromptLayer], high: list[PromptLayer], there: set[str]) -> None:
    assert render([merged(low), merged(high)], there) == render(low + high, there)
    assert render([merged(low), *high], there) == render(low + high, there)


@given(stacks, st.lists(contributions, max_size=4), tools)
def test_a_reset_of_all_slots_leaves_only_what_comes_with_it(
    stack: list[PromptLayer], said: list[Contribution], there: set[str]
) -> None:
    top = layer_of(*said, resets=SLOTS, template=DEFAULT_TEMPLATE)

    assert render([*stack, top], there) == render([top], there)


@given(stacks, tools)
def test_tools_that_nothing_requires_change_nothing(stack: list[PromptLayer], there: set[str]) -> None:
    assert render(stack, [*there, "other"]) == render(stack, there & required_tools(stack))


@given(layers)
def test_a_layer_is_read_back_as_it_was_recorded(layer: PromptLayer) -> None:
    assert msgspec.json.decode(msgspec.json.encode(layer), type=PromptLayer) == layer
