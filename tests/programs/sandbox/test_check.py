"""A strategy is looked at before it runs: what is wrong is told with its place, and nothing of it is executed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.core.errors import InvalidValueError, SessionNotFoundError
from holdfast.programs.findings import SourceFinding
from holdfast.programs.sandbox.check import InvalidSourceError
from holdfast.programs.sandbox.features import API
from holdfast.programs.sandbox.jail import find_bwrap
from holdfast.programs.sandbox.kind import PythonKind
from holdfast.programs.sandbox.library import list_strategies
from holdfast.programs.sandbox.limits import MAX_CODE_CHARS, MAX_FINDINGS
from holdfast.programs.sandbox.source import python_code
from holdfast.testing.patience import HANG_S
from tests.programs.sandbox.helpers import code, engine, own_workers, result, run
from tests.tables import each_row


@asynccontextmanager
async def kind() -> AsyncIterator[PythonKind]:
    opened = PythonKind()
    try:
        async with asyncio.timeout(HANG_S):
            yield opened
    finally:
        opened.close()


async def findings(source: str) -> list[SourceFinding]:
    async with kind() as python:
        return await python.checker.findings(source)


def places(found: list[SourceFinding]) -> list[tuple[int, int, str, str]]:
    return [(finding.line, finding.column, finding.level, finding.rule) for finding in found]


# --- what the interpreter has not --------------------------------------------------------------------------

LACKING = {
    "class A(dict):\n    pass": (1, 1, "no-inheritance", "class A: sandboxed Python has no inheritance"),
    "class OddError(Exception):\n    pass": (1, 1, "no-inheritance", "raise RuntimeError or ValueError"),
    "class A(metaclass=type):\n    pass": (1, 1, "no-inheritance", "no inheritance"),
    "def f():\n    yield 1": (2, 5, "no-generators", "build a list and return it"),
    "def f():\n    yield from [1]": (2, 5, "no-generators", "no generators"),
    "x = 1\ndel x": (2, 1, "no-del", "use `.pop(…)`, or assign None"),
    "async def f(x):\n    async for y in x:\n        pass": (2, 5, "no-async-blocks", "no `async for`"),
    "async def f(x):\n    async with x:\n        pass": (2, 5, "no-async-blocks", "`async with`"),
    "try:\n    pass\nexcept* ValueError:\n    pass": (1, 1, "no-except-star", "use `except`"),
    "class A:\n    @property\n    def x(self):\n        return 1": (2, 6, "no-descriptors", "no @property"),
    "class A:\n    @staticmethod\n    def x():\n        return 1": (2, 6, "no-descriptors", "no @staticmethod"),
    "class A:\n    @classmethod\n    def x(cls):\n        return 1": (2, 6, "no-descriptors", "no @classmethod"),
    "import asyncio\nasyncio.create_task(llm_async('x'))": (2, 1, "no-asyncio", "no asyncio.create_task"),
    "import asyncio\nasync def f():\n    await asyncio.wait_for(llm_async('x'), 1)": (3, 11, "no-asyncio", "wait_for"),
    "import os": (1, 1, "no-module", "sandboxed Python has no module 'os'; it has"),
    "x = 1\nfrom numpy import array": (2, 1, "no-module", "no module 'numpy'"),
    "from . import other": (1, 1, "no-module", "a strategy is one file"),
    "from holdfast import strategy": (1, 1, "native", "run it with --trusted"),
}


@each_row("source", LACKING)
async def test_what_the_interpreter_lacks_is_told_with_its_place_and_what_to_do(source: str) -> None:
    line, column, rule, words = LACKING[source]
    found = [finding for finding in await findings(source) if finding.level == "error"]
    assert (found[0].line, found[0].column, found[0].rule) == (line, column, rule)
    assert words in found[0].message


WRONG = {
    "async def run(ctx):\n    return await llm('x')": (2, "drop the await, or call llm_async(…)"),
    "async def run(ctx):\n    return await llm_batch(['x'])": (2, "llm_batch(…) waits for its answer by itself"),
    "import asyncio\nasync def run(ctx):\n    return await asyncio.gather(llm('a'), llm_async('b'))": (
        3,
        "llm_async(…)",
    ),
    "import asyncio\nasync def run(ctx):\n    return await asyncio.gather(*[ask(x) for x in 'ab'])": (
        3,
        "ask_async(…)",
    ),
    "async def run(ctx):\n    llm_async('x')": (2, "is never awaited, so it is never asked"),
    "def run(ctx):\n    return lmm('x')": (2, "`lmm`"),
    "def run(ctx):\n    return llm(5)": (2, "Expected `str`, found `Literal[5]`"),
    "def run(ctx):\n    return llm()": (2, "prompt"),
    "def run(ctx):\n    return llm('a', 'b')": (2, "positional"),
    "def run(ctx):\n    return llm('a') + 1": (2, "`+`"),
    "def run(ctx):\n    return state.fetch('a')": (2, "`fetch`"),
    "def run(ctx):\n    return chunk('a', mode='words')": (2, 'Expected `Literal["lines", "chars"]`'),
    "def run(ctx):\n    return [].push(1)": (2, "`push`"),
    "def run(ctx:\n    pass": (1, ""),
    "x = (1 +": (1, ""),
    "def f():\nreturn 1": (2, ""),
    "return 5": (1, ""),
}


@each_row("source", WRONG)
async def test_what_is_written_wrongly_is_told_before_it_runs(source: str) -> None:
    line, words = WRONG[source]
    found = [finding for finding in await findings(source) if finding.level == "error"]
    assert found, "nothing was found"
    assert found[0].line == line, found
    assert any(words in finding.message for finding in found), found


async def test_all_faults_are_told_at_once_in_the_order_of_their_lines() -> None:
    source = "import os\ndel ctx\nclass A(B):\n    pass\nx = await llm('a')\n"
    assert [finding.line for finding in await findings(source)] == [1, 2, 3, 5]


async def test_places_are_right_behind_letters_of_more_than_one_byte() -> None:
    source = "é = 'ü𝄞'; import os\n'𝄞𝄞'; y = nothing"
    assert [(line, column) for line, column, *_ in places(await findings(source))] == [(1, 11), (2, 11)]


@each_row("first", ["\ufeff", "#!/usr/bin/python\n", '"""A docstring."""\n', "from __future__ import annotations\n"])
async def test_a_source_may_begin_as_files_do(first: str) -> None:
    assert await findings(f"{first}x: int = 5\nllm(str(x))\n") == []
    assert await run(f"{first}x: int = 5\nllm(str(x))\n") == "<5>"


async def test_line_ends_of_other_systems_are_understood() -> None:
    assert places(await findings("x = 1\r\ndel x\r\n")) == [(2, 1, "error", "no-del")]
    assert await run("x = llm('a')\r\nif x:\r\n    x = x + 'b'\r\nx\r\n") == "<a>b"


async def test_names_of_the_api_may_be_hidden_and_that_is_only_a_doubt() -> None:
    source = "cache = {}\ncache['a'] = 1\nfor chunk in [1, 2]:\n    cache[chunk] = chunk + 1\n"
    source += "def vote(x):\n    return x + 1\n"
    found = await findings(source)
    assert places(found) == [
        (1, 1, "warning", "shadowed"),
        (3, 5, "warning", "shadowed"),
        (5, 1, "warning", "shadowed"),
    ]
    assert await run(f"{source}[len(cache), vote(1)]") == [3, 2]
    assert await findings("def run(ctx):\n    state = {}\n    return [state for state in [1]]") == []


async def test_every_name_of_the_api_is_known_to_the_type_checker() -> None:
    assert await findings("".join(f"x_{number} = {name}\n" for number, name in enumerate(sorted(API)))) == []


async def test_the_bundled_strategies_have_no_faults() -> None:
    async with kind() as python:
        for strategy in list_strategies():
            assert await python.checker.findings(strategy.path.read_text()) == [], strategy.name


# --- nothing is run ----------------------------------------------------------------------------------------


@each_row(
    "source",
    ["while True:\n    pass", "x = 10 ** 10 ** 8", "raise ValueError('x')", "llm('asked')", "def f():\n    f()\nf()"],
)
async def test_a_check_executes_nothing(source: str) -> None:
    assert await findings(source) == []


async def test_a_source_is_checked_once() -> None:
    async with kind() as python:
        first = await python.checker.findings("lmm('x')")
        assert await python.checker.findings("lmm('x')") is first


async def test_a_worker_that_is_killed_does_not_make_a_source_bad() -> None:
    async with kind() as python:
        await python.checker.findings("1")
        for number in range(5):
            checking = asyncio.create_task(python.checker.findings(f"{number} + 1\n" * 300))
            await asyncio.sleep(0.005 * number)
            for worker in own_workers():
                os.kill(worker, signal.SIGKILL)
            assert await checking == []


# --- a start that is refused -------------------------------------------------------------------------------


async def test_a_refused_start_leaves_no_session_and_says_all() -> None:
    async with engine() as hf:
        with pytest.raises(InvalidSourceError) as caught:
            await hf.start(code("import os\nllm(5)\n", name="odd"), id="s")
        with pytest.raises(SessionNotFoundError):
            await hf.status("s")
        assert (await hf.sessions()).rows == []
        lines = str(caught.value).splitlines()
        assert lines[0] == "strategy 'odd' has 2 faults, and was not started:"
        assert lines[1].startswith("  odd.py:1:1: error: sandboxed Python has no module 'os'")
        assert lines[2].startswith("  odd.py:2:5: error: ")
        assert caught.value.kind == "invalid_source"
        assert result(await hf.start(code("5"), id="s")) == 5


async def test_doubts_do_not_stop_a_start() -> None:
    async with engine() as hf:
        assert result(await hf.start(code("def vote(answers):\n    return 'mine'\nvote([])"))) == "mine"


async def test_a_long_list_of_faults_is_cut() -> None:
    async with engine() as hf:
        with pytest.raises(InvalidSourceError) as caught:
            await hf.start(code("import os\n" * 50))
    assert len(caught.value.findings) == 50
    assert str(caught.value).splitlines()[-1] == f"  … and {50 - MAX_FINDINGS} more"


@each_row(
    "source",
    [
        "(" * 10_000 + ")" * 10_000,
        "[" * 10_000 + "]" * 10_000,
        "-" * 100_000 + "1",
        "x" + ".y" * 50_000,
        "1" + "+1" * 50_000,
    ],
)
async def test_nested_sources_are_refused_in_no_time(source: str) -> None:
    (finding,) = [each for each in await findings(source) if "nested" in each.message]
    assert finding.level == "error"


def test_a_source_of_megabytes_is_not_even_looked_at() -> None:
    with pytest.raises(InvalidValueError, match=f"a strategy has at most {MAX_CODE_CHARS}"):
        python_code("x = 1\n" * 1_000_000)
    assert python_code("#" * MAX_CODE_CHARS).kind == "python"


@each_row("source", ["x = '\ud800'", "\ud800 = 1"])
async def test_a_source_that_is_no_text_is_refused(source: str) -> None:
    async with engine() as hf:
        with pytest.raises((InvalidSourceError, InvalidValueError)):
            await hf.start(python_code(source))


@each_row("source", ["x = 1\0", "\0", "x = $", "\x1b[0m", "ﬁ = 1\nfi = lmm(1)"])
async def test_a_source_with_odd_characters_is_refused(source: str) -> None:
    assert any(finding.level == "error" for finding in await findings(source))


# --- the jail ----------------------------------------------------------------------------------------------


def namespaces(pid: int) -> dict[str, str]:
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in ("net", "mnt", "pid", "user", "ipc")}


@pytest.mark.skipif(find_bwrap() is None, reason="bubblewrap is not installed")
async def test_workers_see_neither_the_network_nor_files_nor_the_environment() -> None:
    async with engine() as hf:
        python = PythonKind()
        hf.add_kind(python)
        assert result(await hf.start(code("5"))) == 5
        if not python.workers.is_jailed:
            pytest.skip("bubblewrap does not work here")
        workers = own_workers()
        assert workers
        for worker in workers:
            check_jailed(worker)


def check_jailed(worker: int) -> None:
    mine, theirs = namespaces(os.getpid()), namespaces(worker)
    assert [name for name in mine if mine[name] == theirs[name]] == []
    assert set(os.listdir(f"/proc/{worker}/root")) <= {"monty", "lib", "lib64", "usr", "proc"}
    assert set(os.listdir(f"/proc/{worker}/root/usr")) <= {"lib", "lib64"}
    environ = Path(f"/proc/{worker}/environ").read_bytes()
    assert b"HOLDFAST" not in environ
    assert b"HOME" not in environ
    status = Path(f"/proc/{worker}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


async def test_without_bubblewrap_strategies_run_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_bwrap() is None
    async with engine() as hf:
        python = PythonKind()
        hf.add_kind(python)
        assert result(await hf.start(code("5"))) == 5
        assert not python.workers.is_jailed


async def test_a_bubblewrap_that_does_not_work_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    caplog.set_level("INFO", "holdfast.sandbox")
    assert await run("5") == 5
    assert "bubblewrap does not work here" in caplog.text
