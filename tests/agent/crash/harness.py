"""Running the processes of the crash tests, on stores of their own, and judging what the world and the store say after.

Many runs are under way at a time: most of each is waiting for a lease to run out.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.queries import InputQuery
from holdfast.agent.machine.turn import MessageOutcome
from holdfast.agent.results import TurnResult, result_of
from holdfast.core.queries import LlmQuery
from holdfast.core.records import Entry, PausedRecord, attempted_in
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.store import open_store
from holdfast.store.session_rows import SessionRow
from holdfast.testing.crash.processes import CrashProcess, run_process
from holdfast.testing.crash.seams import Seam, read_trace
from holdfast.testing.postgres_server import fresh_database
from tests.agent.crash.child import TURN, Job, client_job
from tests.agent.crash.services import USAGE, read_ledger

AT_ONCE = 8
"""Runs under way at the same time."""

T = TypeVar("T")
R = TypeVar("R")


def killed(job: Job) -> None:
    """Run a job that dies where it is to."""
    code = run_process(client_job, job)
    assert code == -signal.SIGKILL, f"{job.name} ended with {code}, {list(job.deadly)} not reached {_errors(job)}"


def killed_soon(job: Job, after_s: float) -> None:
    """Run a job, and kill it so many seconds after it has begun; it may have ended by then."""
    process = CrashProcess(client_job, job)
    while process.exit_code is None and not job.trace.exists():
        time.sleep(0.001)
    time.sleep(after_s)
    assert process.kill() in (0, -signal.SIGKILL), _errors(job)


def finished(job: Job) -> None:
    """Run a job that ends by itself."""
    code = run_process(client_job, job)
    assert code == 0, f"{job.name} ended with {code} {_errors(job)}"


def _errors(job: Job) -> str:
    path = job.directory / "error"
    return path.read_text() if path.exists() else ""


def at_once(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Do something for each item, some at a time; gives the outcomes in order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(work, items))


MakeJob: TypeAlias = Callable[[str, Mapping[str, str]], Job]
"""Makes the first job of a run on a store of its own, from the run's name and the inputs of its sessions."""


def sqlite_jobs(folder: Path) -> MakeJob:
    def make(name: str, inputs: Mapping[str, str]) -> Job:
        (folder / name).mkdir()
        return Job(f"sqlite:///{folder / name}/sessions.db", folder / name, inputs)

    return make


def postgres_jobs(server: str, folder: Path) -> MakeJob:
    def make(name: str, inputs: Mapping[str, str]) -> Job:
        (folder / name).mkdir()
        return Job(fresh_database(server), folder / name, inputs)

    return make


def traced(job: Job) -> dict[str, list[Seam]]:
    """The seams that each session has reached. A lease may be renewed at any time, so that is left out."""
    seams: dict[str, list[Seam]] = {session: [] for session in job.inputs}
    for seam in read_trace(job.trace):
        if not seam.name.endswith(" renew"):
            seams[seam.step].append(seam)
    return seams


def successor(job: Job, name: str = "second", **changes: Any) -> Job:
    """The job of a process that comes after one that died: not to die, unless it is told to."""
    return replace(job, name=name, **{"deadly": (), **changes})


# --- evidence --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What there is to be found of one session after a run."""

    session: Session
    conversation: Conversation
    entries: list[Entry]
    row: SessionRow
    mail: int
    seen: list[dict[str, Any]] = field(repr=False)

    @property
    def result(self) -> TurnResult:
        """What the journal says that the turn came to."""
        return result_of(self.conversation.turns[TURN], replayed=True)

    def lines(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.seen if line["what"] == what]

    def executions(self, call: str = "call_1") -> dict[str, Any]:
        """How often the service behind a call was called, how often it did something, and what the model was told."""
        content = next(each.result for each in self.result.tool_calls if each.id == call)
        return {
            "calls": sum(line["call"] == call for line in self.lines("called")),
            "effects": sum(line["call"] == call for line in self.lines("done")),
            "told": content["code"] if isinstance(content, dict) else content,
        }

    @property
    def end(self) -> dict[str, Any]:
        """How it ended: what the turn came to, what still waits beside the next input, and what is counted."""
        pending = [each.query for each in self.session.pending.values()]
        return {
            "outcome": msgspec.to_builtins(self.result.outcome)["type"],
            "pending": sum(not isinstance(query, InputQuery) for query in pending),
            "turns": len(self.conversation.turns),
            "counted": self.result.usage.calls,
        }

    @property
    def model_calls(self) -> list[int]:
        """How often the model was asked each of the turn's questions."""
        asked = Counter(line["query"] for line in self.lines("asked"))
        return [asked[query] for query in self.llm_queries]

    @property
    def llm_queries(self) -> list[str]:
        paused = [entry.record for entry in self.entries if isinstance(entry.record, PausedRecord)]
        return [query.id for record in paused for query in record.queries if isinstance(query, LlmQuery)]


