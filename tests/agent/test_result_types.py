"""Types of results: the schema a model is told, values of the type, and words by which a wrong one is repaired."""

from __future__ import annotations

import datetime
import decimal
import enum
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import hypothesis.strategies as st
import msgspec
import pydantic
import pytest
from hypothesis import given

from holdfast.agent.result_type import MAX_PROBLEMS, ResultInvalidError, ResultType, ResultTypeError
from holdfast.core.errors import HoldfastError
from holdfast.core.values import check_value
from holdfast.testing.patience import HANG_S
from tests.tables import each_row

if TYPE_CHECKING:
    from fractions import Fraction

T = TypeVar("T")
Cents = NewType("Cents", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: float
    tags: list[str] = field(default_factory=list)


@dataclass
class Span:
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


class Options(TypedDict, total=False):
    deep: bool


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class Box(msgspec.Struct, Generic[T]):
    inside: T


class Pair(NamedTuple):
    key: str
    number: int = 1


class Item(pydantic.BaseModel):
    """A line of an invoice."""

    name: str
    price: float = pydantic.Field(ge=0, description="in euros")

    @pydantic.field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name == "gold":
            raise ValueError("gold is not sold here")
        return name


class Invoice(pydantic.BaseModel):
    items: list[Item]
    total: float

    @pydantic.model_validator(mode="after")
    def _adds_up(self) -> Invoice:
        if self.total != sum(item.price for item in self.items):
            raise AssertionError("the total is not the sum of the prices")
        return self


class Family(pydantic.BaseModel):
    name: str
    members: list[Family] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Owner(pydantic.BaseModel):
    pet: Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


@pydantic.dataclasses.dataclass
class Score:
    points: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class Noted:
    points: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class Priced:
    item: Item


class Holder(msgspec.Struct):
    item: Item
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


def parsed(spec: Any, value: Any) -> Any:
    return ResultType.of(spec).parse(value)


def problems(spec: Any, value: Any) -> list[str]:
    with pytest.raises(ResultInvalidError) as raised:
        parsed(spec, value)
    return raised.value.problems


def why_not(spec: Any) -> str:
    with pytest.raises(ResultTypeError) as raised:
        ResultType.of(spec)
    return str(raised.value)


# --- what can be a type ----------------------------------------------------------------------------------


@each_row(
    ("spec", "name", "given_value", "value"),
    [
        (Point, "Point", {"x": 1, "tags": ["a"]}, Point(1.0, ["a"])),
        (Options, "Options", {"deep": True}, {"deep": True}),
        (Node, "Node", {"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)])),
        (Item, "Item", {"name": "tea", "price": 2}, Item(name="tea", price=2)),
        (Family, "Family", {"name": "a", "members": [{"name": "b"}]}, Family(name="a", members=[Family(name="b")])),
        (Score, "Score", {"points": 3}, Score(3)),
        (Noted, "Noted", {"points": 3}, Noted(3)),
        (Priced, "Priced", {"item": {"name": "a", "price": 0}}, Priced(Item(name="a", price=0))),
        (Holder, "Holder", {"item": {"name": "a", "price": 0}}, Holder(Item(name="a", price=0))),
        (Pair, "Pair", ["a"], Pair("a")),
        (Box[int], "Box[int]", {"inside": 3}, Box(3)),
        (list[Point], "list[Point]", [{"x": 0}], [Point(0.0)]),
        (dict[str, Item], "dict[str, Item]", {"a": {"name": "b", "price": 1}}, {"a": Item(name="b", price=1)}),
        (Item | None, "Item | None", None, None),
        (Point | Span, "Point | Span", {"low": 1, "high": 2}, Span(1, 2)),
        (int | str, "int | str", "a", "a"),
        (Literal["yes", "no"], "Literal['yes', 'no']", "no", "no"),
        (Annotated[int, pydantic.Field(lt=5)], "int", 4, 4),
        (Annotated[int, msgspec.Meta(lt=5)], "int", 4, 4),
        (Cents, "Cents", 7, 7),
        (Colour, "Colour", "red", Colour.RED),
        (datetime.date, "date", "2024-02-29", datetime.date(2024, 2, 29)),
        (decimal.Decimal, "Decimal", "1.10", decimal.Decimal("1.10")),
        (bool, "bool", False, False),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "result", {"a": 1}, {"a": 1}),
        ({"title": "Mark", "type": "integer", "minimum": 1}, "Mark", 6, 6),
    ],
)
def test_a_value_of_the_type_is_parsed(spec: Any, name: str, given_value: Any, value: Any) -> None:
    result = ResultType.of(spec)

    assert result.name == name
    assert result.parse(given_value) == value
    assert type(result.parse(given_value)) is type(value)
    check_value(result.schema, "schema")


def test_a_schema_says_all_without_references_where_it_can() -> None:
    assert ResultType.of(Invoice).schema == {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "description": "A line of an invoice.",
                    "properties": {
                        "name": {"type": "string"},
                        "price": {"type": "number", "minimum": 0, "description": "in euros"},
                    },
                    "required": ["name", "price"],
                },
            },
            "total": {"type": "number"},
        },
        "required": ["items", "total"],
    }


