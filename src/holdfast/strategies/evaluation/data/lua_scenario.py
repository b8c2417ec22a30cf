"""Scenarios in Lua as datasets: the cases, and the graders that have names. The file runs in the sandbox of Lua."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.events import CompletedEvent, Event, FailedEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.kinds import get_language
from holdfast.strategies.evaluation.errors import DatasetError

LANGUAGE = "lua"

WAIT_S = 60.0
"""Seconds until a scenario has to have returned: it is a table, and may compute its cases."""

_READER = """
local scenario = scenario()
if type(scenario) ~= "table" then error("it returns a " .. type(scenario) .. " instead of a table", 0) end
if type(scenario.provider) == "function" then error("it has a provider of its own: evaluate it with alc_eval", 0) end
local made = { cases = {}, graders = {} }
for i, case in ipairs(scenario.cases or {}) do
  if type(case) ~= "table" then error("case #" .. i .. " is a " .. type(case), 0) end
  made.cases[i] = {
    id = case.name, input = case.input, expected = case.expected, tags = case.tags, context = case.context,
    rubric = case.rubric,
  }
end
for i, entry in ipairs(#scenario > 0 and scenario or scenario.graders or {}) do
  local given = type(entry) == "table" and entry or { entry }
  local grader, scorer = given.grader or given[1], given.scorer or given[2]
  if type(grader) ~= "string" or type(scorer) == "function" then
    error("grader #" .. i .. " is code: name one, or evaluate the scenario with alc_eval", 0)
  end
  if grader == "regex" then error("the grader regex has a pattern of Lua: evaluate the scenario with alc_eval", 0) end
  local options = { grader = grader, scorer = scorer }
  for key, value in pairs(given) do
    if type(key) == "string" and type(value) ~= "function" then options[key] = value end
  end
  made.graders[i] = options
end
return made
"""


def read_scenario(file: Path) -> dict[str, list[dict[str, Any]]]:
    """The `cases` of a scenario with our names, and its `graders`. Raises `DatasetError`."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(str(file), str(error.strerror)) from None
    except UnicodeDecodeError:
        raise DatasetError(str(file), "it is not a text in UTF-8") from None
    return _scenario_in(text, str(file))


@lru_cache(maxsize=4)
def _scenario_in(text: str, where: str) -> dict[str, list[dict[str, Any]]]:
    """The scenario in a text. Kept: a plan asks for its cases and for its graders."""
    with ThreadPoolExecutor(1) as pool:  # whoever asks may be in an event loop of its own
        try:
            event = pool.submit(lambda: asyncio.run(_run(text))).result()
        except HoldfastError as error:
            raise DatasetError(where, str(error)) from None
    if isinstance(event, FailedEvent):
        raise DatasetError(where, event.error)
    if not isinstance(event, CompletedEvent) or not isinstance(event.result, dict):
        raise DatasetError(where, f"it did not return a scenario ({event.status}): it must ask nothing")
    return {name: list(event.result.get(name) or []) for name in ("cases", "graders")}


async def _run(text: str) -> Event:
    """What a scenario's text gives, in a session that nothing is kept of."""
    code = f"local function scenario() {text}\nend\n{_READER}"
    program = get_language(LANGUAGE).program(code, name="scenario", file="scenario.lua")
    async with open_holdfast("memory:") as holdfast:
        return await holdfast.start(program, wait=WAIT_S)