def find(job: Job) -> dict[str, Found]:
    """What there is of all sessions of a run."""
    return asyncio.run(_find(job))


async def _find(job: Job) -> dict[str, Found]:
    found = {}
    seen = read_ledger(job.directory)
    async with open_store(job.url) as store:
        for session in job.inputs:
            entries = [entry async for entry in store.journal(session)]
            conversation = Conversation(session)
            for entry in entries:
                conversation.apply(entry)
            found[session] = Found(
                Session.fold(session, entries),
                conversation,
                entries,
                await store.session(session),
                len(await store.mailbox(session)),
                [line for line in seen if line["session"] == session],
            )
    return found


# --- the laws --------------------------------------------------------------------------------------


def broken_laws(found: Found, calls: Sequence[str]) -> Iterator[str]:
    """What is wrong with a session whose only turn is over, and called these tools."""
    yield from _broken_store(found)
    yield from _broken_end(found, len(calls))
    yield from _broken_counts(found)
    for number, tool in enumerate(calls, 1):
        effects = found.executions(f"call_{number}")["effects"]
        told = found.executions(f"call_{number}")["told"]
        allowed = {"never": (0, 1) if told == "unknown_outcome" else (1,), "safe": range(1, 10)}.get(tool, (1,))
        if effects not in allowed:
            yield f"call {number} of '{tool}' had {effects} effects, and the model was told '{told}'"
        if told != "done" and tool != "never":
            yield f"call {number} of '{tool}': the model was told '{told}'"


def _broken_store(found: Found) -> Iterator[str]:
    session, row = found.session, found.row
    if (row.position, row.summary) != (session.position, summarize(session)):
        yield f"the row tells {row.position} {row.summary}, the journal gives {session.position} {summarize(session)}"
    if found.mail:
        yield f"{found.mail} messages wait for ever"
    if row.owner is not None:
        yield f"{row.owner} still holds it"


def _broken_end(found: Found, calls: int) -> Iterator[str]:
    conversation, result = found.conversation, found.result
    pending = [type(each.query) for each in found.session.pending.values()]
    if pending != [InputQuery]:
        yield f"it waits for {pending}"
    if list(conversation.turns) != [TURN] or conversation.running is not None:
        yield f"its turns are {list(conversation.turns)}, and {conversation.running} is under way"
    if result.outcome != MessageOutcome():
        yield f"the turn came to {result.outcome}"
    roles = [message.role for message in conversation.messages]
    if roles != ["user", "assistant", *["tool"] * calls, "assistant"]:
        yield f"the conversation is {roles}"
    for line in found.lines("told"):
        told = msgspec.convert(line["result"], TurnResult)
        if msgspec.structs.replace(told, receipt=result.receipt) != result:
            yield f"a client was told {told}, and the journal says {result}"
        if msgspec.structs.replace(told.receipt, replayed=True) != result.receipt:
            yield f"a client was given {told.receipt}, and others {result.receipt}"
    if not found.lines("told"):
        yield "no client was told"


def _broken_counts(found: Found) -> Iterator[str]:
    """Usage is that of the answers in the journal, once each; and there is an attempt before anything is done."""
    queries = len(found.llm_queries)
    usage = found.result.usage
    expected = (queries, queries * (USAGE.prompt_tokens or 0), queries * (USAGE.completion_tokens or 0))
    if (usage.calls, usage.input, usage.output) != expected:
        yield f"usage is {usage}, of {queries} calls of the model"
    if (found.session.metrics.total_tokens, queries) != (sum(expected[1:]), 2):
        yield f"the metrics are {found.session.metrics}, of {queries} calls of the model"
    attempts = Counter(asked for entry in found.entries for asked in attempted_in(entry.record))
    seen = Counter(line["query"] for line in found.lines("asked"))
    seen.update(line["key"].partition("/")[2] for line in found.lines("called"))
    for query, count in seen.items():
        if count > attempts[query]:
            yield f"{query} was begun {count} times, and {attempts[query]} attempts were written ahead"
    keys = {(line["call"], line["key"]) for line in found.lines("called")}
    if len({call for call, _ in keys}) != len(keys):
        yield f"a call was made under several keys: {keys}"
