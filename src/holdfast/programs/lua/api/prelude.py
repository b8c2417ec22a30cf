"""The table of `alc`: ways of asking that are made of `alc.llm`, and the pure functions that read, cut and count."""

from __future__ import annotations

from holdfast.programs.lua.api.model import Example, Function, Group, Result, Shape, may, need

_PROMPT = need("prompt", "string", "The question.")
_OPTS = may("opts", "LlmOptions", "How to ask.")

ASKING = (
    Function(
        "alc.ground",
        "Ask with `grounded` set: the host should look the claim up.",
        (need("claim", "string", "What to check."), _OPTS),
        (Result("string", "The answer."),),
        Example('alc.ground("Water boils at 90 °C on Mont Blanc.")'),
        waits="host",
    ),
    Function(
        "alc.specify",
        "Ask with `underspecified` set: the host should find out what is meant.",
        (_PROMPT, _OPTS),
        (Result("string", "The answer."),),
        Example('alc.specify("Which of the two reports do you want?")'),
        waits="host",
    ),
    Function(
        "alc.llm_safe",
        "Ask; give a default instead of an error when there is no answer: the host reported a failure, or the budget is"
        " spent. The log says why.",
        (_PROMPT, _OPTS, may("default", "any", "What to give then.")),
        (Result("string|any", "The answer, or the default."),),
        Example('alc.llm_safe("A name for it?", {}, "unnamed")'),
        waits="host",
    ),
    Function(
        "alc.llm_json",
        "Ask for JSON. An answer without a table in it is asked for once more, with the answer and the request in the"
        " new question and a system text that wants JSON only.",
        (_PROMPT, _OPTS),
        (
            Result("table|nil", "The table; nil if there was none in the second answer either."),
            Result("string", "The last answer."),
        ),
        Example('alc.llm_json("Three names, as a JSON array.")'),
        waits="host",
    ),
    Function(
        "alc.parallel",
        "One question for every item, all in one pause.",
        (
            need("items", "any[]", "At least one."),
            need(
                "prompt_fn",
                "fun(item: any, i: integer): string|LlmItem",
                "The question about an item. Text is asked with `opts`; a table as it is.",
            ),
            may("opts", "ParallelOptions", "How to ask, and what to do with the answers."),
        ),
        (Result("any[]", "The answers, or what `opts.post_fn` made of them, in the order of the items."),),
        Example('alc.parallel({"tea", "coffee"}, function(item) return "Describe " .. item end, {max_tokens = 50})'),
        waits="host",
    ),
    Function(
        "alc.cache",
        "Ask; the same question with the same options gets the first answer again, without asking. The key is"
        " everything about the question, down to the byte. The 256 newest answers are kept, for this run.",
        (_PROMPT, may("opts", "CacheOptions", "How to ask, and how to remember.")),
        (Result("string", "The answer."),),
        Example('alc.cache("Name a colour.")'),
        waits="host",
    ),
    Function(
        "alc.cache_info",
        "How the cache did.",
        (),
        (Result("CacheInfo"),),
        Example("alc.cache_info()", '{"entries": 0, "hits": 0, "misses": 0, "max_entries": 256}'),
    ),
    Function(
        "alc.cache_clear", "Forget all cached answers, and the counts.", example=Example("alc.cache_clear()", "null")
    ),
    Function(
        "alc.budget_check",
        "Whether there is something left of every limit that is set. True without a budget.",
        (),
        (Result("boolean"),),
        Example("alc.budget_check()", "true"),
    ),
    Function(
        "alc.pipe",
        "Run strategies one after the other on a copy of `ctx`. What one leaves in `ctx.result` is the next one's"
        " `ctx.task`, a table as JSON. `ctx.pipe_history` has `{strategy, result}` or `{strategy, error}` of each.",
        (
            need(
                "strategies",
                "(string|fun(ctx: table): table)[]",
                "Packages with `run(ctx)`, or functions; each returns a ctx.",
            ),
            need("ctx", "table", "What the first one is given."),
            may("opts", "PipeOptions", "What to do about failures, and after each stage."),
        ),
        (Result("table", "The last ctx."),),
        Example('alc.pipe({function(ctx) ctx.result = alc.llm(ctx.task) return ctx end, "asks_one"}, {task = "Why?"})'),
        waits="host",
    ),
)

_TEXT = need("text", "string", "What was written.")
_ITEMS = need("items", "any[]", "The list.")

