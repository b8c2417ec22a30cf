"""The table of `alc`: questions, logs, figures, time and budget; the durable state; forks; and the global `std`."""

from __future__ import annotations

from holdfast.programs.lua.api.model import Constant, Example, Function, Group, Result, Shape, may, need

_LLM_FIELDS = (
    may("system", "string", "The system text."),
    may("max_tokens", "integer", "The longest answer wanted; 1024 if absent or not a number that fits."),
    may("grounded", "boolean", "The answer should rest on evidence that the host looks up."),
    may("underspecified", "boolean", "The prompt depends on an intent that is not in it; the host finds out."),
    may("model", "string", "Passed on to the host: which model is meant."),
    may("temperature", "number", "Passed on to the host."),
    may("role", "string", "Passed on to the host: what the question is for, so that it may pick a model by it."),
)

LAYER0 = Group(
    "layer0",
    "Questions, logs, figures, time",
    "What needs the host: questions to models, and what a session says and knows about itself.",
    functions=(
        Function(
            "alc.llm",
            "Ask a model. The session pauses until somebody answers, in this process or another one. An answer that is"
            " not text comes as its JSON. A failure that the host reports, and a spent budget, are errors that can be"
            " caught; the budget's begins with `budget_exceeded:`.",
            (
                need(
                    "prompt", "string", "The question. Text that is not valid UTF-8 is repaired, and the log says so."
                ),
                may("opts", "LlmOptions", "How to ask. What is not known here is passed on to the host."),
            ),
            (Result("string", "The answer."),),
            Example('alc.llm("Name a colour.", {system = "One word.", max_tokens = 10, temperature = 0.2})'),
            waits="host",
        ),
        Function(
            "alc.llm_batch",
            "Ask several questions at once: one pause, whose answers may come in any order. All of them must fit into"
            " the budget, else none is asked. If one fails, an error names it.",
            (need("items", "LlmItem[]", "The questions; at least one."),),
            (Result("string[]", "The answers, in the order of the questions."),),
            Example('alc.llm_batch({{prompt = "One."}, {prompt = "Two.", system = "Be brief."}})'),
            waits="host",
        ),
        Function(
            "alc.log",
            "Write a line to the session's log.",
            (
                need("level", "string", "`error`, `warn`, `info` or `debug`; others are kept as they are."),
                need("message", "string", "The line."),
            ),
            example=Example('alc.log("info", "half-way")', "null"),
        ),
        Function(
            "alc.progress",
            "Say how far the session is. The last word counts.",
            (
                need("step", "integer", "What is done, 0 or more."),
                need("total", "integer", "What there is to do."),
                may("message", "string", "In words."),
            ),
            example=Example('alc.progress(2, 5, "judging")', "null"),
        ),
        Function(
            "alc.stats.record",
            "Keep a figure of one's own under `stats.custom` of the session. The last value of a key counts. Inside a"
            " child of a fork the key has the child's namespace before it.",
            (need("key", "string", "Its name."), need("value", "any", "Anything that JSON can hold.")),
            example=Example('alc.stats.record("rounds", 3)', "null"),
        ),
        Function(
            "alc.stats.get",
            "A figure that this program has recorded.",
            (need("key", "string", "Its name."),),
            (Result("any", "A copy of the value; nil if there is none."),),
            Example('alc.stats.get("rounds")', "null"),
        ),
        Function(
            "alc.stats.llm_calls",
            "How many questions the session has asked models so far, those of forks included.",
            (),
            (Result("integer"),),
            Example("alc.stats.llm_calls()", "0"),
        ),
        Function(
            "alc.time",
            "The session's clock: unix seconds when the program last went on. It stands still in between, and gives the"
            " same in a replay.",
            (),
            (Result("number"),),
            Example("alc.time()", "1700000000.0"),
        ),
        Function(
            "alc.budget_remaining",
            "What is left of the session's budget. Questions that wait for an answer count as asked.",
            (),
            (Result("BudgetLeft|null", "`null` (which is true in a condition) if the session has no budget."),),
            Example("alc.budget_remaining()", "null"),
        ),
    ),
    constants=(
        Constant("alc.null", "null", "JSON's null. It is not nil: compare with it before use."),
        Constant("alc.env", "table<string, string>", "Values given with `--env`; read-only, the same in every replay."),
        Constant("alc._dirs", "Dirs", "Directories that packages ask for."),
    ),
    shapes=(
        Shape("LlmOptions", "How to ask a model.", _LLM_FIELDS, rest="any"),
        Shape("LlmItem", "One question of several.", (need("prompt", "string", "The question."),), base="LlmOptions"),
        Shape(
            "BudgetLeft",
            "What is left of each limit.",
            (
                need("llm_calls", "integer|null", "Questions."),
                need("elapsed_ms", "integer|null", "Milliseconds, waiting included."),
                need("tokens", "integer|null", "Tokens of prompts and answers together."),
            ),
        ),
        Shape(
            "Dirs",
            "Directories, as absolute paths.",
            (
                need("state", "string", "Unused here: the state is in the session store."),
                need("cards", "string", "Where cards are."),
                need("scenarios", "string", "Where scenarios are found by name."),
            ),
        ),
    ),
)

