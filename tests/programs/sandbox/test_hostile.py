"""Hostile strategies come to a clear end, in bounded time, and the sessions beside them do not notice."""

from __future__ import annotations

import asyncio
import random
import resource
import time
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from holdfast.core.errors import InvalidValueError
from holdfast.core.events import CompletedEvent, Event, FailedEvent, PausedEvent
from holdfast.core.records import LoggedRecord
from holdfast.engine.holdfast import Holdfast
from holdfast.programs.sandbox import limits, live_program
from holdfast.programs.sandbox.calls import FUNCTIONS, HostCalls, StepContext
from holdfast.programs.sandbox.source import python_code
from holdfast.testing.patience import HANG_S
from tests.programs.sandbox.helpers import broken, code, converse, echo, engine, failed, logged, outcome, result, run

DEADLINE_S = 0.3
"""Of hostile steps: a tenth of a second would do, but the machine may have other things to do."""

SLOW_S = HANG_S / 2
"""Seconds that nothing here may take: the deadline, the grace until a worker is killed, and a busy machine."""

BYSTANDER = "def run(ctx):\n    return [llm(f'calm {n}') for n in range(3)]"
CALM = ["<calm 0>", "<calm 1>", "<calm 2>"]

FAKE = "memory limit exceeded: 67108865 bytes > 67108864 bytes"

DAG = "x = [0] * 10\nfor _ in range({}):\n    x = [x] * 10\n"
COMPARED = """
def deep():
    x = [0]
    for _ in range(60):
        x = [x, x]
    return x
META = {
    "name": "m",
    "description": "d",
    "parameters": {"a": {"type": "list", "description": "d", "choices": [deep()]}},
}
"""
DEEP = "x = []\nfor _ in range(200_000):\n    x = [x]\n"


async def attacked(hf: Holdfast, source: str, deadline_s: float) -> CompletedEvent | FailedEvent:
    """How a hostile strategy ends, while another session on the same engine goes on."""

    async def attack() -> CompletedEvent | FailedEvent:
        event = await hf.start(python_code(source, deadline_s=deadline_s), wait=SLOW_S)
        return (await converse(hf, event))[1]

    async def be_calm(event: Event) -> Any:
        return (await converse(hf, event))[1].result

    calm = await hf.start(python_code(BYSTANDER))
    begun = time.monotonic()
    end, beside = await asyncio.gather(attack(), be_calm(calm))
    assert time.monotonic() - begun < SLOW_S
    assert beside == CALM
    return end


TOO_LONG = ("deadline", "the strategy ran for more than 0.3 s without asking anything: the deadline of one step")
TOO_MUCH = ("memory", "the strategy needs more than 64 MiB: the memory limit of one session")
TOO_MANY = ("ValueError", "more than 1000000 items, counted as often as they occur")
TOO_DEEP = ("RecursionError", "maximum recursion depth exceeded")
NESTED = ("SyntaxError", "Source is too deeply nested")

