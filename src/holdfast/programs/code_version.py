"""The version of a native strategy: a short fingerprint of its code, to tell whether it was changed.

It covers what the strategy is made of in its own module: the function, the functions inside it, the functions of the
module that it names (and those that these name), and the texts, numbers and tuples of them that it names as globals.
It leaves out where the lines are, comments, and the strategy's docstring.

What it does not cover: other modules, classes, and child strategies, which are sessions of their own with versions of
their own. It is made from the compiled code, so another minor version of Python gives another fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from types import CodeType, FunctionType

VERSION_CHARS = 12
"""Characters of a version: 48 bits, far more than the versions of one strategy need, and short enough to compare."""

_PLAIN = (str, bytes, int, float, bool)


def code_version(function: FunctionType) -> str:
    """The version of a function's code."""
    digest = blake2b(digest_size=VERSION_CHARS // 2)
    for part in _parts(function):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(function: FunctionType) -> Iterator[str]:
    """What a version depends on, as text, in an order that is the same in every process."""
    found = {function.__name__: function}
    open_ones = [function]
    constants: dict[str, object] = {}
    while open_ones:
        for name in sorted(_names(open_ones.pop().__code__)):
            value = function.__globals__.get(name)
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                if name not in found:
                    found[name] = value
                    open_ones.append(value)
            elif _is_constant(value):
                constants[name] = value
    for name, each in sorted(found.items()):
        yield f"def {name} {_defaults(each)}"
        yield _text_of_code(each.__code__, each.__doc__)
    for name, constant in sorted(constants.items()):
        yield f"{name} = {constant!r}"


def _defaults(function: FunctionType) -> list[str]:
    """The default values of the parameters, those that are constants; of others, only that there is one."""
    values: list[tuple[object, object]] = [
        *enumerate(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).items(),
    ]
    return [f"{key}={value!r}" if _is_constant(value) else f"{key}=…" for key, value in values]


def _names(code: CodeType) -> set[str]:
    """The names that code and the code inside it may look up as globals."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def _is_constant(value: object) -> bool:
    """Whether a global can be nothing but what the source says: what may change while a process runs does not count."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, _PLAIN)


def _text_of_code(code: CodeType, docstring: str | None = None) -> str:
    constants = [_text_of_constant(each) for each in code.co_consts if docstring is None or each != docstring]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return f"{shape} {names} {code.co_code.hex()} [{', '.join(constants)}]"


def _text_of_constant(constant: object) -> str:
    match constant:
        case CodeType():
            return _text_of_code(constant)
        case frozenset():  # whose order differs between processes
            return f"frozenset{sorted(map(_text_of_constant, constant))}"
        case tuple():
            return f"({', '.join(map(_text_of_constant, constant))})"
        case _:
            return repr(constant)
