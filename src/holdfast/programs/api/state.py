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
            (_KEY, may("default", "any", "What to return if there is none.")),
            (ResultSpec("any", "The value, or the default. A stored null is {nil|`None`}, not the default."),),
            Example('alc.state.get("runs", 0)', python='state.get("runs", 0)'),
            waits="engine",
            python="state.get(key: str, default: Any = None) -> Any",
        ),
        FunctionSpec(
            "state.set",
            "Store a value; it replaces an earlier one.",
            (_KEY, need("value", "any", "Anything that JSON can hold.")),
            example=Example('alc.state.set("runs", {count = 1})', python='state.set("runs", {"count": 1})'),
            waits="engine",
            python="state.set(key: str, value: Any) -> None",
        ),
        FunctionSpec(
            "state.set_nx",
            "Store a value unless there already is one.",
            (_KEY, need("value", "any", "Anything that JSON can hold.")),
            (ResultSpec("boolean", "Whether it was stored."),),
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
            "Add to a number. Whole numbers stay whole. A value that is not a number is an error.",
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
            "Compute a new value from the present one. If somebody else changes it meanwhile, {`fn`|`change`} is called"
            " again with the newer value, so it must not rely on being called once.",
            (
                _KEY,
                need(
                    "fn", "fun(value: any): any", "Takes the present value, and returns the new one.", python="change"
                ),
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
            "The keys of a namespace, sorted, to manage what long runs have left. Only a trusted program sees those of"
            " another namespace than its own.",
            (may("namespace", "string", "Whose keys; the program's own if absent."),),
            (ResultSpec("string[]"),),
            Example('alc.state.list("default")', python='state.list("default")'),
            waits="engine",
            python="state.list(namespace: str | None = None) -> list[str]",
        ),
        FunctionSpec(
            "state.show",
            "A value of a namespace. It is an error if there is none, or if a program in the sandbox names another"
            " namespace than its own.",
            (_NAMESPACE, _KEY),
            (ResultSpec("any"),),
            Example('alc.state.show("default", "runs")', python='state.show("default", "runs")'),
            waits="engine",
            python="state.show(namespace: str, key: str) -> Any",
        ),
        FunctionSpec(
            "state.reset",
            "Remove steps and fields from a stored `{data = {completed_steps = {…}, …}}`, so that a long run does them"
            " again. The value before is stored under the key with `.bak` appended.",
            (_NAMESPACE, _KEY, may("opts", "ResetOptions", "What to remove.")),
            (ResultSpec("ResetResult"),),
            Example('alc.state.reset("default", "job", {steps = {"draft"}})'),
            waits="engine",
            python=NoSpelling("`state.update`, with a function that removes them"),
        ),
    ),
    shapes=(
        ShapeSpec(
            "ResetOptions",
            "What to remove from a stored run.",
            (
                may("steps", "string[]", "Names to remove from `data.completed_steps`."),
                may("fields", "string[]", "Fields to remove from `data`."),
            ),
        ),
        ShapeSpec(
            "ResetResult",
            "What was removed.",
            (
                need("ok", "boolean", "Always true; a failure is an error."),
                need("backup_path", "string", "`namespace/key` of the value before."),
                need("steps_removed", "integer", "How many."),
                need("fields_removed", "integer", "How many."),
            ),
        ),
    ),
    notes={
        "lua": "The namespace is `ctx._ns` if that is text, else the strategy's own, by its name, which it calls"
        " `default`; children of a fork have `fork-0`, `fork-1`, … of their own below that. A text that was given no"
        " name is a strategy of its own.",
        "python": 'The namespace is `ctx["_ns"]` if that is text, else the strategy\'s own, by its name, which it calls'
        " `default`. A text that was given no name is a strategy of its own.",
        "native": "The namespace is the strategy's name; `ctx.state(namespace)` has the values of another one.",
    },
)
