"""`run --model`: what a strategy asks a model is answered by one, behind a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.core.queries import Usage
from holdfast.testing.provider import fault, reply
from tests.cli.chat_helpers import only_session, picture, said_to, serving, until_asked
from tests.cli.helpers import Home

LUA = """
local name = alc.llm("What is your name?", { system = "Be brief.", max_tokens = 7 })
return "Hello " .. name
"""

PYTHON = """
name = llm("What is your name?", system="Be brief.", max_tokens=7)
f"Hello {name}"
"""

NATIVE = """
import holdfast

@holdfast.strategy
async def greet(ctx):
    return "Hello " + await ctx.llm("What is your name?", system="Be brief.", max_tokens=7)

@holdfast.strategy
async def parent(ctx):
    return await ctx.child(greet)

@holdfast.strategy
async def mixed(ctx):
    names = await ctx.llm_batch(["first?", "second?"], role="namer")
    chosen = await ctx.ask("Which one?", choices=["1", "2"])
    sealed = await ctx.tool("seal", name=names[int(chosen) - 1])
    return await ctx.llm(f"Greet {sealed}")
"""


@pytest.fixture
def programs(home: Home) -> Path:
    (home.folder / "hello.lua").write_text(LUA)
    (home.folder / "hello.py").write_text(PYTHON)
    (home.folder / "native.py").write_text(NATIVE)
    (home.folder / "holdfast.toml").write_text('serve = ["native.py"]\n')
    return home.folder


@pytest.mark.parametrize("program", ["hello.lua", "hello.py", "native.py:greet", "native.py:parent"])
def test_strategies_in_every_language_are_answered_by_the_model(home: Home, programs: Path, program: str) -> None:
    used = Usage(prompt_tokens=30, completion_tokens=4)
    with serving(reply("Ada", usage=used)) as server:
        done = home.process("run", program, "--model", "m", "--base-url", server.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\nHello Ada\n")
    assert "✓ call 1  What is your name?" in done.stderr
    assert "34 tokens" in done.stderr
    [request] = server.requests
    assert (request.model, request.system, request.params["max_tokens"]) == ("m", "Be brief.", 7)


def test_a_strategy_of_the_library_is_run_to_its_result(home: Home) -> None:
    with serving("Three times four is twelve.", "12") as server:
        done = home.process("run", "cot", "--task", "3 boxes of 4", "--model", f"{server.url}#m", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    event = json.loads(done.stdout)
    assert (event["status"], event["result"]["result"]) == ("completed", "12")
    assert "3 boxes of 4" in said_to(server, 0)[0]


def test_people_and_tools_are_still_asked_at_the_terminal(home: Home, programs: Path) -> None:
    with (
        serving("Ada", "Bob", "Hello, Bob!") as server,
        home.terminal("run", "native.py:mixed", "--model", f"{server.url}#m") as terminal,
    ):
        terminal.expect("Which one?")
        terminal.expect("> ")
        assert "call 1  namer: first?" in terminal.shown
        assert "call 2  namer: second?" in terminal.shown
        terminal.type("2\n")
        terminal.expect("seal")
        terminal.expect("> ")
        terminal.type("Sir\n")
        terminal.expect("call 3  Greet Sir")
        terminal.expect("completed")
        terminal.expect("Hello, Bob!")
        assert terminal.exit_code() == 0
    assert said_to(server) == ["Greet Sir"]


def test_what_is_under_way_is_shown_while_it_runs(home: Home, programs: Path) -> None:
    with (
        serving(reply("Ada", delay_s=2)) as server,
        home.terminal("run", "hello.lua", "--model", f"{server.url}#m") as terminal,
    ):
        terminal.expect("m · call 1 running · 0 done")
        terminal.expect("completed")
        assert terminal.exit_code() == 0
    shown = picture(terminal)
    assert "running" not in shown
    assert "Waiting for llm" not in shown


def test_leaving_in_the_middle_of_a_call_loses_nothing(home: Home, programs: Path) -> None:
    with serving(reply("never", delay_s=30), "Ada") as server:
        with home.terminal("run", "native.py:greet", "--id", "left", "--model", f"{server.url}#m") as terminal:
            terminal.expect("call 1 running")
            until_asked(server)
            terminal.press("\x03", until="holdfast run --resume left --model")
            assert terminal.exit_code() == 130
        assert home.json("show", "left")["state"] == "paused"
        done = home.process("run", "--resume", "left", "--model", f"{server.url}#m")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\nHello Ada\n")


def test_elsewhere_the_first_question_to_a_person_is_printed_and_the_model_goes_on_after_it(
    home: Home, programs: Path
) -> None:
    with serving("Ada", "Bob", "Hello!") as server:
        done = home.process("run", "native.py:mixed", "--id", "mixed", "--model", f"{server.url}#m")
        assert done.returncode == 0
        assert "Which one?" in done.stdout
        assert "Let the model continue with: holdfast run --resume mixed --model" in done.stdout
        home.ok("answer", "mixed", "1")
        home.ok("answer", "mixed", "Madam")
        done = home.process("run", "--resume", "mixed", "--model", f"{server.url}#m", "--json")
    assert json.loads(done.stdout)["result"] == "Hello!"


def test_a_model_that_fails_fails_the_strategy_and_says_what_to_do(home: Home, programs: Path) -> None:
    with serving(fault("auth", "Incorrect API key")) as server:
        done = home.process("run", "native.py:greet", "--model", f"{server.url}#m")
    assert done.returncode == 1
    assert "Incorrect API key" in done.stdout
    assert "✗ call 1" in done.stderr
    assert "What to do: set the key of the service" in done.stderr


def test_what_else_waits_in_the_store_is_not_answered(home: Home, programs: Path) -> None:
    waiting = home.start("greet")
    with serving(reply("Ada", delay_s=3), "never") as server:  # longer than it takes to look for what was left undone
        assert home.process("run", "hello.lua", "--model", f"{server.url}#m").returncode == 0
    assert len(server.requests) == 1
    assert [query["query_id"] for query in home.json("show", waiting)["pending"]] == ["q-0"]


def test_options_that_do_not_go_together_are_told(home: Home, programs: Path) -> None:
    hello = str(programs / "hello.lua")
    assert "--base-url needs --model" in home.call("run", hello, "--base-url", "http://x/v1").stderr
    dry = home.call("run", hello, "--dry-run", "--model", "http://127.0.0.1:9/v1#m")
    assert (dry.exit_code, "a dry run asks nobody" in dry.stderr) == (2, True)
    nowhere = home.call("run", hello, "--model", "nowhere:x")
    assert (nowhere.exit_code, "provider 'nowhere:x' cannot be used here" in nowhere.stderr) == (5, True)
    assert not home.db.exists()


def test_a_run_with_a_model_is_listed_as_any_other(home: Home, programs: Path) -> None:
    with serving("Ada") as server:
        home.process("run", "hello.lua", "--model", f"{server.url}#m")
    assert home.json("show", only_session(home))["metrics"]["llm_calls"] == 1
