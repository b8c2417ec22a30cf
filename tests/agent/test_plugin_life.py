"""The life of plugins: when they are told of turns, commits and sessions, their commands, and other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.errors import MissingPluginInputError, TurnConflictError
from holdfast.agent.live_events import PluginFailedEvent
from holdfast.agent.machine.prompt import Contribution
from holdfast.agent.machine.turn import CommandOutcome, MessageOutcome, StoppedOutcome
from holdfast.agent.machine.turn_state import TurnState
from holdfast.agent.plugins.plugin import AbortTurn, Plugin
from holdfast.agent.results import TurnResult
from holdfast.agent.runtime import Runtime
from holdfast.core.records import Entry
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, reply, tool_call
from tests.agent.helpers import Home, add, journal
from tests.tables import each_row


class Diary(Plugin):
    """Writes down what it is told, for which session, and with which configuration."""

    id = "diary"

    def __init__(self, lines: list[Any] | None = None) -> None:
        self.lines: list[Any] = [] if lines is None else lines

    def opened(self) -> None:
        self.lines.append(("opened", self.session.session_id, self.config))

    async def closed(self) -> None:
        self.lines.append(("closed", self.session.session_id, self.config))

    async def turn_started(self, turn: TurnState) -> None:
        self.lines.append(("started", turn.id))

    def turn_ended(self, result: TurnResult) -> None:
        self.lines.append(("ended", result.turn, result.outcome.__struct_config__.tag))


# --- turns ---------------------------------------------------------------------------------------------


async def test_plugins_are_told_once_of_each_turns_beginning_and_end(home: Home) -> None:
    diary = Diary()
    script: list[ScriptStep] = [tool_call("add", a=1, b=2), tool_call("add", a=3, b=4), "Done.", "Hello."]
    async with home.runtime(*script, tools=[add]) as runtime:
        session = await runtime.session("s-1").plugin(diary).open()
        await soon(session.turn("Add").id("t-1").run())
        await soon(session.turn("Hi").id("t-2").run())
        turns = [line for line in diary.lines if line[0] in ("started", "ended")]
    assert turns == [("started", "t-1"), ("ended", "t-1", "message"), ("started", "t-2"), ("ended", "t-2", "message")]


async def test_a_turn_that_is_joined_is_not_told_of_again(home: Home) -> None:
    diary = Diary()
    async with home.runtime("Hello.") as runtime:
        session = await runtime.session("s-1").plugin(diary).open()
        turn = session.turn("Hi").id("t-1")
        await asyncio.gather(turn.run(), session.turn("Hi").id("t-1").run())
        await turn.run()
    assert [line[0] for line in diary.lines] == ["opened", "started", "ended", "closed"]


async def test_the_end_is_told_also_where_nobody_waits_for_the_turn(home: Home) -> None:
    goes_on = asyncio.Event()

    async def waits(request: Any) -> str:
        await goes_on.wait()
        return "Hello."

    diary = Diary()
    async with home.runtime(waits) as runtime:
        session = await runtime.session("s-1").plugin(diary).open()
        turn = asyncio.create_task(session.turn("Hi").id("t-1").run())
        await until(lambda: ("started", "t-1") in diary.lines)
        turn.cancel()
        goes_on.set()
        await until(lambda: ("ended", "t-1", "message") in diary.lines)


async def test_plugins_are_told_of_turns_of_the_inbox_as_well(home: Home) -> None:
    diary = Diary()
    async with home.runtime("One.", "Two.") as runtime:
        session = await runtime.session("s-1").plugin(diary).open()
        for text in ("Uno", "Due"):
            await session.enqueue(text)
        turns = [result.turn for result in await soon(session.queued_turn().run())]
        await until(lambda: ("ended", turns[-1], "message") in diary.lines)
    told = [line[:2] for line in diary.lines if line[0] in ("started", "ended")]
    assert told == [(what, turn) for turn in turns for what in ("started", "ended")]


async def test_a_turn_that_is_stopped_and_one_that_begins_with_nothing_are_over_as_well(home: Home) -> None:
    class Guard(Diary):
        id = "guard"

        def before_model(self, request: Any) -> None:
            raise AbortTurn("no")

    guard = Guard()
    async with home.runtime() as runtime:
        session = await runtime.session("s-1").plugin(guard).open()
        await soon(session.turn("Hi").id("t-1").run())
        await soon(session.turn("").id("t-2").run())
    turns = [line for line in guard.lines if line[0] in ("started", "ended")]
    assert turns == [("started", "t-1"), ("ended", "t-1", "stopped"), ("ended", "t-2", "stopped")]


async def test_a_process_that_takes_a_turn_over_tells_its_plugins_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    first, second = Diary(), Diary()
    silent = ScriptedProvider([tool_call("add", a=1, b=2), reply(delay_s=60)])
    async with Runtime(url, provider=silent, tools=[add]) as runtime:
        session = await runtime.session("s-1").plugin(first).open()
        turn = asyncio.create_task(session.turn("Add").id("t-1").run())
        await until(lambda: len(silent.requests) == 2)
        turn.cancel()
    async with Runtime(url, provider=ScriptedProvider(["Done."]), tools=[add]) as runtime:
        session = await runtime.session("s-1").plugin(second).open()
        await soon(session.turn("Add").id("t-1").run())
    assert [line[0] for line in first.lines] == ["opened", "started", "closed"]
    assert [line[0] for line in second.lines] == ["opened", "started", "ended", "closed"]


async def test_what_fails_at_the_end_of_a_turn_changes_nothing_about_it(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Plugin):
        id = "odd"

        def turn_ended(self, result: TurnResult) -> None:
            raise AbortTurn("it is over")

        def committed(self, entries: Sequence[Entry]) -> None:
            raise RuntimeError("broken")

        def opened(self) -> None:
            raise RuntimeError("broken")

        def closed(self) -> None:
            raise RuntimeError("broken")

    async with Runtime("memory:", provider=ScriptedProvider(["Hello."])) as runtime:
        session = await runtime.session("s-1").plugin(Odd()).open()
        assert (await soon(session.turn("Hi").run())).text == "Hello."
    told = {record.getMessage().partition(" failed at ")[2].partition(":")[0] for record in caplog.records}
    assert told == {"'opened'", "'committed'", "'turn_ended'", "'closed'"}


# --- commits -------------------------------------------------------------------------------------------


async def test_plugins_are_told_of_every_record_in_order_once_it_is_durable(home: Home) -> None:
    seen: list[Entry] = []

    class Watcher(Plugin):
        id = "watcher"

        def committed(self, entries: Sequence[Entry]) -> None:
            seen.extend(entries)

    async with home.runtime(tool_call("add", a=1, b=2), "Done.", tools=[add]) as runtime:
        session = await runtime.session("s-1").plugin(Watcher()).open()
        other = await runtime.session("s-2").open()
        await soon(session.turn("Add").run())
        stored = await journal(session)
        assert other.session_id == "s-2"
    assert seen == stored[-len(seen) :]
    assert seen[0].position == 3  # the first turn's input: what came before was there when it was opened


# --- sessions ------------------------------------------------------------------------------------------


async def test_plugins_are_told_when_a_session_is_opened_and_when_the_runtime_closes(home: Home) -> None:
    diary = Diary()
    async with home.runtime("Hello.", plugins=[diary]) as runtime:
        session = await runtime.session("s-1").open()
        assert diary.lines == [("opened", "s-1", None)]
        again = await runtime.session("s-1").open()
        await soon(again.turn("Hi").run())
        await runtime.session("s-2").open()
        await session.close()
        assert [line for line in diary.lines if line[0] == "closed"] == []
    assert [line for line in diary.lines if line[0] in ("opened", "closed")] == [
        ("opened", "s-1", None),
        ("opened", "s-2", None),
        ("closed", "s-1", None),
        ("closed", "s-2", None),
    ]


async def test_another_configuration_closes_the_plugin_and_opens_it_anew(home: Home) -> None:
    diary = Diary()
    async with home.runtime() as runtime:
        for config in ("a", "a", "b"):
            await runtime.session("s-1").plugin(diary, config).open()
        await runtime.session("s-1").open()  # no turn was begun with the other one, so the first is recorded
    assert diary.lines == [(event, "s-1", config) for config in "aba" for event in ("opened", "closed")]


async def test_nothing_of_a_session_runs_any_more_when_its_plugins_are_told_that_it_closes(home: Home) -> None:
    running: list[str] = []

    async def work() -> str:
        """Work on and on."""
        running.append("work")
        try:
            await asyncio.Event().wait()
        finally:
            running.clear()
        return ""

    found: list[list[str]] = []

    class Last(Plugin):
        id = "last"

        async def closed(self) -> None:
            found.append(list(running))
            assert (await self.session.services.conversation()).running is not None  # the store is still open

    async with home.runtime(tool_call("work"), tools=[work]) as runtime:
        session = await runtime.session("s-1").plugin(Last()).open()
        turn = asyncio.create_task(session.turn("Work").run())
        await until(lambda: running)
        turn.cancel()
    assert found == [[]]


async def test_calls_at_the_same_time_build_a_sessions_plugins_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"

    class Slow(Diary):
        id = "slow"

        async def opened(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            super().opened()

    calls = [tool_call("wait_here", number=number) for number in range(5)]
    async with Runtime(url, provider=ScriptedProvider([calls])) as runtime:  # type: ignore[list-item]
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
        runtime.tools.declare("wait_here", "Wait.", schema)
        session = await runtime.session("s-1").plugin(Slow(), 7).open()
        turn = asyncio.create_task(session.turn("Go").run())
        await until(lambda: _waits(session))
        turn.cancel()

    def wait_here(number: int) -> int:
        """Wait."""
        return number

    slow = Slow()
    async with Runtime(url, provider=ScriptedProvider(["Done."]), tools=[wait_here]) as runtime:
        runtime.plugins.add(slow)
        await runtime.mount.holdfast.resume("s-1", wait=10)
        assert (await runtime.mount.conversations.get("s-1")).running is None
        assert [line for line in slow.lines if line[0] == "opened"] == [("opened", "s-1", 7)]


async def _waits(session: Any) -> bool:
    return len((await session.conversation(fresh=True)).asked) == 5


# --- runtime-wide plugins ------------------------------------------------------------------------------


class Ticket(Plugin):
    """Every turn is about a ticket; where one is wide of the runtime, of every session."""

    id = "ticket"
    requires_turn_input = True

    def instructions(self) -> str:
        return "Mind the ticket."

    def prompt(self) -> Sequence[Contribution]:
        return [Contribution("context", "Tickets are numbers.")]

    def turn_text(self, turn_input: Any) -> str:
        return f"[ticket {turn_input}]"


async def test_a_plugin_of_the_runtime_takes_part_in_every_session() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, plugins=[Ticket()], instructions="Be brief.") as runtime:
        session = await runtime.session("s-1").open()
        with pytest.raises(MissingPluginInputError):
            await session.turn("Hi").run()
        await soon(session.turn("Hi").plugin_input("ticket", 7).run())
        (request,) = provider.requests
        assert request.system == "Be brief.\n\nMind the ticket.\n\n# Context\n\nTickets are numbers."
        assert [block.text for block in request.messages[0].content] == ["Hi", "[ticket 7]"]  # type: ignore[union-attr]


async def test_a_session_may_have_the_runtimes_plugin_with_a_configuration_of_its_own() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    diary = Diary()
    async with Runtime("memory:", provider=provider, plugins=[diary]) as runtime:
        await runtime.session("s-1").plugin(diary, "own").open()
        await runtime.session("s-2").open()
        assert diary.lines == [("opened", "s-1", "own"), ("opened", "s-2", None)]


# --- commands ------------------------------------------------------------------------------------------


class Counter(Plugin):
    """Counts on behalf of hosts."""

    id = "counter"

    def __init__(self) -> None:
        self.counts: list[int] = []

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        return {"count": self._count, "later": self._later, "break": self._break, "odd": object}

    def _count(self, by: int = 1) -> dict[str, int]:
        self.counts.append(by)
        return {"total": sum(self.counts)}

    async def _later(self) -> str:
        return self.session.session_id

    def _break(self) -> None:
        raise LookupError("no such count")


async def test_a_command_of_a_plugin_is_done_between_turns_and_comes_to_its_value(home: Home) -> None:
    async with home.runtime("Hello.") as runtime:
        session = await runtime.session("s-1").plugin(Counter()).open()
        await soon(session.turn("Hi").run())
        assert (await soon(session.command("count", by=4).run())).outcome == CommandOutcome("count", {"total": 4})
        assert (await soon(session.command("later").run())).outcome == CommandOutcome("later", "s-1")
        assert [message.role for message in (await session.read_view()).messages] == ["user", "assistant"]


async def test_a_command_with_an_id_is_done_once_and_its_value_is_kept(home: Home) -> None:
    counter = Counter()
    async with home.runtime() as runtime:
        session = await runtime.session("s-1").plugin(counter).open()
        first = await soon(session.command("count", by=2).id("c-1").run())
    async with home.runtime() as runtime:
        session = await runtime.session("s-1").plugin(counter).open()
        again = await soon(session.command("count", by=2).id("c-1").run())
        assert again.outcome == first.outcome == CommandOutcome("count", {"total": 2})
        assert again.receipt.replayed
        with pytest.raises(TurnConflictError):
            await session.command("count", by=3).id("c-1").run()
    assert counter.counts == [2]


@each_row(
    ("name", "arguments", "told"),
    [
        ("break", {}, "plugin 'counter' failed at 'command break': LookupError: no such count"),
        ("count", {"to": 3}, "plugin 'counter' failed at 'command count': "),
        ("count", {"by": "many"}, "'by'"),
        ("fly", {}, "'command fly' failed: there is no such command; the commands are: break, count, later, odd"),
        ("odd", {}, "object"),
    ],
)
async def test_a_command_that_fails_says_why_and_the_session_goes_on(
    name: str, arguments: dict[str, Any], told: str
) -> None:
    async with Runtime("memory:", provider=ScriptedProvider(["Hello."])) as runtime:
        session = await runtime.session("s-1").plugin(Counter()).open()
        outcome = (await soon(session.command(name, **arguments).run())).outcome
        assert isinstance(outcome, StoppedOutcome)
        assert outcome.reason == "tool_failure"
        assert told in outcome.detail
        assert isinstance((await soon(session.turn("Hi").run())).outcome, MessageOutcome)


async def test_a_plugin_whose_commands_cannot_be_had_hides_nobody_elses() -> None:
    class Odd(Plugin):
        id = "odd"

        def commands(self) -> Mapping[str, Callable[..., Any]]:
            raise RuntimeError("broken")

    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        session = await runtime.session("s-1").plugin(Odd()).plugin(Counter()).open()
        events = [event async for event in session.command("count").stream()]
        assert [event.hook for event in events if isinstance(event, PluginFailedEvent)] == ["commands"]
        assert events[-1].outcome == CommandOutcome("count", {"total": 1})  # type: ignore[union-attr]