@each_row("spec", [Node, Family])
def test_the_schema_of_a_type_that_contains_itself_is_an_object_with_definitions(spec: type) -> None:
    schema = ResultType.of(spec).schema
    (own,) = schema["$defs"].values()

    assert schema == {**own, "$defs": {spec.__name__: own}}
    assert schema["type"] == "object"


def test_a_schema_of_forms_points_to_no_definition_that_is_gone() -> None:
    schema = ResultType.of(Owner).schema

    assert "#/$defs" not in msgspec.json.encode(schema).decode()
    assert [form["properties"]["kind"]["const"] for form in schema["properties"]["pet"]["oneOf"]] == ["cat", "dog"]


def test_a_property_called_discriminator_stays() -> None:
    properties = {"discriminator": {"type": "object", "properties": {"propertyName": {"type": "string"}}}}
    model = pydantic.create_model("Odd", discriminator=(dict[str, str], ...), propertyName=(str, ...))

    assert ResultType.of({"properties": properties}).schema["properties"] == properties
    assert set(ResultType.of(model).schema["properties"]) == {"discriminator", "propertyName"}


def test_a_note_on_the_type_is_told_to_the_model() -> None:
    assert ResultType.of(Annotated[int, "how many there are"]).schema["description"] == "how many there are"


def test_a_schema_with_properties_and_no_type_is_that_of_an_object() -> None:
    result = ResultType.of({"properties": {"a": {"type": "integer"}}, "required": ["a"]})

    assert result.schema["type"] == "object"
    with pytest.raises(ResultInvalidError, match="expected object, got 3"):
        result.parse(3)


def test_a_schema_that_is_changed_later_changes_nothing() -> None:
    given_schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    result = ResultType.of(given_schema)
    given_schema["properties"]["a"]["type"] = "string"

    assert result.parse({"a": 1}) == {"a": 1}
    assert result.schema["properties"]["a"] == {"type": "integer"}


# --- wrong values ----------------------------------------------------------------------------------------


def test_all_problems_of_a_model_are_told_each_with_its_place() -> None:
    items = [{"name": "a", "price": 1}, {"price": 2}, {"name": "b", "price": "abc"}, {"name": "c", "price": -1}]

    assert problems(Invoice, {"items": items, "total": 3}) == [
        "$.items[1].name is missing",
        '$.items[2].price: expected a valid number, unable to parse string as a number, got "abc"',
        "$.items[3].price: expected greater than or equal to 0, got -1",
    ]


def test_what_validators_of_a_model_say_is_told_too() -> None:
    assert problems(Item, {"name": "gold", "price": 1}) == ['$.name: gold is not sold here, got "gold"']
    assert problems(Invoice, {"items": [], "total": 3}) == ["$: the total is not the sum of the prices"]
    assert problems(Holder, {"item": {"name": "gold", "price": 1}}) == [
        "$.item: name: value error, gold is not sold here"
    ]


