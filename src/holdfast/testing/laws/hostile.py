"""Laws of hostile input: a store raises a typed error and changes nothing, or keeps exactly what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.core.decide import CancelMessage, FeedMessage, GivenAnswer, Message
from holdfast.core.errors import HoldfastError, InvalidIdError, InvalidValueError
from holdfast.core.limits import MAX_ID_CHARS, MAX_VALUE_BYTES
from holdfast.core.queries import Failure, HumanQuery, LlmQuery, ToolQuery, Usage, Value
from holdfast.core.records import (
    AnsweredRecord,
    CompletedRecord,
    Entry,
    FailedRecord,
    LoggedRecord,
    PausedRecord,
    Program,
    Record,
    StartedRecord,
    StatRecord,
)
from holdfast.core.state import Session
from holdfast.core.summary import Summary, summarize
from holdfast.store.commits import Commit, Lease, StateWrite
from holdfast.store.contract import StateItem, Store
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.laws.base import Laws
from holdfast.testing.sessions import START, ScriptedSession, begin, entries_of, feed, ids_of, line, picture, timer

Call = Callable[[], Awaitable[object]]

BAD_IDS: dict[str, Any] = {
    "empty": "",
    "a path": "../../etc/passwd",
    "an absolute path": "/etc/passwd",
    "a hidden file": ".s-1",
    "NUL": "s-1\x00",
    "only NUL": "\x00",
    "a line end": "s-1\n",
    "a space": "s 1",
    "an option": "-rf",
    "SQL": "s-1'; DROP TABLE sessions; --",
    "a wildcard": "s-%",
    "not ASCII": "s-é",
    "a lone surrogate": "s-\ud800",
    "too long": "s" * (MAX_ID_CHARS + 1),
    "a megabyte": "s" * 1_000_000,
    "no text": 1,
    "bytes": b"s-1",
    "None": None,
}

SPECIAL_TEXTS = [
    *(
        "",
        " ",
        "NULL",
        "null",
        '"',
        '""',
        "'",
        "\\",
        '\\"',
        "\\n",
        "\\\\",
        "\\u0041",
        "{}",
        "[]",
        "{a,b}",
        ",",
        ";",
        "%s",
        "$1",
        "?",
    ),
    *("a\nb", "\ttab", "\r", "\x01", "\x1f", "\x7f", "\x00", "a\x00b", "\\0", "é", "日本", "💥", "\u2028", "--", "/*"),
]
"""Texts that mean something to a database, or to the way there."""


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"k": value}
    return value


def bad_values() -> dict[str, Any]:
    """Values that JSON cannot hold exactly, or that no store has to hold."""
    return {
        "NaN": float("nan"),
        "infinity": [float("-inf")],
        "an integer past 64 bits": {"n": 2**63},
        "a negative one": -(2**63) - 1,
        "an integer of 400 digits": 10**400,
        "a lone surrogate": "x\ud800",
        "a lone surrogate in a key": {"\udfff": 1},
        "a number as key": {1: "one"},
        "None as key": {None: "one"},
        "bytes": b"bytes",
        "a set": {1, 2},
        "an object": object(),
        "lists nested 100,000 deep": nested(100_000, "list"),
        "objects nested 100,000 deep": nested(100_000, "dict"),
        "lists nested 300 deep": nested(300, "list"),
    }


async def all_refused(kind: type[HoldfastError], calls: Mapping[str, Call]) -> None:
    """Every call raises this kind of error; all that do not are named together."""
    wrong: list[str] = []
    for name, call in calls.items():
        try:
            await call()
        except kind as error:
            str(error).encode()
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}")
        else:
            wrong.append(f"{name}: accepted")
    assert not wrong, f"expected {kind.__name__} from each, but " + "; ".join(wrong)


async def all_calm(calls: Mapping[str, Call]) -> None:
    """Every call returns, or raises an error of Holdfast's own; all that do not are named together."""
    wrong: list[str] = []
    for name, call in calls.items():
        try:
            await call()
        except HoldfastError:
            pass
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}")
    assert not wrong, "expected a result or a typed error from each, but " + "; ".join(wrong)


