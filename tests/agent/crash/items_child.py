"""The process of the crash tests of items: sends some, takes one back, and works the others until all are settled."""

from __future__ import annotations

import asyncio

from holdfast.testing.patience import HANG_S
from tests.agent.crash.child import Job, _run
from tests.agent.crash.services import Points, World, session_of

SESSION = "chat"

ITEMS = {
    "plain": {"text": "say"},
    "tool": {"text": "use safe"},
    "meanwhile": {"text": "say", "delivery": "boundary"},
    "joined-1": {"text": "say", "slot": "join"},
    "joined-2": {"text": "say", "slot": "join"},
    "unwanted": {"text": "say"},
}
"""By id: what is said, and how it is sent."""

UNWANTED = "unwanted"


async def _work(job: Job) -> None:
    """What a client does that tries again until it is told: everything once more, under the same ids."""
    session_of.set(SESSION)
    world = World(job.directory, Points(job.trace, job.deadly))
    async with asyncio.timeout(HANG_S), world.runtime(job.url) as runtime:
        session = await runtime.session(SESSION).open()
        for item_id, sent in ITEMS.items():
            builder = session.enqueue(sent["text"]).id(item_id)
            if "delivery" in sent:
                builder.delivery("boundary")
            if "slot" in sent:
                builder.slot("join")
            receipt = await builder
            world.ledger.note("accepted", SESSION, item=receipt.item_id)
        cancelled = await session.cancel(item=UNWANTED, by="client")
        world.ledger.note("cancelled", SESSION, state=cancelled.state)
        async with runtime.work():
            for item_id in ITEMS:
                outcome = await session.wait_for(item_id)
                world.ledger.note("told", SESSION, item=item_id, status=outcome.status, turn=outcome.turn)


def items_job(job: Job) -> None:
    _run(job, _work(job))
