"""`GraderSpec`: a grader as a plan names it, checked and with a digest; and how pure ones are applied."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.core.values import Json
from holdfast.programs.code_version import code_version
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.errors import GraderError
from holdfast.strategies.evaluation.graders.checks import PLAIN, WITH_OPTIONS, find_check
from holdfast.strategies.evaluation.graders.grade import Grade, GradedAnswer, excerpt
from holdfast.strategies.evaluation.graders.scorers import Scorer, make_scorer, yes_or_number

JUDGES = ("llm_yes_no", "llm_rubric", "llm_factuality", "pairwise")
"""Graders that ask a model."""

ASKED = (*JUDGES, "human", "strategy")
"""Graders that work in sessions of their own."""

_OPTIONS: dict[str, tuple[str, ...]] = {
    "numeric": ("tolerance",),
    "approx": ("tolerance",),
    "json_schema": ("schema",),
    "equals": ("value",),
    "has": ("text",),
    "max_duration": ("seconds",),
    "is_instance": ("type_name",),
    "llm_yes_no": ("question",),
    "llm_rubric": ("rubric", "scale_min", "scale_max"),
    "llm_factuality": (),
    "pairwise": ("question", "baseline"),
    "human": ("question",),
}

GraderFunction: TypeAlias = Callable[..., Any]
"""`f(answer, case)`: true, false, a number from 0 to 1, or a `Grade`."""

_functions: dict[str, GraderFunction] = {}
"""Functions that were given to a plan here, by the digest of their grader."""


class GraderSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A grader with its options."""

    grader: str
    name: str
    """What reports call it."""
    weight: float = 1.0
    options: dict[str, Json] = {}
    scorer: Json = None
    judges: list[str] = []
    """The models that judge; empty for whichever answers here."""
    program: str | None = None
    """The file of a function, or the strategy that grades."""
    version: str | None = None
    """The fingerprint of the code of a function or strategy."""

    @cached_property
    def digest(self) -> str:
        """The fingerprint of all that decides about a grade: not its name and weight."""
        parts = [self.grader, self.options, self.scorer, self.judges, self.program, self.version]
        return digest(parts)

    @property
    def is_asked(self) -> bool:
        """Whether it grades in a session of its own."""
        return self.grader in ASKED

    @cached_property
    def _scored(self) -> Scorer:
        return yes_or_number if self.scorer is None else make_scorer(self.scorer, self.name)

    def score(self, value: Json) -> float:
        """The score of what the grader found."""
        return self._scored(value)


def make_grader(given: str | Mapping[str, Any] | GraderSpec | GraderFunction) -> GraderSpec:
    """The grader that a plan names: `contains`, `python:FILE.py:name`, a table, or a function. Raises `GraderError`."""
    if isinstance(given, GraderSpec):
        return given
    if isinstance(given, str):
        return _checked(_by_name(given, {}))
    if isinstance(given, Mapping):
        table = dict(given)
        name = table.pop("grader", None)
        if not isinstance(name, str):
            raise GraderError(
                str(given.get("name", "?")), "a table names its grader: {grader = 'contains', weight = 2}"
            )
        return _checked(_by_name(name, table))
    if callable(given):
        return _of_function(given)
    raise GraderError(str(given), "a grader is a name, a table or a function")


def _by_name(text: str, table: dict[str, Any]) -> GraderSpec:
    kind, colon, rest = text.partition(":")
    own: dict[str, Any] = {"grader": kind, "name": table.pop("name", rest.rpartition(":")[2] if colon else kind)}
    for key in ("weight", "scorer"):
        if key in table:
            own[key] = table.pop(key)
    judge = table.pop("judge", None)
    if judge is not None:
        own["judges"] = judge if isinstance(judge, list) else [judge]
    if colon and kind == "python":
        own |= {"program": rest, "version": code_version(cast(FunctionType, _loaded(rest)))}
    elif colon and kind == "strategy":
        from holdfast.programs.lookup import find_program

        program = find_program(rest)
        own |= {"program": rest, "version": digest([program.kind, program.source, program.version])}
    elif colon:
        raise GraderError(text, f"unknown kind '{kind}'; use python:FILE.py:name or strategy:NAME")
    own["options"] = table
    try:
        return msgspec.convert(own, GraderSpec)
    except msgspec.ValidationError as error:
        raise GraderError(own["name"], str(error)) from None


