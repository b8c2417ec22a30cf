"""Commands of a session: typed, listed, and called from the API, through plugins, and from the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast import OutputBudget, Plugin
from holdfast.agent.commands import UnknownCommandError
from holdfast.agent.machine.turn import CommandOutcome
from holdfast.agent.processes.terms import OutsideWork
from holdfast.agent.tools.errors import InvalidArgumentsError
from holdfast.core.errors import InvalidValueError
from holdfast.testing.patience import soon
from tests.agent.helpers import Home, add
from tests.agent.queue_helpers import echoes, inputs


def tag(name: str, times: int = 1) -> list[str]:
    """Tag the session.

    Args:
        name: The tag.
        times: How often.
    """
    return [name] * times


class Notes(Plugin):
    """Keeps notes for the host."""

    id = "notes"

    def commands(self) -> Mapping[str, Callable[..., Any]]:
        return {"note": self._note, "tag": self._note}

    def _note(self, text: str) -> str:
        """Write a note."""
        return f"noted: {text}"


async def test_commands_are_listed_with_their_types(home: Home) -> None:
    async with echoes(home, commands=[tag]) as runtime:
        session = await runtime.session("s").plugin(Notes()).open()
        found = {each.name: each for each in await session.commands().list()}
        assert {name: each.plugin for name, each in found.items()} == {"compact": "", "note": "notes", "tag": "host"}
        assert found["tag"].description == "Tag the session."
        assert found["tag"].parameters["required"] == ["name"]
        assert found["tag"].parameters["properties"]["times"]["type"] == "integer"


async def test_a_command_is_run_and_its_arguments_are_checked_before_anything_is_written(home: Home) -> None:
    async with echoes(home, commands=[tag]) as runtime:
        session = await runtime.session("s").open()
        result = await soon(session.commands().run("tag", name="a", times=2))
        assert result.outcome == CommandOutcome("tag", ["a", "a"])
        before = await runtime.mount.store.position("s")
        with pytest.raises(InvalidArgumentsError):
            await session.commands().run("tag", name="a", times="many")
        with pytest.raises(UnknownCommandError, match="its commands are: compact, tag"):
            await session.commands().run("fly")
        assert await runtime.mount.store.position("s") == before


async def test_a_command_in_the_queue_goes_before_turns(any_home: Home) -> None:
    async with echoes(any_home, commands=[tag]) as runtime:
        session = await runtime.session("s").open()
        await session.enqueue("hello").id("a")
        await (await session.commands().enqueue("tag", name="x")).id("c")
        with pytest.raises(UnknownCommandError):
            await session.commands().enqueue("fly")
        await soon(session.queued_turn().run())
        assert await inputs(session) == [["c"], ["a"]]
        outcome = await session.outcome("c")
        assert outcome.result is not None
        assert outcome.result.outcome == CommandOutcome("tag", ["x"])


async def test_plugin_actions_are_called_by_plugin(home: Home) -> None:
    async with echoes(home, commands=[tag]) as runtime:
        session = await runtime.session("s").plugin(Notes()).open()
        actions = session.plugin_actions()
        assert [(each.plugin, each.name) for each in await actions.list()] == [("notes", "note"), ("host", "tag")]
        assert [each.name for each in await actions.list("notes")] == ["note"]
        result = await soon(actions.run("notes", "note", text="hi"))
        assert result.outcome == CommandOutcome("note", "noted: hi")
        with pytest.raises(UnknownCommandError):
            await actions.run("notes", "tag", name="x")


async def test_commands_of_a_host_need_names_of_their_own(home: Home) -> None:
    with pytest.raises(InvalidValueError, match="a name of its own"):
        home.runtime(commands=[tag, tag])


async def test_admin_has_all_that_can_be_administered(home: Home) -> None:
    async with echoes(home, tools=[add], commands=[tag]) as runtime:
        session = await runtime.session("s").plugin(OutputBudget()).open()
        admin = session.admin()
        assert (await admin.config().update(model="m-2")).model == admin.config().policy.model == "m-2"
        assert (await soon(admin.commands().run("tag", name="a"))).outcome == CommandOutcome("tag", ["a"])
        assert "add" in (await admin.tools().catalog()).names
        assert "add" not in (await admin.tools().set([], include_base=False)).names
        assert "add" in (await admin.tools().set([])).names
        assert "add" in (await admin.tools().refresh()).names
        receipt = await admin.processes().start(OutsideWork(), recovery="external")
        await admin.triggers().schedule("daily", "Hello", cron="0 9 * * *")
        assert [each.name for each in await admin.triggers().list()] == ["daily"]
        assert await admin.plugin_actions().list("output_budget") == []
        observer = session.observe()
        assert [each.id for each in await observer.list_process_handles()] == [receipt.id]
        await admin.processes().cancel(receipt.id)
        assert await observer.list_process_handles() == []
        assert [each.status for each in await observer.list_all_process_handles()] == ["cancelled"]
        scope = await observer.process_scope()
        assert (scope.session_id, scope.service) == ("s", "default")