BOMBS: dict[str, tuple[str, tuple[str, str]]] = {
    # time
    "a loop": ("while True:\n    pass", TOO_LONG),
    "a loop that swallows everything": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        TOO_LONG,
    ),
    "a recursion that swallows its own end": (
        "def f():\n    try:\n        f()\n    except BaseException:\n        f()\nf()",
        TOO_LONG,
    ),
    "big integers, which cannot be interrupted": ("x = 3 ** 2_000_000\nwhile True:\n    y = x * x", TOO_LONG),
    "lists that compare for ever": (
        "x = [0]\ny = [0]\nfor _ in range(60):\n    x = [x, x]\n    y = [y, y]\nx == y",
        TOO_LONG,
    ),
    "a clock that stands still": ("import time\nwhile time.time() < 1e12:\n    pass", TOO_LONG),
    "calls of the host": ("while True:\n    now()", TOO_LONG),
    "names of the host": ("while True:\n    f = llm", TOO_LONG),
    "log lines": ("while True:\n    log('x')", TOO_LONG),
    "large log lines": ("while True:\n    log('x' * 1_000_000)", TOO_LONG),
    "prints": ("while True:\n    print('x' * 1000)", TOO_LONG),
    "refusals that cost the host time": (
        DAG.format(12) + "while True:\n    try:\n        log(x)\n    except ValueError:\n        pass",
        TOO_LONG,
    ),
    # memory
    "texts": ("x = []\nwhile True:\n    x.append('a' * 1_000_000)", TOO_MUCH),
    "texts, swallowing": (
        "x = []\nwhile True:\n    try:\n        x.append('a' * 1_000_000)\n    except BaseException:\n        pass",
        TOO_MUCH,
    ),
    "a memory error that would be outlived": ("try:\n    x = 'a' * 10**12\nfinally:\n    llm('still here')", TOO_MUCH),
    "a long list": ("x = [0] * 10**10", TOO_MUCH),
    "a giant integer": ("x = 10 ** 10 ** 8", TOO_MUCH),
    "a far shift": ("x = 1 << 10**12", TOO_MUCH),
    "a wide format": ("'%1000000000d' % 1", TOO_MUCH),
    "a text of a list that holds itself often": (DAG.format(20) + "f'{x}'", TOO_MUCH),
    "code without end": ("exec('x = 1\\n' * 1_000_000)", TOO_MUCH),
    "tasks that make tasks": (
        "import asyncio\nasync def f():\n    await asyncio.gather(f(), f())\nawait f()",
        TOO_MUCH,
    ),
    "more than can be kept": (
        "x = ['a' * 1_000_000 + str(i) for i in range(40)]\nllm('q')",
        ("memory", "holds too much data to be stored"),
    ),
    # depth
    "a recursion": ("def f(n):\n    return f(n + 1)\nf(0)", TOO_DEEP),
    "code that runs itself": ("s = 'exec(s)'\nexec(s)", TOO_DEEP),
    "deep equality": (DEEP + "y = []\nfor _ in range(200_000):\n    y = [y]\nx == y", TOO_DEEP),
    "nested code": ("eval('(' * 100_000 + ')' * 100_000)", NESTED),
    "signs": ("eval('-' * 1_000_000 + '1')", NESTED),
    "a deep result": (DEEP + "x", ("invalid_result", "nested deeper than 256 levels")),
    "a deep argument": (DEEP + "tool('t', x=x)", ("ValueError", "nested deeper than 256 levels")),
    # size
    "a huge result": ("['x' * 1_000_000] * 50", ("invalid_result", "larger than 33554432 bytes of JSON")),
    "a result that is in itself often": (DAG.format(12) + "x", ("invalid_result", "more than 1000000 items")),
    "an argument that is in itself often": (DAG.format(12) + "tool('t', x=x)", TOO_MANY),
    "a log line that is in itself often": (DAG.format(12) + "log(x)", TOO_MANY),
    "a default that compares for ever": (COMPARED + "parameters(META, {'a': deep()})", TOO_MANY),
    "one long text in many questions": (
        "llm_batch(['x' * 10_000_000] * 1000)",
        ("ValueError", "llm_batch: the arguments have more than 67108864 bytes"),
    ),
    "one long option in many questions": (
        "llm_batch(['x'] * 10_000, system='y' * 1_000_000)",
        ("ValueError", "the questions of one pause have more than 67108864 bytes"),
    ),
    "one long text in many awaited questions": (
        "import asyncio\np = 'x' * 10_000_000\nawait asyncio.gather(*[llm_async(p) for _ in range(100)])",
        ("ValueError", "the questions of one pause have more than 67108864 bytes"),
    ),
    "too many questions": (
        "llm_batch(['x'] * 10_001)",
        ("RuntimeError", "10001 queries at once; at most 10000 are allowed"),
    ),
    "figures": (
        "i = 0\nwhile True:\n    stats.record(str(i), 'x' * 1000)\n    i += 1",
        ("ValueError", "stats.record: too much is recorded; 1048576 bytes"),
    ),
    "backtracking": (
        "import re\nre.match(r'(a|a)*\\1$', 'a' * 60 + 'b')",
        ("error", "Max limit for backtracking count exceeded"),
    ),
    "digits": ("str(10 ** 100_000)", ("ValueError", "Exceeds the limit (4300 digits)")),
    # limits that are not met
    "a memory error of its own": (f"raise MemoryError({FAKE!r})", ("MemoryError", FAKE)),
    "a memory error, raised where nothing is": (
        f"try:\n    raise MemoryError({FAKE!r})\nfinally:\n    x = 1",
        ("MemoryError", FAKE),
    ),
    "a memory error in other letters": (
        f"try:\n    raise MemoryErro\N{MATHEMATICAL SCRIPT SMALL R}({FAKE!r})\nfinally:\n    x = 1",
        ("MemoryError", FAKE),
    ),
    "a memory error of code that was made up": (
        f"try:\n    exec('raise Memory' + 'Error(' + repr({FAKE!r}) + ')')\nfinally:\n    x = 1",
        ("MemoryError", FAKE),
    ),
    "a deadline of its own": (
        "raise TimeoutError('turn time limit exceeded: 0.5s > 0.5s')",
        ("TimeoutError", "turn time limit exceeded: 0.5s > 0.5s (strategy.py:1:7)"),
    ),
    "a deadline of code that was made up": (
        "exec('raise TimeoutError(\"turn time limit exceeded: 0.5s > 0.5s\")')",
        ("TimeoutError", "turn time limit exceeded: 0.5s > 0.5s (strategy.py:1:7)"),
    ),
    "an interrupt": ("raise KeyboardInterrupt()", ("KeyboardInterrupt", "strategy.py:1:7")),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_ends_its_own_session_and_no_other_and_takes_little_memory(name: str) -> None:
    source, (kind, words) = BOMBS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with engine(workers=2) as hf:
        # Those that break another limit should have the time to do so, on any machine.
        end = failed(await attacked(hf, source, DEADLINE_S if kind == "deadline" else SLOW_S))
        assert (end.error_kind, words in end.error) == (kind, True), end.error[:500]
        assert result(await hf.start(python_code("5"))) == 5
    # Of this process, in KB: a question that is written out a thousand times would have taken gigabytes.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_000_000