_KEY = need("key", "string", "Any text.")
_NAMESPACE = need("namespace", "string", "Whose keys.")

STATE = Group(
    "state",
    "Durable state",
    "Values that outlive the session, in the session store, shared by all sessions of the store that use the namespace:"
    " `ctx._ns` if that is text, else `default`; in children of a fork `fork-0`, `fork-1`, … Every operation is atomic,"
    " also between processes, and happens once even if the process dies in the middle. Values are JSON.",
    functions=(
        Function(
            "alc.state.get",
            "A value.",
            (_KEY, may("default", "any", "What to give if there is none.")),
            (Result("any", "The value; else the default. A kept null is `alc.null`, not the default."),),
            Example('alc.state.get("runs", 0)'),
            waits="engine",
        ),
        Function(
            "alc.state.set",
            "Keep a value, in place of another one if need be.",
            (_KEY, need("value", "any", "Anything that JSON can hold.")),
            example=Example('alc.state.set("runs", {count = 1})'),
            waits="engine",
        ),
        Function(
            "alc.state.set_nx",
            "Keep a value unless there is one already.",
            (_KEY, need("value", "any", "Anything that JSON can hold.")),
            (Result("boolean", "Whether it was kept."),),
            Example('alc.state.set_nx("owner", "me")'),
            waits="engine",
        ),
        Function(
            "alc.state.has",
            "Whether there is a value.",
            (_KEY,),
            (Result("boolean"),),
            Example('alc.state.has("runs")'),
            waits="engine",
        ),
        Function(
            "alc.state.keys",
            "All keys of the namespace, sorted.",
            (),
            (Result("string[]"),),
            Example("alc.state.keys()"),
            waits="engine",
        ),
        Function(
            "alc.state.delete",
            "Remove a value.",
            (_KEY,),
            (Result("boolean", "Whether there was one."),),
            Example('alc.state.delete("runs")'),
            waits="engine",
        ),
        Function(
            "alc.state.incr",
            "Add to a number. Whole numbers stay whole. A value that is no number is an error.",
            (
                _KEY,
                may("delta", "number", "What to add; 1 if absent."),
                may("default", "number", "What to begin with if there is no value; 0 if absent."),
            ),
            (Result("number", "The sum."),),
            Example('alc.state.incr("runs")'),
            waits="engine",
        ),
        Function(
            "alc.state.update",
            "Change a value by what it is now. If somebody else changes it meanwhile, `fn` is called again with the"
            " newer value, so it must not count on being called once.",
            (
                _KEY,
                need("fn", "fun(value: any): any", "From the present value to the new one."),
                may("default", "any", "What `fn` gets if there is no value."),
            ),
            (Result("any", "The new value."),),
            Example('alc.state.update("runs", function(n) return n + 1 end, 0)'),
            waits="engine",
        ),
        Function(
            "alc.state.list",
            "The keys of any namespace, sorted: for looking after what long runs have left.",
            (may("namespace", "string", "Whose keys; the program's own if absent."),),
            (Result("string[]"),),
            Example('alc.state.list("default")'),
            waits="engine",
        ),
        Function(
            "alc.state.show",
            "A value of any namespace. None is an error.",
            (_NAMESPACE, _KEY),
            (Result("any"),),
            Example('alc.state.show("default", "runs")'),
            waits="engine",
        ),
        Function(
            "alc.state.reset",
            "Take steps and fields out of a kept `{data = {completed_steps = {…}, …}}`, so that a long run does them"
            " again. What was there before is kept under the key with `.bak` after it.",
            (_NAMESPACE, _KEY, may("opts", "ResetOptions", "What to take out.")),
            (Result("ResetResult"),),
            Example('alc.state.reset("default", "job", {steps = {"draft"}})'),
            waits="engine",
        ),
    ),
    shapes=(
        Shape(
            "ResetOptions",
            "What to take out of a kept run.",
            (
                may("steps", "string[]", "Names to take out of `data.completed_steps`."),
                may("fields", "string[]", "Fields to take out of `data`."),
            ),
        ),
        Shape(
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
)

FORK = Group(
    "fork",
    "Forks",
    "Several strategies at once. What they ask together is one pause, the same in every run.",
    functions=(
        Function(
            "alc.fork",
            "Run packages side by side, each with globals, a log prefix, recorded figures and a state namespace of its"
            " own, on a copy of `ctx`. All of them run until they ask; their questions are one pause of the session. A"
            " child may fork, too. Children share the session's budget: one whose questions do not fit gets the"
            " budget's error, the others go on.",
            (
                need("strategies", "string[]", "Names of packages with `run(ctx)`; at least one."),
                need("ctx", "any", "What each child is given, as JSON."),
                may("opts", "ForkOptions", "What to do about failures."),
            ),
            (Result("ForkEntry[]", "What became of each, in the order of the names."),),
            Example('alc.fork({"asks_one", "asks_two"}, {task = ctx.task})'),
            waits="host",
        ),
    ),
    shapes=(
        Shape(
            "ForkOptions",
            "What a fork does about failures.",
            (
                may(
                    "on_error", '"skip"|"abort"', "`abort` raises the first failure, after all have ended; else `skip`."
                ),
            ),
        ),
        Shape(
            "ForkEntry",
            "What became of a child.",
            (
                need("strategy", "string", "Its name."),
                need("ok", "boolean", "Whether it returned."),
                may("result", "any", "What it returned, as JSON keeps it."),
                may("error", "string", "Why it did not."),
            ),
        ),
    ),
)

STD = Group(
    "std",
    "The global `std`",
    "What packages such as evalframe expect beside `alc`.",
    functions=(
        Function(
            "std.json.encode",
            "As `alc.json_encode`.",
            (need("value", "any", "What to write."),),
            (Result("string"),),
            Example("std.json.encode({1, 2})", '"[1,2]"'),
        ),
        Function(
            "std.json.decode",
            "As `alc.json_decode`.",
            (need("text", "string", "What to read."),),
            (Result("any"),),
            Example('std.json.decode("[1, 2]")', "[1, 2]"),
        ),
        Function(
            "std.fs.read",
            "A file's content. In trusted programs only; an error in the sandbox.",
            (need("path", "string", "The file."),),
            (Result("string"),),
        ),
        Function(
            "std.fs.is_file",
            "Whether there is such a file. In trusted programs only; an error in the sandbox.",
            (need("path", "string", "The file."),),
            (Result("boolean"),),
        ),
        Function(
            "std.time.now",
            "As `alc.time`.",
            (),
            (Result("number"),),
            Example("std.time.now()", "1700000000.0"),
        ),
    ),
    is_brief=True,
)