READING = (
    Function(
        "alc.json_encode",
        "A value as JSON. A table with anything at 1 is an array, and its named keys are dropped with a warning; any"
        " other is an object, whose keys must be text. NaN and infinities become null. A function, or a table inside"
        " itself, is an error.",
        (need("value", "any", "What to write."),),
        (Result("string"),),
        Example("alc.json_encode({b = 1, a = {true, 2.0}})", r'"{\"a\":[true,2.0],\"b\":1}"'),
    ),
    Function(
        "alc.json_decode",
        "JSON as a value. Null is `alc.null`; whole numbers are integers; an empty array stays one when written again."
        " Text that is not JSON is an error.",
        (need("text", "string", "What to read."),),
        (Result("any"),),
        Example('alc.json_decode("[1, null]")[2] == alc.null', "true"),
    ),
    Function(
        "alc.json_extract",
        "The first table in what a model wrote: all of it, a fenced block, or the first part in braces or brackets that"
        " can be read.",
        (need("raw", "string", "What was written."),),
        (Result("table|nil", "nil if there is none."),),
        Example("""alc.json_extract('Here: {"a": 1}. Anything else?')""", '{"a": 1}'),
    ),
    Function(
        "alc.match_enum",
        "Which of some words is meant. Of those that occur in the text, in any case, the one that occurs last; if none"
        " does, the one that a word of the text is most like.",
        (
            _TEXT,
            need("candidates", "string[]", "The words."),
            may("opts", "MatchOptions", "How alike a word must be."),
        ),
        (Result("string|nil", "The candidate as given; nil if none is like it."),),
        Example('alc.match_enum("Not a bug, rather a wish.", {"Bug", "Wish"})', '"Wish"'),
    ),
    Function(
        "alc.match_bool",
        "Yes or no, by whole words of which the last one counts. Yes: approved, yes, ok, accept, pass, confirm, agree,"
        " true, lgtm. No: rejected, no, deny, block, fail, refuse, disagree, false.",
        (_TEXT,),
        (Result("boolean|nil", "nil if there is no such word."),),
        Example('alc.match_bool("No problems left: approved.")', "true"),
    ),
    Function(
        "alc.parse_score",
        "A score from 1 to 10: the first digits in the text, cut to that range. Signs and decimals are not read.",
        (_TEXT, may("default", "number", "What to give if there are no digits; 5 if absent.")),
        (Result("number"),),
        Example('alc.parse_score("I give it 8/10.")', "8"),
    ),
    Function(
        "alc.parse_number",
        "A number in the text.",
        (_TEXT, may("pattern", "string", "A Lua pattern whose first capture is the number; else the first number.")),
        (Result("number|nil", "nil if there is none."),),
        Example('alc.parse_number("total: 12.5 EUR, tax: 2", "tax: (%d+)")', "2"),
    ),
    Function(
        "alc.vote",
        "The answer that was given most often, without blanks at its ends; of several the one given first.",
        (need("answers", "any[]", "The answers."),),
        (Result("Vote"),),
        Example('alc.vote({"yes", "no ", "no"})', '{"winner": "no", "count": 2, "total": 3}'),
    ),
    Function(
        "alc.chunk",
        "A text in pieces.",
        (need("text", "string", "The text."), may("opts", "ChunkOptions", "How to cut.")),
        (Result("string[]"),),
        Example('alc.chunk("abcde", {mode = "chars", size = 3, overlap = 1})', '["abc", "cde"]'),
    ),
    Function(
        "alc.fingerprint",
        "8 hex digits that are the same for texts which differ only in case and blanks. For finding repeats; not for"
        " security, nor for keys that must not collide.",
        (need("text", "string", "The text."),),
        (Result("string"),),
        Example('alc.fingerprint("A  b") == alc.fingerprint("a B")', "true"),
    ),
    Function(
        "alc.hash",
        "16 hex digits for exactly this text. For names and look-ups; not for security.",
        (need("text", "string", "The text."),),
        (Result("string"),),
        Example('alc.hash("a")', '"af63dc4c8601ec8c"'),
    ),
    Function(
        "alc.fmt",
        "`string.format` that does not fail on what models and arithmetic bring: where an integer is wanted it rounds a"
        " fraction, reads a numeral and writes NaN or Inf; a missing text is `<nil>`.",
        (need("pattern", "string", "The pattern."),),
        (Result("string"),),
        Example('alc.fmt("%d of %s", 2.6, nil)', '"3 of <nil>"'),
        rest=need("...", "any", "What goes into it."),
    ),
    Function(
        "alc.log_fmt",
        "`alc.log` of what `alc.fmt` gives.",
        (need("level", "string", "As for `alc.log`."), need("pattern", "string", "The pattern.")),
        example=Example('alc.log_fmt("info", "%d left", 3)', "null"),
        rest=need("...", "any", "What goes into it."),
    ),
    Function(
        "alc.map",
        "What a function makes of each item, one after the other; it may ask. To ask for all items at once, use"
        " `alc.parallel`.",
        (_ITEMS, need("fn", "fun(item: any, i: integer): any", "The function.")),
        (Result("any[]"),),
        Example("alc.map({1, 2}, function(n) return n * 10 end)", "[10, 20]"),
    ),
    Function(
        "alc.filter",
        "The items that a function says yes to; it may ask.",
        (_ITEMS, need("fn", "fun(item: any, i: integer): any", "The function.")),
        (Result("any[]"),),
        Example("alc.filter({1, 2, 3}, function(n) return n > 1 end)", "[2, 3]"),
    ),
    Function(
        "alc.reduce",
        "The items folded into one value; the function may ask.",
        (
            _ITEMS,
            need(
                "fn",
                "fun(acc: any, item: any, i: integer): any",
                "From what there is and the next item to what there is then.",
            ),
            may("init", "any", "What there is at first; else the first item, and it begins with the second."),
        ),
        (Result("any"),),
        Example("alc.reduce({1, 2, 3}, function(sum, n) return sum + n end)", "6"),
    ),
    Function(
        "alc.tuning",
        "Settings: defaults, with what `ctx` says about the same keys. Tables with names are merged, lists and single"
        " values replaced. `_schema` is left out.",
        (
            need("defaults", "table", "All keys there are, with their values."),
            need("ctx", "table|nil", "Where other values may be."),
            may("opts", "TuningOptions", "Where in `ctx`."),
        ),
        (Result("table"),),
        Example(
            "alc.tuning({n = 3, deep = {a = 1, b = 2}}, {n = 5, deep = {b = 9}})", '{"n": 5, "deep": {"a": 1, "b": 9}}'
        ),
    ),
)

