"""`ResultType`: the type of a turn's result, with its JSON schema, its parser, and problems in words for the model.

A type is read by msgspec, or by pydantic if it uses parts of pydantic or msgspec does not know it. pydantic is imported
only then. `schema_check` checks values against a JSON schema alone.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import re
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from holdfast.agent.schema_check import ROOT, check_schema, placed, problems_by_schema
from holdfast.agent.tools.errors import InvalidResultError
from holdfast.agent.tools.results import json_of
from holdfast.agent.tools.schema import Schema, converted, schemas_of, split
from holdfast.core.errors import HoldfastError, InvalidValueError
from holdfast.core.values import Json, own_copy, preview

MAX_PROBLEMS = 20
"""Problems of one value that are reported: a model needs the first few, and the rest are often the same."""


class ResultTypeError(HoldfastError):
    """Something cannot be the type of a result."""

    name: str
    why: str
    kind = "result_type"

    def __str__(self) -> str:
        return f"'{self.name}' cannot be the type of a result: {self.why}"


class ResultInvalidError(HoldfastError):
    """A value is not of the type. Written for the model, which can correct it."""

    name: str
    problems: list[str]
    kind = "result_invalid"

    def __str__(self) -> str:
        return f"the result is not a valid '{self.name}': {'; '.join(self.problems)}"


class ResultType:
    """A type of results. `ResultType.of` makes one."""

    def __init__(self, name: str, schema: Schema, parse: Callable[[Json], Any]) -> None:
        self.name = name
        self.schema = schema
        """A JSON schema that refers to nothing outside itself."""
        self._parse = parse

    @classmethod
    def of(cls, spec: Any) -> ResultType:
        """Make one from a pydantic model, dataclass, TypedDict, Struct, an annotation made of these, or a JSON schema
        dict.

        Raises `ResultTypeError`.
        """
        if isinstance(spec, Mapping):
            return _of_schema(dict(spec))
        name = _name_of(spec)
        if not _is_type(spec):
            raise ResultTypeError(name, f"it is {_what_it_is(spec)}; give a type, or a JSON schema as a dict")
        parts = _Parts(name, spec)
        failed: ResultTypeError | None = None
        for made_by in parts.readers():
            try:
                return made_by(name, spec)
            except ResultTypeError as error:
                failed = failed or error  # the best reader comes first, and explains best
        assert failed is not None
        raise failed

    def parse(self, value: Json) -> Any:
        """The value as one of the type. Raises `ResultInvalidError`."""
        return self._parse(value)

    def __repr__(self) -> str:
        return f"<result type {self.name}>"


def _is_type(spec: Any) -> bool:
    known = isinstance(spec, type | typing.NewType) or spec is Any or get_origin(spec) is not None
    return known or type(spec).__name__ == "TypeAliasType"  # of Python 3.12, and of typing_extensions


def _name_of(spec: Any) -> str:
    if isinstance(spec, type) and get_origin(spec) is None:
        return spec.__name__
    if get_origin(spec) is Annotated:
        return _name_of(get_args(spec)[0])
    text = str(getattr(spec, "__name__", spec)) if get_origin(spec) is None else re.sub(r"\b(?:\w+\.)+", "", str(spec))
    return text if len(text) <= 80 else text[:79] + "…"


def _what_it_is(spec: Any) -> str:
    if isinstance(spec, str):
        return "text"
    return "nothing" if spec is None else f"a value of type {type(spec).__name__}"


# --- what a type is made of ----------------------------------------------------------------------------

_Reader: TypeAlias = Callable[[str, Any], ResultType]


class _Parts:
    """Examines a type to decide which library can read it, and rejects what none can."""

    def __init__(self, name: str, spec: Any) -> None:
        self._name = name
        self._seen: dict[int, Any] = {}
        """By identity. The objects are held, because the identity of a freed one may be reused."""
        self._structs = ""
        """A part that only msgspec reads."""
        self._notes = ""
        """A note in an annotation that only pydantic reads; msgspec would ignore its constraint."""
        self._models = False
        self._look(spec, "")

    def readers(self) -> list[_Reader]:
        """The readers of the type, best first."""
        if self._structs and self._notes:
            why = f"{self._structs} is msgspec's and {self._notes} is pydantic's, and neither understands the other's"
            raise ResultTypeError(self._name, f"{why}; use only one of them")
        if self._structs:
            return [_of_msgspec]
        if self._notes:
            return [_of_pydantic]
        if self._models:
            return [_of_pydantic, _of_msgspec]
        return [_of_msgspec, _of_pydantic] if _has_pydantic() else [_of_msgspec]

    def _look(self, kind: Any, where: str) -> None:
        if isinstance(kind, str | typing.ForwardRef):
            shown = kind if isinstance(kind, str) else kind.__forward_arg__
            why = f"{where or 'it'} names '{shown}' as text, which cannot be resolved; use the type itself"
            raise ResultTypeError(self._name, why)
        if id(kind) in self._seen:
            return
        self._seen[id(kind)] = kind
        if get_origin(kind) is Annotated:
            self._look_at_notes(get_args(kind)[1:], where)
            self._look(get_args(kind)[0], where)
        elif get_origin(kind) is typing.Literal:
            return
        elif get_origin(kind) is not None:
            for each in (get_origin(kind), *get_args(kind)):
                if not isinstance(each, list):  # of Callable, which no reader takes
                    self._look(each, where)
        elif isinstance(kind, type):
            self._look_at_class(kind)
        elif (meant := getattr(kind, "__value__", getattr(kind, "__supertype__", None))) is not None:
            self._look(meant, where)

    def _look_at_notes(self, notes: Iterable[Any], where: str) -> None:
        for note in notes:
            if isinstance(note, msgspec.Meta):
                self._structs = self._structs or f"the Meta of {where or 'the type'}"
            elif _is_pydantics(note) or _is_pydantics(type(note)):
                self._notes = self._notes or f"the {type(note).__name__} of {where or 'the type'}"

    def _look_at_class(self, kind: type) -> None:
        if _is_pydantics(kind):
            self._models = True
            return
        if issubclass(kind, msgspec.Struct):
            self._structs = self._structs or f"the Struct {kind.__name__}"
        elif not (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or hasattr(kind, "_fields")):
            return
        try:
            hints = get_type_hints(kind, include_extras=True)
        except Exception as error:
            why = f"the annotations of {kind.__name__} cannot be resolved: {error}; define the names in its module"
            raise ResultTypeError(self._name, why) from None
        for field, hint in hints.items():
            self._look(hint, f"{kind.__name__}.{field}")
        self._check_defaults(kind)

    def _check_defaults(self, kind: type) -> None:
        for field, default in _defaults(kind):
            try:
                json_of(default, self._name)
            except InvalidResultError as error:
                where = f"the default of {kind.__name__}.{field}"
                raise ResultTypeError(self._name, f"{where} has no JSON form: {error.why}; {_ANOTHER}") from None


def _defaults(kind: type) -> Iterator[tuple[str, Any]]:
    if issubclass(kind, msgspec.Struct):
        defaults = [(field.name, field.default) for field in msgspec.structs.fields(kind)]
    else:
        defaults = [(field.name, field.default) for field in getattr(kind, "__dataclass_fields__", {}).values()]
    for name, default in defaults:
        if default is not msgspec.NODEFAULT and default is not dataclasses.MISSING:
            yield name, default


_ANOTHER = "use another default, or a default_factory"


def _is_pydantics(part: Any) -> bool:
    if hasattr(part, "__get_pydantic_core_schema__") or hasattr(part, "__pydantic_validator__"):
        return True
    module = getattr(part, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in ("pydantic", "annotated_types")


def _has_pydantic() -> bool:
    return "pydantic" in sys.modules or importlib.util.find_spec("pydantic") is not None


# --- types ---------------------------------------------------------------------------------------------


def _of_msgspec(name: str, spec: Any) -> ResultType:
    kind, words = split(spec)
    schema = _schema_of(name, kind, words)

    def parse(value: Json) -> Any:
        try:
            return converted(ROOT, value, kind)
        except ValueError as error:
            # msgspec reports only the first problem; a check by the schema finds all, if it finds any.
            raise ResultInvalidError(name, _problems(value, schema) or [placed(str(error))]) from None

    return ResultType(name, schema, parse)


def _of_pydantic(name: str, spec: Any) -> ResultType:
    import pydantic

    is_model = isinstance(spec, type) and issubclass(spec, pydantic.BaseModel)
    try:
        model: Any = spec if is_model else pydantic.RootModel[spec]
    except (pydantic.errors.PydanticUserError, NameError) as error:
        raise ResultTypeError(name, _first_line(error)) from None
    schema = _schema_of(name, model, split(spec)[1])

    def parse(value: Json) -> Any:
        try:
            parsed = model.model_validate(value)
        except pydantic.ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            problems = [_pydantic_problem(each["loc"], each["type"], each["msg"], value) for each in found]
            raise ResultInvalidError(name, problems[:MAX_PROBLEMS]) from None
        return parsed if is_model else parsed.root

    return ResultType(name, schema, parse)


def _schema_of(name: str, kind: Any, words: str) -> Schema:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # pydantic warns of defaults that it leaves out
            properties, definitions = schemas_of({ROOT: kind})
    except UserWarning as warning:
        raise ResultTypeError(name, f"{str(warning).partition(';')[0]}; {_ANOTHER}") from None
    except (NameError, RuntimeError) as error:  # pydantic's errors are of these kinds, and say what to do
        raise ResultTypeError(name, _first_line(error)) from None
    except (TypeError, ValueError) as error:
        why = f"{_first_line(error)}; use dataclasses, TypedDicts, models, lists, dicts and plain values"
        raise ResultTypeError(name, why) from None
    schema: Schema = properties[ROOT]
    if (
        "$ref" in schema and definitions
    ):  # recursive: its own definition comes first, so that it is recognized as an object
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
        del schema["$ref"]
    if definitions:
        schema = {**schema, "$defs": definitions}
    if words:
        schema = {**schema, "description": words}
    schema = _without_discriminators(schema)
    _check(name, schema)
    return schema


def _without_discriminators(schema: Json) -> Json:
    """Schemas without discriminators, whose mappings point to definitions that are inlined here."""
    if isinstance(schema, list):
        return [_without_discriminators(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_hint = "propertyName" in (schema.get("discriminator") or {}) and ("oneOf" in schema or "anyOf" in schema)
    return {
        key: _without_discriminators(value) for key, value in schema.items() if not (is_hint and key == "discriminator")
    }


def _pydantic_problem(steps: Sequence[str | int], kind: str, message: str, value: Json) -> str:
    """A problem that pydantic found, with its path in the value. Steps that are not in the value name union members."""
    where, here = ROOT, value
    for step in steps[:-1] if kind == "missing" else steps:
        if isinstance(step, str) and isinstance(here, dict) and step in here:
            where, here = f"{where}.{step}", here[step]
        elif isinstance(step, int) and isinstance(here, list) and step < len(here):
            where, here = f"{where}[{step}]", here[step]
    if kind == "missing":
        return f"{where}.{steps[-1]} is missing"
    said = re.sub(r"\A(?:Value error|Assertion failed), ", "", message)
    said = re.sub(r"\AInput should be ", "expected ", re.sub(r"a valid dictionary( or .*)?\Z", "an object", said))
    shown = "" if isinstance(here, dict | list) and here else f", got {preview(here)}"
    return f"{where}: {said}{shown}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


# --- JSON schemas --------------------------------------------------------------------------------------


def _of_schema(source: dict[str, Json]) -> ResultType:
    title = source.get("title")
    name = title if isinstance(title, str) and title else "result"
    schema = {"type": "object", **source} if "type" not in source and "properties" in source else source
    _check(name, schema)
    schema = own_copy(schema)

    def parse(value: Json) -> Json:
        if problems := _problems(value, schema):
            raise ResultInvalidError(name, problems)
        return value

    return ResultType(name, schema, parse)


def _check(name: str, schema: Schema) -> None:
    try:
        check_schema(schema)
    except InvalidValueError as error:
        where = f" at {error.path}" if error.path else ""
        raise ResultTypeError(name, f"its schema is invalid{where}: {error.why}") from None


def _problems(value: Json, schema: Schema) -> list[str]:
    return list(itertools.islice(problems_by_schema(value, schema), MAX_PROBLEMS))
