"""The prompts: texts with which a person sets the host's model to work."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError

from holdfast.core.values import preview
from holdfast.programs.api.python_stubs import PYTHON_STUB_NAME
from holdfast.programs.kinds import languages
from holdfast.programs.sandbox.features import MODULES
from holdfast.serve.mcp import catalog
from holdfast.serve.mcp.extensions import extensions
from holdfast.serve.mcp.sessions import PYTHON_STUBS_URI

MAX_ARGUMENT_CHARS = 100_000
"""Characters of one argument: a long document as a task; more does not fit into what a model reads."""

_NEW_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
"""As `holdfast pkg scaffold` and `holdfast new` take it."""


@dataclass(frozen=True)
class ToolNames:
    """What the tools are called that the texts speak of: they differ between the families."""

    run: str = "`run` with strategy and task"
    run_code: str = "`run` with code"
    answer: str = "`answer`"
    strategies: str = "`strategies`"
    show: str = "`show`"
    language: str = "python"
    """What a new strategy is written in, where nobody says."""


OWN = ToolNames()
Arguments: TypeAlias = Mapping[str, str]
Content: TypeAlias = list[types.ContentBlock]

StrategyPrompt: TypeAlias = Callable[[ToolNames, str, str], Content]
"""The text that has a strategy written: from the names of the tools, the strategy's name and its purpose."""


# --- advice --------------------------------------------------------------------------------------------


async def _advice(names: ToolNames, given: Arguments) -> Content:
    strategy, task = given.get("strategy", ""), given["task"]
    if strategy:
        found = next((each.view for each in await catalog.runnables() if each.view.name == strategy), None)
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no strategy {preview(strategy)}; list them with strategies")
        what = f" ({found.description})" if found.description else ""
        begin = f"Work on the task below with the reasoning strategy `{strategy}`{what}. Start it: call {names.run}."
    else:
        begin = (
            f"Work on the task below with a reasoning strategy. Look at what there is with {names.strategies}, take the"
            f" one that fits the task best, say in a sentence why, and start it: call {names.run}."
        )
    text = f"""{begin} Pass the task in full, because the strategy sees nothing else of this conversation.

The strategy will ask you questions, one or several at a time (status needs_response). For each of them:
- Answer the prompt itself, as if it were the only thing you had been asked; keep to its `system` text and the form that
  it wants, since a program reads the answer. Do not answer the task as a whole instead.
- Answer several queries independently of one another: do not let one answer steer the next.
- `grounded` means: look it up first, with your tools, and answer from what you found.
- `underspecified` means: the intent is open; ask me if you cannot find it out.
- If you cannot answer, send an error with the reason rather than something made up.

Send the answers with {names.answer} and the session_id, and continue until the status is completed or error. If
something breaks in between, the session is still there: {names.show} shows what it waits for. At the end, tell me the
result and how certain it is; do not repeat the questions.

The task:

{task}"""
    return [types.TextContent(text=text)]


# --- new_strategy --------------------------------------------------------------------------------------


_QUOTES = '"""'

GOOD_STRATEGY = """\
What makes a good one
- Decide first which steps it has, and why each question improves the answer over asking once.
- Every prompt stands alone: whoever answers sees nothing but that prompt and its system text.
- Ask independent questions in one batch. Bound every loop, and let options in `ctx` change the bounds."""


async def _new_strategy(names: ToolNames, given: Arguments) -> Content:
    name, language = given["name"], given.get("language") or names.language
    texts: dict[str, StrategyPrompt] = {"python": _in_python}
    for extension in extensions().values():
        texts |= extension.new_strategy
    if language not in texts:
        known = ", ".join(sorted(texts))
        raise MCPError(types.INVALID_PARAMS, f"new_strategy: no language {preview(language)} (there are: {known})")
    if not _NEW_NAME.fullmatch(name) or any(name in each.reserved for each in languages()):
        why = "a new strategy has 1 to 64 of a-z, 0-9 and '_', begins with a letter, and is no word of the language"
        raise MCPError(types.INVALID_PARAMS, f"new_strategy: {preview(name)} cannot be the name: {why}")
    return texts[language](names, name, given["purpose"])


