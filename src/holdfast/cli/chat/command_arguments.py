"""The arguments of a command that was typed in a chat: JSON, `name=value` words, or just the text."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import InvalidValueError

if TYPE_CHECKING:
    from holdfast.agent.commands import CommandSpec


def command_arguments(spec: CommandSpec, typed: str) -> dict[str, Any]:
    """What was typed after the name of a command, as its arguments."""
    properties: dict[str, Any] = spec.parameters.get("properties", {})
    if not typed:
        return {}
    if typed.startswith("{"):
        try:
            found = json.loads(typed)
        except ValueError as error:
            raise InvalidValueError("arguments", f"they are not JSON: {error}") from None
        return dict(found)
    try:
        words = [word.partition("=") for word in shlex.split(typed)]
    except ValueError:  # an open quote, as in a text
        words = []
    if words and all(equals and name in properties for name, equals, _ in words):
        return {name: _value(value, properties[name]) for name, _, value in words}
    if len(properties) == 1:
        (name, schema), *_ = properties.items()
        return {name: _value(typed, schema)}
    names = " ".join(f"{name}=…" for name in properties) or "nothing"
    raise InvalidValueError("arguments", f"'/{spec.name}' takes {names}")


def _value(text: str, schema: Any) -> Any:
    """A text as a value: as it is where a text is wanted, otherwise as JSON if it is."""
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
