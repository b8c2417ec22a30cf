"""Opening a session: mode, spec, store, parent, residency; resuming it, beginning it anew, bringing its state along."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.agent.errors import (
    ModeNotInstalledError,
    NotAnAgentError,
    SessionEndedError,
    StoreFactoryError,
    StoreSessionMismatchError,
)
from holdfast.agent.machine.messages import AgentMessage, TextBlock
from holdfast.agent.machine.policy import Policy
from holdfast.agent.machine.turn import StoppedOutcome
from holdfast.agent.runtime import Runtime
from holdfast.agent.runtime_options import RuntimeOptions
from holdfast.agent.session import AgentSession
from holdfast.agent.session_builder import AgentState
from holdfast.core.errors import HoldfastError, InvalidIdError, SessionNotFoundError
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store import Store, open_store
from holdfast.store.errors import StoreError
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider
from tests.agent.helpers import Home, journal, said


def user(text: str) -> AgentMessage:
    return AgentMessage("user", [TextBlock(text)])


# --- modes ----------------------------------------------------------------------------------------------


async def test_the_default_mode_is_used(home: Home) -> None:
    async with home.runtime() as runtime:
        assert (await runtime.session("s").open()).mode == "standard"
        assert (await runtime.session("t").standard().open()).mode == "standard"


async def test_a_mode_that_is_not_installed_is_an_error_that_names_it_and_nothing_is_stored(home: Home) -> None:
    async with home.runtime() as runtime:
        builder = runtime.session("s").mode("waltz")
        for opening in (builder.open, builder.open_fresh):
            with pytest.raises(ModeNotInstalledError, match=r"'waltz'.*standard") as caught:
                await opening()
            assert (caught.value.mode, caught.value.installed) == ("waltz", ["rlm", "standard"])
        with pytest.raises(SessionNotFoundError):
            await runtime.mount.store.session("s")


# --- resuming -------------------------------------------------------------------------------------------


async def test_a_session_that_is_opened_again_goes_on_where_it_was(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        await soon((await runtime.session("s").open()).turn("Hi").run())
    async with home.runtime("Still here") as runtime:
        session = await runtime.session("s").open()
        assert await said(session) == [("user", "Hi"), ("assistant", "Hello")]
        await soon(session.turn("And now?").run())
        shown = runtime.providers["scripted"].requests[0].messages  # type: ignore[attr-defined]
        assert [message.text for message in shown] == ["Hi", "Hello", "And now?"]


async def test_opening_writes_nothing_for_a_session_that_is_there(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hi").run())
        before = await journal(session)
        for opening in (runtime.session("s").open, runtime.session("s").open_fresh):
            await opening()
        await runtime.session("s").open_with_state(AgentState(session_id="s", messages=[user("old")]))
        assert await journal(session) == before


async def test_a_new_session_can_be_found_before_its_first_turn(home: Home) -> None:
    async with home.runtime() as runtime:
        await runtime.session("s").open()
        async with home.runtime() as other:
            assert await said(await other.session("s").open()) == []
            assert len((await other.mount.holdfast.sessions()).rows) == 1


async def test_two_who_open_a_new_session_at_once_get_the_same(shared_home: Home) -> None:
    async with shared_home.runtime("1") as one, shared_home.runtime("2") as two:
        first, second = await soon(asyncio.gather(one.session("s").open(), two.session("s").open()))
        await soon(first.turn("from one").run())
        assert await said(second) == await said(first) == [("user", "from one"), ("assistant", "1")]


async def test_a_session_of_another_kind_is_refused(home: Home) -> None:
    async with home.runtime() as runtime:
        await runtime.mount.holdfast.start(asks, id="s", wait=0)
        with pytest.raises(NotAnAgentError, match="'native'") as caught:
            await runtime.session("s").open()
        assert (caught.value.session_id, caught.value.found) == ("s", "native")


@strategy
async def asks(ctx: Context) -> Any:
    return await ctx.ask("well?")


async def test_a_deleted_session_is_not_begun_again(home: Home) -> None:
    async with home.runtime() as runtime:
        await runtime.session("s").open()
        await runtime.mount.holdfast.delete("s")
        for opening in (runtime.session("s").open, runtime.session("s").open_fresh):
            with pytest.raises(HoldfastError, match="deleted"):
                await opening()


async def test_an_ended_session_can_be_opened_and_read_and_takes_no_turns(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        await soon(session.turn("Hi").run())
        await runtime.mount.holdfast.cancel("s", "closing time")
        with pytest.raises(SessionEndedError, match="cancelled"):
            await soon(session.turn("More").run())
    async with home.runtime() as runtime:
        for opening in (runtime.session("s").open, runtime.session("s").open_fresh):
            session = await opening()
            with pytest.raises(SessionEndedError) as caught:
                await soon(session.turn("More").run())
            assert (caught.value.session_id, caught.value.state) == ("s", "cancelled")
        assert await said(await runtime.session("s").open()) == [("user", "Hi"), ("assistant", "Hello")]


async def _is_running(session: AgentSession) -> bool:
    return (await session.read_view()).running is not None


async def test_a_turn_that_waits_is_over_when_its_session_is_cancelled(home: Home) -> None:
    async with home.runtime(lambda request: asyncio.sleep(60, "late")) as runtime:
        session = await runtime.session("s").open()
        running = asyncio.create_task(session.turn("Hi").run())
        await until(lambda: _is_running(session))
        await runtime.mount.holdfast.cancel("s", "closing time")
        result = await soon(running)
        assert isinstance(result.outcome, StoppedOutcome)
        assert result.outcome.reason == "cancelled"
        assert "closing time" in result.outcome.detail


async def test_a_closed_handle_takes_no_turns_and_another_one_does(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open()
        await session.close()
        with pytest.raises(HoldfastError, match="open it again"):
            session.turn("Hi")
        assert (await soon((await runtime.session("s").open()).turn("Hi").run())).text == "Hello"


def test_an_id_that_is_none_is_refused_before_anything_else() -> None:
    runtime = Runtime("memory:", provider=ScriptedProvider([]))
    for wrong in ("", "a/b", "x" * 500):
        with pytest.raises(InvalidIdError):
            runtime.session(wrong)
        with pytest.raises(InvalidIdError):
            runtime.session("s").parent(wrong)


# --- stores ---------------------------------------------------------------------------------------------


async def test_an_explicit_store_is_for_that_session_alone() -> None:
    own = MemoryStore()
    async with Runtime("memory:", provider=ScriptedProvider(["Hello", "Hello"]), model="m") as runtime:
        session = await runtime.session("s").store(own).open()
        await soon(session.turn("Hi").run())
        child = await runtime.session("child").parent("s").open()
        await soon(child.turn("Hi").run())
        assert [row.session_id for row in (await own.sessions()).rows] == ["s"]
        assert [row.session_id for row in (await runtime.mount.store.sessions()).rows] == ["child"]


async def test_a_store_factory_gets_the_id_the_relation_and_the_policy_and_a_child_its_parent() -> None:
    asked: list[tuple[str, Mapping[str, str], Policy]] = []

    async def make(session_id: str, relation: Mapping[str, str], policy: Policy) -> Store:
        asked.append((session_id, relation, policy))
        return open_store("memory:")

    async with Runtime(
        "memory:", provider=ScriptedProvider([]), model="m", options=RuntimeOptions(store_factory=make)
    ) as runtime:
        root = await runtime.session("root").open()
        child = await runtime.session("child").parent("root").spec(model="small").open()
    assert [(each, relation) for each, relation, _ in asked] == [
        ("root", {"kind": "root"}),
        ("child", {"kind": "child", "parent": "root"}),
    ]
    assert [policy.model for *_, policy in asked] == ["m", "small"]
    assert (root.parent_session_id, child.parent_session_id) == (None, "root")


async def test_an_error_of_the_store_factory_carries_the_id_of_the_session() -> None:
    def make(session_id: str, relation: Mapping[str, str], policy: Policy) -> Store:
        raise OSError("disk on fire")

    async with Runtime(
        "memory:", provider=ScriptedProvider([]), model="m", options=RuntimeOptions(store_factory=make)
    ) as runtime:
        for opening in (runtime.session("s-7").open, runtime.session("s-7").open_fresh):
            with pytest.raises(StoreFactoryError, match=r"'s-7'.*disk on fire") as caught:
                await opening()
            assert (caught.value.session_id, caught.value.message) == ("s-7", "OSError: disk on fire")


async def test_a_parent_is_recorded_and_known_when_the_child_is_opened_again(home: Home) -> None:
    async with home.runtime() as runtime:
        await runtime.session("child").parent("root").open()
    async with home.runtime() as runtime:
        assert (await runtime.session("child").open()).parent_session_id == "root"
        assert (await runtime.session("root").open()).parent_session_id is None


async def test_sessions_on_one_new_store_can_be_opened_at_once() -> None:
    own = MemoryStore()
    async with Runtime("memory:", provider=ScriptedProvider([]), model="m") as runtime:
        opened = await soon(asyncio.gather(*(runtime.session(f"s-{n}").store(own).open() for n in range(5))))
        assert len({id(session.mount) for session in opened}) == 1


# --- fresh ----------------------------------------------------------------------------------------------


async def test_fresh_replaces_on_the_next_commit_only(home: Home) -> None:
    async with home.runtime("old answer", "new answer") as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())
        fresh = await runtime.session("s").open_fresh()
        assert await said(fresh) == []
        assert await said(await runtime.session("s").open()) == [("user", "old"), ("assistant", "old answer")]
        await soon(fresh.turn("new").run())
        shown = runtime.providers["scripted"].requests[-1].messages  # type: ignore[attr-defined]
        assert [message.text for message in shown] == ["new"]
        reopened = await runtime.session("s").open()
        assert await said(reopened) == await said(fresh) == [("user", "new"), ("assistant", "new answer")]
        view = await reopened.read_view()
        assert view.generation == 1
        assert "old" in [each.text for each in _closed(await reopened.conversation())]


def _closed(conversation: Any) -> list[AgentMessage]:
    """What was said on branches that are not the active one."""
    active = {node.id for node in conversation.path()}
    closed = [node.payload for node in conversation.nodes.values() if node.id not in active]
    return [each for each in closed if isinstance(each, AgentMessage)]


async def test_a_crash_before_the_commit_of_a_fresh_session_leaves_the_old_data(home: Home) -> None:
    async with home.runtime("old answer") as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())

    async def die(seam: str) -> None:
        raise ConnectionError("the process is gone")

    async with home.runtime("never said", seam=die) as runtime:
        fresh = await runtime.session("s").open_fresh()
        with pytest.raises(ConnectionError):
            await soon(fresh.turn("new").run())
    async with home.runtime("more") as runtime:
        session = await runtime.session("s").open()
        assert await said(session) == [("user", "old"), ("assistant", "old answer")]
        assert (await session.read_view()).generation == 0
        await soon(session.turn("go on").run())
        assert len(await said(session)) == 4


async def test_a_fresh_session_begins_anew_once(home: Home) -> None:
    async with home.runtime("0", "1", "2") as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())
        fresh = await runtime.session("s").open_fresh()
        await soon(fresh.turn("one").run())
        await soon(fresh.turn("two").run())
        assert [text for _, text in await said(fresh)] == ["one", "1", "two", "2"]


async def test_a_fresh_turn_that_was_not_taken_leaves_it_to_the_next_one_to_begin_anew(home: Home) -> None:
    is_broken = False

    async def seam(name: str) -> None:
        if is_broken:
            raise ConnectionError("the store is away")

    async with home.runtime("0", "1", seam=seam) as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())
        fresh = await runtime.session("s").open_fresh()
        is_broken = True
        with pytest.raises(ConnectionError):
            await soon(fresh.turn("one").run())
        is_broken = False
        await soon(fresh.turn("two").run())
        assert [text for _, text in await said(fresh)] == ["two", "1"]


async def test_a_fresh_turn_that_was_given_up_and_taken_all_the_same_has_begun_anew(home: Home) -> None:
    gate = asyncio.Event()
    gate.set()

    async def seam(name: str) -> None:
        await gate.wait()

    async with home.runtime("0", "1", "2", seam=seam) as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())
        fresh = await runtime.session("s").open_fresh()
        gate.clear()
        with pytest.raises(TimeoutError):
            await fresh.turn("one").run(wait=0.02)
        following = asyncio.create_task(fresh.turn("two").run())
        await asyncio.sleep(0.02)
        gate.set()
        await soon(following)
        assert [text for _, text in await said(fresh)] == ["one", "1", "two", "2"]


async def test_open_fresh_of_what_is_not_there_is_a_new_session(home: Home) -> None:
    async with home.runtime("Hello") as runtime:
        session = await runtime.session("s").open_fresh()
        await soon(session.turn("Hi").run())
        assert (await session.read_view()).generation == 0


# --- with a state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_session_opened_with_a_state_goes_on_from_its_messages(home: Home, is_there: bool) -> None:
    messages = [user("What is 6 × 7?"), AgentMessage("assistant", [TextBlock("42")])]
    async with home.runtime("Because.") as runtime:
        state = AgentState(session_id="s", messages=messages)
        if is_there:
            await runtime.session("s").open()
        session = await runtime.session("s").open_with_state(state)
        assert await said(session) == [("user", "What is 6 × 7?"), ("assistant", "42")]
        await soon(session.turn("Why?").run())
        shown = runtime.providers["scripted"].requests[-1].messages  # type: ignore[attr-defined]
        assert [message.text for message in shown] == ["What is 6 × 7?", "42", "Why?"]
    async with home.runtime() as runtime:
        assert [text for _, text in await said(await runtime.session("s").open())][-2:] == ["Why?", "Because."]


async def test_a_state_of_another_session_is_an_error_with_both_ids(home: Home) -> None:
    async with home.runtime() as runtime:
        with pytest.raises(StoreSessionMismatchError) as caught:
            await runtime.session("s").open_with_state(AgentState(session_id="other", messages=[]))
        assert (caught.value.loaded, caught.value.requested) == ("other", "s")
        with pytest.raises(SessionNotFoundError):
            await runtime.mount.store.session("s")


# --- residency ------------------------------------------------------------------------------------------


async def test_keep_all_holds_closed_branches_and_active_path_only_does_not(home: Home) -> None:
    async with home.runtime("0", "1") as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())
        await soon((await runtime.session("s").open_fresh()).turn("new").run())
        whole = await (await runtime.session("s").open()).conversation()
        assert len(_closed(whole)) == 2
    async with home.runtime("2", residency="active_path_only") as runtime:
        session = await runtime.session("s").open()
        part = await session.conversation()
        assert _closed(part) == []
        assert part.path() == whole.path()
        await soon(session.turn("more").run())
        assert [text for _, text in await said(session)] == ["new", "1", "more", "2"]
        assert (await session.usage_report()).unsettled == 3


async def test_a_turn_of_a_closed_branch_is_told_in_full_also_where_only_the_active_path_is_kept(home: Home) -> None:
    async with home.runtime("0", "1", residency="active_path_only") as runtime:
        first = await soon((await runtime.session("s").open()).turn("old").id("t-old").run())
        await soon((await runtime.session("s").open_fresh()).turn("new").run())
        again = await soon((await runtime.session("s").open()).turn("old").id("t-old").run())
        assert again.receipt.replayed
        assert (again.messages, again.text) == (first.messages, "0")


async def test_an_active_path_that_was_lost_is_healed_from_the_whole_journal(home: Home) -> None:
    async with home.runtime("0", "1", "2", residency="active_path_only") as runtime:
        await soon((await runtime.session("s").open()).turn("old").run())
        session = await runtime.session("s").open_fresh()
        await soon(session.turn("new").run())
        (await session.conversation()).nodes.here.clear()
        assert [text for _, text in await said(session)] == ["new", "1"]
        assert len(_closed(await session.conversation())) == 2
        await soon(session.turn("more").run())
        assert [text for _, text in await said(session)] == ["new", "1", "more", "2"]


async def test_what_a_store_cannot_give_is_an_error_of_the_store(home: Home) -> None:
    class Broken(MemoryStore):
        async def read(self, *_: Any, **__: Any) -> Any:
            raise StoreError("the disk is gone")

    def new_runtime() -> Runtime:
        return Runtime("memory:", provider=ScriptedProvider([]), model="m")

    async with new_runtime() as runtime, new_runtime() as other:
        broken = Broken()
        await runtime.session("s").store(broken).open()
        with pytest.raises(StoreError, match="the disk is gone"):
            await other.session("s").store(broken).open()
