"""The host of the kill tests: whoever answers from outside, always the same to the same question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast import Holdfast
from holdfast.core.events import Event, PausedEvent
from holdfast.core.queries import LlmQuery, Query, ToolQuery
from holdfast.store import Store
from tests.engine.kill.ledger import Ledger
from tests.engine.kill.programs import FORKED_AT, PROGRAMS, UNANSWERED
from tests.engine.kill.tools import did


class Host:
    """Whoever answers from outside: always the same to the same question."""

    def __init__(self, hf: Holdfast, ledger: Ledger) -> None:
        self.hf = hf
        self._ledger = ledger

    async def start(self, session: str, *, wait: float | None = None) -> Event:
        program, ctx = PROGRAMS[session]
        event = await self.hf.start(program, ctx={"name": session, **ctx}, id=session, wait=wait)
        self._ledger.note("started", session)
        return self.shown(event)

    async def feed(self, session: str, queries: Sequence[Query]) -> Event:
        answers = {query.id: answer_to(query) for query in queries}
        event = await self.hf.feed(session, answers, by="host")
        for asked, answer in answers.items():
            self._ledger.note("acked", session, query=asked, content=answer)
        return self.shown(event)

    async def converse(self, event: Event) -> Event:
        """Answer until there is nothing more to answer."""
        while isinstance(event, PausedEvent):
            event = await self.feed(event.session_id, event.queries)
        return event

    async def cancel(self, session: str) -> None:
        await self.hf.cancel(session, "enough")
        self._ledger.note("cancelled", session)

    async def fork(self, session: str) -> Event:
        event = await self.hf.fork("single", at=FORKED_AT, id=session)
        self._ledger.note("started", session)
        return self.shown(event)

    def shown(self, event: Event) -> Event:
        """Note which queries an event puts to the host."""
        if isinstance(event, PausedEvent):
            for query in event.queries:
                self.put(event.session_id, query)
        return event

    def put(self, session: str, query: Query) -> None:
        self._ledger.note("put", session, query=query.id)

    async def asked(self, session: str) -> list[Query]:
        """Wait until a session asks the host something."""
        while True:
            if queries := await pending_for_host(self.hf.store, session):
                for query in queries:
                    self.put(session, query)
                return queries
            await asyncio.sleep(0.005)


async def pending_for_host(store: Store, session: str) -> list[Query]:
    """What a session asks that a host would answer, and no driver or clock."""
    pending = (await store.load(session)).pending.values()
    return [each.query for each in pending if is_for_host(each.query, each.attempts)]


def is_for_host(query: Query, attempts: int) -> bool:
    match query:
        case LlmQuery(prompt=prompt):
            return not prompt.startswith(UNANSWERED)
        case ToolQuery(name="ask"):
            return attempts > 0
        case _:
            return False


def answer_to(query: Query) -> str:
    match query:
        case LlmQuery(prompt=prompt):
            return f"<{prompt}>"
        case ToolQuery(name=tool, arguments=arguments):
            return did(tool, arguments["what"])
        case _:
            raise AssertionError(f"{query} is not for a host")
