"""Small sources for each row of the page about sandboxed Python, and what becomes of them."""

from __future__ import annotations

from typing import Any

BEFORE, IN_THE_RUN = "before", "in the run"

WORKS: dict[str, list[tuple[str, Any]]] = {
    "functions": [
        (
            """
            def many(a, /, b=2, *rest, c=3, **more):
                return [a, b, rest, c, more]
            many(1, 4, 5, c=6, d=7)
            """,
            [1, 4, [5], 6, {"d": 7}],
        ),
        (
            """
            calls = 0
            def counting(function):
                seen = 0
                def counted(*args):
                    global calls
                    nonlocal seen
                    seen += 1
                    calls += 1
                    return [function(*args), seen]
                return counted
            @counting
            def twice(x):
                return x * 2
            twice(1)
            [*twice(4), calls, (lambda x: x + 1)(1)]
            """,
            [8, 2, 2, 2],
        ),
    ],
    "comprehensions": [
        ("[x + y for x in [1, 2] if x > 1 for y in [10, 20]]", [12, 22]),
        ("[{k: v for k, v in zip('ab', [1, 2])}, sorted({n % 2 for n in range(5)})]", [{"a": 1, "b": 2}, [0, 1]]),
        ("type(n for n in [1]).__name__", "list"),
        ("sum(n for n in [1, 2])", 3),
    ],
    "unpacking": [
        (
            "first, *rest = [1, 2, 3]\n[first, rest, [*rest, 4], {**{'a': 1}, 'b': 2}, (n := 5), n]",
            [1, [2, 3], [2, 3, 4], {"a": 1, "b": 2}, 5, 5],
        ),
    ],
    "texts": [
        (
            "x = 3.14159\n[f'{x:.2f}|{\"a\":>3}|{1000000:,}', '%s-%d' % ('a', 3), '{}{y}'.format(1, y=2)]",
            ["3.14|  a|1,000,000", "a-3", "12"],
        ),
        (
            "['abc'[::-1], ' A,b '.strip().lower().split(','), 'x'.removeprefix('x'), b'ab'.decode()]",
            ["cba", ["a", "b"], "", "ab"],
        ),
    ],
    "`match`": [
        (
            """
            class Point:
                def __init__(self, x):
                    self.x = x
            def told(value):
                match value:
                    case "word":
                        return "text"
                    case {"a": int(n)} if n > 0:
                        return n
                    case [head, *_]:
                        return head
                    case Point(x=x):
                        return x
                    case _:
                        return None
            [told("word"), told({"a": 4}), told([7, 8]), told(Point(9)), told({"a": -1})]
            """,
            ["text", 4, 7, 9, None],
        ),
    ],
    "loops": [
        (
            """
            seen = []
            for n in range(5):
                if n == 1:
                    continue
                if n == 3:
                    break
                seen.append(n)
            else:
                seen.append("never")
            while seen and len(seen) < 4:
                seen.append("w")
            else:
                seen.append("else")
            seen
            """,
            [0, 2, "w", "w", "else"],
        ),
    ],
    "errors": [
        (
            """
            steps = []
            try:
                try:
                    int("x")
                except (ValueError, KeyError) as error:
                    raise RuntimeError("worse") from error
                finally:
                    steps.append("finally")
            except RuntimeError as error:
                steps.append(str(error))
            else:
                steps.append("never")
            try:
                assert len(steps) == 9, "count"
            except AssertionError:
                steps.append("asserted")
            steps
            """,
            ["finally", "worse", "asserted"],
        ),
    ],
    "`with`": [
        (
            """
            class Guard:
                def __enter__(self):
                    return "in"
                def __exit__(self, kind, error, trace):
                    return True
            with Guard() as told:
                raise ValueError("swallowed")
            told
            """,
            "in",
        ),
    ],
    "plain classes": [
        (
            """
            class Number:
                kind = "number"
                def __init__(self, n):
                    self.n = n
                    self.kept = {}
                def __call__(self, x):
                    return self.n + x
                def __eq__(self, other):
                    return self.n == other.n
                def __hash__(self):
                    return self.n
                def __repr__(self):
                    return f"Number({self.n})"
                def __str__(self):
                    return "text"
                def __contains__(self, x):
                    return x == self.n
                def __getitem__(self, key):
                    return self.kept[key]
                def __setitem__(self, key, value):
                    self.kept[key] = value
                def __add__(self, other):
                    return Number(self.n + other.n)
                def __sub__(self, other):
                    return Number(self.n - other.n)
                def __mul__(self, times):
                    return Number(self.n * times)
            class Upto:
                def __init__(self, most):
                    self.most = most
                    self.at = 0
                def __iter__(self):
                    return self
                def __next__(self):
                    self.at += 1
                    if self.at > self.most:
                        raise StopIteration
                    return self.at
            a, b = Number(1), Number(2)
            a["k"] = "v"
            [Number.kind, a(5), a == Number(1), len({a, Number(1)}), repr(a + b), repr(b - a), repr(b * 4), str(a),
             1 in a, a["k"], list(Upto(3))]
            """,
            ["number", 6, True, 1, "Number(3)", "Number(1)", "Number(8)", "text", True, "v", [1, 2, 3]],
        ),
    ],
    "dataclasses": [
        (
            """
            from dataclasses import dataclass, field
            @dataclass
            class Idea:
                text: str
                score: float = 0.5
                notes: list[str] = field(default_factory=list)
            @dataclass(frozen=True)
            class Fixed:
                n: int
            idea = Idea("a")
            idea.notes.append("x")
            [idea.score, idea.notes, Idea("b").notes, Idea("a") == Idea("a"), repr(Fixed(1))]
            """,
            [0.5, ["x"], [], True, "Fixed(n=1)"],
        ),
    ],
    "`async` and `await`": [
        (
            """
            import asyncio
            async def ask_twice(what):
                first = await llm_async(what)
                return first + await llm_async("more")
            async def run(ctx):
                await asyncio.sleep(0)
                return await asyncio.gather(ask_twice("a"), ask_twice("b"))
            """,
            ["<a><more>", "<b><more>"],
        ),
        ("import asyncio\nasync def three():\n    return 3\nasyncio.run(three())", 3),
        ("(await llm_async('a')).upper()", "<A>"),
    ],
    "numbers": [("[str(2**200)[:6], 7 // 2, -7 % 3, str(complex(1, 2) * 2j)]", ["160693", 3, 2, "(-4+2j)"])],
    "annotations": [
        (
            """
            from typing import Any
            def first[T](items: list[T], default: T | None = None) -> T | None:
                return items[0] if items else default
            kept: dict[str, Any] = {"n": first([4])}
            kept
            """,
            {"n": 4},
        ),
    ],
    "`eval` and `exec`": [("[eval('1 + 1'), exec('n = 5'), eval('n')]", [2, None, 5])],
    "built-in functions": [
        (
            "[sorted('ba'), list(zip([1], [2])), list(enumerate('a', 1)), any([0, 1]), all([]), round(2.567, 1)]",
            [["a", "b"], [[1, 2]], [[1, "a"]], True, True, 2.6],
        ),
        (
            "[list(map(len, ['ab'])), list(filter(None, [0, 1])), next(iter([5])), getattr(1, 'x', 4)]",
            [[2], [1], 5, 4],
        ),
        (
            "[isinstance(True, int), sum([1, 2]), min(3, 1), max([2], default=0), abs(-1), divmod(7, 3), ord('a')]",
            [True, 3, 1, 2, 1, [2, 1], 97],
        ),
        ("print('said')", None),
    ],
}
"""Sources by the row that they show, and what they come to."""

