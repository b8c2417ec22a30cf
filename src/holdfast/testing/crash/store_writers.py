"""Writers to one store, killed at random moments; the store is judged after.

    report = await crash_writers(CrashSpec(url="sqlite:////tmp/store.db", seed=7))
    assert not await broken_laws(report)

Every writer is a process of its own. It claims sessions from a small common set, appends records that carry its name
and a serial number, sends messages and takes them, and writes each thing down in a file of its own once the store has
acknowledged it. So whatever the store says afterwards can be held against what it had acknowledged before: nothing of
that may be missing, twice, torn, or written by somebody who had lost the session.

The kills and what each writer does follow from the seed. The interleaving of the processes does not, so the same seed
gives the same pressure, not the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.decide import FeedMessage, GivenAnswer
from holdfast.core.errors import HoldfastError, SessionExistsError, SessionNotFoundError
from holdfast.core.queries import Value
from holdfast.core.records import Entry, LoggedRecord, Program, Record, StartedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store import Store, open_store
from holdfast.store.commits import Commit
from holdfast.store.errors import LeaseHeldError, LeaseLostError, MessageTakenError, PositionConflictError
from holdfast.store.mailbox import MailboxItem
from holdfast.testing.crash.processes import CrashProcess

LEASE_MS = 100
"""Milliseconds a writer holds a session: short, so that those of the dead are taken over many times in a run."""

STALL_MS = 150
"""Milliseconds a writer sometimes sleeps while it holds a session: longer than its lease, so it wakes up without."""

LARGE = "x" * 6_000
"""A log line that does not stay in its record."""


@dataclass(frozen=True)
class CrashSpec:
    """What is done to which store."""

    url: str
    seed: int = 0
    kills: int = 12
    writers: int = 2
    sessions: int = 3

    @property
    def session_ids(self) -> list[str]:
        return [f"crash-{number}" for number in range(self.sessions)]


@dataclass(frozen=True)
class AppendReceipt:
    """An append that returned: all its records end at `position`."""

    writer: str
    session_id: str
    position: int
    serial: int
    epoch: int


@dataclass
class CrashReport:
    """What the writers of a run have reported, and what was seen meanwhile."""

    spec: CrashSpec
    kills: int = 0
    acks: list[AppendReceipt] = field(default_factory=list)
    holders: list[tuple[str, int, str]] = field(default_factory=list)
    """Session, epoch and writer of every claim that returned."""
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Session and key of every message whose sending returned."""
    refusals: Counter[str] = field(default_factory=Counter)
    """How often a writer was refused, by kind: a run in which nobody was has tested little."""
    faults: list[str] = field(default_factory=list)
    """What went wrong while the writers ran."""
    appends: int = 0
    """Appends found in the journals by `broken_laws`, acknowledged or not."""

    def figures(self) -> str:
        """One line for a person."""
        refused = ", ".join(f"{count} {kind}" for kind, count in sorted(self.refusals.items()))
        return (
            f"{self.spec.url.partition(':')[0]}: seed {self.spec.seed}, {self.kills} kills,"
            f" {self.appends} appends, {len(self.acks)} acks, {len(self.sent)} messages; refused: {refused or 'none'}"
        )


# --- the supervisor --------------------------------------------------------------------------------


async def crash_writers(spec: CrashSpec) -> CrashReport:
    """Run writers, killing some and starting others at random moments until enough were killed; then end them all."""
    report = CrashReport(spec)
    chance = random.Random(spec.seed)
    names = (f"w{number}" for number in itertools.count())
    running: list[_Writer] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        async with open_store(spec.url) as store:
            reading = asyncio.create_task(_read_on(store, report))
            try:
                while report.kills < spec.kills:
                    while len(running) < spec.writers:
                        running.append(_Writer(spec, next(names), Path(folder), report))
                    await running[-1].first_note()
                    await asyncio.sleep(chance.uniform(0, 0.3))
                    for victim in chance.sample(running, chance.choice([1, 1, 1, len(running)])):
                        running.remove(victim)
                        report.kills += await victim.kill()
            finally:
                for writer in running:
                    await writer.kill()
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
    return report


