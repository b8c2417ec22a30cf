"""What a program kind brings to a session: the kernel alone carries it, without knowing what it means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import msgspec
import pytest

from holdfast.core.decide import Decision, KindMessage, decide, decode_message
from holdfast.core.errors import JournalError, TransitionError, UnsupportedMessageError
from holdfast.core.kinds import KindFold, SessionKind, register
from holdfast.core.queries import Answer, Query, Usage, Value
from holdfast.core.records import AnsweredRecord, Entry, KindRecord, PausedRecord, Program, StartedRecord, decode_record
from holdfast.core.state import Session, State
from holdfast.core.summary import summarize
from tests.core.helpers import START, Journal, llm


class BidRecord(KindRecord, frozen=True, tag="bid"):
    """Somebody bids in an auction."""

    amount: int


class OfferQuery(Query, frozen=True, tag="offer"):
    """The next offer."""

    kind = "offer"
    is_patient = True


class BidMessage(KindMessage, frozen=True, tag="bid"):
    """The wish to bid."""

    amount: int


class AuctionFold(KindFold):
    """The highest bid, and the last offer."""

    def __init__(self, session: Session) -> None:
        self.highest = 0
        self.offered: object = None
        self.is_open = True

    def check(self, session: Session, record: KindRecord) -> str | None:
        return "a bid has to be higher" if isinstance(record, BidRecord) and record.amount <= self.highest else None

    def on_record(self, record: KindRecord, at: int, position: int) -> None:
        assert isinstance(record, BidRecord)
        self.highest = record.amount

    def on_answered(self, query: Query, answer: Answer, usage: Usage | None) -> None:
        if isinstance(query, OfferQuery) and isinstance(answer, Value):
            self.offered = answer.value

    @property
    def waiting_for(self) -> str | None:
        return "bids"

    def next_due(self) -> int | None:
        return START + self.highest

    def decide(self, session: Session, message: KindMessage, now: int, recorded: Mapping[str, Entry]) -> Decision:
        assert isinstance(message, BidMessage)
        return Decision.of(BidRecord(amount=message.amount))


register(SessionKind("auction", AuctionFold, [BidRecord], [OfferQuery], [BidMessage]))


def auction() -> Journal:
    journal = Journal()
    journal.write(StartedRecord(program=Program("auction", "sale")))
    return journal.write(PausedRecord(queries=[OfferQuery(id="q-0")]))


def fold_of(journal: Journal) -> AuctionFold:
    fold = journal.session.kind_fold
    assert isinstance(fold, AuctionFold)
    return fold


def test_the_records_queries_and_messages_of_a_kind_are_read_back_as_they_were() -> None:
    for record in (BidRecord(amount=3), PausedRecord(queries=[OfferQuery(id="q-0"), llm(id="q-1")])):
        assert decode_record(msgspec.json.encode(record)) == record
    assert decode_message(msgspec.json.encode(BidMessage(4))) == BidMessage(4)


def test_a_kind_folds_its_own_records_and_the_state_stays_as_it_is() -> None:
    journal = auction().write(BidRecord(amount=3), BidRecord(amount=5))
    assert (fold_of(journal).highest, journal.session.state) == (5, State.PAUSED)
    journal.write(AnsweredRecord(query_id="q-0", answer=Value(value="a vase")))
    assert (fold_of(journal).offered, journal.session.state) == ("a vase", State.RUNNING)


def test_a_kind_refuses_its_own_records_for_its_own_reasons_and_nothing_changes() -> None:
    journal = auction().write(BidRecord(amount=3))
    with pytest.raises(JournalError, match="a bid has to be higher"):
        journal.write(BidRecord(amount=2))
    assert (fold_of(journal).highest, journal.session.position) == (3, 3)


def test_a_record_of_a_kind_is_refused_in_a_session_of_another_kind() -> None:
    with pytest.raises(JournalError, match="programs of the kind 'native' write no such record"):
        Journal().start().write(BidRecord(amount=1))


def test_a_record_of_a_kind_is_legal_only_while_the_session_lives() -> None:
    journal = auction().cancel()
    with pytest.raises(TransitionError, match="expected running or paused, got cancelled"):
        journal.write(BidRecord(amount=9))


def test_a_message_of_a_kind_is_decided_by_its_fold_and_refused_by_every_other_session() -> None:
    assert decide(auction().session, BidMessage(7), START).records == [BidRecord(amount=7)]
    with pytest.raises(UnsupportedMessageError, match="session 's-1' does not take a message of the type 'bid'"):
        decide(Journal().start().session, BidMessage(7), START)


def test_listings_and_timers_know_what_a_kind_waits_for() -> None:
    summary = summarize(auction().write(BidRecord(amount=3)).session)
    assert (summary.waiting_for, summary.due_at) == ("bids,offer", START + 3)


def test_the_kernel_is_imported_and_reads_a_plain_journal_without_any_agent() -> None:
    program = (
        "import sys\n"
        "from holdfast.core.records import decode_record\n"
        "from holdfast.core.state import Session\n"
        "import holdfast.core.decide, holdfast.core.compare, holdfast.core.fork_points, holdfast.core.status\n"
        'decode_record(b\'{"type":"started","program":{"kind":"native","name":"n"}}\')\n'
        'decode_record(b\'{"type":"paused","queries":[{"kind":"llm","prompt":"p"}]}\')\n'
        "assert not [name for name in sys.modules if name.startswith('holdfast.agent')]\n"
        'decode_record(b\'{"type":"dequeued","item_id":"i"}\')\n'
        "assert 'holdfast.agent.machine.kind' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.executes
def test_several_threads_may_read_their_first_records_at_once() -> None:
    program = (
        "import sys, threading\n"
        "from holdfast.core.records import decode_record\n"
        "sys.setswitchinterval(1e-6)\n"
        "ready = threading.Barrier(8)\n"
        "def work():\n"
        "    ready.wait()\n"
        '    decode_record(b\'{"type":"dequeued","item_id":"i"}\')\n'
        '    decode_record(b\'{"type":"paused","queries":[{"kind":"input"}]}\')\n'
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
