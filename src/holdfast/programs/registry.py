"""Strategies by name: how a function becomes one, and how another process finds it again."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from holdfast.core.ids import check_id
from holdfast.core.records import Program
from holdfast.programs.errors import ProgramNotFoundError

if TYPE_CHECKING:
    from holdfast.programs.native.ctx import Context

Function: TypeAlias = "Callable[[Context], Coroutine[Any, Any, Any]]"


class Strategy:
    """An `async def` that can be run as a session."""

    def __init__(self, function: Function, name: str) -> None:
        if not inspect.iscoroutinefunction(function):
            raise ProgramNotFoundError(name, "a strategy is an `async def` function")
        self.function = function
        self.name = check_id(name, "strategy name")
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__

    def __call__(self, ctx: Context) -> Coroutine[Any, Any, Any]:
        return self.function(ctx)

    @cached_property
    def program(self) -> Program:
        """What a session records of this strategy: its name, and where to find its code."""
        return Program(kind="native", name=self.name, source=_locate(self.function))


_registered: dict[str, Strategy] = {}


@overload
def strategy(function: Function, /) -> Strategy: ...
@overload
def strategy(*, name: str) -> Callable[[Function], Strategy]: ...
def strategy(function: Function | None = None, /, *, name: str | None = None) -> Any:
    """Make a strategy of an `async def f(ctx)`; usable as `@strategy` and as `@strategy(name="…")`."""

    def make(function: Function) -> Strategy:
        made = Strategy(function, name or function.__name__)
        _registered[made.name] = made
        return made

    return make if function is None else make(function)


def registered() -> dict[str, Strategy]:
    """The strategies that this process knows by name."""
    return dict(_registered)


def find(given: Strategy | Function | str) -> Strategy:
    """A strategy from whatever the caller has: itself, a function, a name, `module:name` or `path.py:name`."""
    if isinstance(given, Strategy):
        return given
    if not isinstance(given, str):
        return strategy(given)
    if given in _registered:
        return _registered[given]
    if ":" in given or given.endswith(".py"):
        return _load(given, given)
    known = ", ".join(sorted(_registered)) or "none is registered"
    raise ProgramNotFoundError(given, f"no strategy has that name (known: {known}); give FILE.py:name or module:name")


def resolve(program: Program) -> Strategy:
    """The strategy that a session was started with."""
    here = _registered.get(program.name)
    if here is not None and (program.source is None or here.program.source == program.source):
        return here
    if program.source is not None:
        return _load(program.source, program.name)
    if here is not None:
        return here
    raise ProgramNotFoundError(program.name, "it was defined in a process that is gone; import the module that has it")


def _locate(function: Function) -> str | None:
    if "<locals>" in function.__qualname__:
        return None
    module = sys.modules.get(function.__module__)
    spec = getattr(module, "__spec__", None)
    path = getattr(module, "__file__", None)
    if spec is not None and not spec.name.startswith(_FILE_MODULE):
        return f"{spec.name}:{function.__qualname__}"  # not `__module__`, which is `__main__` under `python -m`
    return f"{Path(path).resolve()}:{function.__qualname__}" if path else None


_FILE_MODULE = "holdfast_file_"


def _load(source: str, name: str) -> Strategy:
    where, _, attribute = source.rpartition(":") if ":" in source else (source, "", "")
    try:
        module = _load_file(where) if where.endswith(".py") else importlib.import_module(where)
    except Exception as error:
        raise ProgramNotFoundError(name, f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    if not attribute:
        return _only_strategy(module, where)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise ProgramNotFoundError(name, f"{where} has no '{attribute}'")
    if not isinstance(found, Strategy) and not inspect.iscoroutinefunction(found):
        raise ProgramNotFoundError(name, f"'{attribute}' of {where} is not a strategy: it is no `async def` function")
    return find(found)


def _only_strategy(module: Any, where: str) -> Strategy:
    found = [value for value in vars(module).values() if isinstance(value, Strategy)]
    if len(found) != 1:
        names = ", ".join(sorted(each.name for each in found)) or "none"
        raise ProgramNotFoundError(where, f"name the strategy, as in {where}:name (it has: {names})")
    return found[0]


def _load_file(path: str) -> Any:
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
