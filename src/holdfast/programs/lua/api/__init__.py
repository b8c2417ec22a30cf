"""The API that running programs see, as one table. The editor's stubs and the reference page are made from it, and a
test holds it against a real VM."""

from __future__ import annotations

from holdfast.programs.lua.api.cards import CARDS
from holdfast.programs.lua.api.evaluation import EVAL
from holdfast.programs.lua.api.layer0 import FORK, LAYER0, STATE, STD
from holdfast.programs.lua.api.math import MATH
from holdfast.programs.lua.api.model import Constant, Example, Field, Function, Group, Result, Shape, Waits
from holdfast.programs.lua.api.prelude import PRELUDE

__all__ = ["CTX", "GROUPS", "Constant", "Example", "Field", "Function", "Group", "Result", "Shape", "Waits"]

GROUPS: tuple[Group, ...] = (LAYER0, PRELUDE, FORK, STATE, CARDS, EVAL, MATH, STD)

CTX = Shape(
    "Ctx",
    "What a program is started with, whatever that is; by convention a table with these fields. `ctx` is a global of"
    " code that is run as it is, and the argument of a package's `run`.",
    (
        Field("task", "string", "What to do.", optional=True),
        Field("result", "any", "Where packages put what they found before they return their ctx.", optional=True),
        Field(
            "budget",
            "table<string, integer>",
            "`max_llm_calls`, `max_elapsed_ms`, `max_tokens`: limits.",
            optional=True,
        ),
        Field("_ns", "string", "The namespace of `alc.state`.", optional=True),
    ),
    rest="any",
)
