"""Laws of mailboxes: anyone may send, once per key; only a commit takes, and takes once; the last one takes all."""

from __future__ import annotations

import asyncio

from holdfast.core.decide import CancelMessage, FeedMessage, GivenAnswer, Message, WakeMessage
from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
from holdfast.core.queries import Failure, Usage, Value
from holdfast.core.state import State
from holdfast.store.contract import Store
from holdfast.store.errors import LeaseLostError, MessageConflictError, MessageTakenError, PositionConflictError
from holdfast.store.mailbox import MailboxItem, MessageReceipt
from holdfast.store.session_rows import SessionFilter
from holdfast.testing.laws.base import Laws, refused
from holdfast.testing.laws.journal import AWKWARD
from holdfast.testing.sessions import begin, entries_of, feed, ids_of, line, messages_of, picture


class MailboxLaws(Laws):
    """Sending and looking."""

    async def test_a_message_waits_until_it_is_taken(self, store: Store) -> None:
        task = await begin(store)
        receipt = await store.send(task.id, "key-1", feed(), 77)
        assert (receipt.session_id, receipt.key, receipt.replayed) == (task.id, "key-1", False)
        assert await store.mailbox(task.id) == [MailboxItem(receipt.number, "key-1", 77, feed())]
        assert await store.mailbox(task.id) == [MailboxItem(receipt.number, "key-1", 77, feed())]

    async def test_messages_of_every_kind_come_back_exactly(self, store: Store) -> None:
        task = await begin(store)
        sent: list[Message] = [
            FeedMessage([GivenAnswer(Value(value=AWKWARD), "q-0", Usage(prompt_tokens=1, cost=0.25))], by="a person"),
            FeedMessage([GivenAnswer(Failure("no", "refused")), GivenAnswer(Value(value="x" * 100_000), "q-1")]),
            CancelMessage("enough \x00 é", by="bob"),
            CancelMessage(),
            WakeMessage(),
        ]
        for n, message in enumerate(sent):
            await store.send(task.id, f"key-{n}", message, n)
        read = await messages_of(store, task.id)
        assert read == sent
        assert repr(read) == repr(sent), "equal, but not the same: 1 and 1.0, or the order of keys"

    async def test_messages_wait_in_the_order_in_which_they_were_sent(self, store: Store) -> None:
        task = await begin(store)
        keys = ["m", "z", "a", "B", "10", "9"]
        numbers = [(await store.send(task.id, key, WakeMessage(), 100 - n)).number for n, key in enumerate(keys)]
        waiting = await store.mailbox(task.id)
        assert [item.key for item in waiting] == keys
        assert [item.number for item in waiting] == numbers
        assert len(set(numbers)) == len(keys)

    async def test_the_mailbox_shows_at_most_the_limit_the_oldest_first(self, store: Store) -> None:
        task = await begin(store)
        for n in range(5):
            await store.send(task.id, f"key-{n}", WakeMessage(), n)
        assert [item.key for item in await store.mailbox(task.id, limit=3)] == ["key-0", "key-1", "key-2"]

    async def test_the_same_message_again_gets_the_first_receipt(self, store: Store) -> None:
        task = await begin(store)
        first = await store.send(task.id, "key-1", feed(), 10)
        again = await store.send(task.id, "key-1", feed(), 99)
        assert again == MessageReceipt(task.id, "key-1", first.number, replayed=True)
        assert [(item.key, item.at) for item in await store.mailbox(task.id)] == [("key-1", 10)]

    async def test_the_same_message_with_its_keys_in_another_order_is_the_same(self, store: Store) -> None:
        task = await begin(store)
        await store.send(task.id, "key-1", feed({"a": 1, "b": {"c": 2, "d": 3}}), 1)
        assert (await store.send(task.id, "key-1", feed({"b": {"d": 3, "c": 2}, "a": 1}), 2)).replayed

    async def test_the_same_message_again_is_recognised_after_it_was_taken(self, store: Store) -> None:
        task = await begin(store)
        first = await store.send(task.id, "key-1", feed(), 10)
        await task.log("taken", takes=[first.number])
        again = await store.send(task.id, "key-1", feed(), 20)
        assert again == MessageReceipt(task.id, "key-1", first.number, replayed=True)
        assert await store.mailbox(task.id) == []

    async def test_another_message_under_a_used_key_is_refused_and_changes_nothing(self, store: Store) -> None:
        task = await begin(store)
        receipt = await store.send(task.id, "key-1", feed("yes"), 1)
        before = await picture(store)
        others: list[Message] = [feed("no"), feed("yes", "q-0"), CancelMessage(), WakeMessage()]
        for other in others:
            with refused(MessageConflictError) as refusal:
                await store.send(task.id, "key-1", other, 1)
            assert (refusal.error.session_id, refusal.error.key) == (task.id, "key-1")
        assert await picture(store) == before
        await task.log("taken", takes=[receipt.number])
        with refused(MessageConflictError):
            await store.send(task.id, "key-1", feed("no"), 2)
        assert await store.mailbox(task.id) == []

    async def test_keys_belong_to_one_session_each(self, store: Store) -> None:
        one, two = await begin(store, "s-1"), await begin(store, "s-2")
        await store.send(one.id, "key", feed("to one"), 1)
        assert not (await store.send(two.id, "key", feed("to two"), 1)).replayed
        assert await messages_of(store, one.id) == [feed("to one")]
        assert await messages_of(store, two.id) == [feed("to two")]

    async def test_keys_that_differ_in_case_only_are_two(self, store: Store) -> None:
        task = await begin(store)
        await store.send(task.id, "Key", feed("upper"), 1)
        await store.send(task.id, "key", feed("lower"), 1)
        assert await messages_of(store, task.id) == [feed("upper"), feed("lower")]

    async def test_sending_to_an_unknown_or_deleted_session_says_so(self, store: Store) -> None:
        task = await begin(store)
        await store.send(task.id, "key", feed(), 1)
        await store.delete(task.id, 1)
        with refused(SessionDeletedError):
            await store.send(task.id, "key", feed(), 1)
        with refused(SessionNotFoundError):
            await store.send("s-none", "key", feed(), 1)

    async def test_anyone_may_send_whoever_the_owner_is_and_without_disturbing_it(self, store: Store) -> None:
        task = await begin(store)
        before = await store.session(task.id)
        await store.send(task.id, "key", feed(), 1)
        assert await store.session(task.id) == before
        await task.log("not fenced by a message")

    async def test_a_session_that_ends_takes_all_its_mail(self, store: Store) -> None:
        other = await begin(store, "s-other")
        await store.send(other.id, "key", feed(), 1)
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
            task = await begin(store, f"s-{state}")
            numbers = [(await store.send(task.id, f"key-{n}", feed(n), n)).number for n in range(3)]
            await task.log("one was taken before", takes=[numbers[1]])
            await task.end(state)
            assert await store.mailbox(task.id) == []
            again = await store.send(task.id, "key-0", feed(0), 9)
            assert (again.number, again.replayed) == (numbers[0], True)
        assert await messages_of(store, other.id) == [feed()]
        assert await ids_of(store, SessionFilter(has_mail=True)) == [other.id]

    async def test_a_commit_that_ends_a_session_may_name_the_message_that_did_it(self, store: Store) -> None:
        task = await begin(store)
        numbers = [(await store.send(task.id, f"key-{n}", feed(n), n)).number for n in range(3)]
        await task.complete("done", takes=[numbers[1]])
        assert await store.mailbox(task.id) == []
        with refused(MessageTakenError):
            await task.append(takes=[numbers[0]])

    async def test_a_message_to_a_session_that_has_ended_is_taken_at_once(self, store: Store) -> None:
        task = await begin(store)
        await task.end(State.COMPLETED)
        first = await store.send(task.id, "key", feed(), 1)
        assert (first.number > 0, first.replayed) == (True, False)
        assert await store.mailbox(task.id) == []
        again = await store.send(task.id, "key", feed(), 2)
        assert (again.number, again.replayed) == (first.number, True)
        with refused(MessageConflictError):
            await store.send(task.id, "key", feed("no"), 2)

    async def test_no_message_is_left_that_was_sent_while_its_session_ended(self, store: Store) -> None:
        for round_ in range(5):
            task = await begin(store, f"s-{round_}")
            sending = [store.send(task.id, f"key-{n}", feed(n), n) for n in range(10)]
            await asyncio.gather(*sending[:5], task.complete("done"), *sending[5:])
            assert await store.mailbox(task.id) == []
        assert await ids_of(store, SessionFilter(has_mail=True)) == []

    async def test_of_many_who_send_under_one_key_at_once_one_is_first(self, store: Store) -> None:
        task = await begin(store)
        receipts = await asyncio.gather(*(store.send(task.id, "key", feed(), n) for n in range(20)))
        assert len({receipt.number for receipt in receipts}) == 1
        assert [receipt.replayed for receipt in receipts].count(False) == 1
        assert await messages_of(store, task.id) == [feed()]

    async def test_many_senders_at_once_lose_nothing(self, store: Store) -> None:
        task = await begin(store)
        await asyncio.gather(*(store.send(task.id, f"key-{n}", feed(n), n) for n in range(60)))
        waiting = await store.mailbox(task.id)
        assert sorted(item.key for item in waiting) == sorted(f"key-{n}" for n in range(60))
        assert [item.number for item in waiting] == sorted({item.number for item in waiting})
        assert all(item.message == feed(int(item.key[4:])) for item in waiting)


