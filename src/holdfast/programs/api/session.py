"""The API table of what a session says and knows about itself: logs, figures, time, budget, and its start values."""

from __future__ import annotations

from holdfast.programs.api.model import (
    ConstantSpec,
    Example,
    FunctionSpec,
    GroupSpec,
    NoSpelling,
    ResultSpec,
    ShapeSpec,
    may,
    need,
)
from holdfast.programs.api.questions import QUESTION_SHAPES, QUESTIONS

_TELLING = (
    FunctionSpec(
        "log",
        "Write a line to the session's log.",
        (
            need("level", "string", "`error`, `warn`, `info` or `debug`; others are kept as they are."),
            need("message", "string", "The line."),
        ),
        example=Example('alc.log("info", "half-way")', "null", 'log("half-way")'),
        python='log(message: Any, level: str = "info") -> None',
    ),
    FunctionSpec(
        "progress",
        "Report how far the session is. The last report counts.",
        (
            need("step", "integer", "How many steps are done, 0 or more."),
            need("total", "integer", "How many steps there are."),
            may("message", "string", "What is being done."),
        ),
        example=Example('alc.progress(2, 5, "judging")', "null", 'progress(2, 5, "judging")'),
        python="progress(step: int, total: int, message: str | None = None) -> None",
    ),
    FunctionSpec(
        "stats.record",
        "Record a figure under `stats.custom` of the session. The last value of a key counts.",
        (need("key", "string", "Its name."), need("value", "any", "Anything that JSON can hold.")),
        example=Example('alc.stats.record("rounds", 3)', "null", 'stats.record("rounds", 3)'),
        python="stats.record(key: str, value: Any) -> None",
        notes={"lua": "Inside a child of a fork the key has the child's namespace before it."},
    ),
    FunctionSpec(
        "stats.get",
        "A figure that this program has recorded.",
        (need("key", "string", "Its name."),),
        (ResultSpec("any", "A copy of the value; {nil|None} if there is none."),),
        Example('alc.stats.get("rounds")', "null", 'stats.get("rounds")'),
        python="stats.get(key: str) -> Any",
    ),
    FunctionSpec(
        "stats.llm_calls",
        "How many questions the session has asked models so far{, including those of forks|, without its children}.",
        (),
        (ResultSpec("integer"),),
        Example("alc.stats.llm_calls()", "0", "stats.llm_calls()"),
        python="stats.llm_calls() -> int",
    ),
)

_KNOWING = (
    FunctionSpec(
        "now",
        "The session's clock: the time at which the program was last resumed, in unix seconds. It stands still in"
        " between, and is the same in a replay.",
        (),
        (ResultSpec("number"),),
        Example("alc.time()", "1700000000.0", "now()"),
        lua="alc.time",
        python="now() -> float",
        notes={"python": "`time.time()` and `datetime.now()` give the same."},
    ),
    FunctionSpec(
        "uuid",
        "A new UUID, the same in every replay.",
        (),
        (ResultSpec("string"),),
        Example(python="len(uuid())", gives="36"),
        lua=NoSpelling('`string.format("%016x", math.random(0))`'),
        python="uuid() -> str",
        native="uuid() -> uuid.UUID",
    ),
    FunctionSpec(
        "patched",
        "Whether to take the new way of a change to the code: true where a session gets to this place for the first"
        " time, which is recorded; false where it got here before the change, and so took the old way. The answer of a"
        " name never changes within a session.",
        (need("name", "string", "What the change is called."),),
        (ResultSpec("boolean"),),
        lua=NoSpelling("nothing: a session keeps the code it was started with"),
        python=NoSpelling("nothing: a session keeps the code it was started with"),
        native="patched(name: str) -> bool",
    ),
    FunctionSpec(
        "budget_remaining",
        "What is left of the session's budget. Questions that wait for an answer count as asked, and the shares of "
        "children that have not ended as spent.",
        (),
        (
            ResultSpec(
                "BudgetLeft|nil",
                "{nil|`None`} if the session has no budget.",
            ),
        ),
        Example("alc.budget_remaining()", "null", "budget_remaining()"),
        python="budget_remaining() -> dict[str, int | None] | None",
        native="budget_remaining() -> RemainingBudget | None",
    ),
)

_GIVEN = (
    ConstantSpec(
        "null",
        "null",
        "JSON's null, to write it where nil would write nothing. What is read has nil instead.",
        python=NoSpelling("`None`"),
    ),
    ConstantSpec(
        "env",
        "table<string, string>",
        "Values given with `--env`; the same in every replay.",
        python="dict[str, str]",
    ),
    ConstantSpec("_dirs", "Dirs", "Directories that packages ask for."),
    ConstantSpec(
        "random",
        "any",
        "Random numbers that are the same in every replay.",
        lua=NoSpelling("`math.random`, or a generator of `alc.math`"),
        python=NoSpelling("the module `random`"),
        native="random.Random",
    ),
    ConstantSpec(
        "data",
        "Ctx",
        "What the session was started with.",
        lua=NoSpelling("`ctx`"),
        python=NoSpelling("`ctx`"),
        native="Any",
    ),
    ConstantSpec(
        "task",
        "string",
        "Its field `task`; empty if there is none.",
        lua=NoSpelling("`ctx.task`"),
        python=NoSpelling('`ctx["task"]`'),
        native="str",
    ),
    ConstantSpec(
        "session_id",
        "string",
        "The id the session was started under; of a fork, that of the session it comes from.",
        lua=NoSpelling(),
        native="str",
    ),
)

LAYER0 = GroupSpec(
    "Questions, logs, figures, time",
    "What needs the host: questions to models, and what a session says and knows about itself.",
    functions=(
        *QUESTIONS,
        *_TELLING,
        *_KNOWING,
    ),
    constants=_GIVEN,
    shapes=(
        *QUESTION_SHAPES,
        ShapeSpec(
            "BudgetLeft",
            "What is left of each limit.",
            (
                need("llm_calls", "integer|nil", "Questions."),
                need("elapsed_ms", "integer|nil", "Milliseconds, waiting included."),
                need("tokens", "integer|nil", "Tokens of prompts and answers together."),
            ),
        ),
        ShapeSpec(
            "Dirs",
            "Directories, as absolute paths.",
            (
                need("state", "string", "Unused here: the state is in the session store."),
                need("cards", "string", "Where cards are."),
                need("scenarios", "string", "Where scenarios are found by name."),
            ),
        ),
    ),
    notes={
        "python": "A plain call asks one thing and waits for the answer. To ask several things at once, use"
        " `{llm_batch}`, `{llm_each}` and `{parallel}`, or the names with `_async`, which return awaitables:"
        ' `await asyncio.gather(llm_async("a"), ask_async("b"))` is one pause with two questions.',
        "native": "Every question is an awaitable, which `asyncio.gather` takes as well.",
    },
)
