"""The catalog: tools by name, what models are told of them, and when that is out of date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.tools import (
    Catalog,
    DeclaredTool,
    DuplicateToolError,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolProvider,
    tool,
)
from holdfast.agent.tools.catalog import CACHED_SPECS
from holdfast.core.values import Json
from tests.agent.tools.helpers import Model
from tests.tables import each_row

OBJECT: dict[str, Json] = {"type": "object"}


@tool
def search(query: str) -> str:
    """Search."""
    return query


@tool
def fetch(url: str) -> str:
    """Fetch."""
    return url


def plain(n: int) -> int:
    return n


class Library:
    """A provider of tools: what `shelf` says."""

    def __init__(self, *names: str, id: str = "library") -> None:
        self.id = id
        self.shelf = [ToolSpec(name, f"About {name}.", _numbered()) for name in names]
        self.is_closed = False
        self.asked = 0

    async def list_tools(self) -> Sequence[ToolSpec]:
        self.asked += 1
        if self.is_closed:
            raise ConnectionError("the library is closed")
        return self.shelf

    async def call(self, name: str, arguments: dict[str, Json], ctx: ToolContext) -> Any:
        return [self.id, name, arguments, ctx.key]


def _numbered() -> dict[str, Json]:
    return {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "list": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["n"],
        "additionalProperties": False,
    }


def names(catalog: Catalog, allowed: list[str] | None = None) -> list[str]:
    return [spec.name for spec in catalog.specs(allowed)]


def run_here(catalog: Catalog, name: str) -> Tool:
    found = catalog.get(name)
    assert isinstance(found, Tool)
    return found


# --- tools ----------------------------------------------------------------------------------------------


def test_tools_are_told_in_the_order_in_which_they_came() -> None:
    catalog = Catalog([search, plain])
    catalog.add(fetch)
    assert names(catalog) == ["search", "plain", "fetch"]
    assert catalog.specs()[0] == search.spec
    assert [each.name for each in catalog.runnable] == ["search", "plain", "fetch"]
    assert "plain" in catalog


def test_only_what_is_allowed_is_told() -> None:
    assert names(Catalog([search, plain, fetch]), ["fetch", "search", "gone"]) == ["search", "fetch"]
    assert names(Catalog([search]), []) == []


def test_two_tools_of_one_name_are_refused_with_both_owners() -> None:
    catalog = Catalog([search])
    with pytest.raises(DuplicateToolError) as caught:
        catalog.add(fetch, Tool.of(plain, name="search"))
    assert str(caught.value) == (
        f"there are two tools 'search': the function {__name__}.search, and the function {__name__}.plain;"
        " rename one, or leave it out"
    )
    assert names(catalog) == ["search"], "nothing was changed"
    assert catalog.generation == 1


@each_row("name", ["finish", "llm", "human"])
def test_reserved_names_are_refused_with_what_they_are_for(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="reserved"):
        Catalog([Tool.of(plain, name=name)])
    with pytest.raises(ToolDefinitionError, match="reserved"):
        Catalog().declare(name, "", OBJECT)


def test_tools_can_be_removed() -> None:
    catalog = Catalog([search, fetch])
    catalog.remove("search")
    assert names(catalog) == ["fetch"]
    with pytest.raises(ToolDefinitionError, match="no such tool"):
        catalog.remove("search")


# --- tools that are only declared -----------------------------------------------------------------------


def test_a_declared_tool_is_told_and_not_run_here() -> None:
    catalog = Catalog([search])
    catalog.declare("approve", "Ask somebody.", OBJECT)
    assert names(catalog) == ["search", "approve"]
    assert [each.name for each in catalog.runnable] == ["search"]
    assert isinstance(catalog.get("approve"), DeclaredTool)


def test_the_same_declaration_again_changes_nothing_and_another_is_refused() -> None:
    catalog = Catalog()
    catalog.declare("approve", "Ask somebody.", OBJECT)
    catalog.declare("approve", "Ask somebody.", OBJECT)
    assert catalog.generation == 1
    with pytest.raises(DuplicateToolError, match="a declaration, and a declaration"):
        catalog.declare("approve", "Ask somebody else.", OBJECT)


def test_a_declaration_needs_a_schema_of_an_object() -> None:
    with pytest.raises(ToolDefinitionError, match='"type": "object"'):
        Catalog().declare("approve", "", {"type": "string"})
    with pytest.raises(ToolDefinitionError, match="letters, digits"):
        Catalog().declare("approve it", "", OBJECT)


# --- generations and the cache --------------------------------------------------------------------------


def test_specs_are_made_once_in_each_generation() -> None:
    catalog = Catalog([search, fetch])
    assert catalog.specs() is catalog.specs()
    assert catalog.specs(["fetch"]) is catalog.specs(["fetch"])
    before = catalog.specs()
    catalog.add(plain)
    assert catalog.specs() is not before
    assert len(before) == 2


def test_every_change_has_a_generation_of_its_own() -> None:
    catalog = Catalog()
    assert catalog.generation == 0
    catalog.add(search)
    catalog.declare("approve", "", OBJECT)
    catalog.remove("approve")
    assert catalog.generation == 3


def test_the_same_tool_again_changes_nothing() -> None:
    catalog = Catalog([search])
    specs = catalog.specs()
    catalog.add(search)
    assert catalog.generation == 1
    assert catalog.specs() is specs


def test_bound_on_entries() -> None:
    catalog = Catalog([search])
    for n in range(3 * CACHED_SPECS):
        catalog.specs([str(n)])
    assert len(catalog._specs) <= CACHED_SPECS


# --- providers ------------------------------------------------------------------------------------------


async def test_what_a_provider_has_is_offered_and_called_by_name() -> None:
    library: ToolProvider = Library("borrow", "renew")
    catalog = Catalog([search])
    await catalog.add_provider(library)
    assert names(catalog) == ["search", "borrow", "renew"]
    done = await Model().call(run_here(catalog, "renew"), n=1)
    assert done.content == ["library", "renew", {"n": 1}, "s-1/q-1"]


async def test_a_provider_that_is_given_at_first_is_asked_by_refresh() -> None:
    library = Library("borrow")
    catalog = Catalog([search, library])
    assert names(catalog) == ["search"]
    await catalog.refresh()
    assert names(catalog) == ["search", "borrow"]


async def test_the_tools_of_a_provider_are_run_as_it_was_said() -> None:
    catalog = Catalog()
    await catalog.add_provider(Library("borrow"), recovery="idempotent", timeout_s=5)
    borrow = run_here(catalog, "borrow")
    assert (borrow.recovery, borrow.timeout_s) == ("idempotent", 5)


@each_row(
    ("arguments", "told"),
    [
        ({}, "argument 'n' is missing"),
        ({"n": "1"}, "argument 'n': expected integer, got \"1\""),
        ({"n": True}, "argument 'n': expected integer, got true"),
        ({"n": 1.5}, "argument 'n': expected integer, got 1.5"),
        ({"n": 1, "m": 2}, "there is no argument 'm'"),
        ({"n": 1, "kind": "c"}, 'argument \'kind\': "c" is none of "a", "b"'),
        ({"n": 1, "list": [1, "2"]}, "argument 'list[1]': expected number, got \"2\""),
        ({"_raw": "n=1"}, "expected a JSON object"),
    ],
)
async def test_arguments_are_checked_against_the_schema_of_the_provider(arguments: dict[str, Json], told: str) -> None:
    catalog = Catalog()
    await catalog.add_provider(Library("borrow"))
    error = await Model().error(run_here(catalog, "borrow"), **arguments)
    assert error["code"] == "invalid_arguments"
    assert told in error["error"]


async def test_a_name_that_is_taken_is_refused_with_both_owners() -> None:
    catalog = Catalog([search])
    with pytest.raises(DuplicateToolError, match=r"the function .*search, and the provider 'library'"):
        await catalog.add_provider(Library("search"))
    assert names(catalog) == ["search"]


async def test_same_object_again_is_no_change() -> None:
    library, catalog = Library("borrow"), Catalog()
    await catalog.add_provider(library)
    await catalog.add_provider(library)
    assert (catalog.generation, library.asked) == (1, 1)


async def test_equal_but_distinct_provider_invalidates() -> None:
    catalog = Catalog()
    await catalog.add_provider(Library("borrow"))
    again = Library("borrow")
    await catalog.add_provider(again)
    assert catalog.generation == 2
    assert names(catalog) == ["borrow"]
    again.shelf = []
    await catalog.refresh()
    assert names(catalog) == []


async def test_a_new_provider_without_tools_takes_away_those_of_the_old_one() -> None:
    catalog = Catalog()
    await catalog.add_provider(Library("borrow"))
    catalog.add(Library())
    await catalog.refresh()
    assert names(catalog) == []


async def test_refresh_takes_what_has_changed() -> None:
    library, catalog = Library("borrow", "renew"), Catalog([search])
    await catalog.add_provider(library)
    await catalog.refresh()
    assert catalog.generation == 2, "nothing was new"
    library.shelf = Library("renew", "return").shelf
    await catalog.refresh()
    assert names(catalog) == ["search", "renew", "return"]
    assert catalog.generation == 3


async def test_failure_leaves_old() -> None:
    library, other = Library("borrow"), Library("lend", id="other")
    catalog = Catalog()
    await catalog.add_provider(other)
    await catalog.add_provider(library)
    library.is_closed = True
    other.shelf = []
    with pytest.raises(ConnectionError):
        await catalog.refresh()
    assert names(catalog) == ["lend", "borrow"]


# --- tools that there are not ---------------------------------------------------------------------------


def test_an_unknown_tool_is_answered_with_those_that_are_meant() -> None:
    failure = Catalog([search, fetch]).unknown("serach")
    assert failure.code == "unknown_tool"
    assert failure.message == "there is no tool 'serach'; did you mean 'search'?"


def test_an_unknown_tool_that_is_like_no_other_is_answered_with_all() -> None:
    assert Catalog([search, fetch]).unknown("zzz").message == "there is no tool 'zzz'; the tools are search, fetch"
    assert Catalog().unknown("zzz").message == "there is no tool 'zzz'; there are no tools"


def test_tools_that_are_not_allowed_are_not_suggested() -> None:
    assert "search" not in Catalog([search, fetch]).unknown("serach", ["fetch"]).message
