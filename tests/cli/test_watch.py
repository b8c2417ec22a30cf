"""`watch` with what is said meanwhile, and `top`: on a terminal, and without one."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import threading
from collections.abc import AsyncGenerator
from contextlib import closing

from holdfast.agent.machine.messages import TextBlock
from holdfast.agent.providers.provider import ModelReply, ModelRequest, StreamItem, TextDelta
from holdfast.agent.sync import SyncRuntime
from holdfast.testing.postgres_server import fresh_database
from holdfast.testing.provider import ScriptedProvider, tool_call
from tests.cli.helpers import Home


class Slow:
    """A model that says half of a sentence, and the rest when it is let."""

    id = "slow"

    def __init__(self) -> None:
        self.go_on = threading.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        for piece in ("The tide ", "comes "):
            yield TextDelta(piece)
        await asyncio.to_thread(self.go_on.wait)
        yield TextDelta("in.")
        yield ModelReply(content=[TextBlock("The tide comes in.")])


def test_watch_shows_on_a_terminal_what_another_process_is_being_told(home: Home, server: str) -> None:
    home.url = fresh_database(server)
    model = Slow()
    with SyncRuntime(home.url, provider=model, model="m-1") as runtime:
        session = runtime.session("sea").open()
        with home.terminal("watch", "sea", columns=80) as terminal:
            terminal.expect("the next input")
            turn = threading.Thread(target=session.turn("What is it doing?").run)
            turn.start()
            try:
                terminal.expect("m-1 …")
                terminal.expect("The tide comes")
            finally:
                model.go_on.set()
            terminal.expect("answered")
            terminal.expect("The tide comes in.")  # as the journal tells it
            terminal.expect("the next input")
            turn.join()
            terminal.press("\x03", until="Continue with: holdfast watch sea --from c1-")
            assert terminal.exit_code() == 130
            assert "Traceback" not in terminal.shown
            lines = [line for line in re.split(r"[\r\n]+", terminal.shown) if not line.startswith("Continue with")]
            assert max(map(len, lines)) <= 80


def test_watch_goes_on_after_a_cursor_and_refuses_those_of_others(home: Home) -> None:
    sid, other = home.start("greet"), home.start("greet")
    home.ok("answer", sid, "Ada")
    home.ok("answer", other, "Bob")
    lines = [json.loads(line) for line in home.ok("watch", sid, "--json").splitlines()]
    rest = home.ok("watch", sid, "--json", "--from", lines[1]["cursor"]).splitlines()
    assert [json.loads(line) for line in rest] == lines[2:]
    assert home.ok("watch", sid, "--from", lines[-1]["cursor"]) == ""
    assert home.ok("watch", sid, "--from", "99") == ""
    refused = home.call("watch", other, "--from", lines[1]["cursor"], "--json")
    assert refused.exit_code == 2
    told = json.loads(refused.stderr)
    assert (told["kind"], told["why"]) == ("invalid_cursor", "other_session")


def test_top_tells_whom_sessions_wait_for(home: Home) -> None:
    asking, measuring, done = home.start("choose"), home.start("measure"), home.start("greet")
    home.ok("answer", done, "Ada")
    model = Slow()
    with SyncRuntime(home.url, provider=model, model="m-1") as runtime:
        runtime.tools.declare("sail", "Sail.", {"type": "object"})
        sea = runtime.session("sea").provider(ScriptedProvider([tool_call("sail")]), "m-2").open()
        sea.enqueue("Later.").id("i-1").send()
        busy = runtime.session("busy").open()
        turns = [threading.Thread(target=session.turn("Go!").run) for session in (sea, busy)]
        for turn in turns:
            turn.start()
        while "tool sail" not in home.ok("top"):
            assert turns[0].is_alive()
        shown = {row["session_id"]: row for row in home.json("top", "--once")["sessions"]}
        sea.stop()
        model.go_on.set()
        for turn in turns:
            turn.join()
    assert set(shown) == {asking, measuring, "sea", "busy"}
    assert shown[asking]["waits_for"] == ["human"]
    assert shown[measuring]["waits_for"] == ["tool thermometer"]
    assert (shown["sea"]["queue"], shown["sea"]["owner"]) == (1, None)
    assert shown["busy"]["waits_for"] == ["llm"]
    assert shown["busy"]["owner"] is not None
    assert done in home.ok("top", "--all")


def test_top_fits_a_narrow_terminal_is_kept_up_and_is_left_with_ctrl_c(home: Home) -> None:
    sid = home.start("panel")
    with home.terminal("top", columns=80) as terminal:
        terminal.expect("TOKENS")
        terminal.expect("3 llm")
        later = home.start("measure")
        terminal.expect(later[:12])
        terminal.expect("tool thermometer")
        home.ok("cancel", sid)
        home.ok("cancel", later)
        terminal.expect("No sessions at work")
        terminal.type("\x03")
        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.shown
        assert max(map(len, re.split(r"[\r\n]+", terminal.shown))) < 80


def test_top_shows_the_program_sorts_with_s_and_is_left_with_q(home: Home) -> None:
    for name in ("panel", "measure"):
        home.start(name, "--id", name)
    with home.terminal("top", "--sort", "tokens") as terminal:
        terminal.expect("strategies:panel")
        terminal.expect("now: tokens")
        terminal.press("s", until="now: program")
        shown = terminal.shown.rsplit("now: tokens", 1)[1]
        assert shown.index("strategies:measure") < shown.index("strategies:panel")
        terminal.type("q")
        assert terminal.exit_code() == 0
    assert [row["session_id"] for row in home.json("top", "--once")["sessions"]] == ["measure", "panel"]
    by_program = home.json("top", "--once", "--sort", "program")["sessions"]
    assert [row["program"] for row in by_program] == ["strategies:measure", "strategies:panel"]


def test_top_reads_no_more_than_it_shows(home: Home) -> None:
    for _ in range(4):
        home.start("greet")
    shown = home.json("top", "--once", "--limit", "3")
    assert len(shown["sessions"]) == 3
    assert shown["more"]
    assert "there are more" in home.ok("top", "--limit", "3")
    assert home.call("top", "--limit", "1000").exit_code == 2


def test_top_passes_over_a_session_that_is_damaged(home: Home) -> None:
    sid, other = home.start("greet"), home.start("greet")
    with closing(sqlite3.connect(home.db)) as connection, connection:
        connection.execute(
            "update journal set body = 'x' where session = (select num from sessions where id = ?) and last = 2",
            [sid],
        )
    assert [row["session_id"] for row in home.json("top", "--once")["sessions"]] == [other]