class _Writer:
    """A writer process, and the file with its notes."""

    def __init__(self, spec: CrashSpec, name: str, folder: Path, report: CrashReport) -> None:
        self.name = name
        self._report = report
        self._notes = folder / name
        self._notes.touch()
        self._error = folder / f"{name}-error"
        self._process = CrashProcess(_write, spec, name, self._notes, self._error)

    async def first_note(self) -> None:
        """Wait until the writer works, or is dead."""
        while not self._notes.stat().st_size and self._process.exit_code is None:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.005)

    async def kill(self) -> bool:
        """Kill the process and read its notes; False if it had ended by itself."""
        code = await asyncio.to_thread(self._process.kill)
        for line in self._notes.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # otherwise the writer died before it had said all
                self._note(line.decode().split())
        if code == -signal.SIGKILL:
            return True
        why = self._error.read_text() if self._error.exists() else ""
        self._report.faults.append(f"writer {self.name} ended by itself with {code}: {why[-2_000:]}")
        return False

    def _note(self, words: list[str]) -> None:
        match words:
            case ["ack", session_id, position, serial, epoch]:
                ack = AppendReceipt(self.name, session_id, int(position), int(serial), int(epoch))
                self._report.acks.append(ack)
            case ["held", session_id, epoch]:
                self._report.holders.append((session_id, int(epoch), self.name))
            case ["sent", session_id, key]:
                self._report.sent.append((session_id, key))
            case ["refused", kind]:
                self._report.refusals[kind] += 1
            case ["intruder", session_id, epoch]:
                why = f"somebody else wrote to {session_id} in epoch {epoch}, which {self.name} held"
                self._report.faults.append(why)
            case _:
                self._report.faults.append(f"writer {self.name} said {' '.join(words)!r}")


async def _read_on(store: Store, report: CrashReport) -> None:
    """A reader beside the writers: what it has seen of a journal once must stay there for ever."""
    seen: defaultdict[str, list[Entry]] = defaultdict(list)
    while True:
        for session_id in report.spec.session_ids:
            try:
                row = await store.session(session_id)
                entries = [entry async for entry in store.journal(session_id)]
                Session.fold(session_id, entries)
            except SessionNotFoundError:
                continue
            except HoldfastError as error:
                report.faults.append(f"while the writers ran, {session_id} could not be read: {error}")
                continue
            if entries[: len(seen[session_id])] != seen[session_id]:
                report.faults.append(f"a record of {session_id} changed after it had been read")
            if len(entries) < row.position:
                report.faults.append(f"{session_id} was at position {row.position} and gave {len(entries)} records")
            seen[session_id] = entries
        await asyncio.sleep(0.1)


# --- the laws --------------------------------------------------------------------------------------


async def broken_laws(report: CrashReport) -> list[str]:
    """Sentences that say what the store has got wrong; none if it kept all it acknowledged."""
    broken = list(report.faults)
    report.appends = 0
    async with open_store(report.spec.url) as store:
        for session_id in report.spec.session_ids:
            try:
                entries = [entry async for entry in store.journal(session_id)]
                broken += await _broken_in_session(store, session_id, entries)
                mailbox = await store.mailbox(session_id)
            except HoldfastError as error:
                if not isinstance(error, SessionNotFoundError) or _is_mentioned(report, session_id):
                    broken.append(f"{session_id} cannot be read: {error}")
                continue
            appends = list(_appends(entries))
            report.appends += len(appends)
            broken += _broken_acks(report, session_id, appends)
            broken += _broken_epochs(report, session_id, appends)
            broken += _broken_mail(report, session_id, entries, mailbox)
    return broken


def _is_mentioned(report: CrashReport, session_id: str) -> bool:
    """Whether any writer has got an acknowledgement for a session."""
    acknowledged = {ack.session_id for ack in report.acks} | {sent_to for sent_to, _ in report.sent}
    return session_id in acknowledged


@dataclass(frozen=True)
class _Append:
    """The records of one commit, as found in a journal."""

    writer: str
    serial: int
    epoch: int
    parts: tuple[str, ...]
    position: int

    @property
    def is_whole(self) -> bool:
        return self.parts == tuple(f"{number}/{len(self.parts)}" for number in range(1, len(self.parts) + 1))