MISSING: dict[str, list[tuple[str, str, str]]] = {
    "inheritance": [
        ("class Mine(dict):\n    pass", BEFORE, "no inheritance"),
        ("class MineError(Exception):\n    pass", BEFORE, "raise RuntimeError or ValueError"),
    ],
    "classes inside classes": [("class A:\n    class B:\n        pass", BEFORE, "no class bodies")],
    "`@property`, `@staticmethod`, `@classmethod`": [
        (f"class A:\n    @{name}\n    def f(self):\n        return 1", BEFORE, f"no @{name}")
        for name in ("property", "staticmethod", "classmethod")
    ],
    "`__bool__`, `__format__`, `__len__`, `__lt__` and its kin, `__getattr__`": [
        (f"class A:\n    def {name}(self):\n        return 1", BEFORE, f"never calls {name}")
        for name in ("__bool__", "__format__", "__len__", "__lt__", "__ge__", "__getattr__")
    ],
    "generators": [("def g():\n    yield 1\ng()", BEFORE, "no generators")],
    "`del`": [("x = [1]\ndel x[0]", BEFORE, "no `del`")],
    "`async for`, `async with`": [
        ("async def run(ctx):\n    async for x in ctx:\n        pass", BEFORE, "no `async for`"),
        ("async def run(ctx):\n    async with ctx:\n        pass", BEFORE, "no `async for` and `async with`"),
    ],
    "`except*`": [("try:\n    pass\nexcept* ValueError:\n    pass", BEFORE, "no `except*`")],
    "`from … import *`": [("from math import *", BEFORE, "import *")],
    "`type X = …`": [("type X = int", BEFORE, "no type aliases")],
    "the rest of `asyncio`": [
        (f"import asyncio\nx = asyncio.{name}()", BEFORE, f"no asyncio.{name}")
        for name in ("create_task", "wait_for", "TaskGroup", "Semaphore")
    ],
    "`gather(…, return_exceptions=True)`": [
        (
            "import asyncio\nawait asyncio.gather(llm_async('a'), return_exceptions=True)",
            IN_THE_RUN,
            "gather() does not yet support keyword arguments",
        )
    ],
    "methods of built-in types as values": [
        ("sorted(['b', 'A'], key=str.lower)", IN_THE_RUN, "no attribute 'lower'"),
        ("items = []\nadd = items.append", IN_THE_RUN, "no attribute 'append'"),
    ],
    "`callable`, `vars`, `dir`, `globals`, `input`, `compile`, `super`, `issubclass`, `bytearray`": [
        (f"x = {name}", BEFORE, f"Name `{name}` used when not defined")
        for name in ("callable", "vars", "dir", "globals", "input", "compile", "super", "issubclass", "bytearray")
    ],
    "`object()`": [("object()", IN_THE_RUN, "cannot create 'object' instances")],
    "parts of modules": [
        ("import json\njson.dumps({'a': {1}}, default=list)", IN_THE_RUN, "'default'"),
        ("import re\nre.sub('a', lambda m: 'b', 'a')", IN_THE_RUN, "callable replacement"),
        ("from dataclasses import asdict", IN_THE_RUN, "'asdict'"),
        ("from typing import cast", IN_THE_RUN, "'cast'"),
        ("from collections.abc import Sequence", IN_THE_RUN, "'collections.abc'"),
        ("from datetime import UTC", IN_THE_RUN, "'UTC'"),
    ],
    "other modules": [
        (f"import {name}", BEFORE, f"no module '{name}'")
        for name in ("os", "sys", "string", "textwrap", "statistics", "uuid", "operator", "heapq", "enum", "urllib")
    ],
    "files, environment, network, processes": [
        ("open('/etc/passwd')", BEFORE, "Name `open`"),
        ("exec(\"open('/etc/passwd')\")", IN_THE_RUN, "PermissionError"),
        ("import socket", BEFORE, "no module 'socket'"),
        ("import subprocess", BEFORE, "no module 'subprocess'"),
    ],
}
"""Sources by the row that they show, when their fault is told, and words of it."""

