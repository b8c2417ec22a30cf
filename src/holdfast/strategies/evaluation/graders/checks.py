"""Graders that look at the answer alone: texts, numbers, JSON, choices."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from string import ascii_uppercase
from typing import Any, TypeAlias

from holdfast.core.errors import InvalidValueError
from holdfast.core.values import Json
from holdfast.strategies.evaluation.errors import GraderError
from holdfast.strategies.evaluation.graders.grade import GradedAnswer
from holdfast.strategies.evaluation.graders.numerals import answer_number, whole_number

Check: TypeAlias = Callable[[GradedAnswer], Json]
"""Says true, false or a number of an answer. `ValueError` if the case cannot be graded by it."""

GraderOptions: TypeAlias = Mapping[str, Json]

_NUMERIC_TOLERANCE = 1e-9
"""Relative: a float that went through text and back is well inside."""

_APPROX_TOLERANCE = 0.01

_LETTER = r"\(?\b([A-Z])\b\)?"


def _any_expected(holds: Callable[[str, str], bool]) -> Check:
    def check(answer: GradedAnswer) -> Json:
        return any(holds(answer.text, expected) for expected in answer.case.expected)

    return check


def _regex(answer: GradedAnswer) -> Json:
    own = answer.case.context.get("pattern")
    pattern = own if isinstance(own, str) else next(iter(answer.case.expected), None)
    if pattern is None:
        return False
    try:
        return re.search(pattern, answer.text) is not None
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is invalid: {error}") from None


def _near(default: float) -> Callable[[GraderOptions], Check]:
    def make(options: GraderOptions) -> Check:
        given = options.get("tolerance", default)
        if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 <= given < float("inf"):
            raise GraderError("numeric", "tolerance must be a number from 0 up")

        def check(answer: GradedAnswer) -> Json:
            own = answer.case.context.get("tolerance")
            tolerance = own if isinstance(own, (int, float)) and not isinstance(own, bool) else given
            wanted = [number for each in answer.case.expected if (number := whole_number(each)) is not None]
            if not wanted:
                raise ValueError("the case has no expected value that is a number")
            value = answer_number(answer.text)
            return value is not None and any(abs(value - each) <= tolerance * max(1e-300, abs(each)) for each in wanted)

        return check

    return make


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _json_schema(options: GraderOptions) -> Check:
    from holdfast.agent.schema_check import check_schema

    schema = options.get("schema")
    if not isinstance(schema, dict):
        raise GraderError("json_schema", "give the schema: {grader = 'json_schema', schema = {…}}")
    try:
        check_schema(schema)
    except InvalidValueError as error:
        raise GraderError("json_schema", str(error)) from None

    def check(answer: GradedAnswer) -> Json:
        from holdfast.agent.schema_check import problems_by_schema
        from holdfast.programs.model_text import json_extract

        value = answer.value if isinstance(answer.value, (dict, list)) else json_extract(answer.text)
        return value is not None and next(problems_by_schema(value, schema), None) is None

    return check


def chosen_letter(text: str, choices: list[str]) -> str | None:
    """The letter that an answer chooses: alone, after `answer`, as a choice's own text, or the last one it names."""
    letters = ascii_uppercase[: len(choices)]
    stripped = text.strip().strip("*_`'\"()[].: \n")
    if len(stripped) == 1 and stripped.upper() in letters:
        return stripped.upper()
    for letter, choice in zip(letters, choices, strict=False):
        if stripped.casefold() == choice.strip().casefold():
            return letter
    named = re.findall(rf"(?i:answer|choice|option)(?:\s+(?i:is))?\s*[:=]?\s*[*_`\"']*{_LETTER}", text)
    marked = (
        named or re.findall(rf"(?m)^\s*[*_`]*{_LETTER}(?:[).:]|[*_`]*\s*$)", text) or re.findall(r"\(([A-Z])\)", text)
    )
    found = [letter for letter in marked if letter in letters]
    return found[-1] if found else None


def _choice(answer: GradedAnswer) -> Json:
    case = answer.case
    if not case.choices:
        raise ValueError("the case has no choices")
    letters = ascii_uppercase[: len(case.choices)]
    wanted = {each.strip().upper() for each in case.expected if each.strip().upper() in letters}
    wanted |= {letter for letter, choice in zip(letters, case.choices, strict=False) if choice in case.expected}
    if not wanted:
        raise ValueError("no expected value is one of the choices, or the letter of one")
    return chosen_letter(answer.text, case.choices) in wanted


def _equals(options: GraderOptions) -> Check:
    value = options.get("value")
    return lambda answer: value in (answer.value, answer.text)


def _has(options: GraderOptions) -> Check:
    text = options.get("text")
    if not isinstance(text, str):
        raise GraderError("has", "give the text")
    return lambda answer: text in answer.text


def _max_duration(options: GraderOptions) -> Check:
    seconds = options.get("seconds")
    if not isinstance(seconds, (int, float)):
        raise GraderError("max_duration", "give seconds")
    return lambda answer: answer.latency_ms <= seconds * 1000


_TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def _is_instance(options: GraderOptions) -> Check:
    kind = _TYPES.get(str(options.get("type_name")))
    if kind is None:
        raise GraderError("is_instance", f"type_name must be one of {', '.join(_TYPES)}")
    return lambda answer: isinstance(answer.value, kind)


_exact = _any_expected(lambda text, expected: text == expected)
_contains = _any_expected(lambda text, expected: expected in text)

PLAIN: dict[str, Check] = {
    "exact_match": _exact,
    "contains": _contains,
    "starts_with": _any_expected(lambda text, expected: text.startswith(expected)),
    "ends_with": _any_expected(lambda text, expected: text.endswith(expected)),
    "flexible_match": _any_expected(lambda text, expected: expected in text),
    "regex": _regex,
    "json_valid": lambda answer: _is_json(answer.text),
    "not_empty": lambda answer: answer.text != "",
    "valid_json_response": lambda answer: answer.text != "" and _is_json(answer.text),
    "length": lambda answer: len(answer.text.encode()),
    "latency": lambda answer: answer.latency_ms,
    "choice": _choice,
}
"""Graders without options."""

WITH_OPTIONS: dict[str, Callable[[GraderOptions], Check]] = {
    "numeric": _near(_NUMERIC_TOLERANCE),
    "approx": _near(_APPROX_TOLERANCE),
    "json_schema": _json_schema,
    "equals": _equals,
    "has": _has,
    "max_duration": _max_duration,
    "is_instance": _is_instance,
}


def find_check(name: str, options: GraderOptions) -> Check | None:
    """The check of that name, or None if there is none. Raises `GraderError` for options that cannot be used."""
    if (made := WITH_OPTIONS.get(name)) is not None:
        return made(options)
    return PLAIN.get(name)
