"""Agent sessions without `await`."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.errors import (
    MissingPluginInputError,
    ModeNotInstalledError,
    ProviderUnconfiguredError,
    TurnConflictError,
)
from holdfast.agent.live_events import LiveEvent, TextDeltaEvent, TurnFinishedEvent
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.processes.terms import OutsideWork
from holdfast.agent.providers import provider as protocol
from holdfast.agent.queue import EnqueueBuilder, QueuedTurns
from holdfast.agent.session import AgentSession
from holdfast.agent.session_builder import AgentState, SessionBuilder
from holdfast.agent.sync import (
    SyncAgentSession,
    SyncEnqueueBuilder,
    SyncQueuedTurns,
    SyncRuntime,
    SyncSessionBuilder,
    SyncTurnBuilder,
)
from holdfast.agent.turn_builder import TurnBuilder
from holdfast.agent.turn_stream import STREAM_EVENTS
from holdfast.engine.errors import RuntimeClosedError
from holdfast.store import open_store
from holdfast.testing import ScriptedProvider, reply, stream, tool_call
from holdfast.testing.patience import HANG_S, until_so
from tests.tables import each_row


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Work in a thread, and where its outcome will be: what it returned, or raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


FOR_TURNS = {"draining", "record_settings", "check_runs", "begin_in", "begin_with", "has_begun_with"}
"""What a session has for its turns, and for nobody else."""


# --- the same as with await ----------------------------------------------------------------------------


def test_a_chat_is_held_without_asyncio(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with SyncRuntime(url, provider=ScriptedProvider(["Hello.", stream("Mo", "re.")]), model="m-1") as runtime:
        session = runtime.session("chat-1").prompt("Be kind.").open()
        assert session.turn("Hi").run().text == "Hello."
        events = list(session.turn("More").stream())
        assert [event.text for event in events if isinstance(event, TextDeltaEvent)] == ["Mo", "re."]
        assert isinstance(events[-1], TurnFinishedEvent)
        assert (session.session_id, session.parent_session_id, session.mode) == ("chat-1", None, "standard")
        assert session.policy.instructions == "Be kind."
        assert session.runtime is runtime
        assert "m-1" in str(runtime.describe())
    with SyncRuntime(url, provider=ScriptedProvider(["Still."])) as runtime:
        session = runtime.session("chat-1").open()
        assert session.turn("There?").run().text == "Still."
        assert [message.text for message in session.read_view().messages][-2:] == ["There?", "Still."]
        assert session.usage_report().calls == 0
        session.close()
        with pytest.raises(Exception, match="is closed in this handle"):
            session.turn("Hm")


def test_tools_structured_outputs_and_settings_work_as_with_await() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    provider = ScriptedProvider([tool_call("add", a=2, b=40), "42.", tool_call("finish", n=42)])
    with SyncRuntime("memory:", provider=provider, tools=[add]) as runtime:
        session = runtime.session("s-1").standard().spec(model="m-1").parent("s-0").store(open_store("memory:")).open()
        phases: list[str] = []
        session.set_turn_phase_probe(phases.append)
        assert [call.result for call in session.turn("2 + 40?").run().tool_calls] == [42]
        assert phases[0] == "accepted"
        assert session.configure(model="m-2").model == "m-2"
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        result = session.turn("As JSON").output(schema).run()
        assert result.value == {"n": 42}
        assert [request.model for request in provider.requests] == ["m-1", "m-1", "m-2"]
        assert session.parent_session_id == "s-0"


def test_a_session_is_begun_anew_or_from_a_state_or_from_an_envelope() -> None:
    provider = ScriptedProvider(["One.", "Two.", "Three.", "Four."])
    with SyncRuntime("memory:", provider=provider) as runtime:
        runtime.session("a").open().turn("1").run()
        fresh = runtime.session("a").open_fresh()
        fresh.turn("2").run()
        assert [message.text for message in fresh.read_view().messages] == ["2", "Two."]
        state = AgentState(session_id="b", messages=[AgentMessage("user", [TextBlock("Before")])])
        brought = runtime.session("b").open_with_state(state)
        brought.turn("3").run()
        envelope = brought.export_envelope()
        runtime.import_envelope("c", envelope).turn("4").run()
        assert [message.text for message in provider.requests[-1].messages] == ["Before", "3", "Three.", "4"]


def test_a_tool_that_nobody_runs_is_answered_and_a_turn_is_stopped() -> None:
    provider = ScriptedProvider([tool_call("ask"), "Blue.", tool_call("ask")])
    with SyncRuntime("memory:", provider=provider) as runtime:
        runtime.tools.declare("ask", "Ask a person.", {"type": "object", "properties": {}})
        session = runtime.session("s-1").open()
        turn = session.turn("Which colour?")
        for event in turn.stream():
            if event.__struct_config__.tag == "waiting":
                session.answer(event.queries[0].id, "blue")  # type: ignore[union-attr]
        assert session.turn("x").id("t-2").stream_to(lambda event: _stop_when_waiting(session, event)).stopped
        assert not session.stop()


def _stop_when_waiting(session: SyncAgentSession, event: LiveEvent) -> None:
    if event.__struct_config__.tag == "waiting":
        assert session.stop("enough")


def test_errors_are_the_same() -> None:
    class Ticket(Plugin):
        id = "ticket"
        requires_turn_input = True

    with SyncRuntime("memory:", provider=ScriptedProvider(["Hello."], loop=True)) as runtime:
        with pytest.raises(ModeNotInstalledError):
            runtime.session("a").mode("other").open()
        session = runtime.session("a").open()
        session.turn("Hi").id("t-1").run()
        with pytest.raises(TurnConflictError):
            session.turn("Ho").id("t-1").run()
        ticketed = runtime.session("b").plugin(Ticket()).open()
        with pytest.raises(MissingPluginInputError):
            ticketed.turn("Hi").run()
        with pytest.raises(MissingPluginInputError):
            list(ticketed.turn("Hi").stream())
        assert ticketed.turn("Hi").plugin_input("ticket", 1).run().text == "Hello."
    with SyncRuntime("memory:") as runtime, pytest.raises(ProviderUnconfiguredError):
        runtime.session("a").open().turn("Hi").run()


@each_row(
    ("theirs", "ours", "left_out"),
    [
        (SessionBuilder, SyncSessionBuilder, set()),
        (TurnBuilder, SyncTurnBuilder, {"cancel_on"}),
        (EnqueueBuilder, SyncEnqueueBuilder, set()),
        (QueuedTurns, SyncQueuedTurns, set()),
        (AgentSession, SyncAgentSession, {"conversation", "loaded", "code_execution_context", *FOR_TURNS}),
    ],
    ids=["builder", "turn", "enqueue", "queued", "session"],
)
def test_every_method_is_there_with_the_same_parameters(theirs: type, ours: type, left_out: set[str]) -> None:
    names = {name for name in vars(theirs) if not name.startswith("_")} - left_out
    assert names - set(vars(ours)) == set()
    for name in names:
        method = getattr(theirs, name)
        if callable(method):
            assert list(inspect.signature(getattr(ours, name)).parameters) == list(inspect.signature(method).parameters)


# --- streams -------------------------------------------------------------------------------------------


class Counting:
    """A provider that says a lot, and counts how much of it was taken."""

    id = "counting"

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.taken = 0

    async def stream(self, request: protocol.ModelRequest) -> AsyncIterator[protocol.StreamItem]:
        for _ in range(self.pieces):
            yield protocol.TextDelta("x")
            self.taken += 1
        yield protocol.ModelReply(content=[TextBlock("x" * self.pieces)])


def test_a_turn_waits_for_a_thread_that_takes_its_events_slowly() -> None:
    provider = Counting(4 * STREAM_EVENTS)
    with SyncRuntime("memory:", provider=provider) as runtime:
        session = runtime.session("s-1").open()
        events = iter(session.turn("Hi").stream())
        first = next(events)
        until_so(lambda: provider.taken >= STREAM_EVENTS - 2)
        time.sleep(0.2)  # in which all would be taken, if nothing held it back
        assert provider.taken <= STREAM_EVENTS + 2
        rest = list(events)
        assert sum(isinstance(event, TextDeltaEvent) for event in [first, *rest]) == provider.pieces
        assert isinstance(rest[-1], TurnFinishedEvent)


def test_a_stream_that_is_left_lets_its_turn_go_on() -> None:
    provider = Counting(4 * STREAM_EVENTS)
    with SyncRuntime("memory:", provider=provider) as runtime:
        session = runtime.session("s-1").open()
        events = session.turn("Hi").stream()
        for _ in events:
            break
        assert events.result().text == "x" * provider.pieces
        assert session.read_view().running is None


def test_what_a_sink_raises_is_raised_where_it_was_given_and_the_turn_goes_on() -> None:
    def refuse(event: LiveEvent) -> None:
        raise LookupError(event.turn)

    provider = Counting(4 * STREAM_EVENTS)
    with SyncRuntime("memory:", provider=provider) as runtime:
        session = runtime.session("s-1").open()
        with pytest.raises(LookupError, match="t-1"):
            session.turn("Hi").id("t-1").stream_to(refuse)
        assert session.turn("Hi").id("t-1").run().text == "x" * provider.pieces


def test_a_wait_may_run_out_and_the_turn_goes_on() -> None:
    with SyncRuntime("memory:", provider=ScriptedProvider([reply("Late.", delay_s=0.3)])) as runtime:
        session = runtime.session("s-1").open()
        seen: list[LiveEvent] = []
        with pytest.raises(TimeoutError):
            session.turn("Hi").id("t-1").run(wait=0.05)
        with pytest.raises(TimeoutError):
            session.turn("Hi").id("t-1").stream_to(seen.append, wait=0.05)
        assert session.turn("Hi").id("t-1").stream_to(seen.append, wait=HANG_S).text == "Late."
        assert isinstance(seen[-1], TurnFinishedEvent)


# --- threads -------------------------------------------------------------------------------------------


def test_several_threads_take_turns_of_their_own_sessions() -> None:
    with SyncRuntime(
        "memory:", provider=ScriptedProvider([lambda request: request.messages[-1].text], loop=True)
    ) as rt:

        def chat(number: int) -> list[str]:
            session = rt.session(f"s-{number}").open()
            return [session.turn(f"{number}.{turn}").run().text for turn in range(5)]

        threads = [in_thread(lambda number=number: chat(number)) for number in range(8)]  # type: ignore[misc]
        for thread, _ in threads:
            thread.join(HANG_S)
        assert [outcome for _, outcome in threads] == [[[f"{n}.{turn}" for turn in range(5)]] for n in range(8)]


def test_a_tool_that_is_a_plain_function_may_use_the_runtime_it_runs_in() -> None:
    sessions: list[SyncAgentSession] = []

    def look() -> str:
        """Look at the conversation."""
        return sessions[0].read_view().messages[0].text

    provider = ScriptedProvider([tool_call("look"), "Seen."])
    with SyncRuntime("memory:", provider=provider, tools=[look]) as runtime:
        sessions.append(runtime.session("s-1").open())
        assert [call.result for call in sessions[0].turn("Hi").run().tool_calls] == ["Hi"]


def test_an_async_tool_is_told_to_await_instead_of_waiting_for_itself() -> None:
    sessions: list[SyncAgentSession] = []

    async def look() -> str:
        """Look at the conversation."""
        return sessions[0].read_view().messages[0].text

    provider = ScriptedProvider([tool_call("look"), "Oh."])
    with SyncRuntime("memory:", provider=provider, tools=[look]) as runtime:
        sessions.append(runtime.session("s-1").open())
        (call,) = sessions[0].turn("Hi").run().tool_calls
        assert call.is_error
        assert "use the API with await" in str(call.result)


@pytest.mark.parametrize("how", ["run", "stream"])
def test_an_interrupted_wait_leaves_the_turn_going_on_and_the_session_usable(tmp_path: Path, how: str) -> None:
    program = [sys.executable, "-m", "tests.agent.interrupted_child", f"sqlite:///{tmp_path}/a.db", how]
    root = Path(__file__).parents[2]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "asked\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.read().splitlines() == ["interrupted t-1", "Late.", "Next."]
    assert child.returncode == 0


# --- opening and closing -------------------------------------------------------------------------------


def test_it_says_how_it_is_used_when_it_is_used_otherwise() -> None:
    runtime = SyncRuntime("memory:", provider=ScriptedProvider([]))
    with pytest.raises(RuntimeClosedError, match="with SyncRuntime"):
        runtime.session("s-1").open()
    with runtime:
        session = runtime.session("s-1").open()
    with pytest.raises(RuntimeClosedError, match="with SyncRuntime"):
        session.read_view()
    with pytest.raises(RuntimeClosedError, match="with SyncRuntime"):
        list(session.turn("Hi").stream())


def test_who_waits_when_the_runtime_is_closed_is_told_and_the_turn_goes_on_later(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    slow = ScriptedProvider([reply("Never.", delay_s=60)])
    with SyncRuntime(url, provider=slow) as runtime:
        session = runtime.session("s-1").open()
        thread, outcome = in_thread(session.turn("Hi").id("t-1").run)
        until_so(lambda: slow.requests)
    thread.join(HANG_S)
    assert [type(each) for each in outcome] == [RuntimeClosedError]
    with SyncRuntime(url, provider=ScriptedProvider(["At last."])) as runtime:
        assert runtime.session("s-1").open().turn("Hi").id("t-1").run(wait=HANG_S).text == "At last."


def test_a_stream_that_outlives_its_runtime_ends_quietly() -> None:
    with SyncRuntime("memory:", provider=Counting(4 * STREAM_EVENTS)) as runtime:
        events = iter(runtime.session("s-1").open().turn("Hi").stream())
        next(events)
    with pytest.raises(RuntimeClosedError):
        next(events)


def test_a_store_that_cannot_be_opened_says_so_and_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(Exception, match="cannot be used"), SyncRuntime(f"sqlite:///{tmp_path}"):
        pass
    assert threading.active_count() == before


def test_items_are_sent_worked_and_cancelled_without_asyncio(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    with SyncRuntime(url, provider=ScriptedProvider(["One.", "Two."]), model="m-1") as runtime:
        session = runtime.session("s").open()
        assert session.enqueue("a").id("a").slot("join").by("ann").send().item_id == "a"
        assert session.enqueue("a").id("a").slot("join").send().replayed
        session.enqueue_command("compact").id("c").send()
        session.enqueue("b").id("b").delivery("boundary").after(60).send()
        assert [item.id for item in session.queued_work()] == ["a", "c", "b"]
        assert session.cancel_queued_work("c", "no need").status == "cancelled"
        assert [result.text for result in session.queued_turn().run()] == ["One."]
        assert session.wait_for("a", timeout=HANG_S) == session.outcome("a")
        assert (session.cancel(item="b").state, session.cancel().state) == ("withdrawn", "idle")
        assert session.cancel_running_turns() == 0


def test_background_work_and_commands_without_await() -> None:
    def tag(name: str) -> str:
        """Tag the session."""
        return name

    with SyncRuntime("memory:", provider=ScriptedProvider([]), commands=[tag]) as runtime:
        session = runtime.session("s-1").open()
        receipt = session.processes().start(OutsideWork(), recovery="external")
        assert session.processes().report(receipt.id, 3).status == "completed"
        assert runtime.processes.show(receipt.id).result == 3
        assert [each.id for each in session.observe().list_all_process_handles()] == [receipt.id]
        session.triggers().schedule("daily", "Hello", cron="0 9 * * *")
        assert [each.name for each in runtime.triggers.list()] == ["daily"]
        assert [each.name for each in session.admin().commands().list()] == ["compact", "tag"]
        assert session.admin().commands().run("tag", name="blue").value == "blue"
