"""`scaffold`: a new package with a test, ready to run."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import msgspec

from holdfast.alc.lua.packages import BUILT_IN
from holdfast.alc.packages.errors import PackageExistsError, PackageNameError, ProjectFileError
from holdfast.alc.packages.tree import put_in_place

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)

_INIT = """\
--- {name} — {summary}
---
--- Usage:
---   local {name} = require("{name}")
---   return {name}.run(ctx)
---
--- ctx.task (required): what to work on

local M = {{}}

M.meta = {{
    name = {quoted_name},
    version = "0.1.0",
    description = {description},
    category = {category},
}}

function M.run(ctx)
    local task = ctx.task or error("ctx.task is required", 0)
    local answer = alc.llm("Work on this task, and answer in a few sentences:\\n\\n" .. task, {{ max_tokens = 600 }})
    ctx.result = {{ answer = answer }}
    return ctx
end

return M
"""

_SPEC = """\
-- Run with `holdfast pkg test`. The model is a function of this file, so the test needs none.

local describe, it, expect = lust.describe, lust.it, lust.expect

describe("{name}", function()
    lust.before(function()
        package.loaded["{name}"] = nil
    end)

    it("says who it is", function()
        local pkg = require("{name}")
        expect(pkg.meta.name).to.equal("{name}")
    end)

    it("asks once, and returns the answer", function()
        local prompts = {{}}
        _G.alc = {{
            llm = function(prompt)
                prompts[#prompts + 1] = prompt
                return "an answer"
            end,
        }}
        local ctx = require("{name}").run({{ task = "a task" }})
        expect(#prompts).to.equal(1)
        expect(prompts[1]:find("a task", 1, true)).to.be.truthy()
        expect(ctx.result.answer).to.equal("an answer")
    end)

    it("needs a task", function()
        expect(pcall(require("{name}").run, {{}})).to.equal(false)
    end)
end)
"""


class ScaffoldReport(msgspec.Struct):
    """What was written."""

    path: str
    files: list[str]
    bytes_written: int
    status: str = "ok"


def scaffold(name: str, target: Path, *, category: str | None = None, description: str | None = None) -> ScaffoldReport:
    """Write a package of this name into a new directory below `target`."""
    if not _NAME.fullmatch(name):
        raise PackageNameError(name, "a new package has 1 to 64 of a-z, 0-9 and '_', and begins with a letter")
    if name in BUILT_IN:
        raise PackageNameError(name, "`require` of that name finds a module of Lua or Holdfast; choose another")
    if not target.is_dir():
        raise ProjectFileError(str(target), "there is no such directory")
    directory = target.absolute() / name
    if directory.exists() or directory.is_symlink():
        raise PackageExistsError(name, str(directory), "nothing was changed; choose another name, or remove it")
    description, category = (text and text.encode("utf-8", "replace").decode() for text in (description, category))
    summary = " ".join((description or "what it does, in a line").split())
    init = _INIT.format(
        name=name,
        summary=summary,
        quoted_name=quoted(name),
        description=quoted(description or "What it does, in a line"),
        category=quoted(category or "reasoning"),
    )
    files = {"init.lua": init, f"spec/{name}_spec.lua": _SPEC.format(name=name)}
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=target) as stage:
        for path, text in files.items():
            file = Path(stage) / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        put_in_place(Path(stage) / name, directory)
    return ScaffoldReport(str(directory), list(files), sum(len(text.encode()) for text in files.values()))


def quoted(text: str) -> str:
    """Text as a Lua string that a search line by line can read too."""
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escaped.get(c, c if c >= " " else f"\\x{ord(c):02x}") for c in text) + '"'
