"""What the API's table says about Python: that it is Python, and that it says enough."""

from __future__ import annotations

import ast
import keyword

import pytest

from holdfast.programs.api import GROUPS, FunctionSpec, NoSpelling
from holdfast.programs.api.languages import definition, described_parameters, lua_name, native_spelling, spoken, twin_of
from tests.tables import each_row

FUNCTIONS = [function for group in GROUPS for function in group.functions]
PYTHON = {function.name: function.python for function in FUNCTIONS if isinstance(function.python, str)}
TWINS = {twin: twin_of(PYTHON[twin]) for twin in (function.name for function in FUNCTIONS if function.has_twin)}
OWN_NATIVE = {function.name: function.native for function in FUNCTIONS if isinstance(function.native, str)}
SPELLINGS = [*PYTHON.values(), *TWINS.values(), *OWN_NATIVE.values()]


@each_row("signature", SPELLINGS)
def test_a_signature_is_python(signature: str) -> None:
    area, defined = definition(signature)
    assert signature.startswith(f"{area}.{defined.name}(" if area else f"{defined.name}(")
    assert defined.returns is not None
    arguments = defined.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.kwarg]
    assert [each.arg for each in every if each and each.annotation is None] == []


def test_a_function_has_the_name_that_python_has_for_it() -> None:
    assert [name for name, signature in PYTHON.items() if signature.partition("(")[0] != name] == []


def test_no_name_of_python_is_taken_twice() -> None:
    names = [*PYTHON, *(twin.partition("(")[0] for twin in TWINS.values())]
    assert len(names) == len(set(names))
    assert [name for name in names if keyword.iskeyword(name.rpartition(".")[2])] == []


def test_a_twin_takes_the_same_and_gives_an_awaitable_of_the_same() -> None:
    _, plain = definition(PYTHON["ask"])
    _, twin = definition(TWINS["ask"])
    assert twin.name == "ask_async"
    assert ast.dump(twin.args) == ast.dump(plain.args)
    assert plain.returns is not None
    assert twin.returns is not None
    assert ast.unparse(twin.returns) == f"Awaitable[{ast.unparse(plain.returns)}]"


@each_row("function", FUNCTIONS, ids=lambda function: function.name)
def test_every_parameter_of_python_is_told_about(function: FunctionSpec) -> None:
    assert [name for name, doc in described_parameters(function) if not doc] == []


def test_every_function_is_in_some_language() -> None:
    spelled = [(lua_name(each), each.python, native_spelling(each)) for each in FUNCTIONS]
    assert [each for each in spelled if all(way is None or isinstance(way, NoSpelling) for way in each)] == []


def test_what_python_has_has_an_example_in_python() -> None:
    without = [each.name for each in FUNCTIONS if each.name in PYTHON and not (each.example and each.example.python)]
    assert without == []


def test_a_text_names_functions_as_each_language_does() -> None:
    assert spoken("As `{now}`.", "lua") == "As `alc.time`."
    assert spoken("As `{now}`.", "python") == "As `now`."


def test_a_text_names_no_function_that_the_table_lacks() -> None:
    with pytest.raises(KeyError, match="lmm"):
        spoken("As `{lmm}`.")


def test_words_that_differ_are_those_of_the_language() -> None:
    text = "{nil|None} if there is none{ in the table|}."
    assert spoken(text, "lua") == "nil if there is none in the table."
    assert spoken(text, "python") == "None if there is none."
    assert spoken(text) == "nil (None) if there is none in the table (Lua only)."
