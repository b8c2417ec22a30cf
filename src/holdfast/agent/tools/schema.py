"""The JSON schema of a tool's parameters, and the conversion of JSON arguments to values of their types."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, get_args, get_origin

import msgspec

from holdfast.core.values import Json, preview

Schema = dict[str, Json]

RAW_ARGUMENTS = "_raw"
"""The only key of arguments that were not a JSON object; its value is what the model wrote."""

_REF = "#/$defs/"
_PATH = re.compile(r"(.*) - at `\$(.*)`\Z", re.DOTALL)
_MAPS = frozenset(["properties", "$defs", "patternProperties", "dependentSchemas"])
_SCHEMAS = frozenset(["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"])
_LISTS = frozenset(["anyOf", "oneOf", "allOf", "prefixItems"])


# --- from types ----------------------------------------------------------------------------------------


def schemas_of(types: Mapping[str, Any]) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The schema of each type by name, and the definitions that they refer to: only recursive ones.

    Raises `TypeError` for a type that has no schema.
    """
    own: dict[str, Schema] = {}

    def of_custom(kind: type) -> Schema:
        if kind is object:
            return {}
        if _is_path(kind):
            return {"type": "string"}
        if _is_model(kind):
            body: Schema = kind.model_json_schema(ref_template=_REF + "{model}")  # type: ignore[attr-defined]
            for name, found in body.pop("$defs", {}).items():
                if own.setdefault(name, found) != found:
                    raise TypeError(f"two different types are called {name}")
            return body
        raise TypeError(f"there is no JSON schema for {kind.__name__}")

    found, shared = msgspec.json.schema_components(types.values(), schema_hook=of_custom, ref_template=_REF + "{name}")
    if clash := [name for name in shared if name in own]:
        raise TypeError(f"two different types are called {clash[0]}")
    definitions = {**shared, **own}
    endless = {name for name in definitions if name in _reach(name, definitions)}
    plain = _Plain(definitions, endless)
    properties = {name: plain.of(schema) for name, schema in zip(types, found, strict=True)}
    needed = {name for schema in properties.values() for name in _refs(schema)}
    for name in list(needed):
        needed |= _reach(name, definitions) & endless
    return properties, {name: plain.of(definitions[name]) for name in definitions if name in needed}


class _Plain:
    """Removes what a model does not need from schemas: references that can be resolved, and titles."""

    def __init__(self, definitions: dict[str, Schema], endless: set[str]) -> None:
        self._definitions = definitions
        self._endless = endless

    def of(self, schema: Json) -> Json:
        if not isinstance(schema, dict):
            return schema  # `true` and `false` are schemas too
        name = _ref(schema)
        if name is not None and name not in self._endless:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return self.of({**self._definitions[name], **beside})
        return {key: self._part(key, value) for key, value in schema.items() if key != "title"}

    def _part(self, key: str, value: Json) -> Json:
        if key in _MAPS:
            return {name: self.of(each) for name, each in value.items()}
        if key in _SCHEMAS:
            return self.of(value)
        if key in _LISTS:
            return [self.of(each) for each in value]
        return value


def _ref(schema: Schema) -> str | None:
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) else None


def _refs(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        if (name := _ref(schema)) is not None:
            yield name
        for value in schema.values():
            yield from _refs(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _refs(value)


def _reach(name: str, definitions: dict[str, Schema]) -> set[str]:
    """The definitions that one refers to, directly or not."""
    reached: set[str] = set()
    open_names = [name]
    while open_names:
        for each in _refs(definitions.get(open_names.pop(), {})):
            if each not in reached:
                reached.add(each)
                open_names.append(each)
    return reached


def split(annotation: Any) -> tuple[Any, str]:
    """A type for msgspec, and the description in its annotation."""
    if get_origin(annotation) is not Annotated:
        return (Any if annotation is object else annotation), ""
    kind, *notes = get_args(annotation)
    known = [note for note in notes if isinstance(note, msgspec.Meta)]
    words = [text for note in notes if (text := _words(note))]
    for note in known:
        kind = Annotated[kind, note]
    return kind, " ".join(words)


def _words(note: Any) -> str:
    if isinstance(note, str):
        return note
    for name in ("description", "documentation"):  # of msgspec's Meta and pydantic's Field; of typing_extensions' Doc
        if isinstance(text := getattr(note, name, None), str):
            return text
    return ""


# --- from JSON -----------------------------------------------------------------------------------------


def converted(name: str, value: Json, kind: Any) -> Any:
    """An argument as a value of its type. Raises `ValueError`, which says what is wrong and where."""
    try:
        return msgspec.convert(value, kind, dec_hook=_from_json)
    except msgspec.ValidationError as error:
        found = _PATH.match(str(error))
        what, where = (found[1], found[2]) if found else (str(error), "")
        raise ValueError(f"argument '{name}{where}': {_lowered(what)}") from None


def _from_json(kind: type, value: Json) -> Any:
    if kind is object:
        return value
    if _is_path(kind):
        if isinstance(value, str):
            return kind(value)
        raise ValueError(f"expected a path as text, got {type(value).__name__}")
    try:
        return kind.model_validate(value)  # type: ignore[attr-defined]
    except ValueError as error:
        raise ValueError(_pydantic_problems(error)) from None


def _pydantic_problems(error: ValueError) -> str:
    """An error of pydantic without its links to a manual."""
    if not hasattr(error, "errors"):
        return str(error)
    problems = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {_lowered(each['msg'])}" for each in error.errors()]
    return "; ".join(problems)


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, PurePath)


def _is_model(kind: Any) -> bool:
    """Whether it is a pydantic model. If so, pydantic has been imported already."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


# --- JSON against a schema -----------------------------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def problems_in(value: Json, schema: Json, where: str = "") -> Iterator[str]:
    """What is wrong with a value, by the most common JSON schema keywords; others are not checked."""
    if not isinstance(schema, dict):
        return
    types = schema.get("type")
    allowed = [types] if isinstance(types, str) else types or []
    if allowed and not any(_is_of(value, each) for each in allowed):
        yield f"{_subject(where)}: expected {' or '.join(allowed)}, got {preview(value)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{_subject(where)}: {preview(value)} is none of {', '.join(preview(each) for each in schema['enum'])}"
    if isinstance(value, dict):
        yield from _problems_in_object(value, schema, where)
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from problems_in(item, schema.get("items"), f"{where}[{at}]")


def _problems_in_object(value: dict[str, Json], schema: Schema, where: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{_subject(_below(where, name))} is missing"
    for name, item in value.items():
        if name in properties:
            yield from problems_in(item, properties[name], _below(where, name))
        elif schema.get("additionalProperties") is False:
            yield f"there is no {_subject(_below(where, name))}"


def _is_of(value: Json, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(name, (object,)))


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _subject(where: str) -> str:
    return f"argument '{where}'" if where else "the arguments"
