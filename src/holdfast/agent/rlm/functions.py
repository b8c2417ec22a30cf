"""The functions of a cell: what it may call beside its own. Each gives a value at once, ends the cell, or asks."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agent.machine.delegation import DELEGATE_TOOL
from holdfast.agent.machine.queries import CellTool
from holdfast.agent.machine.turn import CellOutcome, FrameSwitchOutcome
from holdfast.agent.rlm.cell_state import CallRequest, CellState
from holdfast.agent.rlm.feedback import described
from holdfast.agent.rlm.limits import MAX_LLM_CALLS, MAX_TASK_CHARS
from holdfast.agent.rlm.values import leaf_of
from holdfast.agent.rlm.variables import Bindings, Leaf, VariableTable
from holdfast.core.budget import RemainingBudget
from holdfast.core.queries import LlmQuery
from holdfast.core.values import Json, encode
from holdfast.programs.sandbox.calls import AWAITABLE, CallValue, HostCalls, StepContext
from holdfast.programs.sandbox.values import kept, measured

ASKING = ("llm", "llm_batch", "llm_each", "ask", "sleep")
"""Functions that sandboxed strategies have under the same names."""

AWAITED = ("llm", "ask", "sleep", "agent")
"""Functions that have an awaitable form as well."""

ENDING = ("finish", "fail", "continue_as")

READING = ("variables", "forget", "budget")

CELL_FUNCTIONS = frozenset(
    [
        *ASKING,
        *ENDING,
        *READING,
        *(f"{name}{AWAITABLE}" for name in AWAITED),
        *("agent", "agent_batch", "parallel", "print"),
    ]
)
"""The names of all functions of a cell that are not tools."""

HISTORY = "history"
"""The projection of what was said."""

BUILTINS = frozenset(
    [
        *("ArithmeticError", "AssertionError", "AttributeError", "BaseException", "Exception", "FileExistsError"),
        *("FileNotFoundError", "ImportError", "IndexError", "IsADirectoryError", "KeyError", "KeyboardInterrupt"),
        *("LookupError", "MemoryError", "ModuleNotFoundError", "NameError", "NotADirectoryError"),
        *("NotImplementedError", "OSError", "OverflowError", "PermissionError", "RecursionError", "RuntimeError"),
        *("StopIteration", "SyntaxError", "SystemExit", "TimeoutError", "TypeError", "UnboundLocalError"),
        *("UnicodeDecodeError", "UnicodeEncodeError", "ValueError", "ZeroDivisionError"),
        *("Ellipsis", "NotImplemented", "abs", "all", "any", "bin", "bool", "bytes", "chr", "complex", "dict"),
        *("divmod", "enumerate", "eval", "exec", "filter", "float", "format", "frozenset", "getattr", "hasattr"),
        *("hash", "hex", "id", "int", "isinstance", "iter", "len", "list", "locals", "map", "max", "min", "next"),
        *("object", "oct", "open", "ord", "pow", "print", "property", "range", "repr", "reversed", "round", "set"),
        *("setattr", "slice", "sorted", "str", "sum", "tuple", "type", "zip"),
    ]
)
"""What the interpreter itself has by name. It does not ask for these names, so nothing that is looked up can have one;
and a variable that hides one would hide it from the code that keeps variables, too."""

RESERVED = CELL_FUNCTIONS | BUILTINS | {HISTORY}
"""Names that neither a variable nor a tool nor a projection can have."""


class CellEndsError(Exception):
    """The cell has ended its turn, and does nothing more."""


class CellFunctions:
    """The functions of one cell, as they are called during one step."""

    def __init__(self, state: CellState, table: VariableTable, budget: RemainingBudget | None, seed: int) -> None:
        self._state = state
        self._table = table
        self._budget = budget
        context = StepContext(at=state.at, seed=seed, llm_calls=0, left=budget, namespace="default")
        self.host = HostCalls(context, {}, state.suspensions)

    def call(self, name: str, call: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> CallValue | CallRequest:
        """Make a call. Raises `NameError`, `TypeError`, `ValueError` or `InvalidValueError` if it cannot be made, and
        `CellEndsError` if it ends the cell."""
        if self._state.end.is_called:
            raise CellEndsError
        if name in ENDING or name in READING:
            bound = _bound(getattr(self, name), name, args, kwargs)
            return CallValue(getattr(self, name)(*bound.args, **bound.kwargs))
        plain = name.removesuffix(AWAITABLE)
        is_awaited = plain != name
        if plain in ASKING and (not is_awaited or plain in AWAITED):
            return self._asked(plain, call, args, kwargs, is_awaited=is_awaited)
        if plain == "agent":
            return self._delegated(call, args, kwargs, is_awaited=is_awaited)
        tool = self._tool(name)
        if tool is not None:
            return CallRequest(call=call, function="tool", tool=tool, arguments=_arguments(name, tool, args, kwargs))
        tool = self._tool(plain) if is_awaited else None
        if tool is not None:
            arguments = _arguments(name, tool, args, kwargs)
            return CallRequest(call=call, function="tool", tool=tool, arguments=arguments, is_awaited=True)
        raise NameError(self._unknown(name))

    def is_function(self, name: str) -> bool:
        """Whether a cell may use the name as that of a function."""
        if name in CELL_FUNCTIONS:
            return name != "print"
        return bool(self._state.tools) and self._tool(name.removesuffix(AWAITABLE)) is not None

    def _asked(
        self, name: str, call: int, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_awaited: bool
    ) -> CallValue | CallRequest:
        outcome = self.host.call(name, args, kwargs)
        if isinstance(outcome, CallValue):
            return outcome
        asked = sum(isinstance(query, LlmQuery) for query in outcome.queries)
        if self._state.llm_calls + asked > MAX_LLM_CALLS:
            raise ValueError(f"{name}: the turn has asked models {self._state.llm_calls} times, of {MAX_LLM_CALLS}")
        self._state.llm_calls += asked
        queries = list(outcome.queries)
        return CallRequest(call=call, function=name, queries=queries, detail=outcome.detail, is_awaited=is_awaited)

    def _delegated(self, call: int, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_awaited: bool) -> CallRequest:
        there = (self._state.tools or {}).get("agent")
        if there is None:
            raise NameError("there are no subagents here: do it yourself, or ask models with llm(…)")
        given = _bound(_agent_signature, "agent", args, kwargs).arguments
        name, seed, schema, parts = given["name"], given.get("seed"), given.get("schema"), given.get("parts", 1)
        if name not in there.parameters:
            raise ValueError(f"agent: there is no subagent {name!r}; there are {', '.join(there.parameters) or 'none'}")
        seeded = {"seed": seed} if _checked_seed(seed, "agent") else {}
        arguments: dict[str, Json] = {"agent": name, "task": given["task"], **seeded}
        measured((arguments, schema), "agent")
        return CallRequest(
            call=call,
            function="agent",
            tool=CellTool(DELEGATE_TOOL, [], "subagent"),
            arguments=kept(arguments, "agent: arguments"),
            detail=kept(schema, "agent: schema"),
            is_awaited=is_awaited,
            parts=parts if isinstance(parts, int) and parts > 0 else 1,
        )

    def _tool(self, name: str) -> CellTool | None:
        tools = self._state.tools
        if tools is None:  # whoever answered for the model did not say which there are
            return CellTool(name) if name not in CELL_FUNCTIONS and not name.endswith(AWAITABLE) else None
        return tools.get(name)

    def _unknown(self, name: str) -> str:
        known = [*CELL_FUNCTIONS, *(self._state.tools or ()), *self._table.defined, *self._table.variables]
        near = difflib.get_close_matches(name, known, 1)
        return f"name '{name}' is not defined" + (f"; did you mean '{near[0]}'?" if near else "")

    # --- ending ------------------------------------------------------------------------------------

    def finish(self, value: Json) -> None:
        measured(value, "finish: value")
        self._state.end = CellOutcome(is_finished=True, finish=kept(value, "finish: value"))
        raise CellEndsError

    def fail(self, reason: object) -> None:
        if not isinstance(reason, str) or not reason.strip():
            raise TypeError("fail: give the reason as a text")
        self._state.end = CellOutcome(failed=reason)
        raise CellEndsError

    def continue_as(self, task: object, *, seed: object = None) -> None:
        if not isinstance(task, str) or not task.strip() or len(task) > MAX_TASK_CHARS:
            raise TypeError(f"continue_as: task must be a text of at most {MAX_TASK_CHARS:,} characters")
        given = _checked_seed(seed, "continue_as")
        leaves = {name: seed_leaf(value, f"continue_as: seed['{name}']") for name, value in given.items()}
        frame = FrameSwitchOutcome(f"frame-{self._state.number}-{self._state.at}", task)
        self._state.end, self._state.seed = CellOutcome(frame=frame), Bindings(set=leaves, is_fresh=True)
        raise CellEndsError

    # --- looking -----------------------------------------------------------------------------------

    def variables(self) -> dict[str, str]:
        described_ones = {
            name: described(name, each).removeprefix(f"{name}: ") for name, each in self._table.variables.items()
        }
        return {**described_ones, **dict.fromkeys(sorted(self._table.defined), "defined")}

    def forget(self, *names: str) -> None:
        for name in names:
            if not isinstance(name, str):
                raise TypeError("forget: give the names of variables as texts, as in forget('rows')")
            if name not in self._table.variables and name not in self._table.defined:
                raise ValueError(f"forget: there is no variable '{name}' from an earlier cell")
        self._state.forgotten += names

    def budget(self) -> dict[str, Json]:
        left = {"model_calls_in_cells": MAX_LLM_CALLS - self._state.llm_calls}
        if self._budget is None:
            return dict(left)
        return {
            **left,
            **{name: each for name, each in msgspec.structs.asdict(self._budget).items() if each is not None},
        }


def _agent_signature(name: str, task: str, *, seed: Json = None, schema: Json = None, parts: int = 1) -> None: ...


def _checked_seed(seed: object, what: str) -> dict[str, Any]:
    """A seed, empty if there is none. Raises `TypeError` unless it has values by names that variables can have."""
    given = {} if seed is None else seed
    if not isinstance(given, dict) or not all(isinstance(name, str) and name.isidentifier() for name in given):
        raise TypeError(f"{what}: seed must be a dict of variables by name")
    if taken := sorted(RESERVED & given.keys()):
        raise TypeError(f"{what}: '{taken[0]}' in seed is the runtime's; use another name")
    return given


def seed_leaf(value: object, what: str) -> Leaf:
    """A leaf of a value that is JSON."""
    measured(value, what)
    return leaf_of(encode(kept(value, what)).decode(), type(value).__name__)


def _bound(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    try:
        return inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None


def _arguments(name: str, tool: CellTool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Json]:
    """The arguments of a tool by name."""
    if len(args) > len(tool.parameters):
        takes = ", ".join(tool.parameters) or "no arguments without names"
        raise TypeError(f"{name}: too many arguments without names; it takes {takes}")
    given = dict(zip(tool.parameters, args, strict=False))
    if twice := given.keys() & kwargs.keys():
        raise TypeError(f"{name}: '{min(twice)}' is given twice")
    arguments: dict[str, Json] = {**given, **kwargs}
    measured(arguments, name)
    copied = kept(arguments, f"{name}: arguments")
    assert isinstance(copied, dict)
    return copied
