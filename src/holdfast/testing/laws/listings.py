"""Laws of listings: finding sessions by what their summaries say, what is due, and repairing a summary."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import InvalidIdError, SessionNotFoundError
from holdfast.core.queries import HumanQuery, LlmQuery
from holdfast.core.records import Imported
from holdfast.core.state import Session, State
from holdfast.core.summary import summarize
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.blobs import LARGE
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.sessions import START, TICK, all_rows, begin, entries_of, feed, ids_of, picture, timer


class ListingLaws(Laws):
    """Filters, order and pages."""

    async def test_sessions_that_are_loaded_together_are_as_each_by_itself(self, store: Store) -> None:
        task = await begin(store, "s-1")
        await task.ask(LlmQuery(prompt=LARGE), timer(100))
        await task.answer("q-0", "yes")
        await fork_of(task, "s-2", 2)
        await begin(store, "s-3")
        wanted = ["s-3", "s-1", "nobody", "s-2"]
        together = {session.id: session for session in await store.load_sound(wanted)}
        assert sorted(together) == ["s-1", "s-2", "s-3"]
        for session_id, session in together.items():
            alone = await store.load(session_id)
            assert (session.position, summarize(session)) == (alone.position, summarize(alone))
            asked = [pending.query for pending in session.pending.values()]
            assert asked == [pending.query for pending in alone.pending.values()]

    async def test_sessions_that_are_longer_than_wanted_are_not_loaded_together(self, store: Store) -> None:
        task = await begin(store, "s-1")
        for _ in range(3):
            await task.log("and on")
        await fork_of(task, "s-fork", 4)
        await begin(store, "s-2")
        for longest, found in ((0, []), (3, ["s-2"]), (4, ["s-1", "s-2", "s-fork"])):
            together = await store.load_sound(["s-1", "s-fork", "s-2"], longest)
            assert sorted(session.id for session in together) == found

    async def test_a_check_finds_every_session_and_whose_row_is_not_what_its_journal_says(self, store: Store) -> None:
        task = await begin(store, "s-1", hold_ms=600_000)
        await task.ask(LlmQuery(prompt=LARGE), timer(100), hold_ms=600_000)
        await fork_of(task, "s-2", 2)
        for session_id in ("s-3", "s-4", "s-5"):
            task = await begin(store, session_id)
            await task.ask(HumanQuery(prompt="?"), hold_ms=0)
        summary = (await store.session("s-4")).summary
        await store.repair("s-4", msgspec.structs.replace(summary, title="another"))
        found: dict[str, Session] = {}
        held, doubtful, after = set[str](), list[str](), None
        for expected in (2, 2, 1):
            page = await store.checked(after=after, limit=2)
            assert len(page.sound) + len(page.doubtful) == expected
            found |= {session.id: session for session in page.sound}
            held |= page.held
            doubtful += page.doubtful
            after = page.next
        assert after is None
        assert sorted(found) == ["s-1", "s-2", "s-3", "s-5"]
        assert doubtful == ["s-4"]
        assert held == {row.session_id for row in (await store.sessions()).rows if row.owner is not None} - {"s-4"}
        assert "s-1" in held
        for session_id, session in found.items():
            assert summarize(session) == (await store.session(session_id)).summary

    async def test_a_check_of_an_empty_store_finds_nothing(self, store: Store) -> None:
        page = await store.checked()
        assert (page.sound, page.held, page.doubtful, page.next) == ([], set(), [], None)

    async def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        page = await store.sessions()
        assert (page.rows, page.next) == ([], None)

    async def test_a_listed_row_equals_the_sessions_own(self, store: Store) -> None:
        for n, hold_ms in enumerate([600_000, 0, 600_000]):
            task = await begin(store, f"s-{n}", parent="s-parent" if n else None)
            await task.ask(HumanQuery(prompt="?"), timer(100), hold_ms=hold_ms)
        for row in (await store.sessions()).rows:
            assert row == await store.session(row.session_id)

    async def test_the_newest_session_comes_first(self, store: Store) -> None:
        oldest, _, _ = [await begin(store, f"s-{n}") for n in (3, 1, 2)]
        assert await ids_of(store) == ["s-2", "s-1", "s-3"]
        await oldest.log("a later change does not move it")
        assert await ids_of(store) == ["s-2", "s-1", "s-3"]

    async def test_sessions_are_found_by_state(self, store: Store) -> None:
        await begin(store, "s-running")
        await (await begin(store, "s-paused")).ask(HumanQuery(prompt="?"))
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            await (await begin(store, f"s-{state}")).end(state)
        await begin(store, "s-imported", imported=Imported(1, START))
        for state in State:
            expected = [] if state is State.ABSENT else [f"s-{state}"]
            assert await ids_of(store, SessionFilter(states=[state])) == expected
        both = SessionFilter(states=(State.RUNNING, State.FAILED))
        assert await ids_of(store, both) == ["s-failed", "s-running"]

    async def test_sessions_are_found_by_program(self, store: Store) -> None:
        for n, program in enumerate(["chat", "sum", "chat", "Chat", "chat2"]):
            await begin(store, f"s-{n}", program=program)
        assert await ids_of(store, SessionFilter(program="chat")) == ["s-2", "s-0"]
        assert await ids_of(store, SessionFilter(program="cha_")) == []

    async def test_sessions_are_found_by_parent(self, store: Store) -> None:
        for n, parent in enumerate([None, "s-0", "s-0", "s-1"]):
            await begin(store, f"s-{n}", parent=parent)
        assert await ids_of(store, SessionFilter(parent="s-0")) == ["s-2", "s-1"]
        assert await ids_of(store, SessionFilter(parent="s-3")) == []

    async def test_sessions_are_found_by_service(self, store: Store) -> None:
        for n, service in enumerate(["default", "billing", "support", "billing", "Billing"]):
            await begin(store, f"s-{n}", service=service)
        assert await ids_of(store, SessionFilter(services=["billing"])) == ["s-3", "s-1"]
        assert await ids_of(store, SessionFilter(services=["default", "support"])) == ["s-2", "s-0"]
        assert await ids_of(store, SessionFilter(services=["billin_", "%", "a\0", "a\\0", ""])) == []
        assert len(await ids_of(store, SessionFilter(services=[]))) == 5
        billing = SessionFilter(services=["billing"], states=[State.RUNNING])
        assert [row.summary.service for row in await all_rows(store, billing)] == ["billing", "billing"]

    async def test_a_session_keeps_its_service_through_commits_and_forks(self, store: Store) -> None:
        task = await begin(store, "s-1", service="billing")
        await task.ask(HumanQuery(prompt="?"), timer(100))
        await task.answer("q-0", "yes")
        await fork_of(task, "s-2", 2)
        assert [row.summary.service for row in await all_rows(store)] == ["billing", "billing"]
        assert await ids_of(store, SessionFilter(services=["billing"])) == ["s-2", "s-1"]

    async def test_sessions_are_found_by_the_beginning_of_their_id(self, store: Store) -> None:
        ids = ["a_1", "ab1", "a.1", "A_1", "b_a_", "a_", "a=1", "a+1"]
        for session_id in ids:
            await begin(store, session_id)
        for prefix in ("a", "A", "a_", "a_1", "a.", "a+", "b_", "c", "_", ""):
            expected = [session_id for session_id in reversed(ids) if session_id.startswith(prefix)]
            assert await ids_of(store, SessionFilter(id_prefix=prefix)) == expected, prefix

    async def test_no_character_of_a_prefix_is_a_wildcard(self, store: Store) -> None:
        await begin(store, "abc")
        for prefix in ("%", "a%", "_bc", "a_c", "*", "a*", "a?c", "[a]bc", "a\\", "", "'", "a' OR '1'='1"):
            where = SessionFilter(id_prefix=prefix)
            assert await ids_of(store, where) == (["abc"] if prefix == "" else []), prefix

    async def test_sessions_are_found_by_the_kind_of_query_they_wait_for(self, store: Store) -> None:
        await begin(store, "s-none")
        await (await begin(store, "s-human")).ask(HumanQuery(prompt="?"))
        await (await begin(store, "s-timer")).ask(timer(5))
        both = await begin(store, "s-both")
        await both.ask(HumanQuery(prompt="?"), LlmQuery(prompt="?"), timer(5))
        assert await ids_of(store, SessionFilter(waiting_for="human")) == ["s-both", "s-human"]
        assert await ids_of(store, SessionFilter(waiting_for="llm")) == ["s-both"]
        assert await ids_of(store, SessionFilter(waiting_for="timer")) == ["s-both", "s-timer"]
        assert await ids_of(store, SessionFilter(waiting_for="tool")) == []
        for no_kind in ("hum", "uman", "human,llm", "%", "_____", ","):
            assert await ids_of(store, SessionFilter(waiting_for=no_kind)) == [], no_kind
        await both.answer("q-0", "yes")
        assert await ids_of(store, SessionFilter(waiting_for="human")) == ["s-human"]

    async def test_sessions_are_found_by_the_mail_that_waits_in_them(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(3)]
        waiting = [await store.send(task.id, "key", feed(), 1) for task in tasks[1:]]
        assert await ids_of(store, SessionFilter(has_mail=True)) == ["s-2", "s-1"]
        assert await ids_of(store, SessionFilter(has_mail=True, id_prefix="s-1")) == ["s-1"]
        assert await ids_of(store, SessionFilter(has_mail=True, states=[State.PAUSED])) == []
        await tasks[1].log("taken", takes=[waiting[0].number])
        assert await ids_of(store, SessionFilter(has_mail=True)) == ["s-2"]
        await store.delete("s-2", 1)
        assert await ids_of(store, SessionFilter(has_mail=True)) == []

    async def test_sessions_are_found_by_when_they_last_changed(self, store: Store) -> None:
        for n in range(4):
            await begin(store, f"s-{n}", at=START + n * 100)
        assert await ids_of(store, SessionFilter(updated_before=START + 200)) == ["s-1", "s-0"]
        assert await ids_of(store, SessionFilter(updated_after=START + 200)) == ["s-3"]
        window = SessionFilter(updated_after=START, updated_before=START + 300)
        assert await ids_of(store, window) == ["s-2", "s-1"]

    async def test_conditions_hold_together(self, store: Store) -> None:
        for n in range(8):
            task = await begin(store, f"{'xy'[n % 2]}-{n}", program="chat" if n < 6 else "sum", at=START + n)
            if n in (2, 4, 5, 6):
                await task.ask(HumanQuery(prompt="?"))
        where = SessionFilter(
            states=[State.PAUSED],
            program="chat",
            id_prefix="x-",
            waiting_for="human",
            updated_after=START + 2 + TICK,
            updated_before=START + 100,
        )
        assert await ids_of(store, where) == ["x-4"]

    async def test_pages_together_are_the_whole_list(self, store: Store) -> None:
        for n in range(10):
            await begin(store, f"s-{n}", program="odd" if n % 2 else "even")
        newest_first = [f"s-{n}" for n in reversed(range(10))]
        for limit in (1, 3, 5, 9, 10, 11):
            assert [row.session_id for row in await all_rows(store, limit=limit)] == newest_first
        odd = await all_rows(store, SessionFilter(program="odd"), limit=2)
        assert [row.session_id for row in odd] == newest_first[::2]

    async def test_a_page_has_at_most_the_limit_and_the_last_one_no_cursor(self, store: Store) -> None:
        for n in range(4):
            await begin(store, f"s-{n}")
        first = await store.sessions(limit=3)
        assert len(first.rows) == 3
        assert first.next is not None
        last = await store.sessions(limit=3, after=first.next)
        assert [row.session_id for row in last.rows] == ["s-0"]
        assert last.next is None
        assert (await store.sessions(limit=4)).next is None

    async def test_sessions_created_while_paging_do_not_appear_on_later_pages(self, store: Store) -> None:
        for n in range(4):
            await begin(store, f"s-{n}", at=START + n * 100)
        first = await store.sessions(limit=2)
        await begin(store, "s-new", at=START + 10_000)
        await begin(store, "s-new-with-a-slow-clock", at=START - 10_000)
        await begin(store, "s-0-new-at-the-same-time", at=START + 100)
        last = await store.sessions(limit=10, after=first.next)
        assert [row.session_id for row in first.rows + last.rows] == ["s-3", "s-2", "s-1", "s-0"]

    async def test_sessions_of_the_same_moment_are_each_shown_once(self, store: Store) -> None:
        ids = [f"s-{n}" for n in range(9)]
        for session_id in ids:
            await begin(store, session_id, at=START)
        assert sorted(row.session_id for row in await all_rows(store, limit=2)) == ids

    async def test_changes_and_deletions_while_paging_hide_and_repeat_no_other_session(self, store: Store) -> None:
        tasks = [await begin(store, f"s-{n}") for n in range(6)]
        first = await store.sessions(limit=2)
        await tasks[5].log("changed")
        await tasks[0].log("changed")
        await store.delete("s-4", 1)
        await store.delete("s-2", 1)
        last = await store.sessions(limit=10, after=first.next)
        assert [row.session_id for row in last.rows] == ["s-3", "s-1", "s-0"]

    async def test_a_cursor_of_no_store_is_refused(self, store: Store) -> None:
        for n in range(3):
            await begin(store, f"s-{n}")
        for cursor in ("nonsense", "", "-", "s-1;", "../..", "\x00", "\ud800", "é", "1e3", "1" * 1_000_000, "9" * 30):
            with refused(InvalidIdError):
                await store.sessions(after=cursor)

    async def test_an_ended_session_stays_visible_with_its_journal(self, store: Store) -> None:
        task = await begin(store)
        await task.complete({"answer": 42})
        assert await ids_of(store) == [task.id]
        assert await entries_of(store, task.id) == task.entries


class DueLaws(Laws):
    """What the clock has to look at."""

    async def test_due_gives_sessions_at_or_before_now_the_earliest_first(self, store: Store) -> None:
        for n, delay in enumerate([300, 100, 200, 400]):
            await (await begin(store, f"s-{n}")).ask(timer(delay))
        await (await begin(store, "s-human")).ask(HumanQuery(prompt="?"))
        asked = START + TICK
        assert await store.due(asked + 99) == []
        assert await store.due(asked + 100) == [("s-1", asked + 100)]
        assert await store.due(asked + 300) == [("s-1", asked + 100), ("s-2", asked + 200), ("s-0", asked + 300)]
        assert await store.due(asked + 10_000, limit=2) == [("s-1", asked + 100), ("s-2", asked + 200)]

    async def test_due_gives_only_sessions_of_the_services_that_are_asked_for(self, store: Store) -> None:
        for n, service in enumerate(["billing", "support", "default", "billing"]):
            await (await begin(store, f"s-{n}", service=service)).ask(timer(400 - 100 * n))
        assert [found for found, _ in await store.due(2**62)] == ["s-3", "s-2", "s-1", "s-0"]
        assert [found for found, _ in await store.due(2**62, services=["billing"])] == ["s-3", "s-0"]
        assert [found for found, _ in await store.due(2**62, 1, services=["billing"])] == ["s-3"]
        assert [found for found, _ in await store.due(2**62, services=["support", "default"])] == ["s-2", "s-1"]
        assert await store.due(2**62, services=["other", "bill%"]) == []

    async def test_a_session_is_due_at_the_earliest_of_its_queries_until_that_is_answered(self, store: Store) -> None:
        task = await begin(store)
        await task.ask(timer(100), HumanQuery(prompt="?", timeout_ms=50), timer(200))
        asked = task.now
        assert await store.due(asked + 1_000) == [(task.id, asked + 50)]
        await task.answer("q-1", "yes")
        assert await store.due(asked + 1_000) == [(task.id, asked + 100)]
        await task.answer("q-0", None)
        await task.answer("q-2", None)
        assert await store.due(asked + 1_000) == []

    async def test_an_ended_or_deleted_session_is_not_due(self, store: Store) -> None:
        ended, deleted = await begin(store, "s-ended"), await begin(store, "s-deleted")
        for task in (ended, deleted):
            await task.ask(timer(10))
        assert len(await store.due(2**62)) == 2
        await ended.end(State.CANCELLED)
        await store.delete(deleted.id, 1)
        assert await store.due(2**62) == []

    async def test_due_looks_at_sessions_whoever_holds_them(self, store: Store) -> None:
        held, free = await begin(store, "s-held"), await begin(store, "s-free")
        await held.ask(timer(10))
        await free.ask(timer(20), hold_ms=0)
        assert [session_id for session_id, _ in await store.due(2**62)] == ["s-held", "s-free"]


class RepairLaws(Laws):
    """Putting a summary right."""

    async def test_repair_replaces_the_summary_and_nothing_else(self, store: Store) -> None:
        task = await begin(store)
        await task.ask(timer(10))
        right = await store.session(task.id)
        wrong = msgspec.structs.replace(right.summary, state=State.FAILED, pending=9, waiting_for="llm", due_at=5)
        await store.repair(task.id, wrong)
        assert await store.session(task.id) == msgspec.structs.replace(right, summary=wrong)
        assert await ids_of(store, SessionFilter(states=[State.FAILED], waiting_for="llm")) == [task.id]
        assert await store.due(5) == [(task.id, 5)]
        await store.repair(task.id, task.summary)
        assert await store.session(task.id) == right
        assert await entries_of(store, task.id) == task.entries
        await task.answer("q-0", None)

    async def test_repairing_an_unknown_session_is_refused(self, store: Store) -> None:
        task = await begin(store)
        before = await picture(store)
        with refused(SessionNotFoundError):
            await store.repair("s-none", task.summary)
        assert await picture(store) == before

    async def test_sessions_are_found_by_whether_they_have_a_parent(self, store: Store) -> None:
        await begin(store, "s-alone")
        await begin(store, "s-child", parent="s-alone")
        assert await ids_of(store, SessionFilter(children=True)) == ["s-child"]
        assert await ids_of(store, SessionFilter(children=False)) == ["s-alone"]
        assert await ids_of(store, SessionFilter()) == ["s-child", "s-alone"]
