"""Tools made of functions: name, description and schema, and arguments that become values of their types."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest

from holdfast.agent.machine.excerpt import OutputLimits
from holdfast.agent.tools import FunctionTool, Tool, ToolContext, ToolDefinitionError, ToolRetryPolicy, tool
from holdfast.agent.tools.errors import InvalidArgumentsError
from holdfast.engine.drivers import Attempt, NotDone
from tests.agent.tools.helpers import Model
from tests.tables import each_row

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(msgspec.Struct):
    name: str
    count: int = 1


@dataclass
class Point:
    x: float
    tags: list[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    deep: bool


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class Address(pydantic.BaseModel):
    street: str
    number: int = pydantic.Field(gt=0, description="of the house")


class Person(pydantic.BaseModel):
    name: str
    address: Address


class Family(pydantic.BaseModel):
    members: list[Family] = []


def parameter(kind: Any, default: Any = ...) -> FunctionTool[..., Any]:
    """A tool whose only parameter `x` has this type."""

    def of(x: Any) -> Any:
        return x

    def with_default(x: Any = default) -> Any:
        return x

    function: Callable[..., Any] = of if default is ... else with_default
    function.__annotations__ = {"x": kind}
    return Tool.of(function, name="echo")


def schema(kind: Any) -> Any:
    return parameter(kind).parameters["properties"]["x"]


def accepted(kind: Any, value: Any) -> Any:
    return parameter(kind).accept({"x": value})["x"]


def refused(kind: Any, value: Any) -> str:
    with pytest.raises(InvalidArgumentsError) as caught:
        parameter(kind).accept({"x": value})
    return str(caught.value)


# --- name, description, schema --------------------------------------------------------------------------


def test_a_function_says_all_that_a_model_has_to_know() -> None:
    @tool
    def search(query: str, limit: int = 5) -> list[str]:
        """Search the archive.

        Args:
            query: What to look for.
            limit: How many to give.
        """
        return [query] * limit

    assert search.spec.name == "search"
    assert search.spec.description == "Search the archive."
    assert search.spec.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "description": "How many to give.", "default": 5},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_name_and_description_can_be_given() -> None:
    @tool(name="find-it", description="Finds it.")
    def search() -> None:
        """Not this."""

    assert (search.name, search.description) == ("find-it", "Finds it.")


def test_a_tool_is_still_the_function_that_it_was() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    assert add(2, b=3) == 5


@each_row(
    ("kind", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array"}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Colour, {"enum": ["blue", "red"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - both ways are written
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Path, {"type": "string"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, pydantic.Field(description="how many")], {"type": "integer", "description": "how many"}),
        (
            Annotated[int, msgspec.Meta(ge=1, description="how many")],
            {"type": "integer", "minimum": 1, "description": "how many"},
        ),
        (
            Item,
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                "required": ["name"],
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
                "required": ["x"],
            },
        ),
        (Options, {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": []}),
        (
            list[Item] | None,
            {
                "anyOf": [
                    {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                            "required": ["name"],
                        },
                    },
                    {"type": "null"},
                ]
            },
        ),
        (
            Person,
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "address": {
                        "type": "object",
                        "properties": {
                            "street": {"type": "string"},
                            "number": {"type": "integer", "exclusiveMinimum": 0, "description": "of the house"},
                        },
                        "required": ["street", "number"],
                    },
                },
                "required": ["name", "address"],
            },
        ),
    ],
    ids=str,
)
def test_a_type_has_its_schema(kind: Any, expected: Any) -> None:
    assert schema(kind) == expected


def test_a_type_that_contains_itself_is_defined_once() -> None:
    made = parameter(Node).parameters
    assert made["properties"]["x"] == {"$ref": "#/$defs/Node"}
    assert made["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_model_of_pydantic_that_contains_itself_is_defined_once() -> None:
    made = parameter(list[Family]).parameters
    assert made["properties"]["x"]["items"] == {"$ref": "#/$defs/Family"}
    assert made["$defs"]["Family"]["properties"]["members"]["items"] == {"$ref": "#/$defs/Family"}


def test_an_argument_called_title_keeps_its_name() -> None:
    @tool
    def note(title: str) -> str:
        return title

    assert note.parameters["properties"] == {"title": {"type": "string"}}


def test_an_annotation_says_more_than_the_docstring() -> None:
    @tool
    def find(query: Annotated[str, "from the annotation"]) -> None:
        """Find.

        :param query: from the docstring
        """

    assert find.parameters["properties"]["query"]["description"] == "from the annotation"


def test_defaults_that_are_no_json_are_left_out() -> None:
    assert "default" not in parameter(int, object()).parameters["properties"]["x"]
    assert parameter(Colour, Colour.RED).parameters["properties"]["x"]["default"] == "red"


def test_methods_can_be_tools() -> None:
    class Shelf:
        def take(self, number: int) -> int:
            """Take it."""
            return number

    made = Tool.of(Shelf().take)
    assert (made.name, made.description, list(made.parameters["properties"])) == ("take", "Take it.", ["number"])


async def test_objects_that_can_be_called_can_be_tools() -> None:
    class Adder:
        async def __call__(self, a: int) -> int:
            return a + 1

    made = Tool.of(Adder(), name="add_one")
    assert (await Model().call(made, a=2)).content == 3


# --- what cannot be a tool ------------------------------------------------------------------------------


def stars(*numbers: int) -> None: ...
def double_stars(**numbers: int) -> None: ...
def slash(number: int, /) -> None: ...
def untyped(number) -> None: ...  # type: ignore[no-untyped-def]
def unresolved(number: Decimal) -> None: ...
def odd(number: complex) -> None: ...
def two_objects(value: Item | Point) -> None: ...
def generator(number: int) -> Any:
    yield number


@each_row(
    ("function", "told"),
    [
        (stars, "*numbers"),
        (double_stars, "**numbers"),
        (slash, "'number' cannot be passed by name"),
        (untyped, "parameter 'number' has no type"),
        (unresolved, "name 'Decimal' is not defined"),
        (odd, "no JSON schema for complex"),
        (two_objects, "may not contain more than one dict-like type"),
        (generator, "it is a generator"),
        (lambda: 1, "set one with name="),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason(function: Any, told: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        Tool.of(function)
    assert told in str(caught.value)
    assert f"tool '{function.__name__}'" in str(caught.value)


async def probe(attempt: Attempt) -> NotDone:
    return NotDone()


@each_row(
    ("settings", "told"),
    [
        ({"recovery": "confirm"}, "go together"),
        ({"probe": probe}, "go together"),
        ({"retry": ToolRetryPolicy()}, "never runs it again"),
        ({"recovery": "confirm", "probe": probe, "retry": ToolRetryPolicy()}, "never runs it again"),
        ({"timeout_s": 0}, "more than 0 seconds"),
        ({"concurrency": 0}, "at least 1"),
        ({"name": "two words"}, "letters, digits"),
        ({"name": "x" * 65}, "1 to 64"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ToolDefinitionError, match=told):
        Tool.of(slashless, **settings)


def slashless(number: int) -> int:
    return number


def test_limits_that_show_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="must be shown"):
        OutputLimits(max_lines=0)
    with pytest.raises(ValueError, match="at least one attempt"):
        ToolRetryPolicy(max_attempts=0)


# --- arguments ------------------------------------------------------------------------------------------


@each_row(
    ("kind", "value", "expected"),
    [
        (float, 3, 3.0),
        (Colour, "red", Colour.RED),
        (Item, {"name": "n"}, Item("n", 1)),
        (Point, {"x": 1, "tags": ["t"]}, Point(1.0, ["t"])),
        (Options, {"deep": True}, {"deep": True}),
        (int | None, None, None),
        (Path, "/tmp/x", Path("/tmp/x")),
        (datetime.date, "2024-02-29", datetime.date(2024, 2, 29)),
        (Person, {"name": "n", "address": {"street": "s", "number": 1}}, Person.model_validate(
            {"name": "n", "address": {"street": "s", "number": 1}})),
        (Any, {"any": [1]}, {"any": [1]}),
        (object, {"any": [1]}, {"any": [1]}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Node, {"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)])),
    ],
    ids=str,
)  # fmt: skip
def test_arguments_become_values_of_their_types(kind: Any, value: Any, expected: Any) -> None:
    assert accepted(kind, value) == expected


def test_an_argument_of_another_type_is_named_with_what_was_expected() -> None:
    told = refused(int, "5")
    assert told == (
        "'echo' was not run because its arguments are invalid: argument 'x': expected `int`, got `str`"
        ' (its schema is {"type":"integer"})'
    )


def test_a_wrong_choice_is_told_with_all_choices() -> None:
    told = refused(Colour, "green")
    assert "argument 'x': invalid enum value 'green'" in told
    assert '{"enum":["blue","red"]}' in told


def test_the_place_inside_an_argument_is_told() -> None:
    assert "argument 'x[1].count': expected `int`" in refused(list[Item], [{"name": "a"}, {"name": "b", "count": "c"}])


def test_what_a_model_of_pydantic_objects_to_is_told_in_a_line() -> None:
    told = refused(Person, {"name": "n", "address": {"street": 1, "number": 0}})
    assert "address.street: input should be a valid string; address.number: input should be greater than 0" in told
    assert "pydantic.dev" not in told


def test_constraints_hold() -> None:
    assert "`int` >= 1" in refused(Annotated[int, msgspec.Meta(ge=1)], 0)


def test_all_that_is_wrong_is_told_at_once() -> None:
    @tool
    def send(to: str, copies: int = 1) -> None: ...

    with pytest.raises(InvalidArgumentsError) as caught:
        send.accept({"copies": "two", "subject": "s"})
    missing, wrong, unknown = caught.value.problems
    assert "argument 'to' is missing" in missing
    assert "argument 'copies'" in wrong
    assert unknown == "there is no argument 'subject' (the arguments are: 'to', 'copies')"


def test_arguments_that_are_no_json_object_are_shown_back() -> None:
    assert "expected a JSON object with arguments by name, got \"{'x': \"" in refused_raw("{'x': ")


def refused_raw(text: str) -> str:
    with pytest.raises(InvalidArgumentsError) as caught:
        parameter(int).accept({"_raw": text})
    return str(caught.value)


async def test_arguments_that_are_wrong_are_a_result_that_was_not_executed() -> None:
    done = await Model().call(parameter(int), x="5")
    assert (done.is_error, done.executed, done.content["code"]) == (True, False, "invalid_arguments")


class Picky(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n is below zero")
        if self.n == 0:
            raise ZeroDivisionError("n is zero")


async def test_what_a_type_itself_objects_to_is_told() -> None:
    assert "argument 'x': n is below zero" in refused(Picky, {"n": -1})
    done = await Model().call(parameter(Picky), x={"n": 0})
    assert (done.executed, done.content["code"]) == (False, "invalid_arguments")
    assert "n is zero" in done.content["error"]


async def test_wrong_arguments_never_stop_the_turn() -> None:
    strict = Tool.of(slashless, on_error="stop")
    assert not (await Model().call(strict, number="x")).stops


async def test_arguments_that_are_left_out_get_the_default_itself() -> None:
    sentinel = object()
    seen: list[object] = []

    def keep(x: Any = sentinel) -> None:
        seen.append(x)

    await Model().call(Tool.of(keep))
    assert seen[0] is sentinel


# --- the context ----------------------------------------------------------------------------------------


async def test_the_context_is_given_and_not_shown() -> None:
    @tool
    def who(name: str, ctx: ToolContext) -> list[Any]:
        return [name, ctx.session_id, ctx.turn, ctx.call_id, ctx.tool, ctx.key, ctx.attempt, ctx.retry]

    assert list(who.parameters["properties"]) == ["name"]
    done = await Model().call(who, name="n")
    assert done.content == ["n", "s-1", "t-1", "call-q-1", "who", "s-1/q-1", 1, 0]


async def test_a_model_cannot_give_the_context() -> None:
    @tool
    def who(ctx: ToolContext) -> str:
        return ctx.session_id

    assert "no argument 'ctx'" in (await Model().error(who, ctx={"session_id": "other"}))["error"]


async def test_a_tool_knows_how_much_time_is_left() -> None:
    @tool(timeout_s=60)
    async def limited(ctx: ToolContext) -> bool:
        return ctx.left_s is not None and 50 < ctx.left_s <= 60

    @tool(timeout_s=None)
    async def unlimited(ctx: ToolContext) -> bool:
        return ctx.left_s is None and ctx.deadline is None

    assert (await Model().call(limited)).content is True
    assert (await Model().call(unlimited)).content is True


def test_a_tool_with_a_context_can_be_called_in_a_test() -> None:
    @tool
    def loud(text: str, ctx: ToolContext) -> str:
        ctx.output(text)
        return text.upper()

    assert loud("a", ToolContext(session_id="s")) == "A"
