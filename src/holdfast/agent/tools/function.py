"""`@tool`: tools made of typed Python functions. Name, description and schema come from signature and docstring."""

from __future__ import annotations

import contextlib
import copy
import inspect
import typing
from collections.abc import Callable
from typing import Any, Generic, Unpack, overload

import msgspec

from holdfast.agent.tools.context import ToolContext
from holdfast.agent.tools.docstrings import Docstring
from holdfast.agent.tools.errors import InvalidArgumentsError, InvalidResultError, ToolDefinitionError
from holdfast.agent.tools.results import json_of
from holdfast.agent.tools.schema import Schema, converted, schemas_of, split
from holdfast.agent.tools.tool import P, R, Tool, ToolSettings
from holdfast.core.values import Json

SHOWN_SCHEMA_CHARS = 300
"""Characters of an argument's schema that are quoted to a model that gave a wrong argument."""


class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function. It can still be called as that function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **settings: Unpack[ToolSettings],
    ) -> None:
        self.function = function
        called = function if inspect.isroutine(function) else type(function).__call__
        name = name or str(getattr(function, "__name__", type(function).__name__))
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise ToolDefinitionError(
                name, "it is a generator; return a value, and write intermediate output with ctx.output"
            )
        said = Docstring(inspect.getdoc(function))
        self._signature = _Signature(name, function, called, said.parameters)
        super().__init__(
            name,
            said.description if description is None else description,
            self._signature.schema,
            owner=f"the function {getattr(called, '__module__', '?')}.{getattr(called, '__qualname__', name)}",
            **settings,
        )
        self.is_async = inspect.iscoroutinefunction(called)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def calling(self, function: Callable[P, R]) -> FunctionTool[P, R]:
        """The same tool with another function of the same signature, such as the method of another object."""
        made = copy.copy(self)
        made.function = function
        return made

    def accept(self, arguments: dict[str, Json]) -> dict[str, Any]:
        self._refuse_raw(arguments)
        return self._signature.accept(arguments)

    def invoke(self, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        keywords: dict[str, Any] = {**arguments, **dict.fromkeys(self._signature.contexts, ctx)}
        return self.function(**keywords)  # type: ignore[call-arg]


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, **settings: Unpack[ToolSettings]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[ToolSettings],
) -> Any:
    """Make a function a tool: `@tool`, or `@tool(recovery="safe", timeout_s=5)`."""

    def make(made_of: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(made_of, name=name, description=description, **settings)

    return make if function is None else make(function)


class _Signature:
    """The parameters of a function: those for the model, and those that receive the context."""

    def __init__(
        self, tool: str, function: Callable[..., Any], called: Callable[..., Any], said: dict[str, str]
    ) -> None:
        self._tool = tool
        self._types: dict[str, Any] = {}
        self._required: list[str] = []
        self.contexts: list[str] = []
        """The parameters that receive the context."""
        hints = _hints(tool, called)
        words: dict[str, str] = {}
        defaults: dict[str, Json] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            self._check(parameter, hints)
            if hints[name] is ToolContext:
                self.contexts.append(name)
                continue
            self._types[name], words[name] = split(hints[name])
            if parameter.default is parameter.empty:
                self._required.append(name)
            else:
                defaults[name] = parameter.default
        self.schema = self._schema({name: text or said.get(name, "") for name, text in words.items()}, defaults)

    def accept(self, arguments: dict[str, Json]) -> dict[str, Any]:
        """The arguments as values of their types. Raises `InvalidArgumentsError` with all problems."""
        problems = [
            f"argument '{name}' is missing: {self._shown(name)}" for name in self._required if name not in arguments
        ]
        accepted: dict[str, Any] = {}
        for name, value in arguments.items():
            if name not in self._types:
                names = ", ".join(f"'{each}'" for each in self._types) or "none"
                problems.append(f"there is no argument '{name}' (the arguments are: {names})")
                continue
            try:
                accepted[name] = converted(name, value, self._types[name])
            except ValueError as error:
                problems.append(f"{error} (its schema is {self._shown(name)})")
        if problems:
            raise InvalidArgumentsError(self._tool, problems)
        return accepted

    def _shown(self, name: str) -> str:
        text = msgspec.json.encode(self.schema["properties"][name]).decode()
        return text if len(text) <= SHOWN_SCHEMA_CHARS else text[:SHOWN_SCHEMA_CHARS] + "…"

    def _check(self, parameter: inspect.Parameter, hints: dict[str, Any]) -> None:
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            why = f"models pass arguments by name, and {stars}{name} has none; name each one, or take a list or dict"
            raise ToolDefinitionError(self._tool, why)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolDefinitionError(self._tool, f"'{name}' cannot be passed by name; remove the '/' after it")
        if name not in hints:
            raise ToolDefinitionError(self._tool, f"parameter '{name}' has no type; annotate it, with Any if need be")

    def _schema(self, words: dict[str, str], defaults: dict[str, Any]) -> Schema:
        try:
            properties, definitions = schemas_of(self._types)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise ToolDefinitionError(self._tool, f"its parameters have no JSON schema: {error}") from None
        for name, schema in properties.items():
            if words.get(name):
                schema["description"] = words[name]
            if name in defaults:
                self._show_default(schema, defaults[name])
        schema = {"type": "object", "properties": properties, "required": self._required, "additionalProperties": False}
        return {**schema, "$defs": definitions} if definitions else schema

    def _show_default(self, schema: Schema, default: Any) -> None:
        with contextlib.suppress(InvalidResultError):  # a sentinel: the schema shows no default
            schema["default"] = json_of(default, self._tool)


def _hints(tool: str, called: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(called)
    names: dict[str, Any] = {}
    if inspect.isfunction(function):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        names = {name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)}
        if "ToolContext" not in function.__globals__:
            names.setdefault("ToolContext", ToolContext)  # it may be imported for type checkers only
    try:
        return typing.get_type_hints(function, localns=names or None, include_extras=True)
    except Exception as error:
        why = f"its annotations cannot be resolved: {error}; their types must be importable in the function's module"
        raise ToolDefinitionError(tool, why) from None


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True