def _of_function(function: GraderFunction) -> GraderSpec:
    name = getattr(function, "__name__", "function")
    if not inspect.isfunction(function):
        raise GraderError(str(name), "give a plain function f(answer, case)")
    spec = GraderSpec(
        grader="function", name=name, program=f"{function.__module__}:{name}", version=code_version(function)
    )
    _functions[spec.digest] = function
    return spec


def _checked(spec: GraderSpec) -> GraderSpec:
    if spec.grader not in ("python", "function", *PLAIN, *WITH_OPTIONS, *ASKED):
        names = ", ".join(sorted([*PLAIN, *WITH_OPTIONS, *JUDGES, "human"]))
        raise GraderError(
            spec.name, f"there is none of that name; there are {names}, python:FILE.py:name, strategy:NAME"
        )
    known = _OPTIONS.get(spec.grader, ())
    if unknown := sorted(set(spec.options) - set(known)):
        raise GraderError(spec.name, f"unknown option {unknown[0]}; it has {', '.join(known) or 'none'}")
    if not 0 <= spec.weight < 1e9:
        raise GraderError(spec.name, f"weight must be at least 0, got {spec.weight:g}")
    if spec.grader in ("length", "latency") and spec.scorer is None:
        raise GraderError(
            spec.name, "it gives a number that is no score: add a scorer, such as {steps = [[0, 1], [400, 0]]}"
        )
    if spec.grader in ("python", "strategy") and spec.program is None:
        raise GraderError(spec.name, f"name the code: {spec.grader}:…")
    if spec.grader == "pairwise" and not isinstance(spec.options.get("baseline"), str):
        raise GraderError(spec.name, "name the arm to compare with: {grader = 'pairwise', baseline = 'ARM'}")
    if spec.judges and spec.grader not in JUDGES:
        raise GraderError(spec.name, "only graders that ask a model have a judge")
    if not spec.is_asked and spec.grader not in ("python", "function"):
        find_check(spec.grader, spec.options)
    if spec.scorer is not None:
        make_scorer(spec.scorer, spec.name)
    return spec


def grade_here(spec: GraderSpec, answer: GradedAnswer) -> Grade:
    """What a grader that needs no session says of an answer. One that fails gives no score, and says why."""
    try:
        if spec.grader in ("python", "function"):
            found = _function_of(spec)(answer.text, answer.case)
            if isinstance(found, Grade):
                return found
        else:
            check = find_check(spec.grader, spec.options)
            assert check is not None
            found = check(answer)
        return Grade(spec.score(found), found)
    except Exception as error:  # code of whoever wrote the plan
        return Grade(None, None, excerpt(f"{type(error).__name__}: {error}"))


def _function_of(spec: GraderSpec) -> GraderFunction:
    if spec.grader == "python":
        return _loaded(spec.program or "")
    function = _functions.get(spec.digest)
    if function is None:
        raise LookupError(
            f"the function {spec.program} is not known here: give it with the plan, or as python:FILE.py:name"
        )
    return function


_loaded_files: dict[str, Any] = {}


def _loaded(where: str) -> GraderFunction:
    """The function at `FILE.py:name`. The file is imported: it is code of whoever wrote the plan."""
    file, _, name = where.rpartition(":")
    path = Path(file)
    if not file.endswith(".py") or not name:
        raise GraderError(where, "name a file and a function in it: python:FILE.py:name")
    try:
        key = f"{path.resolve()}:{path.stat().st_mtime_ns}"
        module = _loaded_files.get(key)
        if module is None:
            spec = importlib.util.spec_from_file_location(f"holdfast_grader_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            _loaded_files[key] = module
    except Exception as error:
        raise GraderError(where, f"{path} cannot be imported: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not inspect.isfunction(function):
        raise GraderError(where, f"{path} has no function '{name}'")
    return function