PLACES: dict[str, list[str]] = {
    "functions, lambdas, comprehensions, conditions, defaults, f-strings, `match`, `finally`": [
        "def f():\n    return llm('q')\nf()",
        "(lambda: llm('q'))()",
        "[llm('q') for _ in [1]][0]",
        "['<q>' for _ in [1] if llm('q')][0]",
        "def f(x=llm('q')):\n    return x\nf()",
        "f'{llm(\"q\")}'",
        "match llm('q'):\n    case said:\n        pass\nsaid",
        "try:\n    pass\nfinally:\n    said = llm('q')\nsaid",
    ],
    "`__init__`, `__enter__`, `__exit__`": [
        "class A:\n    def __init__(self):\n        self.x = llm('q')\nA().x",
        (
            "class A:\n    def __enter__(self):\n        return llm('q')\n"
            "    def __exit__(self, *why):\n        llm('r')\nwith A() as said:\n    pass\nsaid"
        ),
    ],
    "`functools.reduce`, functions under `functools.cache`": [
        "import functools\nfunctools.reduce(lambda all, each: all + llm(each), ['q'], '')",
        "import functools\n@functools.cache\ndef f(x):\n    return llm(x)\nf('q')",
    ],
    "`key=` of `sorted`, `max`, `min`": [
        f"{name}(['a', 'b'], key=lambda each: llm(each))" for name in ("sorted", "max", "min")
    ],
    "`map`, `filter`": [f"{name}(lambda each: llm(each), ['a'])" for name in ("map", "filter")],
    "the factory of a `defaultdict`": ["from collections import defaultdict\ndefaultdict(lambda: llm('q'))['a']"],
    "operators, `__str__`": [
        "class A:\n    def __add__(self, other):\n        return llm('q')\nA() + A()",
        "class A:\n    def __eq__(self, other):\n        return llm('q')\nA() == A()",
        "class A:\n    def __str__(self):\n        return llm('q')\nstr(A())",
    ],
}
"""Sources that ask in a place, and come to `<q>` where they can."""

