"""The system text of an agent: slots, layers of contributions to them, and the template that puts them in order. Pure.

Rules of this file
------------------
- A layer says two things about a slot: what it contributes, and whether the contributions of lower layers are dropped.
  The runtime's layer is the lowest, then comes the session's, then the turn's.
- The rendered text does not depend on who registered first: contributions to a slot are ordered by priority, title and
  text, and duplicates appear once.
- Texts are taken as they are. There are no placeholders, so braces and percent signs mean nothing.
- The sections that change least come first. A change in one leaves every byte before it as it was, as providers that
  cache prompts by their beginning need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias, get_args

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import checked, preview

Slot: TypeAlias = Literal["intro", "execution", "guidance", "project", "context", "environment"]
"""Who the agent is; how it works; what it must heed; facts about the project; the present situation; where it runs."""

SLOTS: tuple[Slot, ...] = get_args(Slot)


def _check_slot(slot: str, what: str) -> None:
    if slot not in SLOTS:
        raise InvalidValueError(what, f"there is no slot {preview(slot)}; the slots are {_all_slots()}")


def _check_line(text: str, what: str) -> None:
    if text != text.strip() or len(text.splitlines()) > 1:
        raise InvalidValueError(what, f"{preview(text)} is not a single line without white space around it")


def _all_slots() -> str:
    return ", ".join(SLOTS)


class Contribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text for a slot. A blank one is left out."""

    slot: Slot
    text: str
    title: str = ""
    priority: int = 0
    """Lower ones come first in their slot."""
    requires_tool: str | None = None
    """The text is left out if the session does not have this tool."""

    def __post_init__(self) -> None:
        _check_slot(self.slot, "contribution")
        _check_line(self.title, "title of a contribution")


class SlotLayer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a layer says about one slot."""

    reset: bool = False
    """Whether the contributions of lower layers are dropped."""
    contributions: tuple[Contribution, ...] = ()


class Section(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slot's place in the text. Without a contribution, neither the section nor its heading appears."""

    slot: Slot
    heading: str = ""

    def __post_init__(self) -> None:
        _check_slot(self.slot, "section")
        _check_line(self.heading, f"heading of the section '{self.slot}'")


class PromptTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sections of the text, in order. Contributions to a slot without a section are left out."""

    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        if not self.sections:
            raise InvalidValueError("prompt template", f"it has no sections; name some of the slots {_all_slots()}")
        seen: set[str] = set()
        for section in self.sections:
            if section.slot in seen:
                raise InvalidValueError("prompt template", f"the slot '{section.slot}' appears twice; keep one of them")
            seen.add(section.slot)


DEFAULT_TEMPLATE = PromptTemplate(
    (
        Section("intro"),
        Section("execution"),
        Section("guidance"),
        Section("project", "Project"),
        Section("context", "Context"),
        Section("environment", "Environment"),
    )
)


class PromptLayer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the runtime, the session or a turn contributes to the text. `layer_of` makes one."""

    template: PromptTemplate | None = None
    """Replaces the template of lower layers; None leaves it."""
    slots: dict[Slot, SlotLayer] = {}

    def __post_init__(self) -> None:
        for slot, said in self.slots.items():
            _check_slot(slot, "prompt layer")
            for each in said.contributions:
                if each.slot != slot:
                    why = f"a contribution to '{each.slot}' is in the slot '{slot}'; put it where it belongs"
                    raise InvalidValueError("prompt layer", why)


def layer_of(
    *contributions: Contribution | str, resets: Collection[Slot] = (), template: PromptTemplate | None = None
) -> PromptLayer:
    """A layer of contributions. A plain text goes to `guidance`; if there is nothing else, it is rendered as it is."""
    given = [Contribution("guidance", each) if isinstance(each, str) else each for each in contributions]
    for slot in resets:
        _check_slot(slot, "prompt layer")
    slots = {
        slot: SlotLayer(slot in resets, tuple(each for each in given if each.slot == slot))
        for slot in SLOTS
        if slot in resets or any(each.slot == slot for each in given)
    }
    return PromptLayer(template, slots)


def checked_layer(layer: str | PromptLayer) -> PromptLayer:
    """A text or a layer as a layer. Raises `InvalidValueError` if it cannot be kept."""
    if isinstance(layer, str):
        layer = layer_of(layer)
    if not isinstance(layer, PromptLayer):
        raise InvalidValueError("prompt", f"it is a text or a PromptLayer, got {type(layer).__name__}")
    return checked(layer, "prompt")


def merged(layers: Iterable[PromptLayer]) -> PromptLayer:
    """One layer equal to all of these together, from the lowest to the highest."""
    template: PromptTemplate | None = None
    slots: dict[Slot, SlotLayer] = {}
    for layer in layers:
        template = layer.template or template
        for slot, said in layer.slots.items():
            below = None if said.reset else slots.get(slot)
            if below is None:
                slots[slot] = said
            else:
                slots[slot] = SlotLayer(below.reset, below.contributions + said.contributions)
    return PromptLayer(template, slots)


def render(layers: Iterable[PromptLayer], tools: Collection[str] = ()) -> str:
    """The text of these layers, from the lowest to the highest, for a session with tools of these names."""
    whole = merged(layers)
    filled = [
        (section, found)
        for section in (whole.template or DEFAULT_TEMPLATE).sections
        if section.slot in whole.slots and (found := _shown(whole.slots[section.slot].contributions, tools))
    ]
    if len(filled) == 1 and len(filled[0][1]) == 1:
        section, (only,) = filled[0]
        if not section.heading and not only.title:
            return only.text  # with the white space around it: plain instructions reach the model as written
    parts: list[str] = []
    for section, found in filled:
        if section.heading:
            parts.append(f"# {section.heading}")
        for each in found:
            if each.title:
                parts.append(f"## {each.title}")
            parts.append(each.text.strip())
    return "\n\n".join(parts)


def required_tools(layers: Iterable[PromptLayer]) -> frozenset[str]:
    """The tools on which the text depends; any others make no difference to it."""
    return frozenset(
        each.requires_tool
        for layer in layers
        for said in layer.slots.values()
        for each in said.contributions
        if each.requires_tool is not None
    )


def _shown(contributions: Iterable[Contribution], tools: Collection[str]) -> list[Contribution]:
    """The contributions to a slot that are rendered, in order, each once."""
    shown = [each for each in contributions if each.text.strip() and _has_its_tool(each, tools)]
    shown.sort(key=lambda each: (each.priority, each.title, each.text.strip(), each.text))
    first: dict[tuple[str, str], Contribution] = {}
    for each in shown:
        first.setdefault((each.title, each.text.strip()), each)
    return list(first.values())


def _has_its_tool(contribution: Contribution, tools: Collection[str]) -> bool:
    return contribution.requires_tool is None or contribution.requires_tool in tools
