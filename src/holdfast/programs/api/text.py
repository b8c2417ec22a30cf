"""The API table of functions that read what models write, cut and count, and of those built on questions."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, NoSpelling, ResultSpec, ShapeSpec, may, need
from holdfast.programs.api.questions import ASKING, ASKING_SHAPES

_TEXT = need("text", "string", "The text.")
_ITEMS = need("items", "any[]", "The list.")

READING = (
    FunctionSpec(
        "json_encode",
        "A value as JSON. A table with a value at index 1 is an array, and its other keys are dropped with a warning;"
        " any other is an object, whose keys must be text. NaN and infinities become null. A function, or a table that"
        " contains itself, is an error.",
        (need("value", "any", "The value."),),
        (ResultSpec("string"),),
        Example("alc.json_encode({b = 1, a = {true, 2.0}})", r'"{\"a\":[true,2.0],\"b\":1}"'),
        python=NoSpelling("`json.dumps`"),
    ),
    FunctionSpec(
        "json_decode",
        "JSON as a value. Null is nil; whole numbers are integers; an empty array stays one when written again."
        " Text that is not JSON is an error.",
        (need("text", "string", "The JSON text."),),
        (ResultSpec("any"),),
        Example('alc.json_decode("[1, null, 3]")[2] == nil', "true"),
        python=NoSpelling("`json.loads`"),
    ),
    FunctionSpec(
        "json_extract",
        "The first {table|dict or list} in what a model wrote: the whole text, a fenced block, or the first part in"
        " braces or brackets that is JSON.",
        (need("raw", "string", "The text.", python="text"),),
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
        "The entries of a list in what a model wrote: the lines that begin with a number, a dash, a star or a bullet;"
        " if there are none, the strings of the array that `{json_extract}` finds. They are trimmed, and each is"
        " returned once.",
        (_TEXT, may("most", "integer", "How many to return at most; all if absent.")),
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
        "The candidate that a text names. Of those that occur in the text, ignoring case, the one that occurs last; if"
        " none occurs, the one most similar to a word of the text.",
        (
            _TEXT,
            need("candidates", "string[]", "The words to choose from."),
            may("opts", "MatchOptions", "How similar a word must be."),
        ),
        (ResultSpec("string|nil", "The candidate, as it was passed; {nil|None} if none is similar enough."),),
        Example(
            'alc.match_enum("Not a bug, rather a wish.", {"Bug", "Wish"})',
            '"Wish"',
            'match_enum("Not a bug, rather a wish.", ["Bug", "Wish"])',
        ),
        python="match_enum(text: str, candidates: Sequence[str], *, threshold: float = 0.7) -> str | None",
    ),
    FunctionSpec(
        "match_bool",
        "Yes or no, by the last whole word that means either. Yes: approved, yes, ok, accept, pass, confirm, agree,"
        " true, lgtm. No: rejected, no, deny, block, fail, refuse, disagree, false.",
        (_TEXT,),
        (ResultSpec("boolean|nil", "{nil|None} if there is no such word."),),
        Example('alc.match_bool("No problems left: approved.")', "true", 'match_bool("No problems left: approved.")'),
        python="match_bool(text: str) -> bool | None",
    ),
    FunctionSpec(
        "parse_score",
        "A score from 1 to 10: the first digits in the text, limited to that range. Signs and decimals are not read.",
        (_TEXT, may("default", "number", "What to return if there are no digits; 5 if absent.")),
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
                "A {Lua pattern|regular expression} whose first {capture|group} is the number. If absent, the first"
                " number is returned.",
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
        "The most frequent answer, trimmed; in a tie, the one that came first.",
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
        "A text in chunks.",
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
        "8 hex digits, the same for texts that differ only in case and white space. For finding repeats; not for"
        " security or for keys that must not collide.",
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
        "A `string.format` that does not fail on what models and arithmetic produce: for an integer it rounds a"
        " fraction, reads a numeral, and writes NaN or Inf; a missing text is `<nil>`.",
        (need("pattern", "string", "The pattern."),),
        (ResultSpec("string"),),
        Example('alc.fmt("%d of %s", 2.6, nil)', '"3 of <nil>"'),
        rest=need("...", "any", "The values."),
        python=NoSpelling('an f-string, `f"{n} of {total}"`'),
    ),
    FunctionSpec(
        "log_fmt",
        "`{log}` of the text that `{fmt}` returns.",
        (need("level", "string", "As for `{log}`."), need("pattern", "string", "The pattern.")),
        example=Example('alc.log_fmt("info", "%d left", 3)', "null"),
        rest=need("...", "any", "The values."),
        python=NoSpelling('`log(f"{n} left")`'),
    ),
    FunctionSpec(
        "map",
        "The results of a function for each item, one after the other; it may ask. To ask about all items at once, use"
        " `{parallel}`.",
        (_ITEMS, need("fn", "fun(item: any, i: integer): any", "The function.")),
        (ResultSpec("any[]"),),
        Example("alc.map({1, 2}, function(n) return n * 10 end)", "[10, 20]"),
        python=NoSpelling("a comprehension, `[f(item) for item in items]`"),
    ),
    FunctionSpec(
        "filter",
        "The items for which a function returns true; it may ask.",
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
                "Takes the value so far and the next item, and returns the new value.",
            ),
            may("init", "any", "The first value; if absent, the first item, and folding begins with the second."),
        ),
        (ResultSpec("any"),),
        Example("alc.reduce({1, 2, 3}, function(sum, n) return sum + n end)", "6"),
        python=NoSpelling("a loop, or `functools.reduce`"),
    ),
    FunctionSpec(
        "tuning",
        "Settings: the defaults, overridden by the same keys in `ctx`. {Tables with names|Dicts} are merged, lists and"
        " single values replaced. `_schema` is left out.",
        (
            need("defaults", "table", "All settings, with their default values."),
            need("ctx", "table|nil", "Where other values may be."),
            may("opts", "TuningOptions", "Where in `ctx` they are."),
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
        "The parameters in a strategy's `META`, each from `ctx` or by default. A missing or invalid one is an error.",
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
    "Ways of asking that are built on `{llm}` and `{llm_batch}`, and pure functions for what models write.",
    functions=(*ASKING, *READING),
    shapes=(
        *ASKING_SHAPES,
        ShapeSpec(
            "MatchOptions",
            "How similar a word must be.",
            (may("threshold", "number", "The least similarity (Jaro-Winkler), 0 to 1; 0.7 if absent."),),
        ),
        ShapeSpec(
            "Vote",
            "The result of a vote.",
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
                may("size", "integer", "How many make a chunk; 50 if absent."),
                may("overlap", "integer", "How many the next chunk repeats; 0 if absent."),
            ),
        ),
        ShapeSpec(
            "TuningOptions",
            "Where the settings are.",
            (may("prefix", "string", "Read `ctx[prefix]`, if it exists."),),
        ),
    ),
)
