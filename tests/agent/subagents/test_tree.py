"""The tree of a session, as its observers see it, and its questions."""

from __future__ import annotations

import asyncio

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.testing.patience import HANG_S
from tests.agent.helpers import Home, add
from tests.agent.subagents.helpers import agent, cast, delegating
from tests.agent.subagents.test_family import adds, middle


async def test_the_tree_shows_every_descendant_and_the_questions_under_the_ids_of_the_root(home: Home) -> None:
    model = cast({"middle": middle, "leaf": adds}, delegating({"agent": "middle", "task": "x"}))
    async with home.runtime(provider=model, agents=[agent("middle"), agent("leaf")], tools=[add]) as runtime:
        session = await runtime.session("chat").approval(Approval(rules=[Rule.confirm("add")])).open()
        running = asyncio.create_task(session.turn("go").run())
        async with asyncio.timeout(HANG_S):
            with session.mount.store.watch() as changes:
                while True:
                    tree = await session.observe().tree()
                    asked = [question for _, node in tree.walk() for question in node.questions]
                    if asked:
                        break
                    await changes.changed(timeout=0.5)
            shown = [(depth, node.session_id, node.program, node.task) for depth, node in tree.walk()]
            assert shown == [
                (0, "chat", "agent", ""),
                (1, "chat.q-2", "middle", "x"),
                (2, "chat.q-2.q-2", "leaf", "below"),
            ]
            (question,) = asked
            await session.answer(question.id, "approve")
            assert (await running).text == "5"
        states = [node.state for _, node in (await session.tree()).walk()]
        assert states == ["paused", "completed", "completed"]
