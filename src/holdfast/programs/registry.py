"""Strategies by name: how a function becomes one, and how it is found again in any process that has registered it.

A session records the name and the version of its strategy. The name alone finds it again, and only among what this
process has registered: by a decorator, by `start`, or because whoever runs the process had it imported (`serve`). A
journal, a mailbox or a message never has anything imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

from holdfast.core.ids import check_id
from holdfast.core.records import Program
from holdfast.programs.code_version import code_version
from holdfast.programs.errors import ProgramNotFoundError

if TYPE_CHECKING:
    from holdfast.programs.native.ctx import Context

Function: TypeAlias = "Callable[[Context], Coroutine[Any, Any, Any]]"

MOST_NAMES = 12
"""Names of strategies that an error lists: what a reader takes in."""

KIND = "native"


class Strategy:
    """An `async def` that can be run as a session."""

    def __init__(self, function: Function, name: str | None = None, *, is_listed: bool = True) -> None:
        """`name` is what sessions record instead of `module:function`, so that the code can move to another module.

        One that is not listed runs and resumes as any other, but nobody is offered to start it.
        """
        if not inspect.iscoroutinefunction(function):
            shown = name or str(getattr(function, "__qualname__", function))
            raise ProgramNotFoundError(shown, "a strategy is an `async def` function")
        self.function = function
        self.name = _default_name(function) if name is None else check_id(name, "strategy name")
        self.is_listed = is_listed
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, ctx: Context) -> Coroutine[Any, Any, Any]:
        return self.function(ctx)

    @cached_property
    def version(self) -> str:
        """A short fingerprint of its code; see `code_version` for what that covers."""
        return code_version(cast(FunctionType, inspect.unwrap(self.function)))

    @property
    def file(self) -> str:
        """The file that its code comes from."""
        return str(inspect.unwrap(self.function).__code__.co_filename)

    @cached_property
    def program(self) -> Program:
        """What a session records of this strategy."""
        return Program(kind=KIND, name=self.name, version=self.version)


_registered: dict[str, Strategy] = {}


@overload
def strategy(function: Function, /) -> Strategy: ...
@overload
def strategy(*, name: str, is_listed: bool = True) -> Callable[[Function], Strategy]: ...
def strategy(function: Function | None = None, /, *, name: str | None = None, is_listed: bool = True) -> Any:
    """Make a strategy of an `async def f(ctx)`; usable as `@strategy` and as `@strategy(name="…")`.

    Sessions record it as `module:f`, or by the name given here, and any process that has registered a strategy of that
    name can continue them. `is_listed=False` keeps it out of the lists of what can be started.
    """

    def make(function: Function) -> Strategy:
        return _register(Strategy(function, name, is_listed=is_listed))

    return make if function is None else make(function)


def _register(made: Strategy) -> Strategy:
    _registered[made.name] = made
    return made


def registered() -> dict[str, Strategy]:
    """The strategies that this process knows by name."""
    return dict(_registered)


def find_registered(name: str) -> Strategy | None:
    """The registered strategy of that name; a name without its module will do if only one module has it."""
    if (exact := _registered.get(name)) is not None:
        return exact
    if ":" in name:
        return None
    found = [each for full, each in _registered.items() if full.endswith(f":{name}")]
    if len(found) > 1:
        names = ", ".join(sorted(each.name for each in found))
        raise ProgramNotFoundError(name, f"several strategies are called that ({names}); give one of these names")
    return found[0] if found else None


def find(given: Strategy | Function | str) -> Strategy:
    """A strategy from whatever the caller has: itself, a function, a name, `module:name` or `path.py:name`.

    The last two import the module or the file, so the text must come from whoever runs the process. A strategy that is
    given itself is what its name means here from now on, even if another has been registered under the same name.
    """
    if isinstance(given, Strategy):
        return _register(given)
    if not isinstance(given, str):
        return strategy(given)
    if (known := find_registered(given)) is not None:
        return known
    if ":" in given or given.endswith(".py"):
        return load(given)
    listed = sorted(name for name, each in _registered.items() if each.is_listed)
    names = ", ".join(listed[:MOST_NAMES]) or "none is registered"
    if len(listed) > MOST_NAMES:
        names += f" and {len(listed) - MOST_NAMES} more"
    raise ProgramNotFoundError(given, f"no strategy has that name (known: {names}); give FILE.py:name or module:name")


def resolve(program: Program) -> Strategy:
    """The strategy that a session was started with, if it is registered here."""
    here = _registered.get(program.name)
    if here is None:
        raise ProgramNotFoundError(program.name, "it is not registered in this process; import it, or serve it")
    return here


def serve(where: str) -> list[Strategy]:
    """Import the strategies that whoever runs this process names: `module:name`, `path.py:name`, or all of `path.py`.

    Raises `ProgramNotFoundError` if there is none, or if another file has registered other code under the same name.
    """
    before = registered()
    found = _strategies_in(_import(where), where) if where.endswith(".py") else [load(where)]
    for each in found:
        other = before.get(each.name)
        if other is not None and other.version != each.version and other.file != each.file:
            _registered.update(before)
            why = f"it is in {other.file} and, with other code, in {each.file}; give one of them another name"
            raise ProgramNotFoundError(each.name, why)
        _register(each)
    return found


def load(where: str) -> Strategy:
    """The strategy at `module:name` or `path.py:name`, or the only one of `path.py`."""
    place, _, attribute = where.rpartition(":") if ":" in where else (where, "", "")
    module = _import(place)
    if not attribute:
        found = _strategies_in(module, place)
        if len(found) > 1:
            names = ", ".join(sorted(each.__name__ for each in found))
            raise ProgramNotFoundError(where, f"name the strategy, as in {place}:name (it has: {names})")
        return found[0]
    value: Any = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if value is None:
        raise ProgramNotFoundError(where, f"{place} has no '{attribute}'")
    if not isinstance(value, Strategy) and not inspect.iscoroutinefunction(value):
        raise ProgramNotFoundError(where, f"'{attribute}' of {place} is not a strategy: it is no `async def` function")
    return _register(value) if isinstance(value, Strategy) else strategy(value)


def _strategies_in(module: ModuleType, place: str) -> list[Strategy]:
    found = [value for value in vars(module).values() if isinstance(value, Strategy)]
    if not found:
        raise ProgramNotFoundError(place, "no strategy is in it; decorate one with @holdfast.strategy, or name it")
    return found


def _import(place: str) -> ModuleType:
    try:
        return _import_file(place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise ProgramNotFoundError(place, f"{place} cannot be imported: {type(error).__name__}: {error}") from error


_FILE_MODULE = "holdfast_file_"
"""What the name of a module that was imported by its path begins with in `sys.modules`: others may have its stem."""


def _import_file(path: str) -> ModuleType:
    file = Path(path).resolve()
    name = _FILE_MODULE + "".join(c if c.isalnum() else "_" for c in str(file))
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.exists():
        raise FileNotFoundError(f"no such file: {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _default_name(function: Function) -> str:
    """`module:function`, the same whether the module is imported, run as a script, or loaded by its path."""
    qualname = function.__qualname__.replace("<locals>.", "")
    return f"{_module_name(function.__module__)}:{qualname}"


def _module_name(name: str) -> str:
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    if spec is not None and not spec.name.startswith(_FILE_MODULE):
        return str(spec.name)  # not `__name__`, which is `__main__` under `python -m`
    return Path(file).stem if file and (name == "__main__" or name.startswith(_FILE_MODULE)) else name