def _in_python(names: ToolNames, name: str, purpose: str) -> Content:
    text = f"""Write a reasoning strategy in sandboxed Python named `{name}`. What it is for:

{purpose}

How a strategy works
- It is one Python file with a function `run(ctx)` that asks: `llm(prompt, system=…, max_tokens=…)` gives the answer of
  a model as text, `llm_batch([…])` asks several things at once. Between question and answer its state is stored, and it
  may be stopped and go on later: everything it does must follow from `ctx` and the answers. Time and randomness are
  made to be the same again; files and the network are not there.
- {PYTHON_STUBS_URI} has every function, with types. Read it before you write; do not guess names. None is imported.
- The sandbox has no inheritance, no generators, no `del`, and of asyncio only `gather`. It has these modules, each in
  part: {", ".join(sorted(MODULES))}.
- `llm` waits by itself. Only names that end in `_async` are awaited, as in
  `await asyncio.gather(llm_async("a"), llm_async("b"))`, which is one pause.

The file `{name}.py`:

```py
{_QUOTES}One sentence: what {name} does. Then when to use it, when not, and how many calls it costs.{_QUOTES}

META = {{
    "name": "{name}",
    "category": "reasoning",
    "description": "…",
    "parameters": {{"task": {{"type": "str", "required": True, "description": "What to answer."}}}},
    "calls": "1",
    "result": "the answer, a text",
}}


def run(ctx):
    p = parameters(META, ctx)
    answer = llm(f"…\\n\\nTask:\\n{{p['task']}}", role="answer")
    ctx["result"] = answer.strip()
    return ctx
```

{GOOD_STRATEGY}
- Answers are free text: take out of them what you need with `json_extract`, `parse_score`, `match_enum` or `re`, and
  say what happens when it is not there. Keep what was found on the way under keys of `ctx` of its own.

Then
1. Try it: call {names.run_code} = the whole file, language = python and ctx = a small task, and answer its questions
   with {names.answer}. If the source has faults, each is reported with its line: correct them. Try an answer of the
   wrong form, and an empty one.
2. When it does what it should, write it to `strategies/{name}.py` in the project, with a test beside it
   (`holdfast new {name}` makes both to begin with, `holdfast check {name}` looks at it without running it,
   `holdfast run {name} --dry-run` shows what it would ask). From then on it is run by its name."""
    link = types.ResourceLink(
        uri=PYTHON_STUBS_URI,
        name=PYTHON_STUB_NAME,
        title="The API in Python",
        description="Type stubs of the API.",
        mime_type="text/x-python",
    )
    return [types.TextContent(text=text), link]


# --- the table -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """One prompt."""

    name: str
    title: str
    description: str
    arguments: tuple[types.PromptArgument, ...]
    content: Callable[[ToolNames, Arguments], Awaitable[Content]]

    def declared(self) -> types.Prompt:
        return types.Prompt(
            name=self.name, title=self.title, description=self.description, arguments=list(self.arguments)
        )


def _argument(name: str, description: str, required: bool = True) -> types.PromptArgument:
    return types.PromptArgument(name=name, description=description, required=required)


PROMPTS = (
    Prompt(
        "advice",
        "Work on a task with a strategy",
        "Have a task worked on by a reasoning strategy, whose questions the model answers.",
        (
            _argument("task", "What to work on, in full."),
            _argument("strategy", "The name of a strategy; left out, the model picks one.", required=False),
        ),
        _advice,
    ),
    Prompt(
        "new_strategy",
        "Write a strategy",
        "Have a new reasoning strategy written, tried and kept, in Python or in Lua.",
        (
            _argument("name", "Its name: a-z, 0-9 and _, beginning with a letter."),
            _argument("purpose", "What it is for, and how it should go about it."),
            _argument("language", "python or lua; left out, what the tools of this server speak.", required=False),
        ),
        _new_strategy,
    ),
)


def find(name: str) -> Prompt | None:
    """The prompt of that name."""
    return next((each for each in PROMPTS if each.name == name), None)


async def get(names: ToolNames, name: str, given: Arguments) -> types.GetPromptResult:
    """The messages of a prompt; `MCPError` where there is none, or its arguments are not what it takes."""
    prompt = find(name)
    if prompt is None:
        known = ", ".join(each.name for each in PROMPTS)
        raise MCPError(types.INVALID_PARAMS, f"there is no prompt {preview(name)} (there are: {known})")
    known_names = {each.name for each in prompt.arguments}
    if unknown := sorted(set(given) - known_names):
        allowed = ", ".join(sorted(known_names))
        raise MCPError(types.INVALID_PARAMS, f"{name}: no argument {preview(unknown[0])} (there are: {allowed})")
    for argument in prompt.arguments:
        text = given.get(argument.name, "")
        if argument.required and not text.strip():
            raise MCPError(types.INVALID_PARAMS, f"{name}: `{argument.name}` is missing: {argument.description}")
        if len(text) > MAX_ARGUMENT_CHARS:
            why = f"{name}: `{argument.name}` has {len(text)} characters, and at most {MAX_ARGUMENT_CHARS} are taken"
            raise MCPError(types.INVALID_PARAMS, why)
    content = await prompt.content(names, given)
    messages = [types.PromptMessage(role="user", content=each) for each in content]
    return types.GetPromptResult(description=prompt.description, messages=messages)