def _appends(entries: list[Entry]) -> Iterator[_Append]:
    """The commits that a journal is made of: neighbouring records with the same writer and serial."""
    found: _Append | None = None
    for entry in entries:
        record = entry.record
        if not isinstance(record, LoggedRecord) or record.source != "append":
            continue
        writer, serial, epoch, part, *_ = record.message.split()
        if found is not None and (found.writer, found.serial) == (writer, int(serial)):
            found = _Append(writer, int(serial), int(epoch), (*found.parts, part), entry.position)
            continue
        if found is not None:
            yield found
        found = _Append(writer, int(serial), int(epoch), (part,), entry.position)
    if found is not None:
        yield found


async def _broken_in_session(store: Store, session_id: str, entries: list[Entry]) -> list[str]:
    broken = []
    if [entry.position for entry in entries] != list(range(1, len(entries) + 1)):
        broken.append(f"the positions of {session_id} have gaps")
    row = await store.session(session_id)
    session = await store.load(session_id)
    if row.position != len(entries):
        broken.append(f"{session_id} says position {row.position} and has {len(entries)} records")
    if row.summary != summarize(session):
        broken.append(f"the summary of {session_id} is {row.summary}, its journal gives {summarize(session)}")
    return broken


def _broken_acks(report: CrashReport, session_id: str, appends: list[_Append]) -> list[str]:
    broken = [f"{session_id}: only a part of {append} is there" for append in appends if not append.is_whole]
    found: defaultdict[tuple[str, int], list[_Append]] = defaultdict(list)
    for append in appends:
        found[append.writer, append.serial].append(append)
    broken += [f"{session_id}: {key} is there {len(those)} times" for key, those in found.items() if len(those) > 1]
    for ack in report.acks:
        if ack.session_id != session_id:
            continue
        those = found[ack.writer, ack.serial]
        if not those:
            broken.append(f"{ack} was acknowledged and is lost")
        elif those[0].position != ack.position:
            broken.append(f"{ack} was acknowledged and stands at {those[0].position}")
    return broken


def _broken_epochs(report: CrashReport, session_id: str, appends: list[_Append]) -> list[str]:
    """Epochs only grow along a journal, and each belongs to one writer."""
    broken = []
    acknowledged = {(ack.writer, ack.serial): ack.epoch for ack in report.acks if ack.session_id == session_id}
    last = 0
    owners: dict[int, str] = {epoch: writer for held, epoch, writer in report.holders if held == session_id}
    claims = [epoch for held, epoch, _ in report.holders if held == session_id]
    broken += [f"{session_id}: epoch {epoch} was given {n} times" for epoch, n in Counter(claims).items() if n > 1]
    for append in appends:
        epoch = append.epoch or acknowledged.get((append.writer, append.serial), 0)
        if not epoch:  # claimed within the commit, and never acknowledged: nobody knows the epoch
            continue
        if epoch < last:
            broken.append(f"{session_id}: {append} was written in epoch {epoch}, after one of epoch {last}")
        if owners.setdefault(epoch, append.writer) != append.writer:
            broken.append(f"{session_id}: {append} was written in epoch {epoch}, which {owners[epoch]} held")
        last = epoch
    return broken


def _broken_mail(report: CrashReport, session_id: str, entries: list[Entry], mailbox: list[MailboxItem]) -> list[str]:
    taken = Counter(
        entry.record.message
        for entry in entries
        if isinstance(entry.record, LoggedRecord) and entry.record.source == "taken"
    )
    waiting = [item.key for item in mailbox]
    broken = [f"{session_id}: message {key} was taken {count} times" for key, count in taken.items() if count > 1]
    broken += [f"{session_id}: message {key} was taken and still waits" for key in waiting if key in taken]
    broken += [
        f"{session_id}: message {key} was acknowledged and is lost"
        for sent_to, key in report.sent
        if sent_to == session_id and key not in taken and key not in waiting
    ]
    if [item.number for item in mailbox] != sorted({item.number for item in mailbox}):
        broken.append(f"{session_id}: its messages are out of order")
    return broken


# --- a writer --------------------------------------------------------------------------------------