def test_what_a_dataclass_itself_refuses_is_told() -> None:
    assert problems(Span, {"low": 3, "high": 1}) == ["$: low 3 is above high 1"]
    assert problems(list[Span], [{"low": 0, "high": 1}, {"low": 3, "high": 1}]) == ["$[1]: low 3 is above high 1"]


def test_a_problem_in_one_form_of_a_union_is_told_at_its_place_in_the_value() -> None:
    assert problems(Owner, {"pet": {"kind": "cat", "lives": "q"}}) == [
        '$.pet.lives: expected a valid integer, unable to parse string as an integer, got "q"'
    ]
    assert problems(Owner, {"pet": {"kind": "cow"}}) == [
        "$.pet: Input tag 'cow' found using 'kind' does not match any of the expected tags: 'cat', 'dog'"
    ]
    assert problems(Owner, {"pet": {"kind": "cat"}}) == ["$.pet.lives is missing"]


@each_row(
    ("spec", "value", "found"),
    [
        (Point, {"x": "abc", "tags": [1]}, ['$.x: expected number, got "abc"', "$.tags[0]: expected string, got 1"]),
        (Point, [], ["$: expected object, got []"]),
        (Item, [], ["$: expected an object, got []"]),
        (Node, {"value": 1, "children": [{}]}, ["$.children[0].value is missing"]),
        (Options, {"deep": "yes"}, ['$.deep: expected boolean, got "yes"']),
        (Point | None, 3, ["$: expected object or null, got 3"]),
        (Point | None, {}, ["$.x is missing"]),
        (tuple[int, str], [1], ["$: expected at least 2 items, got 1"]),
        (Colour, "green", ['$: "green" is none of "blue", "red"']),
        (datetime.date, "2023-02-29", ["$: invalid RFC3339 encoded date"]),
        (Annotated[int, msgspec.Meta(lt=5)], 5, ["$: expected less than 5, got 5"]),
        (Holder, {"item": {"name": "a", "price": 1}, "count": 0}, ["$.count: expected at least 1, got 0"]),
        (Noted, {"points": 0}, ["$.points: expected greater than 0, got 0"]),
        ({"type": "integer", "maximum": 5}, 7, ["$: expected at most 5, got 7"]),
    ],
)
def test_a_wrong_value_is_told_so_that_it_can_be_repaired(spec: Any, value: Any, found: list[str]) -> None:
    assert problems(spec, value) == found


def test_of_very_many_problems_the_first_are_told() -> None:
    for spec in (list[int], list[Item], {"type": "array", "items": {"type": "integer"}}):
        assert len(problems(spec, ["x"] * 1_000)) == MAX_PROBLEMS


def test_the_error_names_the_type_and_the_problems() -> None:
    with pytest.raises(HoldfastError) as raised:
        parsed(Item, {"name": "a"})

    assert str(raised.value) == "the result is not a valid 'Item': $.price is missing"
    assert raised.value.to_json() == {
        "kind": "result_invalid",
        "error": str(raised.value),
        "name": "Item",
        "problems": ["$.price is missing"],
    }


# --- what cannot be a type -------------------------------------------------------------------------------


class Plain:
    pass


class Sentinel:
    def __repr__(self) -> str:
        return "<nothing given>"


NOTHING = Sentinel()


@dataclass
class Defaulted:
    x: Any = NOTHING


class DefaultedModel(pydantic.BaseModel):
    x: Any = NOTHING


class NanModel(pydantic.BaseModel):
    x: float = float("nan")


@dataclass
class Unresolved:
    part: Fraction


class UnresolvedStruct(msgspec.Struct):
    part: list[Fraction]


class UnresolvedModel(pydantic.BaseModel):
    part: Fraction


@dataclass
class Outer:
    inner: Unresolved


class Mixed(msgspec.Struct):
    points: Annotated[int, pydantic.Field(gt=0)]


