"""The API table of questions: to models, people, tools, the clock and other programs, and functions built on them."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, ResultSpec, ShapeSpec, may, need

_PROMPT = need("prompt", "string", "The question.")
_OPTS = may("opts", "LlmOptions", "How to ask.", python="options")
_OPTIONS_PASSED_ON = may(
    "opts", "LlmOptions", "How to ask. Unknown options are passed on to the host.", python="options"
)
_FOR_EVERY = may("options", "LlmOptions", "For every question; an item's own options take precedence.")
_TIMEOUT = may(
    "timeout_ms", "integer", "How long to wait, in milliseconds; after that, the query fails with the code `timeout`."
)

QUESTIONS = (
    FunctionSpec(
        "llm",
        "Ask a model. The session pauses until somebody answers, in this process or another one. An answer that is not"
        " text is returned {as its JSON|as it is}. A failure that the host reports and a spent budget are errors that"
        " can be caught; the latter begins with `budget_exceeded:`.",
        (
            need(
                "prompt",
                "string",
                "The question.{ Text that is not valid UTF-8 is repaired, and the log says so.|}",
            ),
            _OPTIONS_PASSED_ON,
        ),
        (ResultSpec("string", "The answer."),),
        Example(
            'alc.llm("Name a colour.", {system = "One word.", max_tokens = 10, temperature = 0.2})',
            python='llm("Name a colour.", system="One word.", max_tokens=10, temperature=0.2)',
        ),
        waits="host",
        python="llm(prompt: str, *, system: str | None = None, max_tokens: int = 1024, grounded: bool = False,"
        " underspecified: bool = False, timeout_ms: int | None = None, **options: Any) -> str",
        python_parameters=(_TIMEOUT,),
        has_twin=True,
        notes={
            "python": "The errors are `RuntimeError`, or `TimeoutError` if no answer came in time.",
            "native": "The errors are `QueryFailedError`, whose `code` says why.",
        },
    ),
    FunctionSpec(
        "llm_batch",
        "Ask several questions at once, in one pause; the answers may come in any order. Unless all of them fit into"
        " the budget, none is asked. If one fails, an error names it.",
        (need("items", "LlmItem[]", "The questions; at least one."),),
        (ResultSpec("string[]", "The answers, in the order of the questions."),),
        Example(
            'alc.llm_batch({{prompt = "One."}, {prompt = "Two.", system = "Be brief."}})',
            python='llm_batch(["One.", {"prompt": "Two.", "system": "Be brief."}], max_tokens=50)',
        ),
        waits="host",
        python="llm_batch(items: Sequence[str | dict[str, Any]], **options: Any) -> list[str]",
        python_parameters=(_FOR_EVERY,),
        notes={"python": "An item may be the prompt alone."},
    ),
    FunctionSpec(
        "llm_each",
        "Like `{llm_batch}`, but a failure does not lose the other answers: the answer to a question that failed is"
        " {`false`|`None`}, and the log says why. It waits for all of them. If all fail, or they do not fit into the"
        " budget, the first error is raised.",
        (need("items", "LlmItem[]", "The questions; an empty list gives no answers."),),
        (
            ResultSpec(
                "(string|false)[]",
                "The answers, in the order of the questions; {`false`|`None`} for one that failed.",
            ),
        ),
        Example(
            'alc.llm_each({{prompt = "One."}, {prompt = "Two.", system = "Be brief."}})',
            python='llm_each(["One.", {"prompt": "Two.", "system": "Be brief."}], max_tokens=50)',
        ),
        waits="host",
        python="llm_each(items: Sequence[str | dict[str, Any]], **options: Any) -> list[str | None]",
        python_parameters=(_FOR_EVERY,),
        notes={
            "lua": "It is `false` and not nil, so that the array has no holes.",
            "python": "An item may be the prompt alone.",
        },
    ),
    FunctionSpec(
        "ask",
        "Ask a person. The session pauses until somebody answers, however long that takes.",
        (_PROMPT, may("opts", "AskOptions", "How to ask.")),
        (ResultSpec("any", "The answer."),),
        Example(
            'alc.ask("Shall I publish it?", {choices = {"yes", "no"}})',
            python='ask("Shall I publish it?", choices=["yes", "no"])',
        ),
        waits="host",
        python="ask(prompt: str, *, choices: Sequence[str] = (), timeout_ms: int | None = None) -> Any",
        has_twin=True,
    ),
    FunctionSpec(
        "tool",
        "Call a tool by its name. Its driver answers, or anyone else.",
        (
            need("name", "string", "The tool."),
            may("args", "table<string, any>", "Its arguments, by name.", python="arguments"),
        ),
        (ResultSpec("any", "The tool's result."),),
        Example(
            'alc.tool("search", {query = "durable execution", limit = 3})',
            python='tool("search", query="durable execution", limit=3)',
        ),
        waits="host",
        python="tool(name: str, /, **arguments: Any) -> Any",
        has_twin=True,
    ),
    FunctionSpec(
        "sleep",
        "Wait. The session pauses, and resumes when the time is up, even if the process is restarted meanwhile.",
        (need("seconds", "number", "How long, 0 or more."),),
        (),
        Example("alc.sleep(1.5)", python="sleep(1.5)"),
        waits="host",
        python="sleep(seconds: float) -> None",
        has_twin=True,
        notes={"python": "`time.sleep` and `asyncio.sleep` are the same."},
    ),
    FunctionSpec(
        "child",
        "Run another program, in any language, as a session of its own. The host sees its questions together with those"
        " of this session.",
        (
            need("program", "string", "Its name: a bundled strategy, a Lua package, a Python file."),
            may("ctx", "any", "Its `ctx`, as JSON."),
        ),
        (ResultSpec("any", "Its result. If it fails, that is an error."),),
        Example(
            'alc.child("self_refine", {task = "Why is the sky blue?"})',
            python='child("self_refine", {"task": "Why is the sky blue?"})',
        ),
        waits="host",
        python="child(program: str, ctx: Any = None) -> Any",
        has_twin=True,
        notes={"native": "`program` may also be a strategy itself."},
    ),
)

ASKING = (
    FunctionSpec(
        "ground",
        "Ask with `grounded` set: the host should look the claim up.",
        (need("claim", "string", "What to check."), _OPTS),
        (ResultSpec("string", "The answer."),),
        Example(
            'alc.ground("Water boils at 90 °C on Mont Blanc.")', python='ground("Water boils at 90 °C on Mont Blanc.")'
        ),
        waits="host",
        python="ground(claim: str, **options: Any) -> str",
    ),
    FunctionSpec(
        "specify",
        "Ask with `underspecified` set: the host should find out the intent.",
        (_PROMPT, _OPTS),
        (ResultSpec("string", "The answer."),),
        Example(
            'alc.specify("Which of the two reports do you want?")',
            python='specify("Which of the two reports do you want?")',
        ),
        waits="host",
        python="specify(prompt: str, **options: Any) -> str",
    ),
    FunctionSpec(
        "llm_safe",
        "Ask, and return a default instead of an error if there is no answer, because the host reported a failure or"
        " the budget is spent. The log says why.",
        (_PROMPT, _OPTS, may("default", "any", "What to return then.")),
        (ResultSpec("string|any", "The answer, or the default."),),
        Example(
            'alc.llm_safe("A name for it?", {}, "unnamed")', python='llm_safe("A name for it?", default="unnamed")'
        ),
        waits="host",
        python='llm_safe(prompt: str, *, default: Any = "", **options: Any) -> Any',
    ),
    FunctionSpec(
        "llm_json",
        "Ask for JSON. If there is no {table|dict or list} in the answer, ask once more: the new question contains the"
        " request and the answer, and its system text asks for JSON only.",
        (_PROMPT, _OPTS),
        (
            ResultSpec(
                "table|nil",
                "The {table|dict or list}; {nil|None} if there is none in the second answer either.",
            ),
            ResultSpec("string", "The last answer."),
        ),
        Example(
            'alc.llm_json("Three names, as a JSON array.")',
            python='llm_json("Three names, as a JSON array.", max_tokens=200)',
        ),
        waits="host",
        python="llm_json(prompt: str, **options: Any) -> Any",
        notes={"python": "Only the dict or list is returned, not the last answer."},
    ),
    FunctionSpec(
        "parallel",
        "One question for every item, all in one pause.",
        (
            need("items", "any[]", "At least one."),
            need(
                "prompt_fn",
                "fun(item: any, i: integer): string|LlmItem",
                "The question about an item. {Text is asked with `opts`, a table as it is.|A dict has its own options"
                " beside `prompt`.}",
                python="prompt",
            ),
            may("opts", "ParallelOptions", "How to ask, and what to do with the answers.", python="options"),
        ),
        (ResultSpec("any[]", "The answers, or what {`opts.post_fn`|`post`} made of them, in the order of the items."),),
        Example(
            'alc.parallel({"tea", "coffee"}, function(item) return "Describe " .. item end, {max_tokens = 50})',
            python='parallel(["tea", "coffee"], lambda item: "Describe " + item, max_tokens=50)',
        ),
        waits="host",
        python="parallel(items: Sequence[T], prompt: Callable[[T], str | dict[str, Any]], *,"
        " post: Callable[[str, T], Any] | None = None, **options: Any) -> list[Any]",
        notes={"python": "The functions do not receive the item's position."},
    ),
    FunctionSpec(
        "cache",
        "Ask; the same question with the same options gets the first answer again, without asking. Every byte of the"
        " question and its options counts. The 256 newest answers are kept, for this run only.",
        (_PROMPT, may("opts", "CacheOptions", "How to ask, and how to remember.", python="options")),
        (ResultSpec("string", "The answer."),),
        Example('alc.cache("Name a colour.")', python='cache("Name a colour.")'),
        waits="host",
        python="cache(prompt: str, *, cache_key: str | None = None, cache_skip: bool = False, **options: Any) -> str",
    ),
    FunctionSpec(
        "cache_info",
        "Counts of the cache.",
        (),
        (ResultSpec("CacheInfo"),),
        Example(
            "alc.cache_info()",
            '{"entries": 0, "hits": 0, "misses": 0, "max_entries": 256}',
            "cache_info()",
        ),
        python="cache_info() -> dict[str, int]",
    ),
    FunctionSpec(
        "cache_clear",
        "Forget all cached answers and counts.",
        example=Example("alc.cache_clear()", "null", "cache_clear()"),
        python="cache_clear() -> None",
    ),
    FunctionSpec(
        "budget_check",
        "Whether every limit of the budget has something left. True without a budget.",
        (),
        (ResultSpec("boolean"),),
        Example("alc.budget_check()", "true", "budget_check()"),
        python="budget_check() -> bool",
    ),
    FunctionSpec(
        "pipe",
        'Run strategies one after the other on a copy of `ctx`. The {`ctx.result`|`ctx["result"]`} of one becomes the'
        ' {`ctx.task`|`ctx["task"]`} of the next; a {table|dict or list} becomes JSON.'
        ' {`ctx.pipe_history`|`ctx["pipe_history"]`} has `{strategy, result}` or `{strategy, error}` for each.',
        (
            need(
                "strategies",
                "(string|fun(ctx: table): table)[]",
                "{Packages with `run(ctx)`, names of other strategies|Names of strategies}, or functions; each returns"
                " a ctx.",
            ),
            need("ctx", "table", "The `ctx` of the first one."),
            may("opts", "PipeOptions", "What to do about failures, and after each stage.", python="options"),
        ),
        (ResultSpec("table", "The last ctx."),),
        Example(
            'alc.pipe({function(ctx) ctx.result = alc.llm(ctx.task) return ctx end, "asks_one"}, {task = "Why?"})',
            python='pipe(["step_back", "self_refine"], {"task": "Why is the sky blue?"}, on_error="skip")',
        ),
        waits="host",
        python="pipe(strategies: Sequence[str | Callable[[dict[str, Any]], dict[str, Any]]], ctx: dict[str, Any], *,"
        ' on_error: Literal["abort", "skip", "continue"] = "abort") -> dict[str, Any]',
        notes={
            "lua": "A name that is not a package's runs as a child session.",
            "python": "Each name runs as a child session. There is no `on_stage`.",
            "native": "A stage may also be a strategy itself, and a function may be `async`.",
        },
    ),
)

QUESTION_SHAPES = (
    ShapeSpec(
        "LlmOptions",
        "How to ask a model.",
        (
            may("system", "string", "The system text."),
            may("max_tokens", "integer", "The longest answer wanted; 1024 if absent{ or not a valid number|}."),
            may("grounded", "boolean", "The answer should rest on evidence that the host looks up."),
            may("underspecified", "boolean", "The prompt does not state the intent; the host should find it out."),
            may("model", "string", "Passed on to the host: which model to use."),
            may("temperature", "number", "Passed on to the host."),
            may(
                "role", "string", "Passed on to the host: the purpose of the question, by which it may choose a model."
            ),
        ),
        rest="any",
    ),
    ShapeSpec("LlmItem", "One question of several.", (need("prompt", "string", "The question."),), base="LlmOptions"),
    ShapeSpec(
        "AskOptions",
        "How to ask a person.",
        (may("choices", "string[]", "Answers to choose from, shown with the question."), _TIMEOUT),
    ),
)

ASKING_SHAPES = (
    ShapeSpec(
        "ParallelOptions",
        "How to ask about many items.",
        (
            may(
                "post_fn",
                "fun(answer: string, item: any, i: integer): any",
                "Makes the result from an answer.",
                python="post",
            ),
        ),
        base="LlmOptions",
    ),
    ShapeSpec(
        "CacheOptions",
        "How to ask, and how to remember.",
        (
            may("cache_key", "string", "The key of the answer, instead of the question."),
            may("cache_skip", "boolean", "Ask anew, and do not remember the answer."),
        ),
        base="LlmOptions",
    ),
    ShapeSpec(
        "CacheInfo",
        "Counts of the cache.",
        (
            need("entries", "integer", "Answers kept."),
            need("hits", "integer", "Questions answered from the cache."),
            need("misses", "integer", "Questions asked."),
            need("max_entries", "integer", "How many answers are kept at most."),
        ),
    ),
    ShapeSpec(
        "PipeOptions",
        "What a pipe does about failures, and after each stage.",
        (
            may(
                "on_error",
                '"abort"|"skip"|"continue"',
                "`abort` (if absent): the error is raised. Otherwise the stage is skipped.",
            ),
            may("on_stage", "fun(i: integer, name: string, ctx: table)", "Called after each stage that succeeded."),
        ),
    ),
)