PRELUDE = Group(
    "prelude",
    "Asking, reading, counting",
    "Ways of asking that are made of `alc.llm` and `alc.llm_batch`, and pure functions for what models write.",
    functions=(*ASKING, *READING),
    shapes=(
        Shape(
            "ParallelOptions",
            "How to ask about many items.",
            (may("post_fn", "fun(answer: string, item: any, i: integer): any", "What to make of an answer."),),
            base="LlmOptions",
        ),
        Shape(
            "CacheOptions",
            "How to ask, and how to remember.",
            (
                may("cache_key", "string", "What to remember the answer by, instead of the question."),
                may("cache_skip", "boolean", "Ask anew, and do not remember."),
            ),
            base="LlmOptions",
        ),
        Shape(
            "CacheInfo",
            "How the cache did.",
            (
                need("entries", "integer", "Answers kept."),
                need("hits", "integer", "Questions answered from it."),
                need("misses", "integer", "Questions asked."),
                need("max_entries", "integer", "The most that are kept."),
            ),
        ),
        Shape(
            "PipeOptions",
            "What a pipe does about failures, and after each stage.",
            (
                may(
                    "on_error",
                    '"abort"|"skip"|"continue"',
                    "`abort` (if absent): the error goes on. Else the stage is passed over.",
                ),
                may("on_stage", "fun(i: integer, name: string, ctx: table)", "Called after each stage that succeeded."),
            ),
        ),
        Shape(
            "MatchOptions",
            "How alike a word must be.",
            (may("threshold", "number", "Least similarity (Jaro-Winkler), 0 to 1; 0.7 if absent."),),
        ),
        Shape(
            "Vote",
            "What a vote came to.",
            (
                may("winner", "string", "The answer; absent if there were none."),
                need("count", "integer", "How often it was given."),
                need("total", "integer", "How many answers there were."),
            ),
        ),
        Shape(
            "ChunkOptions",
            "How to cut a text.",
            (
                may("mode", '"lines"|"chars"', "What to count; lines if absent."),
                may("size", "integer", "How many make a piece; 50 if absent."),
                may("overlap", "integer", "How many the next piece has again; 0 if absent."),
            ),
        ),
        Shape(
            "TuningOptions",
            "Where the settings are.",
            (may("prefix", "string", "Read `ctx[prefix]`, if it is there."),),
        ),
    ),
)