async def test_more_loops_than_workers_hold_others_up_for_one_deadline() -> None:
    async with engine(workers=2) as hf:
        calm = await hf.start(python_code(BYSTANDER))
        loop = python_code("while True:\n    pass", deadline_s=DEADLINE_S)
        loops = [asyncio.create_task(hf.start(loop, wait=30)) for _ in range(4)]
        _, end = await converse(hf, calm)
        assert end.result == CALM
        assert {failed(event).error_kind for event in await asyncio.gather(*loops)} == {"deadline"}


async def test_an_engine_closes_while_a_strategy_loops() -> None:
    begun = time.monotonic()
    async with engine() as hf:
        await hf.start(python_code("while True:\n    pass", deadline_s=30), wait=0.2)
    assert time.monotonic() - begun < SLOW_S


# --- escapes -----------------------------------------------------------------------------------------------

NOWHERE = [
    "().__class__",
    "().__class__.__bases__[0].__subclasses__()",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__",
    "llm.__globals__",
    "llm.__self__",
    "state.get.__func__",
    "state.__dict__",
    "type(state).__mro__",
    "__builtins__",
    "globals()",
    "vars()",
    "dir()",
    "__import__('os')",
    "getattr((), '__class__')",
    "compile('1', 'f', 'eval')",
    "input()",
    "breakpoint()",
    "open('/etc/passwd').read()",
    "open('/proc/self/environ', 'rb')",
    "object.__subclasses__()",
]

IMPORTS = ["os", "sys", "subprocess", "socket", "ctypes", "pathlib", "shutil", "importlib", "builtins", "holdfast"]


@pytest.mark.parametrize("expression", NOWHERE)
async def test_there_is_no_way_out(expression: str) -> None:
    tried = f"try:\n    got = eval({expression!r})\n    said = ['got', str(got)]"
    said = await run(f"{tried}\nexcept Exception as error:\n    said = str(error)\nsaid")
    assert isinstance(said, str), said
    assert "root:" not in said


