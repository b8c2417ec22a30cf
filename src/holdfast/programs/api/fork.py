"""The table of forks: several strategies at once."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, ResultSpec, ShapeSpec, may, need

FORK = GroupSpec(
    "Forks",
    "Several strategies at once. What they ask together is one pause, the same in every run.",
    functions=(
        FunctionSpec(
            "fork",
            "Run {packages|strategies} side by side, {each with globals, a log prefix, recorded figures and a state"
            " namespace of its own|each as a child session}, on a copy of `ctx`. All of them run until they ask; their"
            " questions are one pause of the session. A child may fork, too.",
            (
                need(
                    "strategies",
                    "string[]",
                    "Names of {packages with `run(ctx)`, or of other strategies|strategies}; at least one.",
                ),
                need("ctx", "any", "The `ctx` of each child, as JSON."),
                may("opts", "ForkOptions", "What to do about failures."),
            ),
            (ResultSpec("ForkEntry[]", "The outcome of each, in the order of the names."),),
            Example(
                'alc.fork({"asks_one", "asks_two"}, {task = ctx.task})',
                python='fork(["panel", "self_refine"], {"task": ctx["task"]})',
            ),
            waits="host",
            python='fork(strategies: Sequence[str], ctx: Any, *, on_error: Literal["skip", "abort"] = "skip")'
            " -> list[dict[str, Any]]",
            notes={
                "lua": "Children share the session's budget: one whose questions do not fit gets the budget's error,"
                " the others continue. A name that is not a package's runs as a child session.",
                "native": "A strategy itself may be passed instead of its name.",
            },
        ),
    ),
    shapes=(
        ShapeSpec(
            "ForkOptions",
            "What a fork does about failures.",
            (
                may(
                    "on_error",
                    '"skip"|"abort"',
                    "`abort` raises the first failure after all have ended; `skip` (if absent) does not.",
                ),
            ),
        ),
        ShapeSpec(
            "ForkEntry",
            "The outcome of a child.",
            (
                need("strategy", "string", "Its name."),
                need("ok", "boolean", "Whether it returned."),
                may("result", "any", "What it returned, as JSON keeps it."),
                may("error", "string", "Why it did not."),
            ),
        ),
    ),
)
