"""Laws of overviews: what rows say to people, finding sessions by it, sums over sessions, and how journals end."""

from __future__ import annotations

from holdfast.core.decide import AssignMessage, decide_assign, decide_label
from holdfast.core.errors import InvalidValueError
from holdfast.core.labels import LabelMessage
from holdfast.core.queries import HumanQuery, LlmQuery, ToolQuery, Usage, Value
from holdfast.core.records import AnsweredRecord, AttemptedRecord
from holdfast.core.state import State
from holdfast.store.contract import Store
from holdfast.store.overview import DAY_MS, TRAITS, SessionTotals
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.sessions import START, ScriptedSession, begin, entries_of, ids_of, timer

_DAY = 20_000
"""A day: the 4th of October 2024."""


class OverviewLaws(Laws):
    """What listings show and sum up."""

    async def test_a_row_says_what_its_session_is_called(self, store: Store) -> None:
        named = await begin(store, "s-named", title="Why is it empty?", labels=["shop", "big"], ctx={"task": "Other"})
        await begin(store, "s-task", ctx={"task": "\n  Sort it.\nThen stop."})
        await begin(store, "s-none", ctx=["task"])
        summaries = {row.session_id: row.summary for row in (await store.sessions()).rows}
        assert (summaries["s-named"].title, summaries["s-named"].labels) == ("Why is it empty?", ("big", "shop"))
        assert (summaries["s-task"].title, summaries["s-none"].title) == ("Sort it.", "")
        for message in (LabelMessage(labels=["done"]), LabelMessage("Because."), LabelMessage("", [])):
            await named.append(*decide_label(named.session, message).records)
            assert (await store.session("s-named")).summary == named.summary
        assert (named.summary.title, named.summary.labels) == ("", ())

    async def test_a_row_says_what_was_spent_after_each_answer(self, store: Store) -> None:
        task = await begin(store)
        for number in range(3):
            await task.ask(LlmQuery(prompt="Why?"), hold_ms=0)
            await _spend(task, f"q-{number}", 100 + number, 0.25, hold_ms=0)
            assert (await store.session(task.id)).summary == task.summary
        assert (task.summary.tokens, task.summary.cost) == (2 * (100 + 101 + 102), 0.75)

    async def test_a_row_says_how_many_questions_wait_for_a_host(self, store: Store) -> None:
        task = await begin(store)
        assert await _asks(store, task) == 0
        await task.ask(HumanQuery(prompt="?"), ToolQuery(name="deploy"), LlmQuery(prompt="?"), timer(5))
        assert await _asks(store, task) == 2
        await task.append(*decide_assign(task.session, AssignMessage("host")).records)
        assert await _asks(store, task) == 3
        await task.append(AttemptedRecord(query_id="q-1", driver="tool:deploy"))
        assert await _asks(store, task) == 2
        await task.answer("q-0", "yes")
        assert await _asks(store, task) == 1
        assert await ids_of(store, SessionFilter(asking=True)) == [task.id]
        for asked in ("q-1", "q-2", "q-3"):
            await task.answer(asked, None)
        assert await _asks(store, task) == 0
        assert await ids_of(store, SessionFilter(asking=True)) == []

    async def test_a_row_says_why_its_session_failed_and_where_it_was_forked(self, store: Store) -> None:
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            await (await begin(store, f"s-{state}")).end(state)
        said = {row.session_id: row.summary.failure for row in (await store.sessions()).rows}
        expected = {"s-completed": "", "s-failed": "it broke", "s-cancelled": "", "s-expired": "nobody answered"}
        assert said == expected
        task = await begin(store, "s-1")
        await task.log("one", "two")
        await fork_of(task, "s-2", 2)
        assert (await store.session("s-2")).summary.forked_from == "s-1"
        assert await ids_of(store, SessionFilter(forked_from="s-1")) == ["s-2"]
        assert await ids_of(store, SessionFilter(forked_from="s-2")) == []

    async def test_sessions_are_found_by_all_of_some_labels(self, store: Store) -> None:
        for number, labels in enumerate([["a", "b"], ["a"], ["ab"], [], ["a b", "ä%"]]):
            await begin(store, f"s-{number}", labels=labels)
        for wanted, found in {
            ("a",): ["s-1", "s-0"],
            ("a", "b"): ["s-0"],
            ("b", "a"): ["s-0"],
            ("a b",): ["s-4"],
            ("ä%",): ["s-4"],
            ("ä_",): [],
            ("a,b",): [],
            ("",): [],
            ("%",): [],
        }.items():
            assert await ids_of(store, SessionFilter(labels=wanted)) == found, wanted

    async def test_sessions_are_found_by_the_labels_that_they_do_not_have(self, store: Store) -> None:
        for number, labels in enumerate([["a", "b"], ["a"], ["ab"], []]):
            await begin(store, f"s-{number}", labels=labels)
        for unwanted, found in {
            ("a",): ["s-3", "s-2"],
            ("b",): ["s-3", "s-2", "s-1"],
            ("b", "ab"): ["s-3", "s-1"],
            ("a,b",): ["s-3", "s-2", "s-1", "s-0"],
            ("",): ["s-3", "s-2", "s-1", "s-0"],
        }.items():
            assert await ids_of(store, SessionFilter(without_labels=unwanted)) == found, unwanted
        assert await ids_of(store, SessionFilter(labels=["a"], without_labels=["b"])) == ["s-1"]

    async def test_sessions_are_found_by_a_text(self, store: Store) -> None:
        await begin(store, "s-Title", title="The Export is EMPTY", program="p")
        await begin(store, "s-label", labels=["Nightly", "x"], program="p")
        await begin(store, "s-program", program="Summarise")
        await begin(store, "s-odd", title="100% of Übung\\n", program="p")
        for text, found in {
            "export is empty": ["s-Title"],
            "TITLE": ["s-Title"],
            "nightly": ["s-label"],
            "y,x": ["s-label"],
            "summ": ["s-program"],
            "100%": ["s-odd"],
            "0_": [],
            "Übung": ["s-odd"],
            "übung": [],
            "\\n": ["s-odd"],
            "s-": ["s-odd", "s-program", "s-label", "s-Title"],
            "": ["s-odd", "s-program", "s-label", "s-Title"],
            "' OR 1=1": [],
            "a\0b": [],
        }.items():
            assert await ids_of(store, SessionFilter(text=text)) == found, text

    async def test_totals_sum_up_what_matches_by_its_traits(self, store: Store) -> None:
        for number in range(5):
            at = (_DAY + number % 2) * DAY_MS + 5
            task = await begin(store, f"s-{number}", program="chat" if number < 3 else "sum", at=at, hold_ms=0)
            await task.ask(LlmQuery(prompt="?"), hold_ms=0)
            await _spend(task, "q-0", 10, float(number), hold_ms=0)
            if number == 4:
                await task.ask(HumanQuery(prompt="?"), HumanQuery(prompt="?"), hold_ms=0)
        totals = await store.totals(by=["program"])
        assert _shown(totals) == {("sum",): (2, 2, 7.0), ("chat",): (3, 0, 3.0)}
        assert [each.key["program"] for each in totals.rows] == ["sum", "chat"], "the dearest first"
        by_day = await store.totals(SessionFilter(program="chat"), by=["day", "state"])
        assert _shown(by_day) == {("2024-10-04", "running"): (2, 0, 2.0), ("2024-10-05", "running"): (1, 0, 1.0)}
        assert _shown(await store.totals(by=[])) == {(): (5, 2, 10.0)}
        assert (await store.totals(by=[])).rows[0].tokens == 100
        dearest = await store.totals(by=["session"], limit=2)
        assert [each.key["session"] for each in dearest.rows] == ["s-4", "s-3"]
        assert not totals.is_partial
        assert (await store.totals(SessionFilter(program="none"), by=["state"])).rows == []
        assert (await store.totals(SessionFilter(program="none"), by=[])).rows == []

    async def test_totals_know_every_trait(self, store: Store) -> None:
        task = await begin(store, "s-1", labels=["b", "a"], service="billing", owner="alice", at=_DAY * DAY_MS)
        await task.ask(HumanQuery(prompt="?"), timer(5))
        (only,) = (await store.totals(by=TRAITS)).rows
        assert only.key == {
            "session": "s-1",
            "state": "paused",
            "waiting_for": "human,timer",
            "program": "task",
            "service": "billing",
            "labels": "a,b",
            "day": "2024-10-04",
            "owner": "alice",
        }
        with refused(InvalidValueError):
            await store.totals(by=["colour"])  # type: ignore[list-item]

    async def test_the_last_entries_of_several_sessions_come_together(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{number}", at=START + number) for number in range(3)]
        for task in tasks[1:]:
            await task.log("one", "two", "three")
            await task.log("four")
        await fork_of(tasks[2], "s-fork", 4)
        ids = [*(task.id for task in tasks), "s-fork", "s-none"]
        found = await store.last_entries(ids, 3)
        assert found == {each: (await entries_of(store, each))[-3:] for each in ids[:-1]}
        assert await store.last_entries(["s-1"], 0) == {"s-1": []}
        assert await store.last_entries([], 5) == {}

    async def test_a_damaged_session_is_left_out_of_the_last_entries(self, store: Store, store_url: str) -> None:
        for name in ("s-1", "s-2"):
            await (await begin(store, name)).log("one")
        await self.damage(store_url, "s-1", 2)
        assert list(await store.last_entries(["s-1", "s-2"], 1)) == ["s-2"]


async def _spend(task: ScriptedSession, asked: str, tokens: int, cost: float, *, hold_ms: int) -> None:
    usage = Usage(prompt_tokens=tokens, completion_tokens=tokens, cost=cost)
    await task.append(AnsweredRecord(query_id=asked, answer=Value(value="so"), usage=usage), hold_ms=hold_ms)


async def _asks(store: Store, task: ScriptedSession) -> int:
    row = await store.session(task.id)
    assert row.summary == task.summary
    return row.summary.asks


def _shown(totals: SessionTotals) -> dict[tuple[str, ...], tuple[int, int, float]]:
    return {tuple(each.key.values()): (each.sessions, each.asks, each.cost) for each in totals.rows}