class HostileLaws(Laws):
    """Bad ids, bad values, bad numbers."""

    async def _some_store(self, store: Store) -> ScriptedSession:
        """A store with something in it to break."""
        task = await begin(store, ctx="precious")
        await task.ask(HumanQuery(prompt="?"))
        await store.send(task.id, "key", feed(), 1)
        await store.put_state("notes", "key", "precious")
        return task

    async def test_a_bad_session_id_is_refused_everywhere(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)

        started = StartedRecord(program=Program("native", "x"))

        async def watch(session_id: Any) -> None:
            store.watch(session_id)

        async def publish(session_id: Any) -> None:
            store.publish(session_id, b"x")

        async def listen(session_id: Any) -> None:
            store.listen(session_id)

        def calls(bad: Any) -> dict[str, Call]:
            return {
                "append": lambda: store.append(task.commit(line(), session_id=bad)),
                "create": lambda: store.append(_creation(started, bad)),
                "read": lambda: store.read(bad),
                "position": lambda: store.position(bad),
                "session": lambda: store.session(bad),
                "snapshot": lambda: store.snapshot(bad),
                "checkpoint": lambda: store.checkpoint(bad),
                "load": lambda: store.load(bad),
                "repair": lambda: store.repair(bad, task.summary),
                "release": lambda: store.release(Lease(bad, "alice", 1, 0)),
                "send": lambda: store.send(bad, "key", feed(), 1),
                "mailbox": lambda: store.mailbox(bad),
                "delete": lambda: store.delete(bad, 1),
                "fork": lambda: store.fork(task.id, 1, _creation(started, bad)),
                "fork, source": lambda: store.fork(bad, 1, _creation(started, "s-fork")),
                "publish": lambda: publish(bad),
                "listen": lambda: listen(bad),
                **({} if bad is None else {"watch": lambda: watch(bad)}),
            }

        await all_refused(
            InvalidIdError,
            {f"{call} ({name})": go for name, bad in BAD_IDS.items() for call, go in calls(bad).items()},
        )
        assert await picture(store) == before
        await task.answer("q-0", "the store still works")

    async def test_a_bad_key_namespace_or_owner_is_refused_everywhere(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)

        def calls(bad: Any) -> dict[str, Call]:
            return {
                "send, key": lambda: store.send(task.id, bad, feed(), 1),
                "append, owner": lambda: store.append(task.commit(line(), owner=bad)),
                "get_state, namespace": lambda: store.get_state(bad, "key"),
                "get_state, key": lambda: store.get_state("notes", bad),
                "put_state, namespace": lambda: store.put_state(bad, "key", 1),
                "put_state, key": lambda: store.put_state("notes", bad, 1),
                "update_state, key": lambda: store.update_state("notes", bad, lambda _: 1),
                "delete_state, namespace": lambda: store.delete_state(bad, "key"),
                "delete_state, key": lambda: store.delete_state("notes", bad),
                "list_state, namespace": lambda: store.list_state(bad),
                "write, namespace": lambda: store.append(task.commit(writes=[StateWrite(namespace=bad, key="k")])),
                "write, key": lambda: store.append(task.commit(writes=[StateWrite(namespace="notes", key=bad)])),
            }

        await all_refused(
            InvalidIdError,
            {f"{call} ({name})": go for name, bad in BAD_IDS.items() for call, go in calls(bad).items()},
        )
        assert await picture(store) == before

    async def test_the_longest_ids_and_all_their_characters_are_kept_exactly(self, store: Store) -> None:
        for session_id in ("s" * MAX_ID_CHARS, "0", "A.b_c:d@e+f=g-h", "s..", "NUL", "null", "CON.txt"):
            task = await begin(store, session_id, owner="o" * MAX_ID_CHARS)
            await store.send(session_id, session_id, feed(), 1)
            await store.put_state(session_id, session_id, session_id)
            assert await entries_of(store, session_id) == task.entries
            assert (await store.session(session_id)).owner == "o" * MAX_ID_CHARS
            assert [item.key for item in await store.mailbox(session_id)] == [session_id]
            assert await store.get_state(session_id, session_id) == StateItem(session_id, 1)
            assert await store.list_state(session_id) == [session_id]

    async def test_ids_that_differ_in_case_only_are_two(self, store: Store) -> None:
        upper, lower = await begin(store, "S-a", ctx="upper"), await begin(store, "s-A", ctx="lower")
        assert await entries_of(store, "S-a") == upper.entries
        assert await entries_of(store, "s-A") == lower.entries

    async def test_a_bad_value_in_a_state_item_is_refused(self, store: Store) -> None:
        await self._some_store(store)
        before = await picture(store)
        values = {**bad_values(), "50 MB": "x" * 50_000_000}
        for key in ("key", "new"):
            await all_refused(InvalidValueError, {n: _put(store, key, value) for n, value in values.items()})
        assert await picture(store) == before

    async def test_a_bad_value_in_a_state_item_of_a_commit_is_refused(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)
        values = {**bad_values(), "50 MB": "x" * 50_000_000}
        writes = {name: StateWrite(namespace="notes", key="key", value=value) for name, value in values.items()}
        commits = {name: task.commit(line(), writes=[write]) for name, write in writes.items()}
        await all_refused(InvalidValueError, {name: _append(store, commit) for name, commit in commits.items()})
        assert await picture(store) == before

    async def test_a_bad_value_in_a_message_is_refused(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)
        messages: dict[str, Message] = {
            name: feed(value) for name, value in {**bad_values(), "50 MB": "x" * 50_000_000}.items()
        }
        messages |= {
            "surrogate in a reason": CancelMessage("\ud800"),
            "surrogate in by": FeedMessage([GivenAnswer(Value(value=1))], by="\ud800"),
            "surrogate in a failure": FeedMessage([GivenAnswer(Failure("\ud800"))]),
            "NaN in usage": FeedMessage([GivenAnswer(Value(value=1), "q-0", Usage(cost=float("nan")))]),
        }
        await all_refused(InvalidValueError, {n: _send(store, task.id, n, message) for n, message in messages.items()})
        assert await picture(store) == before

    async def test_a_bad_value_in_a_record_is_refused(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)
        calls: dict[str, Call] = {}
        for name, value in bad_values().items():
            started = StartedRecord(program=Program("native", "x"), ctx=value)
            calls[f"{name} in ctx"] = _append(store, _creation(started, f"s-{len(calls)}"))
            records: dict[str, Record] = {
                "stat": StatRecord(key="k", value=value),
                "answer": AnsweredRecord(query_id="q-0", answer=Value(value=value)),
                "result": CompletedRecord(result=value),
                "arguments": PausedRecord(queries=[ToolQuery(id="q-1", name="t", arguments={"v": value})]),
                "options": PausedRecord(queries=[LlmQuery(id="q-1", prompt="?", options={"v": value})]),
            }
            calls |= {f"{name} in {where}": _append_next(task, record) for where, record in records.items()}
        texts: dict[str, Record] = {
            "line": LoggedRecord(message="\ud800"),
            "error": FailedRecord(error="\ud800"),
            "by": AnsweredRecord(query_id="q-0", answer=Value(), by="\ud800"),
            "prompt": PausedRecord(queries=[HumanQuery(id="q-1", prompt="\ud800")]),
        }
        calls |= {f"surrogate in {where}": _append_next(task, record) for where, record in texts.items()}
        await all_refused(InvalidValueError, calls)
        assert await picture(store) == before
        await task.answer("q-0", "the store still works")

    async def test_a_bad_record_after_good_ones_takes_the_whole_commit_with_it(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)
        commit = _raw(task, line("good"), line("good"), StatRecord(key="k", value=float("nan")), line("good"))
        await all_refused(InvalidValueError, {"NaN": _append(store, commit)})
        assert await picture(store) == before

    async def test_a_record_past_the_size_limit_is_refused(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)
        huge = _raw(task, LoggedRecord(message="x" * (MAX_VALUE_BYTES + 1)))
        await all_refused(InvalidValueError, {"huge": _append(store, huge)})
        assert await picture(store) == before

    async def test_writing_a_number_past_64_bits_is_refused(self, store: Store) -> None:
        task = await self._some_store(store)
        before = await picture(store)
        huge = 2**63
        entry = Entry(task.position + 1, huge, line())
        due = msgspec.structs.replace(task.summary, due_at=huge)
        await all_refused(
            HoldfastError,
            {
                "time of an entry": lambda: store.append(task.commit(line(), entries=[entry])),
                "summary": lambda: store.append(task.commit(line(), summary=due)),
                "expected": lambda: store.append(task.commit(expected=huge)),
                "epoch": lambda: store.append(task.commit(epoch=huge)),
                "takes": lambda: store.append(task.commit(takes=[huge])),
                "hold_ms of a commit": lambda: store.append(task.commit(hold_ms=huge)),
                "time of a message": lambda: store.send(task.id, "new", feed(), huge),
                "repair": lambda: store.repair(task.id, due),
                "version": lambda: store.put_state("notes", "key", 1, expected=huge),
                "time of a deletion": lambda: store.delete(task.id, huge),
            },
        )
        assert await picture(store) == before

    async def test_reading_with_a_number_past_64_bits_breaks_nothing(self, store: Store) -> None:
        await self._some_store(store)

        def calls(number: int) -> dict[str, Call]:
            return {
                "due": lambda: store.due(number),
                "sessions": lambda: store.sessions(limit=number),
                "updated_before": lambda: store.sessions(SessionFilter(updated_before=number)),
                "updated_after": lambda: store.sessions(SessionFilter(updated_after=number)),
            }

        for number in (2**63, -(2**63) - 1, 10**100):
            await all_calm(calls(number))

    async def test_a_limit_below_one_gives_nothing(self, store: Store) -> None:
        task = await self._some_store(store)
        other = await begin(store, "s-2")
        await other.ask(timer(1))
        for limit in (0, -1, -(10**100)):
            assert await store.read(task.id, limit=limit) == []
            assert await store.mailbox(task.id, limit=limit) == []
            assert await store.due(2**62, limit=limit) == []
            assert await store.list_state("notes", limit=limit) == []
            assert (await store.sessions(limit=limit)).rows == []

    async def test_a_limit_past_64_bits_gives_everything(self, store: Store) -> None:
        task = await self._some_store(store)
        for limit in (2**63, 10**100):
            assert await store.read(task.id, limit=limit) == task.entries
            assert len(await store.mailbox(task.id, limit=limit)) == 1
            assert await store.list_state("notes", limit=limit) == ["key"]
            assert [row.session_id for row in (await store.sessions(limit=limit)).rows] == [task.id]

    async def test_hostile_text_in_a_filter_finds_nothing_or_is_refused(self, store: Store) -> None:
        await self._some_store(store)
        for text in ("\x00", "s-1\x00", "\ud800", "é", "' OR 1=1 --", "x" * 1_000_000, "{}", "\\"):
            for where in (
                SessionFilter(program=text),
                SessionFilter(parent=text),
                SessionFilter(id_prefix=text),
                SessionFilter(waiting_for=text),
            ):
                with suppress(HoldfastError):
                    assert await ids_of(store, where) == []
            with suppress(HoldfastError):
                assert await store.list_state("notes", prefix=text) == []
            with suppress(HoldfastError):
                assert await store.list_state("notes", after=text) == (["key"] if text < "key" else [])

    async def test_texts_of_sessions_that_are_written_together_stay_as_they_are_and_where_they_belong(
        self, store: Store
    ) -> None:
        def summary(task: ScriptedSession, text: str) -> Summary:
            return msgspec.structs.replace(task.summary, title=text, waiting_for=text, needs=text, failure=text)

        tasks = await asyncio.gather(
            *(begin(store, f"s-{n}", program=text or "task", hold_ms=0) for n, text in enumerate(SPECIAL_TEXTS))
        )
        for written in (SPECIAL_TEXTS, SPECIAL_TEXTS[::-1]):
            said = [summary(task, text) for task, text in zip(tasks, written, strict=True)]
            pairs = zip(tasks, said, strict=True)
            await asyncio.gather(*(task.log("together", summary=each, epoch=None, hold_ms=0) for task, each in pairs))
            found = {row.session_id: row.summary for row in (await store.sessions()).rows}
            for task, each in zip(tasks, said, strict=True):
                assert msgspec.structs.replace(found[task.id], updated_at=each.updated_at) == each

    async def test_a_program_name_of_any_text_is_kept_exactly_or_refused(self, store: Store) -> None:
        names = ["", "x" * 100_000, "é 漢字 🙂", "a\x00b", "\ud800", "' OR 1=1 --", "a,b", "%"]
        for n, name in enumerate(names):
            commit = _creation(StartedRecord(program=Program("native", name)), f"s-{n}")
            try:
                await store.append(commit)
            except InvalidValueError:
                assert f"s-{n}" not in await ids_of(store)
                continue
            assert (await store.session(f"s-{n}")).summary.program == name
            assert await entries_of(store, f"s-{n}") == list(commit.entries)
            assert f"s-{n}" in await ids_of(store, SessionFilter(program=name))


def _creation(started: StartedRecord, session_id: Any) -> Commit:
    entries = [Entry(1, START, started)]
    summary = summarize(Session.fold("s-1", entries))
    return Commit(session_id=session_id, expected=0, entries=entries, summary=summary, owner="alice")


def _raw(task: ScriptedSession, *records: Record) -> Commit:
    """A commit of records that the core was not asked about."""
    entries = [Entry(task.position + i, task.now + i, record) for i, record in enumerate(records, 1)]
    return task.commit(entries=entries)


def _append(store: Store, commit: Commit) -> Call:
    return lambda: store.append(commit)


def _append_next(task: ScriptedSession, record: Record) -> Call:
    """Append a record where the journal ends by then, so that one wrongly accepted does not hide the next."""

    async def append() -> None:
        position = (await task.store.session(task.id)).position
        entries = [Entry(position + 1, task.now, record)]
        await task.store.append(task.commit(expected=position, entries=entries))

    return append


def _send(store: Store, session_id: str, name: str, message: Message) -> Call:
    return lambda: store.send(session_id, name.replace(" ", "-").replace(",", ""), message, 1)


def _put(store: Store, key: str, value: Any) -> Call:
    return lambda: store.put_state("notes", key, value)
