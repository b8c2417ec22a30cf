"""Values on their way out of the interpreter, and into it."""

from __future__ import annotations

from pydantic_monty import MontyClassProxy, MontyClassTypeProxy

from holdfast.core.errors import InvalidValueError
from holdfast.core.queries import Answer, Failure
from holdfast.core.values import Json, check_value, own_copy
from holdfast.programs.sandbox.limits import MAX_ITEMS

Payload = dict[str, object]
"""How a call of the host ends, as monty takes it."""


def kept(value: object, what: str) -> Json:
    """A value of the program as JSON keeps it, tuples as lists; `InvalidValueError` for what has no such form."""
    check_value(value, what)
    return own_copy(value)


def measured(value: object, what: str, *, is_text: bool = False) -> int:
    """About how many bytes a value of the program would be when written out; `InvalidValueError` if it is too much to
    look at, or holds something of a class of the program; unless only its text is wanted.

    What is in a value twice comes out of the interpreter once, and counts twice here: ten lists inside each other can
    stand for billions of items, and writing, copying or comparing them would never end.
    """
    size = items = 0
    open_items: list[object] = [value]
    while open_items:
        item = open_items.pop()
        items += 1
        if isinstance(item, str | bytes):
            size += len(item)
        elif isinstance(item, int):
            size += item.bit_length() // 3
        elif isinstance(item, dict):
            open_items += item.keys()
            open_items += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            open_items += item
        elif isinstance(item, MontyClassProxy | MontyClassTypeProxy):
            if not is_text:
                raise InvalidValueError(what, f"{item.name} is of a class of your own; pass its fields instead")
            open_items.append(item.attributes)
        if items + len(open_items) > MAX_ITEMS:
            raise InvalidValueError(what, f"more than {MAX_ITEMS} items, counted as often as they occur")
    return size + 2 * items


def returned(value: object) -> Payload:
    """The call gives a value."""
    return {"return_value": value}


def raised(kind: str, message: str) -> Payload:
    """The call raises."""
    return {"exc_type": kind, "message": message}


def settled(answer: Answer) -> Payload:
    """What a query was answered with, for the call that asked it."""
    return raised(*failure_of(answer)) if isinstance(answer, Failure) else returned(answer.value)


def failure_of(failure: Failure) -> tuple[str, str]:
    """The exception that a failure is in a program: its class, and what it says."""
    if failure.code == "timeout":
        return "TimeoutError", failure.message
    needs_no_code = failure.code == "failed" or failure.message.startswith(f"{failure.code}:")
    return "RuntimeError", failure.message if needs_no_code else f"{failure.code}: {failure.message}"


def refused(error: InvalidValueError | TypeError | ValueError) -> Payload:
    """The call was made wrongly."""
    return raised("ValueError" if isinstance(error, ValueError | InvalidValueError) else "TypeError", str(error))
