"""Starting and resuming a session: with a person at the terminal, or until its first event."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.engine import open_engine, open_store
from holdfast.cli.options import is_person_here
from holdfast.cli.output import plain
from holdfast.cli.served import load_served
from holdfast.cli.session_lookup import check_runs_here, find_session
from holdfast.core.errors import HoldfastError
from holdfast.core.events import PausedEvent

if TYPE_CHECKING:
    from holdfast.cli.run.model import SessionModel
    from holdfast.core.budget import Price
    from holdfast.core.events import Event
    from holdfast.core.records import Program
    from holdfast.engine.holdfast import Holdfast


@dataclass(frozen=True)
class NewSession:
    """A session to start."""

    program: Program
    ctx: Any
    budget: dict[str, Any] | None
    session_id: str | None
    """None: a new id is made up."""
    prices: dict[str, Price]
    """Prices that were given, by model; a limit of money also needs those of the others."""

    def session_prices(self, model: str | None) -> dict[str, Price] | None:
        """The prices that it is recorded with. Raises `InvalidBudgetError` if it needs one that is not known."""
        from holdfast.core.budget import Budget

        limit = (self.budget or {}).get("max_cost")
        if model is None or not isinstance(limit, (int, float)):
            return self.prices or None
        from holdfast.agent.providers.prices import session_prices

        return session_prices(model, self.prices, Budget(max_cost=limit))


def start_session(new: NewSession, wait: float | None, model: str | None, base_url: str | None) -> int:
    """Start a session, and print its event; if a model is named, it answers."""
    session_id, answering = new.session_id, None
    if model is not None:
        from holdfast.cli.run.model import SessionModel
        from holdfast.core.ids import check_id, new_session_id

        session_id = check_id(session_id, "session id") if session_id is not None else new_session_id()
        answering = SessionModel(model, base_url, session_id)
    options: dict[str, Any] = {"ctx": new.ctx, "budget": new.budget, "id": session_id, "llm": model}
    if (prices := new.session_prices(model)) is not None:
        options["prices"] = prices
    from holdfast.cli.run.interactive import ask_person, print_event_with_hint

    if is_person_here():
        load_served()
        return ask_person(lambda hf: hf.start(new.program, **options, wait=0), answering)

    async def start() -> Event:
        async with answering.engine() if answering else open_engine(upkeep=True, create=True) as hf:
            return await hf.start(new.program, **options, wait=wait)

    return print_event_with_hint(asyncio.run(start()), answering)


def resume_session(
    id_or_prefix: str, wait: float | None = None, model: str | None = None, base_url: str | None = None
) -> int:
    """Resume a session, and print its event; if a model is named, it answers."""

    async def find() -> str:
        async with open_store() as store:
            return await find_session(store, id_or_prefix)

    session_id = asyncio.run(find())
    answering: SessionModel | None = None
    if model is not None:
        from holdfast.cli.run.model import SessionModel

        answering = SessionModel(model, base_url, session_id, is_resumed=True)
    from holdfast.cli.run.interactive import ask_person, print_event_with_hint

    if is_person_here():
        load_served()
        return ask_person(lambda hf: hf.resume(session_id, wait=0), answering)

    async def resume() -> Event:
        async with answering.engine() if answering else open_engine(upkeep=True) as hf:
            event = await hf.resume(session_id, wait=wait)
            await warn_if_stuck(hf, event)
            return event

    return print_event_with_hint(asyncio.run(resume()), answering)


async def warn_if_stuck(hf: Holdfast, event: Event) -> None:
    """Say on standard error if a session could continue, but not here: its program cannot be run, or its mail taken."""
    if event.status == "running":
        try:
            await check_runs_here(hf.store, event.session_id)
        except HoldfastError as error:
            click.echo(f"holdfast: {plain(str(error))}", err=True)
    elif isinstance(event, PausedEvent) and await hf.store.mailbox(event.session_id, limit=1):
        waits = (await hf.status(event.session_id, pending=None)).get("waits", {})
        click.echo(
            f"holdfast: {event.session_id} {plain(waits.get('why', 'has mail that is not taken here'))}", err=True
        )
