"""The table of the global `std` of Lua."""

from __future__ import annotations

from holdfast.programs.api.model import Example, Function, Group, Not, Result, need

STD = Group(
    "The global `std`",
    "What packages such as evalframe expect beside `alc`. Lua only.",
    functions=(
        Function(
            "std.json.encode",
            "As `{json_encode}`.",
            (need("value", "any", "What to write."),),
            (Result("string"),),
            Example("std.json.encode({1, 2})", '"[1,2]"'),
            lua="std.json.encode",
            python=Not("`json.dumps`"),
        ),
        Function(
            "std.json.decode",
            "As `{json_decode}`.",
            (need("text", "string", "What to read."),),
            (Result("any"),),
            Example('std.json.decode("[1, 2]")', "[1, 2]"),
            lua="std.json.decode",
            python=Not("`json.loads`"),
        ),
        Function(
            "std.fs.read",
            "A file's content. In trusted programs only; an error in the sandbox.",
            (need("path", "string", "The file."),),
            (Result("string"),),
            lua="std.fs.read",
        ),
        Function(
            "std.fs.is_file",
            "Whether there is such a file. In trusted programs only; an error in the sandbox.",
            (need("path", "string", "The file."),),
            (Result("boolean"),),
            lua="std.fs.is_file",
        ),
        Function(
            "std.time.now",
            "As `{now}`.",
            (),
            (Result("number"),),
            Example("std.time.now()", "1700000000.0"),
            lua="std.time.now",
            python=Not("`now`"),
        ),
    ),
    is_brief=True,
)