IN_MODULES: dict[str, tuple[str, Any]] = {
    "asyncio": ("import asyncio\nasyncio.run(asyncio.sleep(0))", None),
    "base64": ("import base64\nbase64.b64decode(base64.b64encode(b'a')).decode()", "a"),
    "collections": (
        """
        from collections import Counter, defaultdict, deque, namedtuple
        [Counter("aab").most_common(1), defaultdict(int)["x"], list(deque([1, 2], maxlen=1)), namedtuple("P", "x")(1).x]
        """,
        [[["a", 2]], 0, [2], 1],
    ),
    "copy": (
        "import copy\na = [[1]]\nb = copy.deepcopy(a)\nc = copy.copy(a)\na[0].append(2)\n[b, c]",
        [[[1]], [[1, 2]]],
    ),
    "csv": ("import csv\n[list(csv.reader(['a,b'])), list(csv.DictReader(['a', '1']))]", [[["a", "b"]], [{"a": "1"}]]),
    "dataclasses": ("from dataclasses import dataclass, field\n1", 1),
    "datetime": (
        """
        import datetime
        day = datetime.date(2026, 1, 2) - datetime.timedelta(days=1)
        [datetime.datetime(2026, 1, 2).isoformat(), str(day), datetime.datetime.now().timestamp() > 0]
        """,
        ["2026-01-02T00:00:00", "2026-01-01", True],
    ),
    "decimal": ("import decimal\nstr(decimal.Decimal('0.1') * 3)", "0.3"),
    "functools": (
        """
        import functools
        @functools.lru_cache(maxsize=2)
        def f(x):
            return x
        [functools.reduce(lambda a, b: a + b, [1, 2]), functools.partial(max, 3)(2), f(1)]
        """,
        [3, 3, 1],
    ),
    "hashlib": ("import hashlib\nhashlib.sha256(b'a').hexdigest()[:8]", "ca978112"),
    "itertools": (
        """
        import itertools as i
        groups = [[key, list(group)] for key, group in i.groupby("aab")]
        [list(i.chain([1], [2])), list(i.combinations("abc", 2))[0], list(i.product("a", "b")),
         list(i.islice([1, 2], 1)), groups, list(i.accumulate([1, 2]))]
        """,
        [[1, 2], ["a", "b"], [["a", "b"]], [1], [["a", ["a", "a"]], ["b", ["b"]]], [1, 3]],
    ),
    "json": (
        """
        import json
        try:
            json.loads("{")
        except json.JSONDecodeError as error:
            bad = "column" in str(error)
        [bad, json.loads("[1]"), json.dumps({"b": 1, "a": "é"}, sort_keys=True, ensure_ascii=False)]
        """,
        [True, [1], '{"a": "é", "b": 1}'],
    ),
    "math": ("import math\n[math.sqrt(4), math.floor(2.5), math.prod([2, 3]), math.pi > 3]", [2.0, 2, 6, True]),
    "random": (
        """
        import random
        random.seed(3)
        same = random.random() == random.Random(3).random()
        [same, random.choice([5]), len(random.sample([1, 2], 2)), random.randint(1, 1), len(random.choices("a", k=3))]
        """,
        [True, 5, 2, 1, 3],
    ),
    "re": (
        r"""
        import re
        found = [match.group(0) for match in re.finditer("(?i)A", "aA")]
        [re.findall(r"\d+", "a1b22"), re.split(",", "a,b"), re.sub(r"(\w)", r"<\1>", "a"), found]
        """,
        [["1", "22"], ["a", "b"], "<a>", ["a", "A"]],
    ),
    "time": ("import time\n[time.time() == now(), time.monotonic() >= 0, time.strftime('%Y') > '2000']", [True] * 3),
    "tomllib": ("import tomllib\ntomllib.loads('a = 1')", {"a": 1}),
    "typing": ("from typing import Any, Callable, Iterable, Literal, Optional, Sequence\nx: Optional[int] = 1\nx", 1),
    "unicodedata": ("import unicodedata\nunicodedata.normalize('NFKC', '\ufb01') + unicodedata.category('a')", "fiLl"),
    "__future__": ("from __future__ import annotations\n1", 1),
}
"""Of each module something of all that the page names, and what it comes to."""
