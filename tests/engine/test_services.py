"""Several services on one store: a process continues sessions of those that it serves, and answers what it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.core.errors import InvalidIdError, InvalidValueError
from holdfast.core.events import RunningEvent, SentEvent
from holdfast.core.needs import Need, missing_needs, why_left
from holdfast.core.queries import LlmQuery
from holdfast.core.records import AssignedRecord, CompletedRecord
from holdfast.core.state import Session
from holdfast.engine.drivers import Attempt
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.engine.listed_offers import ListedOffers
from holdfast.engine.upkeep import Upkeep
from holdfast.programs.native.ctx import Context
from holdfast.programs.registry import strategy
from holdfast.store.environment import Environment
from holdfast.testing.patience import soon, until
from tests.engine.helpers import LaterClock, of_type, prompts, quiet, result, sqlite
from tests.engine.programs import two_questions


@strategy(name="services-nap")
async def nap(ctx: Context) -> str:
    await ctx.sleep(0.05)
    return "rested"


@strategy(name="services-parent")
async def parent(ctx: Context) -> object:
    return await ctx.child(two_questions, {})


class Gpt5:
    """A model, as a layer above the engine brings it."""

    def meets(self, session: Session, need: Need) -> bool | None:
        return self.may_meet(need)

    def may_meet(self, need: Need) -> bool | None:
        return need.name == "openai:gpt-5" if need.kind == "model" else None

    def listed(self) -> ListedOffers:
        return ListedOffers(models=["openai:gpt-5"])


async def has_ended(hf: Holdfast, session_id: str) -> bool:
    return (await hf.store.session(session_id)).summary.state.is_terminal


# --- services -------------------------------------------------------------------------------------------


async def test_a_timer_of_another_service_is_left_to_a_process_that_serves_it(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path), service="billing") as billing:
        await billing.start(nap, id="b", wait=0)
    async with open_holdfast(sqlite(tmp_path), service="support") as support:
        await support.start(nap, id="s", wait=0)
        await until(lambda: has_ended(support, "s"))  # which was due later
        row = await support.store.session("b")
        assert (row.summary.state, row.summary.service, row.position) == ("paused", "billing", 2)
        async with open_holdfast(sqlite(tmp_path), service=["other", "billing"]) as both:
            assert await soon(both.result("b")) == "rested"


async def test_an_answer_to_another_service_is_left_in_its_mailbox_and_the_reply_says_so(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path), service="billing") as billing, quiet(sqlite(tmp_path)) as other:
        await billing.start(two_questions, id="b")
        event = await other.feed("b", {"q-0": "1"}, wait=0)
        assert isinstance(event, SentEvent)
        assert "it belongs to service 'billing', which this process does not serve" in event.why
        assert len(await other.store.mailbox("b")) == 1
        assert prompts(await soon(billing.resume("b"))) == {"q-1": "two"}


async def test_a_session_of_another_service_can_be_cancelled_and_is_not_resumed(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path), service="billing") as billing, quiet(sqlite(tmp_path)) as other:
        await billing.start(two_questions, id="b")
        epoch = (await other.store.session("b")).epoch
        await other.resume("b", wait=0)
        assert (await other.store.session("b")).epoch == epoch
        assert (await other.cancel("b")).status == "cancelled"


async def test_a_start_for_a_service_that_is_not_served_here_is_only_recorded(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        event = await soon(hf.start(two_questions, id="b", service="billing"))
        assert isinstance(event, RunningEvent)
        assert event.why == "it waits for a process that serves service `billing`"
        assert (await hf.store.session("b")).position == 1
    async with open_holdfast(sqlite(tmp_path), service="billing") as billing:
        assert prompts(await soon(billing.resume("b"))) == {"q-0": "one"}


async def test_children_and_forks_belong_to_the_service_of_their_session_and_are_answered_as_it_is(
    tmp_path: Path,
) -> None:
    async with quiet(sqlite(tmp_path), service=["default", "billing"]) as hf:
        await hf.start(parent, id="b", service="billing", llm="gpt")
        [child_id] = await _children(hf)
        child = await hf.session(child_id)
        fork = await hf.session((await hf.fork("b", at=1)).session_id)
        for session in (child, fork):
            assert session.started is not None
            assert (session.started.service, session.llm) == ("billing", "gpt")


async def _children(hf: Holdfast) -> list[str]:
    return [row.session_id for row in (await hf.sessions()).rows if row.summary.parent is not None]


async def test_only_sessions_of_served_services_are_cleaned_away(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path), service=["billing", "support"]) as hf:
        for service in ("billing", "support"):
            await hf.start(two_questions, id=service, service=service)
            await hf.cancel(service)
    upkeep = Upkeep(on=False, keep_ended_ms=1)
    later = Environment(clock=LaterClock(1))
    async with open_holdfast(sqlite(tmp_path), service="billing", upkeep=upkeep, environment=later) as hf:
        assert (await hf.clean())[1] == ["billing"]
        assert (await hf.store.session("support")).summary.state.is_terminal


@pytest.mark.parametrize("service", ["", "a b", []])
def test_a_name_that_no_service_can_have_is_refused(service: str | list[str]) -> None:
    with pytest.raises((InvalidIdError, InvalidValueError), match="service"):
        open_holdfast("memory:", service=service)


# --- whose question it is ---------------------------------------------------------------------------------


async def test_a_driver_leaves_the_questions_of_a_host_to_it(tmp_path: Path) -> None:
    """Also those of sessions that it could answer, as a worker with a model could."""
    asked: list[str] = []

    async def model(query: LlmQuery, attempt: Attempt) -> str:
        asked.append(attempt.session_id)
        return query.prompt.upper()

    async with quiet(sqlite(tmp_path)) as host, open_holdfast(sqlite(tmp_path)) as worker:
        worker.drive("llm", model)
        assert prompts(await host.start(two_questions, id="h")) == {"q-0": "one"}
        await host.start(two_questions, id="a", llm="any")
        assert await soon(worker.result("a")) == ["ONE", "TWO"]
        assert prompts(await soon(worker.resume("h"))) == {"q-0": "one"}
        assert prompts(await host.feed("h", "1")) == {"q-1": "two"}
        assert set(asked) == {"a"}
        await host.assign("h", "any", by="somebody")
        assert await soon(worker.result("h")) == ["1", "TWO"]
        assert await of_type(host.store, "h", AssignedRecord) == [AssignedRecord("any", "somebody")]


async def test_questions_assigned_to_a_model_wait_for_a_process_that_has_it(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        hf.drive("llm", lambda query: "mine")
        await hf.start(two_questions, id="g", llm="openai:gpt-5")
        session, offers = await hf.session("g"), hf.engine.owner.offers
        assert missing_needs(session, offers) == [Need("model", "openai:gpt-5")]
        assert why_left(session, offers) == "waits for a process that serves model `openai:gpt-5`"
        hf.offer(Gpt5())
        assert missing_needs(session, offers) == []
        assert result(await soon(hf.resume("g"))) == ["mine", "mine"]


async def test_an_assignment_that_changes_nothing_writes_nothing_and_one_of_an_ended_session_is_refused(
    tmp_path: Path,
) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        await hf.start(two_questions, id="h")
        before = (await hf.store.session("h")).position
        await hf.assign("h", "host")
        assert (await hf.store.session("h")).position == before
        with pytest.raises(InvalidValueError, match="say who answers"):
            await hf.assign("h", " ")
        await hf.feed("h", "1")
        await hf.feed("h", "2")
        with pytest.raises(Exception, match="completed"):
            await hf.assign("h", "any")
        assert len(await of_type(hf.store, "h", CompletedRecord)) == 1


async def test_who_answers_survives_a_checkpoint_and_a_new_process(tmp_path: Path) -> None:
    async with quiet(sqlite(tmp_path)) as hf:
        await hf.start(two_questions, id="h")
        await hf.assign("h", "openai:gpt-5")
    async with quiet(sqlite(tmp_path)) as hf:
        assert (await hf.session("h")).llm == "openai:gpt-5"
        assert (await soon(hf.resume("h"))).status == "needs_response"
