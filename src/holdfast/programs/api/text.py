"""The table of the pure functions that read what models write, cut and count; and of what is made of asking."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, NoSpelling, ResultSpec, ShapeSpec, may, need
from holdfast.programs.api.questions import ASKING, ASKING_SHAPES

_TEXT = need("text", "string", "What was written.")
_ITEMS = need("items", "any[]", "The list.")

READING = (
    FunctionSpec(
        "json_encode",
        "A value as JSON. A table with anything at 1 is an array, and its named keys are dropped with a warning; any"
        " other is an object, whose keys must be text. NaN and infinities become null. A function, or a table inside"
        " itself, is an error.",
        (need("value", "any", "What to write."),),
        (ResultSpec("string"),),
        Example("alc.json_encode({b = 1, a = {true, 2.0}})", r'"{\"a\":[true,2.0],\"b\":1}"'),
        python=NoSpelling("`json.dumps`"),
    ),
    FunctionSpec(
        "json_decode",
        "JSON as a value. Null is `alc.null`; whole numbers are integers; an empty array stays one when written again."
        " Text that is not JSON is an error.",
        (need("text", "string", "What to read."),),
        (ResultSpec("any"),),
        Example('alc.json_decode("[1, null]")[2] == alc.null', "true"),
        python=NoSpelling("`json.loads`"),
    ),
    FunctionSpec(
        "json_extract",
        "The first {table|dict or list} in what a model wrote: all of it, a fenced block, or the first part in braces"
        " or brackets that can be read.",
        (need("raw", "string", "What was written.", python="text"),),
        (ResultSpec("table|nil", "{nil|None} if there is none."),),
        Example(
            """alc.json_extract('Here: {"a": 1}. Anything else?')""",
            '{"a": 1}',
            """json_extract('Here: {"a": 1}. Anything else?')""",
        ),
        python="json_extract(text: str) -> Any",
    ),
    FunctionSpec(
        "list_items",
        "The entries of a list in what a model wrote: the lines with a number, a dash, a star or a bullet in front; if"
        " there are none, the texts of the array that `{json_extract}` finds. Without blanks at their ends, each once.",
        (_TEXT, may("most", "integer", "How many to give at most; all if absent.")),
        (ResultSpec("string[]", "Empty if there is no list."),),
        Example(
            r'alc.list_items("Buy:\n1. tea\n2. milk\n3. bread", 2)',
            '["tea", "milk"]',
            r'list_items("Buy:\n1. tea\n2. milk\n3. bread", 2)',
        ),
        python="list_items(text: str, most: int | None = None) -> list[str]",
    ),
    FunctionSpec(
        "match_enum",
        "Which of some words is meant. Of those that occur in the text, in any case, the one that occurs last; if none"
        " does, the one that a word of the text is most like.",
        (
            _TEXT,
            need("candidates", "string[]", "The words."),
            may("opts", "MatchOptions", "How alike a word must be."),
        ),
        (ResultSpec("string|nil", "The candidate as given; {nil|None} if none is like it."),),
        Example(
            'alc.match_enum("Not a bug, rather a wish.", {"Bug", "Wish"})',
            '"Wish"',
            'match_enum("Not a bug, rather a wish.", ["Bug", "Wish"])',
        ),
        python="match_enum(text: str, candidates: Sequence[str], *, threshold: float = 0.7) -> str | None",
    ),
    FunctionSpec(
        "match_bool",
        "Yes or no, by whole words of which the last one counts. Yes: approved, yes, ok, accept, pass, confirm, agree,"
        " true, lgtm. No: rejected, no, deny, block, fail, refuse, disagree, false.",
        (_TEXT,),
        (ResultSpec("boolean|nil", "{nil|None} if there is no such word."),),
        Example('alc.match_bool("No problems left: approved.")', "true", 'match_bool("No problems left: approved.")'),
        python="match_bool(text: str) -> bool | None",
    ),
    FunctionSpec(
        "parse_score",
        "A score from 1 to 10: the first digits in the text, cut to that range. Signs and decimals are not read.",
        (_TEXT, may("default", "number", "What to give if there are no digits; 5 if absent.")),
        (ResultSpec("number"),),
        Example('alc.parse_score("I give it 8/10.")', "8", 'parse_score("I give it 8/10.")'),
        python="parse_score(text: str, default: float = 5) -> float",
    ),
    FunctionSpec(
        "parse_number",
        "A number in the text.",
        (
            _TEXT,
            may(
                "pattern",
                "string",
                "A {Lua pattern|regular expression} whose first {capture|group} is the number; else the first number.",
            ),
        ),
        (ResultSpec("number|nil", "{nil|None} if there is none."),),
        Example(
            'alc.parse_number("total: 12.5 EUR, tax: 2", "tax: (%d+)")',
            "2",
            r'parse_number("total: 12.5 EUR, tax: 2", r"tax: (\d+)")',
        ),
        python="parse_number(text: str, pattern: str | None = None) -> float | None",
    ),
    FunctionSpec(
        "vote",
        "The answer that was given most often, without blanks at its ends; of several the one given first.",
        (need("answers", "any[]", "The answers."),),
        (ResultSpec("Vote"),),
        Example(
            'alc.vote({"yes", "no ", "no"})',
            '{"winner": "no", "count": 2, "total": 3}',
            'vote(["yes", "no ", "no"])',
        ),
        python="vote(answers: Sequence[Any]) -> dict[str, Any]",
        notes={"python": "Without answers the winner is `None`."},
    ),
    FunctionSpec(
        "chunk",
        "A text in pieces.",
        (need("text", "string", "The text."), may("opts", "ChunkOptions", "How to cut.")),
        (ResultSpec("string[]"),),
        Example(
            'alc.chunk("abcde", {mode = "chars", size = 3, overlap = 1})',
            '["abc", "cde"]',
            'chunk("abcde", mode="chars", size=3, overlap=1)',
        ),
        python='chunk(text: str, *, mode: Literal["lines", "chars"] = "lines", size: int = 50, overlap: int = 0)'
        " -> list[str]",
    ),
    FunctionSpec(
        "fingerprint",
        "8 hex digits that are the same for texts which differ only in case and blanks. For finding repeats; not for"
        " security, nor for keys that must not collide.",
        (need("text", "string", "The text."),),
        (ResultSpec("string"),),
        Example(
            'alc.fingerprint("A  b") == alc.fingerprint("a B")', "true", 'fingerprint("A  b") == fingerprint("a B")'
        ),
        python="fingerprint(text: str) -> str",
    ),
    FunctionSpec(
        "hash",
        "16 hex digits for exactly this text. For names and look-ups; not for security.",
        (need("text", "string", "The text."),),
        (ResultSpec("string"),),
        Example('alc.hash("a")', '"af63dc4c8601ec8c"'),
        python=NoSpelling("`hashlib.sha256(text.encode()).hexdigest()`"),
    ),
    FunctionSpec(
        "fmt",
        "`string.format` that does not fail on what models and arithmetic bring: where an integer is wanted it rounds a"
        " fraction, reads a numeral and writes NaN or Inf; a missing text is `<nil>`.",
        (need("pattern", "string", "The pattern."),),
        (ResultSpec("string"),),
        Example('alc.fmt("%d of %s", 2.6, nil)', '"3 of <nil>"'),
        rest=need("...", "any", "What goes into it."),
        python=NoSpelling('an f-string, `f"{n} of {total}"`'),
    ),
    FunctionSpec(
        "log_fmt",
        "`{log}` of what `{fmt}` gives.",
        (need("level", "string", "As for `{log}`."), need("pattern", "string", "The pattern.")),
        example=Example('alc.log_fmt("info", "%d left", 3)', "null"),
        rest=need("...", "any", "What goes into it."),
        python=NoSpelling('`log(f"{n} left")`'),
    ),
    FunctionSpec(
        "map",
        "What a function makes of each item, one after the other; it may ask. To ask for all items at once, use"
        " `{parallel}`.",
        (_ITEMS, need("fn", "fun(item: any, i: integer): any", "The function.")),
        (ResultSpec("any[]"),),
        Example("alc.map({1, 2}, function(n) return n * 10 end)", "[10, 20]"),
        python=NoSpelling("a comprehension, `[f(item) for item in items]`"),
    ),
    FunctionSpec(
        "filter",
        "The items that a function says yes to; it may ask.",
        (_ITEMS, need("fn", "fun(item: any, i: integer): any", "The function.")),
        (ResultSpec("any[]"),),
        Example("alc.filter({1, 2, 3}, function(n) return n > 1 end)", "[2, 3]"),
        python=NoSpelling("a comprehension, `[item for item in items if f(item)]`"),
    ),
    FunctionSpec(
        "reduce",
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
        (ResultSpec("any"),),
        Example("alc.reduce({1, 2, 3}, function(sum, n) return sum + n end)", "6"),
        python=NoSpelling("a loop, or `functools.reduce`"),
    ),
    FunctionSpec(
        "tuning",
        "Settings: defaults, with what `ctx` says about the same keys. {Tables with names|Dicts} are merged, lists and"
        " single values replaced. `_schema` is left out.",
        (
            need("defaults", "table", "All keys there are, with their values."),
            need("ctx", "table|nil", "Where other values may be."),
            may("opts", "TuningOptions", "Where in `ctx`."),
        ),
        (ResultSpec("table"),),
        Example(
            "alc.tuning({n = 3, deep = {a = 1, b = 2}}, {n = 5, deep = {b = 9}})",
            '{"n": 5, "deep": {"a": 1, "b": 9}}',
            'tuning({"n": 3, "deep": {"a": 1, "b": 2}}, {"n": 5, "deep": {"b": 9}})',
        ),
        python="tuning(defaults: dict[str, Any], ctx: dict[str, Any] | None, *, prefix: str | None = None)"
        " -> dict[str, Any]",
    ),
    FunctionSpec(
        "parameters",
        "The parameters that a strategy's `META` names, each from `ctx` or by default. One that is missing, or not what"
        " `META` says of it, is an error.",
        (
            need("meta", "table", "The `META`."),
            need("ctx", "table|nil", "Where the values may be."),
        ),
        (ResultSpec("table", "The values by name."),),
        Example(
            gives='{"rounds": 2}',
            python='parameters({"name": "x", "description": "Tries.", "parameters": {"rounds": {"type": "int",'
            ' "description": "How often.", "default": 3}}}, {"rounds": 2})',
        ),
        lua=NoSpelling("`alc.tuning`"),
        python="parameters(meta: dict[str, Any], ctx: dict[str, Any] | None) -> dict[str, Any]",
        native=NoSpelling("`ctx.tuning`"),
    ),
)

PRELUDE = GroupSpec(
    "Asking, reading, counting",
    "Ways of asking that are made of `{llm}` and `{llm_batch}`, and pure functions for what models write.",
    functions=(*ASKING, *READING),
    shapes=(
        *ASKING_SHAPES,
        ShapeSpec(
            "MatchOptions",
            "How alike a word must be.",
            (may("threshold", "number", "Least similarity (Jaro-Winkler), 0 to 1; 0.7 if absent."),),
        ),
        ShapeSpec(
            "Vote",
            "What a vote came to.",
            (
                may("winner", "string", "The answer; absent if there were none."),
                need("count", "integer", "How often it was given."),
                need("total", "integer", "How many answers there were."),
            ),
        ),
        ShapeSpec(
            "ChunkOptions",
            "How to cut a text.",
            (
                may("mode", '"lines"|"chars"', "What to count; lines if absent."),
                may("size", "integer", "How many make a piece; 50 if absent."),
                may("overlap", "integer", "How many the next piece has again; 0 if absent."),
            ),
        ),
        ShapeSpec(
            "TuningOptions",
            "Where the settings are.",
            (may("prefix", "string", "Read `ctx[prefix]`, if it is there."),),
        ),
    ),
)