@pytest.mark.parametrize("module", IMPORTS)
async def test_modules_that_reach_out_are_not_there_or_empty(module: str) -> None:
    tries = [
        "{0}.system('id')",
        "{0}.environ['PATH']",
        "{0}.listdir('/')",
        "{0}.modules",
        "{0}.Path('/etc/passwd').read_text()",
    ]
    source = "said = []\n"
    for each in tries:
        attempt = f"import {module}\\ngot = {each.format(module)}"
        source += f'try:\n    exec("""{attempt}""")\n    said.append([\'got\', str(got)])\n'
        source += "except Exception as error:\n    said.append(str(error))\n"
    said = await run(f"got = None\n{source}said")
    assert all(isinstance(line, str) for line in said), said


async def test_what_only_the_prelude_may_call_cannot_be_called() -> None:
    source = """
        calls = [
            "_holdfast_state('list', namespace='holdfast.x')",
            "_holdfast_state('get', key='k', prefix='x')",
            "_holdfast_card('create', card={'pkg': {'name': 'p'}}, now=5)",
            "_holdfast_stats('record', 'a', 1)",
        ]
        said = []
        for call in calls:
            for way in (eval, exec):
                try:
                    way(call)
                except NameError as error:
                    said.append(str(error))
        try:
            exec("f = _holdfast_state")
        except NameError as error:
            said.append(str(error))
        def _holdfast_stats(*given):
            return "mine"
        [said, stats.get("x"), _holdfast_stats(1)]
    """
    said, got, own = await run(source)
    assert len(said) == 9
    assert all(line.startswith("name '_holdfast_") for line in said)
    assert (got, own) == ("mine", "mine")


async def test_the_namespaces_of_holdfast_are_closed() -> None:
    source = """
        said = []
        looks = [lambda: state.list("holdfast.x"), lambda: state.show("holdfast.x", "k"), lambda: state.list("../x")]
        for look in looks:
            try:
                look()
            except RuntimeError as error:
                said.append(str(error))
        said
    """
    said = await run(source)
    assert ["is not this strategy's" in line for line in said[:2]] == [True, True]
    assert len(said) == 3
    async with engine() as hf:
        end = failed(await hf.start(code("state.set('k', 1)"), ctx={"_ns": "holdfast.x"}))
    assert "belongs to Holdfast" in end.error


async def test_a_strategy_may_hide_names_of_the_api_from_itself_only() -> None:
    source = """
        def llm(prompt, **options):
            return '{"mine": 1}'
        log = print
        state = json = re = copy = 5
        [llm("x"), llm_json("y"), state, cache("z"), parse_number("n=7", "n=(.)")]
    """
    async with engine() as hf:
        assert result(await hf.start(code(source))) == ['{"mine": 1}', {"mine": 1}, 5, '{"mine": 1}', 7]
        _, end = await converse(hf, await hf.start(code("llm('theirs')")))
        assert end.result == "<theirs>"


# --- limits of a session -----------------------------------------------------------------------------------


async def test_calls_of_the_host_are_counted_over_all_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_program, "MAX_SUSPENSIONS", 50)
    source = "try:\n    for i in range(100):\n        llm(str(i))\n        uuid()\nexcept BaseException:\n    pass\n5"
    async with engine() as hf:
        pauses, end = await converse(hf, await hf.start(code(source)))
    assert len(pauses) == 25
    assert (failed(end).error_kind, failed(end).error) == (
        "suspensions",
        "the strategy has called the host 50 times: the limit of one session",
    )


async def test_a_strategy_that_only_talks_to_the_engine_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.program_run.MAX_QUIET_STEPS", 40)
    end = await broken("while True:\n    try:\n        state.incr('n')\n    except BaseException:\n        pass")
    assert end.error_kind == "endless"
    assert "it would never end" in end.error


