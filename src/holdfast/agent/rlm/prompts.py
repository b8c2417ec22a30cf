"""What a model is told about RLM mode: how to write a cell, what it can call in it, and how to end."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence

from holdfast.agent.machine.delegation import DELEGATE_TOOL, READ_TOOL
from holdfast.agent.machine.policy import MARKDOWN, RAW, Policy
from holdfast.agent.machine.queries import CellTool
from holdfast.agent.providers.provider import ToolSpec
from holdfast.agent.rlm.emission import RUN_CODE
from holdfast.agent.rlm.functions import HISTORY, RESERVED
from holdfast.agent.rlm.limits import CELL_S, MAX_CALLS, MEMORY_MIB, SHOWN_CHARS
from holdfast.core.values import Json

_EMISSIONS = {
    "fence": """\
You work in Python. Think in a few sentences, then write ONE cell:

```python
rows = [line.split(",") for line in data.splitlines()]
print(len(rows), rows[0])
```

- Only the first cell of a reply is run, and the reply ends with it. You are shown what it printed, and the value of its
  last expression. Then you write the next cell.""",
    "tool": f"""\
You work in cells of Python. Think in a few sentences, then call {RUN_CODE.name} with the code of ONE cell, such as:

rows = [line.split(",") for line in data.splitlines()]
print(len(rows), rows[0])

- Only the first call of a reply is run. Its result is what the cell printed, and the value of its last expression. Then
  you write the next cell.
- All other tools are functions in Python: call them in a cell.""",
}

_WORK = f"""\
# How you work

{{emission}}
- Variables, functions and imports stay, in later cells and later turns. Keep large data in variables, and print only
  what you have to see: at most {SHOWN_CHARS:,} characters are shown.
- Values of other types than plain data are not kept; you are told which.
- A cell may compute for {CELL_S:g} s, use {MEMORY_MIB} MiB and make {MAX_CALLS:,} calls. Waiting for calls
  does not count.
- There are no files, no network, no other modules than these of the standard library: asyncio, base64, collections,
  copy, csv, dataclasses, datetime, decimal, functools, hashlib, itertools, json, math, random, re, time, typing,
  unicodedata.
- There are no generators, no inheritance, no `del`, no `async with`.

# What you can call in a cell

llm(prompt, *, system=None, max_tokens=…) -> str: ask a model that sees only the prompt: to read, judge, or sum up.
llm_batch(prompts) -> list[str]: the same for many prompts at once.
parallel(items, lambda item: prompt) -> list[str]: the same, a prompt for each item.
await llm_async(prompt): awaitable, for asyncio.gather. Every tool has such a form: NAME_async(…).
ask(question, *, choices=()) -> str: ask the person.
sleep(seconds)
variables() -> dict: what you hold. forget(name): drop it. budget() -> dict: what is left.
{HISTORY}: list of {{{{"role", "text"}}}}, all that was said.
continue_as(task, *, seed={{{{}}}}): go on in a fresh conversation, with only the task and the seed's variables. Use it
  when this one has grown long and little of it matters."""


_NO_AGENTS = "There are no subagents here: do it yourself, or ask models with llm(…)."

_AGENTS = """\
agent(name, task, *, seed=None, schema=None): give a task to a subagent, and get its value, or an exception that says
  how it ended. It knows nothing but the task and the variables in `seed`; `schema` is a JSON schema of the value.
agent_batch(name, tasks, *, seed=None, schema=None) -> list of {"status", "value" or "error"}: many at once.
await agent_async(name, task, …): awaitable."""


def identifier(name: str) -> str:
    """The name by which a cell calls a tool."""
    made = re.sub(r"\W", "_", name)
    made = f"_{made}" if not made or made[0].isdigit() or keyword.iskeyword(made) else made
    return f"{made}_tool" if made in RESERVED else made


def rlm_prompt(tools: Sequence[ToolSpec], policy: Policy, output: Mapping[str, Json] | None) -> str:
    """The part of the system text that is about the mode."""
    own = [tool for tool in tools if tool.name not in (DELEGATE_TOOL, READ_TOOL)]
    delegate = next((tool for tool in tools if tool.name == DELEGATE_TOOL), None)
    agents = _NO_AGENTS if delegate is None else f"{_AGENTS}\n{delegate.description.strip()}"
    work, ending = _WORK.format(emission=_EMISSIONS[policy.emission]), _ending(policy.final_answer, output)
    return "\n\n".join([work, *(_described(tool) for tool in own), agents, ending])


def cell_tools(code: str, tools: Iterable[CellTool]) -> dict[str, CellTool]:
    """The tools that a cell mentions, by the names that it calls them by."""
    words = set(re.findall(r"\w+", code))
    named = {identifier(tool.name): tool for tool in tools}
    return {name: tool for name, tool in named.items() if name in words or f"{name}_async" in words}


def parameters_of(spec: ToolSpec) -> list[str]:
    """The names of a tool's parameters: those that must be given come first."""
    properties = spec.parameters.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    required = spec.parameters.get("required")
    needed = set(required) if isinstance(required, list) else set()
    return sorted(names, key=lambda name: name not in needed)


def _described(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required") or []
    fields = properties if isinstance(properties, dict) else {}
    arguments = [_argument(name, fields[name], is_needed=name in required) for name in parameters_of(tool)]
    lines = [f"{identifier(tool.name)}({', '.join(arguments)}): {tool.description.strip()}"]
    for name, field in fields.items():
        if isinstance(field, dict) and isinstance(about := field.get("description"), str):
            lines.append(f"  {name}: {about.strip()}")
    return "\n".join(lines)


def _argument(name: str, field: Json, *, is_needed: bool) -> str:
    kind = field.get("type") if isinstance(field, dict) else None
    typed = f"{name}: {_TYPES.get(kind, 'object')}" if isinstance(kind, str) else name
    return typed if is_needed else f"{typed} = …"


_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


def _ending(final_answer: str, output: Mapping[str, Json] | None) -> str:
    head = "# How you end\n\n"
    if output is not None:
        return head + (
            "Call finish(value) in a cell. The value must match this JSON schema:\n"
            f"{_json(output)}\n"
            "Words alone do not end the task. If there can be no such value, call fail(reason)."
        )
    match final_answer:
        case _ if final_answer == RAW:
            return (
                head
                + "Call finish(value) in a cell, with the result as plain data. Call fail(reason) if there is none."
            )
        case _ if final_answer in ("", MARKDOWN):
            guidance = "The answer is for a person: write it in Markdown."
        case _:
            guidance = final_answer
    return head + (
        "Answer in words, without a cell; or call finish(value) in a cell, if the answer is in a variable. Call"
        f" fail(reason) if the task cannot be done.\n{guidance}"
    )


def _json(value: Mapping[str, Json]) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
