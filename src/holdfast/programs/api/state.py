"""The table of the durable state: values that outlive the session."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, NoSpelling, ResultSpec, ShapeSpec, may, need

_KEY = need("key", "string", "Any text.")
_NAMESPACE = need("namespace", "string", "Whose keys.")

STATE = GroupSpec(
    "Durable state",
    "Values that outlive the session, in the session store, shared by all sessions of the store that use the namespace."
    " Every operation is atomic, also between processes, and happens once even if the process dies in the middle."
    " Values are JSON.",
    functions=(
        FunctionSpec(
            "state.get",
            "A value.",
            (_KEY, may("default", "any", "What to give if there is none.")),
            (ResultSpec("any", "The value; else the default. A kept null is {`alc.null`|`None`}, not the default."),),
            Example('alc.state.get("runs", 0)', python='state.get("runs", 0)'),
            waits="engine",
            python="state.get(key: str, default: Any = None) -> Any",
        ),
        FunctionSpec(
            "state.set",
            "Keep a value, in place of another one if need be.",
            (_KEY, need("value", "any", "Anything that JSON can hold.")),
            example=Example('alc.state.set("runs", {count = 1})', python='state.set("runs", {"count": 1})'),
            waits="engine",
            python="state.set(key: str, value: Any) -> None",
        ),
        FunctionSpec(
            "state.set_nx",
            "Keep a value unless there is one already.",
            (_KEY, need("value", "any", "Anything that JSON can hold.")),
            (ResultSpec("boolean", "Whether it was kept."),),
            Example('alc.state.set_nx("owner", "me")', python='state.set_nx("owner", "me")'),
            waits="engine",
            python="state.set_nx(key: str, value: Any) -> bool",
        ),
        FunctionSpec(
            "state.has",
            "Whether there is a value.",
            (_KEY,),
            (ResultSpec("boolean"),),
            Example('alc.state.has("runs")', python='state.has("runs")'),
            waits="engine",
            python="state.has(key: str) -> bool",
        ),
        FunctionSpec(
            "state.keys",
            "All keys of the namespace, sorted.",
            (),
            (ResultSpec("string[]"),),
            Example("alc.state.keys()", python="state.keys()"),
            waits="engine",
            python="state.keys() -> list[str]",
            native='state.keys(prefix: str = "") -> list[str]',
        ),
        FunctionSpec(
            "state.delete",
            "Remove a value.",
            (_KEY,),
            (ResultSpec("boolean", "Whether there was one."),),
            Example('alc.state.delete("runs")', python='state.delete("runs")'),
            waits="engine",
            python="state.delete(key: str) -> bool",
        ),
        FunctionSpec(
            "state.incr",
            "Add to a number. Whole numbers stay whole. A value that is no number is an error.",
            (
                _KEY,
                may("delta", "number", "What to add; 1 if absent."),
                may("default", "number", "What to begin with if there is no value; 0 if absent."),
            ),
            (ResultSpec("number", "The sum."),),
            Example('alc.state.incr("runs")', python='state.incr("runs")'),
            waits="engine",
            python="state.incr(key: str, delta: float = 1, default: float = 0) -> float",
        ),
        FunctionSpec(
            "state.update",
            "Change a value by what it is now. If somebody else changes it meanwhile, {`fn`|`change`} is called again"
            " with the newer value, so it must not count on being called once.",
            (
                _KEY,
                need("fn", "fun(value: any): any", "From the present value to the new one.", python="change"),
                may("default", "any", "What {`fn`|`change`} gets if there is no value."),
            ),
            (ResultSpec("any", "The new value."),),
            Example(
                'alc.state.update("runs", function(n) return n + 1 end, 0)',
                python='state.update("runs", lambda n: n + 1, 0)',
            ),
            waits="engine",
            python="state.update(key: str, change: Callable[[Any], Any], default: Any = None) -> Any",
        ),
        FunctionSpec(
            "state.list",
            "The keys of any namespace, sorted: for looking after what long runs have left.",
            (may("namespace", "string", "Whose keys; the program's own if absent."),),
            (ResultSpec("string[]"),),
            Example('alc.state.list("default")', python='state.list("default")'),
            waits="engine",
            python="state.list(namespace: str | None = None) -> list[str]",
        ),
        FunctionSpec(
            "state.show",
            "A value of any namespace. It is an error if there is none.",
            (_NAMESPACE, _KEY),
            (ResultSpec("any"),),
            Example('alc.state.show("default", "runs")', python='state.show("default", "runs")'),
            waits="engine",
            python="state.show(namespace: str, key: str) -> Any",
        ),
        FunctionSpec(
            "state.reset",
            "Take steps and fields out of a kept `{data = {completed_steps = {…}, …}}`, so that a long run does them"
            " again. What was there before is kept under the key with `.bak` after it.",
            (_NAMESPACE, _KEY, may("opts", "ResetOptions", "What to take out.")),
            (ResultSpec("ResetResult"),),
            Example('alc.state.reset("default", "job", {steps = {"draft"}})'),
            waits="engine",
            python=NoSpelling("`state.update`, with a function that takes them out"),
        ),
    ),
    shapes=(
        ShapeSpec(
            "ResetOptions",
            "What to take out of a kept run.",
            (
                may("steps", "string[]", "Names to take out of `data.completed_steps`."),
                may("fields", "string[]", "Fields to take out of `data`."),
            ),
        ),
        ShapeSpec(
            "ResetResult",
            "What was taken out.",
            (
                need("ok", "boolean", "Always true; else there is an error."),
                need("backup_path", "string", "`namespace/key` of what was there before."),
                need("steps_removed", "integer", "How many."),
                need("fields_removed", "integer", "How many."),
            ),
        ),
    ),
    notes={
        "lua": "The namespace is `ctx._ns` if that is text, else `default`; in children of a fork `fork-0`, `fork-1`,"
        " …",
        "python": 'The namespace is `ctx["_ns"]` if that is text, else `default`.',
        "native": "The namespace is the strategy's name; `ctx.state(namespace)` has the values of another one.",
    },
)