class TakingLaws(Laws):
    """A commit takes messages together with what they led to."""

    async def test_a_commit_takes_its_messages_and_leaves_the_others(self, store: Store) -> None:
        task = await begin(store)
        numbers = [(await store.send(task.id, f"key-{n}", feed(n), n)).number for n in range(4)]
        await task.log("two were taken", takes=[numbers[2], numbers[0]])
        assert [item.key for item in await store.mailbox(task.id)] == ["key-1", "key-3"]
        assert await entries_of(store, task.id) == task.entries

    async def test_a_commit_without_entries_can_take_messages(self, store: Store) -> None:
        task = await begin(store)
        sent = await store.send(task.id, "key", feed(), 1)
        receipt = await task.append(takes=[sent.number])
        assert receipt.position == 1
        assert await store.mailbox(task.id) == []

    async def test_taking_a_message_that_is_not_waiting_is_refused_and_writes_nothing(self, store: Store) -> None:
        task, other = await begin(store, "s-1"), await begin(store, "s-2")
        taken = await store.send(task.id, "taken", feed(), 1)
        await task.log("taken", takes=[taken.number])
        waiting = await store.send(task.id, "waiting", feed(), 1)
        foreign = await store.send(other.id, "k-1", feed(), 1)
        for n in range(2, 5):
            foreign = await store.send(other.id, f"k-{n}", feed(), 1)
        before = await picture(store)
        for number in (taken.number, foreign.number, 10**9, 0, -1):
            with refused(MessageTakenError) as refusal:
                await store.append(task.commit(line(), takes=[waiting.number, number]))
            assert (refusal.error.session_id, refusal.error.number) == (task.id, number)
        assert await picture(store) == before

    async def test_a_refused_append_takes_nothing(self, store: Store) -> None:
        task = await begin(store)
        sent = await store.send(task.id, "key", feed(), 1)
        before = await picture(store)
        with refused(PositionConflictError):
            await store.append(task.commit(takes=[sent.number], expected=5))
        with refused(LeaseLostError):
            await store.append(task.commit(line(), takes=[sent.number], epoch=99))
        assert await picture(store) == before

    async def test_a_refused_taking_does_not_claim_the_session(self, store: Store) -> None:
        for session_id, hold_ms in (("s-free", 0), ("s-held", 600_000)):
            task = await begin(store, session_id, hold_ms=hold_ms)
            before = await picture(store)
            with refused(MessageTakenError):
                await store.append(task.commit(line(), epoch=None, takes=[10**9]))
            assert await picture(store) == before
            await task.log("my epoch still is the current one")

    async def test_a_message_is_taken_once_by_however_many_at_once(self, store: Store) -> None:
        task = await begin(store)
        sent = await store.send(task.id, "key", feed(), 1)
        takers = [store.append(task.commit(takes=[sent.number])) for _ in range(10)]
        results = await asyncio.gather(*takers, return_exceptions=True)
        assert [type(result) for result in results].count(MessageTakenError) == 9
        assert await store.mailbox(task.id) == []

    async def test_numbers_of_messages_that_were_taken_are_not_given_out_again(self, store: Store) -> None:
        task = await begin(store)
        seen: set[int] = set()
        for n in range(5):
            sent = await store.send(task.id, f"key-{n}", feed(n), 1)
            assert sent.number not in seen
            seen.add(sent.number)
            await task.append(takes=[sent.number])

    async def test_messages_sent_while_the_owner_commits_are_all_there_or_taken(self, store: Store) -> None:
        task = await begin(store)
        taken: list[str] = []

        async def send() -> None:
            for n in range(30):
                await store.send(task.id, f"key-{n}", feed(n), n)

        async def own() -> None:
            for _ in range(10_000):
                if len(taken) >= 30:
                    return
                waiting = await store.mailbox(task.id, limit=4)
                if not waiting:
                    await asyncio.sleep(0.001)
                    continue
                await task.log(*(item.key for item in waiting), takes=[item.number for item in waiting])
                taken.extend(item.key for item in waiting)

        await asyncio.gather(send(), own())
        assert taken == [f"key-{n}" for n in range(30)]
        assert await store.mailbox(task.id) == []
