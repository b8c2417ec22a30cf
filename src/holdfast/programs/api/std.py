"""The table of the global `std` of Lua."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, NoSpelling, ResultSpec, need

STD = GroupSpec(
    "The global `std`",
    "What packages such as evalframe expect beside `alc`. Lua only.",
    functions=(
        FunctionSpec(
            "std.json.encode",
            "As `{json_encode}`.",
            (need("value", "any", "The value."),),
            (ResultSpec("string"),),
            Example("std.json.encode({1, 2})", '"[1,2]"'),
            lua="std.json.encode",
            python=NoSpelling("`json.dumps`"),
        ),
        FunctionSpec(
            "std.json.decode",
            "As `{json_decode}`.",
            (need("text", "string", "The JSON text."),),
            (ResultSpec("any"),),
            Example('std.json.decode("[1, 2]")', "[1, 2]"),
            lua="std.json.decode",
            python=NoSpelling("`json.loads`"),
        ),
        FunctionSpec(
            "std.fs.read",
            "A file's content. In trusted programs only; an error in the sandbox.",
            (need("path", "string", "The file."),),
            (ResultSpec("string"),),
            lua="std.fs.read",
        ),
        FunctionSpec(
            "std.fs.is_file",
            "Whether there is such a file. In trusted programs only; an error in the sandbox.",
            (need("path", "string", "The file."),),
            (ResultSpec("boolean"),),
            lua="std.fs.is_file",
        ),
        FunctionSpec(
            "std.time.now",
            "As `{now}`.",
            (),
            (ResultSpec("number"),),
            Example("std.time.now()", "1700000000.0"),
            lua="std.time.now",
            python=NoSpelling("`now`"),
        ),
    ),
    is_brief=True,
)