class _Work:
    """What one writer process does until it is killed."""

    def __init__(self, store: Store, name: str, seed: str, session_ids: list[str], notes: int) -> None:
        self.store = store
        self.name = name
        self.chance = random.Random(seed)
        self.session_ids = session_ids
        self.notes = notes
        self.serial = 0
        self.messages = 0

    async def run(self) -> None:
        while True:
            session_id = self.chance.choice(self.session_ids)
            try:
                await self._visit(session_id)
            except (LeaseHeldError, LeaseLostError, PositionConflictError, MessageTakenError) as refusal:
                self._note("refused", refusal.kind)
                await asyncio.sleep(self.chance.uniform(0, 0.01))
            except SessionNotFoundError:
                await self._create(session_id)

    def _note(self, *words: object) -> None:
        """Write something down in one write, so that the supervisor gets the whole line or nothing."""
        os.write(self.notes, (" ".join(map(str, words)) + "\n").encode())

    async def _create(self, session_id: str) -> None:
        with contextlib.suppress(SessionExistsError):
            started = StartedRecord(program=Program("native", "crash"))
            await self._append(Session(session_id), None, started)

    async def _visit(self, session_id: str) -> None:
        """Send a message or two, then own the session for some appends, if nobody else does."""
        for _ in range(self.chance.choice([0, 1, 2])):
            await self._send(session_id)
        epoch: int | None = None
        session = await self.store.load(session_id)
        if self.chance.random() < 0.7:
            epoch = (await self.store.append(self._commit(session, None, []))).epoch
            self._note("held", session_id, epoch)
        for _ in range(self.chance.randint(1, 40)):
            if self.chance.random() < 0.03:
                await asyncio.sleep(STALL_MS / 1000)
            epoch = await self._append(session, epoch)
        if self.chance.random() < 0.8:
            await self.store.append(self._commit(session, epoch, [], hold_ms=0))

    async def _send(self, session_id: str) -> None:
        self.messages += 1
        key = f"{self.name}-{self.messages}"
        for _ in range(self.chance.choice([1, 1, 2])):  # the second time it is a replay
            await self.store.send(session_id, key, FeedMessage([GivenAnswer(Value(value=key))], self.name), _now())
            self._note("sent", session_id, key)

    async def _append(self, session: Session, epoch: int | None, *first: Record) -> int:
        """Append marked records, and take what is in the mailbox. Gives the epoch in which that was done."""
        self.serial += 1
        mail = await self.store.mailbox(session.id, limit=3) if not first and self.chance.random() < 0.3 else []
        count = self.chance.choice([1, 1, 2, 4])
        taken = (LoggedRecord(message=item.key, source="taken") for item in mail)
        parts = (f"{number}/{count}" for number in range(1, count + 1))
        marks = (LoggedRecord(message=self._mark(epoch, part), source="append") for part in parts)
        commit = self._commit(session, epoch, [*first, *taken, *marks], takes=[item.number for item in mail])
        try:
            receipt = await self.store.append(commit)
        except PositionConflictError:
            if epoch is not None:  # then we were the only one who could write, or should have got a LeaseLostError
                self._note("intruder", session.id, epoch)
            raise
        self._note("ack", session.id, receipt.position, self.serial, receipt.epoch)
        return receipt.epoch

    def _mark(self, epoch: int | None, part: str) -> str:
        large = LARGE if self.chance.random() < 0.03 else ""
        return f"{self.name} {self.serial} {epoch or 0} {part} {large}"

    def _commit(self, session: Session, epoch: int | None, records: list[Record], **changes: Any) -> Commit:
        """The commit of these records. The session has them already: whoever is refused loads it anew."""
        expected = session.position
        entries = [Entry(position, _now(), record) for position, record in enumerate(records, expected + 1)]
        for entry in entries:
            session.apply(entry)
        commit = Commit(
            session_id=session.id,
            expected=expected,
            entries=entries,
            summary=summarize(session),
            owner=self.name,
            epoch=epoch,
            hold_ms=LEASE_MS,
        )
        return msgspec.structs.replace(commit, **changes)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _write(spec: CrashSpec, name: str, notes: Path, error: Path) -> None:
    """The work of a writer process."""
    try:
        asyncio.run(_write_on(spec, name, os.open(notes, os.O_WRONLY | os.O_APPEND)))
    except BaseException:
        error.write_text(traceback.format_exc())
        raise


async def _write_on(spec: CrashSpec, name: str, notes: int) -> None:
    async with open_store(spec.url) as store:
        await _Work(store, name, f"{spec.seed}-{name}", spec.session_ids, notes).run()
