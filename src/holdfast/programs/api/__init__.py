"""The API that running programs see, in each of the three languages, as one table. The stubs for editors and the
type checker, and the reference page, are made from it; tests compare it with what programs really find."""

from __future__ import annotations

from holdfast.programs.api.cards import CARDS
from holdfast.programs.api.evaluation import EVAL
from holdfast.programs.api.fork import FORK
from holdfast.programs.api.math import MATH
from holdfast.programs.api.model import (
    ConstantSpec,
    Example,
    FieldSpec,
    FunctionSpec,
    GroupSpec,
    Language,
    NoSpelling,
    ResultSpec,
    ShapeSpec,
    Waits,
)
from holdfast.programs.api.session import LAYER0
from holdfast.programs.api.state import STATE
from holdfast.programs.api.std import STD
from holdfast.programs.api.text import PRELUDE

__all__ = [
    "CTX",
    "GROUPS",
    "ConstantSpec",
    "Example",
    "FieldSpec",
    "FunctionSpec",
    "GroupSpec",
    "Language",
    "NoSpelling",
    "ResultSpec",
    "ShapeSpec",
    "Waits",
]

GROUPS: tuple[GroupSpec, ...] = (LAYER0, PRELUDE, FORK, STATE, CARDS, EVAL, MATH, STD)

CTX = ShapeSpec(
    "Ctx",
    "What a program is started with, whatever that is; by convention a {table|dict} with these fields. `ctx` is a"
    " global of code that is run as it is, and the argument of {a package's `run`|`run`}.",
    (
        FieldSpec("task", "string", "What to do.", optional=True),
        FieldSpec(
            "result",
            "any",
            "Where {packages|strategies} put what they found before they return their ctx.",
            optional=True,
        ),
        FieldSpec(
            "budget",
            "table<string, integer>",
            "`max_llm_calls`, `max_elapsed_ms`, `max_tokens`: limits.",
            optional=True,
        ),
        FieldSpec("_ns", "string", "The namespace of {`alc.state`|`state`}.", optional=True),
    ),
    rest="any",
)
