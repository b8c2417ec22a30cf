"""What keeps the lease of a session looks into its mailbox when there may be something in it, and at no other time."""

from __future__ import annotations

import asyncio

from holdfast.core.events import CancelledEvent, RunningEvent
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.keeper import MAIL_REST_S
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.mailbox import MailboxItem
from holdfast.store.memory import MemoryStore
from holdfast.testing.patience import soon, until
from tests.engine.helpers import quiet

STEPS = 12
"""Effects of the session: as many commits each as there are of their starts and answers, and no more."""


@strategy(name="keeper-steps")
async def steps(ctx: Context) -> str:
    """Runs one effect after the other, and is held all that time."""
    for number in range(ctx["steps"]):
        await ctx.tool("step", number=number)
    return "done"


class CountedLooks(MemoryStore):
    """A store that counts how often its mailboxes are looked into."""

    looks = 0

    async def _mailbox(self, session_id: str, limit: int) -> list[MailboxItem]:
        self.looks += 1
        return await super()._mailbox(session_id, limit)


async def test_the_commits_of_a_held_session_bring_no_look_into_its_mailbox() -> None:
    store = CountedLooks()
    async with open_holdfast(store) as hf:

        async def step(number: int) -> str:
            await asyncio.sleep(2 * MAIL_REST_S)  # long enough for a look between any two commits
            return "ok"

        hf.drive("step", step)
        await hf.start(steps, id="s", ctx={"steps": STEPS}, wait=0)
        assert await soon(hf.result("s")) == "done"
        assert store.looks < STEPS / 2


async def test_what_is_sent_to_a_held_session_is_taken_at_once() -> None:
    store = CountedLooks()
    async with quiet(store) as other, open_holdfast(store) as hf:
        begun: list[int] = []

        async def step(number: int) -> None:
            begun.append(number)
            await asyncio.Event().wait()

        hf.drive("step", step)
        event = await hf.start(steps, id="s", ctx={"steps": 1}, wait=0.01)
        assert isinstance(event, RunningEvent)
        await until(lambda: begun and store.looks)  # the keeper is at work, and waits
        cancelled = await soon(other.cancel("s"))
        assert isinstance(cancelled, CancelledEvent)