async def test_what_a_step_says_is_cut_and_the_journal_says_so() -> None:
    async with engine() as hf:
        event = await hf.start(
            code("print('x' * 200_000)\nprint('\\n' * 5_000)\nfor i in range(12_000):\n    log(i)\n5")
        )
        assert result(event) == 5
        records = [entry.record async for entry in hf.store.journal(event.session_id)]
        printed = await logged(hf.store, event.session_id, "print")
        said = [line for line in await logged(hf.store, event.session_id) if line.startswith("… and more")]
    assert len(records) < limits.MAX_NOTES + limits.MAX_PRINTED_LINES + 10
    assert sum(map(len, printed)) < limits.MAX_PRINTED_CHARS + 200
    assert len(said) == 2
    assert sum(isinstance(record, LoggedRecord) and record.source == "log" for record in records) == limits.MAX_NOTES


async def test_an_error_that_is_a_book_is_cut() -> None:
    end = await broken("def f(n):\n    if n:\n        return f(n - 1)\n    raise ValueError('x' * 10_000_000)\nf(100)")
    assert len(end.error) < 20_000
    assert "… 82 more calls" in end.error
    assert end.error.splitlines()[-1].strip() == "raise ValueError('x' * 10_000_000)"


@pytest.mark.parametrize("mib", [30, 31])
async def test_answers_and_contexts_that_are_too_large_end_the_session(mib: int) -> None:
    large = "x" * (mib * 1024 * 1024)
    async with engine() as hf:
        event = await hf.start(code("llm('q') + llm('r')", memory_mib=16))
        end = failed(await hf.feed(event.session_id, large, wait=SLOW_S))
        assert end.error_kind == "memory"
        end = failed(await hf.start(code("llm(ctx['a'])", memory_mib=16), ctx={"a": large}, wait=SLOW_S))
        assert end.error_kind == "memory"


async def test_ten_thousand_questions_are_one_pause_and_ten_megabytes_one_prompt() -> None:
    source = """
        import asyncio
        async def run(ctx):
            answers = await asyncio.gather(*[llm_async(str(i)) for i in range(10_000)])
            return [len(answers), answers[9_999], len(llm("x" * 10_000_000))]
    """
    async with engine() as hf:
        event = await hf.start(code(source), wait=SLOW_S)
        assert isinstance(event, PausedEvent)
        assert len(event.queries) == 10_000
        event = await hf.feed(event.session_id, {query.id: echo(query) for query in event.queries}, wait=SLOW_S)
        _, end = await converse(hf, event)
    assert result(end) == [10_000, "<9999>", 10_000_002]


@pytest.mark.parametrize("text", ["a\\x00b", "\\ud800", "\\U0010ffff", "\\u202e"])
async def test_odd_characters_reach_the_host_as_valid_text(text: str) -> None:
    async with engine() as hf:
        event = await hf.start(code(f"llm('{text}', role='{text}')\nraise ValueError('{text}')"))
        _, end = await converse(hf, event)
    assert outcome(end)[0] == "error"
    failed(end).error.encode()


# --- any arguments at all ----------------------------------------------------------------------------------


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


ODD: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        2**64,
        10**5000,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\0",
        "é",
        b"b",
        (),
        [],
        {},
        {1},
        1j,
        ...,
    ),
    *(int, ValueError("x"), date(2024, 1, 1), Decimal("NaN"), _deep(300), _deep(900), {1: 2}, {"prompt": 5}, ["a", 1]),
    *("holdfast.state", "record", "get", "(", "{", "[1", "9" * 400, {"name": "m", "description": "d", "parameters": 5}),
]
NAMES = ["prompt", "system", "max_tokens", "timeout_ms", "choices", "ctx", "op", "key", "value", "self", "x", "options"]


def test_no_argument_makes_a_function_of_the_host_fail_in_another_way_than_it_should() -> None:
    chance = random.Random(20_250_607)
    context = StepContext(at=1_700_000_000_000, seed=1, llm_calls=0, left=None, namespace="default")
    refused = 0
    for _ in range(4_000):
        name = chance.choice(list(FUNCTIONS))
        args = chance.choices(ODD, k=chance.randint(0, 4))
        kwargs = {chance.choice(NAMES): chance.choice(ODD) for _ in range(chance.randint(0, 3))}
        try:
            HostCalls(context, {}, 1).call(name, args, kwargs)
        except (TypeError, ValueError, InvalidValueError, RecursionError):
            refused += 1
    assert refused > 2_000