class Called(pydantic.BaseModel):
    run: Callable[[], int]


@each_row(
    ("spec", "why"),
    [
        (None, "'None' cannot be the type of a result: it is nothing; give a type, or a JSON schema as a dict"),
        ("Point", "'Point' cannot be the type of a result: it is text; give a type"),
        (Point(1.0), "it is a value of type Point; give a type"),
        (lambda value: value, "it is a value of type function; give a type"),
        (T, "it is a value of type TypeVar"),
        (Any, "its schema is invalid: it does not say what a value is; add a 'type'"),
        (object, "it does not say what a value is"),
        (Plain, "there is no JSON schema for Plain; use dataclasses"),
        (list[Plain], "there is no JSON schema for Plain; use dataclasses"),
        (Callable[[int], int], "there is no JSON schema for Callable"),
        (Called, "Cannot generate a JsonSchema"),
        (list["Gone"], "it names 'Gone' as text, which cannot be resolved; use the type itself"),  # type: ignore[name-defined]  # noqa: F821
        (Unresolved, "the annotations of Unresolved cannot be resolved: name 'Fraction' is not defined; define"),
        (Outer, "'Outer' cannot be the type of a result: the annotations of Unresolved cannot be resolved"),
        (UnresolvedStruct, "the annotations of UnresolvedStruct cannot be resolved: name 'Fraction' is not defined"),
        (UnresolvedModel, "`UnresolvedModel` is not fully defined; you should define `Fraction`"),
        (Defaulted, "the default of Defaulted.x has no JSON form: Sentinel has no JSON form; use another"),
        (DefaultedModel, "Default value <nothing given> is not JSON serializable; use another"),
        (NanModel, "its schema is invalid at .properties.x.default: nan is not a JSON number"),
        (Mixed, "the Struct Mixed is msgspec's and the FieldInfo of Mixed.points is pydantic's"),
        (Node | Item, "Type unions containing a custom type may not contain any additional types"),
        ({}, "'result' cannot be the type of a result: its schema is invalid: it does not say what a value is"),
        ({"type": "object", "required": ["a"]}, "its schema is invalid at #: 'required' names 'a'"),
        ({"title": "T", "type": "strin"}, "'T' cannot be the type of a result: its schema is invalid at #"),
        ({"type": "object", "properties": {"a": {"default": {1}}}}, "at .properties.a.default: set has no JSON form"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_type_is_refused_with_what_to_do(spec: Any, why: str) -> None:
    assert why in why_not(spec)


def test_a_type_of_a_function_that_names_another_such_type_is_refused_by_name() -> None:
    @dataclass
    class Local:
        x: int

    @dataclass
    class Uses:
        local: Local

    assert "the annotations of Uses cannot be resolved: name 'Local' is not defined" in why_not(Uses)


@pytest.mark.executes
def test_pydantic_is_loaded_only_where_it_is_needed() -> None:
    code = """
        import sys
        from dataclasses import dataclass
        from holdfast.agent.result_type import ResultType

        @dataclass
        class Point:
            x: float

        @dataclass
        class Name:
            first: str

        assert ResultType.of(Point).parse({"x": 1}) == Point(1.0)
        assert ResultType.of({"type": "integer"}).parse(1) == 1
        print("pydantic" in sys.modules)
        assert ResultType.of(Point | Name).parse({"first": "a"}) == Name("a")
        print("pydantic" in sys.modules)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=HANG_S
    )

    assert done.stdout.split() == ["False", "True"]


# --- properties ------------------------------------------------------------------------------------------

nodes = st.recursive(
    st.builds(Node, st.integers(-9, 9)),
    lambda inner: st.builds(Node, st.integers(-9, 9), st.lists(inner, max_size=3)),
    max_leaves=8,
)


@given(nodes)
def test_what_a_type_writes_it_reads_also_by_its_schema_alone(node: Node) -> None:
    written = msgspec.to_builtins(node)

    assert parsed(Node, written) == node
    assert parsed(ResultType.of(Node).schema, written) == written
