"""The prompts for hosts that use algocline's tools, and the one that has a Lua package written."""

from __future__ import annotations

import mcp_types as types

from holdfast.alc.lua.stubs import STUB_NAME
from holdfast.alc.mcp.resources import STUBS_URI
from holdfast.serve.mcp.prompts import GOOD_STRATEGY, Content, ToolNames

TOOL_NAMES = ToolNames(
    run="`alc_advice` with strategy and task",
    run_code="`alc_run` with code",
    answer="`alc_continue`",
    strategies="`alc_pkg_list`",
    show="`alc_status`",
    language="lua",
)
"""What prompts call the tools."""


def new_package(names: ToolNames, name: str, purpose: str) -> Content:
    """The text that has a Lua package written."""
    text = f"""Write a reasoning strategy as a Lua package named `{name}`. What it is for:

{purpose}

How a strategy works
- It is a Lua 5.4 program that asks: `alc.llm(prompt, {{system = …, max_tokens = …}})` gives the answer of a model as
  text, `alc.llm_batch({{…}})` asks several things at once. Between question and answer it may be stopped and started
  again, and is then replayed on the recorded answers: everything it does must follow from `ctx` and the answers. Time,
  randomness and the order of `pairs` are made to replay; files and the network are not there.
- {STUBS_URI} has every function in `alc`, with types. Read it before you write; do not guess names.

The package is a directory `{name}` with an `init.lua`:

```lua
local M = {{}}

M.meta = {{
    name = "{name}",
    version = "0.1.0",
    description = "…",  -- one sentence: what it does and when to use it
    category = "…",     -- such as reasoning, verification, exploration, synthesis
}}

function M.run(ctx)
    local task = ctx.task or error("ctx.task is required", 0)
    -- ask, judge, combine
    ctx.result = {{ answer = … }}
    return ctx
end

return M
```

{GOOD_STRATEGY}
- Answers are free text: take out of them what you need with `alc.json_extract` or a pattern, and say what happens when
  it is not there. Keep what was found on the way in `ctx.result`, so that a run can be understood afterwards.

Then
1. Try it: call {names.run_code} = the whole `init.lua` and ctx = a small task, and answer its questions with
   {names.answer}. Try an answer of the wrong form, and an empty one.
2. When it does what it should, write it to `{name}/init.lua` in the project's packages, with a test in
   `{name}/spec/{name}_spec.lua` (`holdfast pkg scaffold {name}` makes both, `holdfast pkg test` runs it,
   `holdfast pkg link {name}` makes it known)."""
    link = types.ResourceLink(
        uri=STUBS_URI, name=STUB_NAME, title="The alc API", description="Type stubs of the API.", mime_type="text/x-lua"
    )
    return [types.TextContent(text=text), link]
