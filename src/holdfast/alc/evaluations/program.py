"""The Lua program of an evaluation: a scenario, and one call of `alc.eval`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.alc.lua.source import lua_code
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.strategies.evaluation.scenario_runs import SCENARIO_RUN


class ScenarioText(msgspec.Struct, frozen=True):
    """A scenario: its text, or the name of a package that is one."""

    name: str
    """What reports call it."""
    code: str | None = None


def evaluation_program(scenario: ScenarioText, strategy: str, project: Path | None) -> Program:
    """The program that evaluates a strategy on a scenario. Its options are data, in its ctx.

    The text of the scenario is part of it, so a replay sees the same; its first line stays the first line.
    """
    # The name is a literal, so that the modules of the strategy are found and kept with the session.
    rest = f"{_quoted(strategy)}, ctx.options"
    if scenario.code is None:
        code = f"return alc.eval({_quoted(scenario.name)}, {rest})"
    else:
        code = f"local function scenario() {scenario.code}\nend\nreturn alc.eval(scenario(), {rest})"
    return lua_code(code, name=SCENARIO_RUN, project=project)


def evaluation_ctx(scenario: ScenarioText, strategy: str, options: dict[str, Json] | None, auto_card: bool) -> Json:
    """What that program is started with."""
    given: dict[str, Json] = {"scenario_name": scenario.name, "auto_card": auto_card}
    if options is not None:
        given["strategy_opts"] = options
    return {"strategy": strategy, "scenario": scenario.name, "options": given}


def _quoted(name: str) -> str:
    """A text as a literal of Lua: every byte that is no letter, digit, `_`, `-` or `.` as its number."""
    return '"' + "".join(_character(byte) for byte in name.encode()) + '"'


def _character(byte: int) -> str:
    letter = chr(byte)
    return letter if letter.isascii() and (letter.isalnum() or letter in "_-.") else f"\\{byte:03d}"
