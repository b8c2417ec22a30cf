"""A process that is killed at any durable boundary loses nothing, and a fresh one finishes all of its sessions.

`kill_child.py` has the scenario. Every place where the engine is about to make something durable, or has just done so,
is a *seam*. `seams.json` lists them in the order of the scenario, and the process is killed once at each.

A boundary that is new, or gone, fails `test_every_durable_boundary_is_listed`. When that is as it should be:

    HOLDFAST_LIST_SEAMS=1 pytest tests/engine/test_kill.py -k listed

writes the list anew; the change belongs in the commit that caused it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord, CancelledRecord, CompletedRecord, Entry, FailedRecord
from holdfast.core.state import Session
from holdfast.core.summary import summarize
from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.upkeep import Upkeep
from holdfast.store import open_store
from holdfast.store.contract import SessionRow
from holdfast.testing.crash.processes import CrashProcess, run_process
from holdfast.testing.crash.seams import Seam, read_trace
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.postgres_server import fresh_database
from tests.engine import kill_child
from tests.engine.kill_child import LEASE_MS, STEPS, Host, Ledger, World, did, read_ledger

SEAMS = Path(__file__).with_name("seams.json")

AT_ONCE = 6
"""Kills under way at the same time. Most of each is waiting for a lease to run out."""

STEPS_BEFORE = 2
"""Steps that are run before the one in which a process is killed, in the default run; `make soak` runs all of them."""

TRIES = 3
"""How often a run is traced, or brought to a seam. On a busy machine a step in a thread may be overtaken by what should
come after it, and then the run has its seams in another order; a boundary that is not listed shows up every time."""

POSTGRES_SHARE = 3
"""One in so many seams is tried on PostgreSQL in the default run; `make soak` tries all of them."""

EAGER_SHARE = 8
"""One in so many processes is replaced at once in the default run, while the dead still hold their leases."""

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")

# --- places ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A store of its own, and the directory of the ledger beside it."""

    url: str
    directory: Path

    def errors(self) -> str:
        path = self.directory / "error"
        return path.read_text() if path.exists() else ""


MakePlace = Callable[[str], Place]


def sqlite_places(folder: Path) -> MakePlace:
    def make(name: str) -> Place:
        (folder / name).mkdir()
        return Place(f"sqlite:///{folder / name}/sessions.db", folder / name)

    return make


def postgres_places(server: str, folder: Path) -> MakePlace:
    def make(name: str) -> Place:
        (folder / name).mkdir()
        return Place(fresh_database(server), folder / name)

    return make


# --- evidence --------------------------------------------------------------------------------------


@dataclass
class Evidence:
    """What the world has seen of a run, and what the store says after it."""

    seen: list[dict[str, Any]]
    journals: dict[str, list[Entry]]
    rows: dict[str, SessionRow] = field(default_factory=dict)
    mail: dict[str, int] = field(default_factory=dict)
    count: Any = None
    """What the session `state` has counted to, as the durable state has it."""

    def outcomes(self) -> dict[str, Any]:
        return {session: _outcome(entries) for session, entries in self.journals.items()}

    def lines(self, what: str, **like: Any) -> list[dict[str, Any]]:
        return [line for line in self.seen if line["what"] == what and all(line[key] == like[key] for key in like)]


def _outcome(entries: Sequence[Entry]) -> Any:
    match entries[-1].record:
        case CompletedRecord(result=result):
            return result
        case CancelledRecord():
            return "cancelled"
        case FailedRecord(error=error):
            return f"failed: {error}"
        case other:
            return type(other).__name__


async def gather_evidence(place: Place) -> Evidence:
    evidence = Evidence(read_ledger(place.directory), {})
    async with open_store(place.url) as store:
        for row in (await store.sessions()).rows:
            session = row.session_id
            evidence.rows[session] = row
            evidence.journals[session] = [entry async for entry in store.journal(session)]
            evidence.mail[session] = len(await store.mailbox(session))
        item = await store.get_state("counter", "count")
        evidence.count = item and item.value
    return evidence


# --- the laws --------------------------------------------------------------------------------------


def broken_laws(evidence: Evidence, expected: dict[str, Any], killed_in: str | None) -> list[str]:
    """Sentences that say what went wrong; none if every promise was kept."""
    return [
        *_broken_journals(evidence),
        *_broken_answers(evidence),
        *_asked_again(evidence),
        *_broken_effects(evidence),
        *_broken_results(evidence, expected, killed_in),
    ]


def _broken_journals(evidence: Evidence) -> Iterator[str]:
    for session, row in evidence.rows.items():
        folded = Session.fold(session, evidence.journals[session])
        if row.position != folded.position:
            yield f"{session} tells position {row.position} and has {folded.position} records"
        if row.summary != summarize(folded):
            yield f"the summary of {session} is {row.summary}, its journal gives {summarize(folded)}"
        if evidence.mail[session]:
            yield f"{evidence.mail[session]} messages wait for {session} for ever"


def _broken_answers(evidence: Evidence) -> Iterator[str]:
    for session, entries in evidence.journals.items():
        answered = Counter(entry.record.query_id for entry in entries if isinstance(entry.record, AnsweredRecord))
        for asked, count in answered.items():
            if count > 1:
                yield f"{session}/{asked} was answered {count} times"
    for line in evidence.lines("acked"):
        answers = [
            entry.record.answer
            for entry in evidence.journals.get(line["session"], [])
            if isinstance(entry.record, AnsweredRecord) and entry.record.query_id == line["query"]
        ]
        if answers != [Value(value=line["content"])]:
            yield f"the answer to {_query(line)} was acknowledged, and the journal has {answers}"
    found = {line["session"]: line["state"] for line in evidence.lines("found")}
    for line in evidence.lines("started", who="child"):
        if found and line["session"] not in found:
            yield f"the start of {line['session']} was acknowledged and is lost"
    for line in evidence.lines("cancelled", who="child"):
        if found and found.get(line["session"]) != "cancelled":
            yield f"the end of {line['session']} was acknowledged and is lost"


def _asked_again(evidence: Evidence) -> Iterator[str]:
    """Neither the host nor a receiver hears again of a query that has its answer."""
    answered: set[tuple[str, str]] = set()
    for line in evidence.seen:
        match line["what"]:
            case "acked":
                answered.add(_query(line))
            case "found":
                answered |= {(line["session"], asked) for asked in line["settled"]}
            case "put" if _query(line) in answered:
                yield f"{_query(line)} was put to the host after it had its answer"
            case "effect" if _query(line) in answered:
                yield f"the effect of {_query(line)} was executed after it had its answer"
            case _:
                pass


def _query(line: dict[str, Any]) -> tuple[str, str]:
    return line["session"], line["query"]


def _broken_effects(evidence: Evidence) -> Iterator[str]:
    executions: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for line in evidence.lines("effect"):
        executions[line["tool"], line["session"], line["query"]].append(line["key"])
    for (tool, *query), keys in executions.items():
        if tool in ("never", "queued", "ask") and len(keys) > 1:
            yield f"{tool}: the effect of {query} was executed {len(keys)} times"
        if tool == "confirm" and len(keys) != 1:
            yield f"confirm: the effect of {query} was executed {len(keys)} times"
        if len(set(keys)) != 1:
            yield f"{tool}: {query} was executed under different keys: {keys}"
    all_keys = [keys[0] for keys in executions.values()]
    if len(set(all_keys)) != len(all_keys):
        yield f"two queries share a key: {all_keys}"


EXECUTED = {
    **{session: session for session in ("never", "safe", "idempotent", "confirm", "queued")},
    "takeover": "late",
    "busy": "held",
}
"""The tools that sessions call, where nobody but the tool itself can have answered."""


def _broken_results(evidence: Evidence, expected: dict[str, Any], killed_in: str | None) -> Iterator[str]:
    outcomes = evidence.outcomes()
    for session in sorted({*outcomes, *expected}):
        if session == "cancel.q-0" and session not in outcomes:
            continue  # its parent was cancelled before it could be started
        came_to, allowed = outcomes.get(session, "nothing"), [expected.get(session, "nothing")]
        if session == killed_in:
            allowed += _without_knowing(session, expected[session])
        if came_to not in allowed:
            yield f"{session} came to {came_to}, expected {' or '.join(map(str, allowed))}"
    for session, tool in EXECUTED.items():
        executed = {line["query"] for line in evidence.lines("effect", session=session)}
        told = str(outcomes.get(session)).count(did(tool, ""))
        if told > len(executed):
            yield f"{session} was told of {told} effects, and {len(executed)} were executed"
    if "state" in expected and evidence.count != expected["state"][1]:
        yield f"the state counts {evidence.count}, expected {expected['state'][1]}"


def _without_knowing(session: str, result: Any) -> list[Any]:
    """What else a session may come to, whose tool is not run again when its outcome is unknown."""
    match session:
        case "never":
            return [["unknown_outcome", result[1]]]
        case "queued":
            one, two = result
            return [["unknown_outcome", two], [one, "unknown_outcome"], ["unknown_outcome"] * 2]
        case _:
            return []


# --- kills -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traced:
    """The run in which nothing happens."""

    seams: list[Seam]
    evidence: Evidence

    @property
    def expected(self) -> dict[str, Any]:
        return self.evidence.outcomes()


def trace(place: Place) -> Traced:
    code = run_process(kill_child.scenario_job, place.url, place.directory, STEPS, None)
    assert code == 0, place.errors()
    return Traced(read_trace(place.directory / "trace"), asyncio.run(gather_evidence(place)))


def by_step(seams: Sequence[Seam]) -> dict[str, list[str]]:
    """The names of the seams, step by step. A lease may be renewed at any time, so only `busy` is asked for that."""
    steps: dict[str, list[str]] = {}
    for seam in seams:
        names = steps.setdefault(seam.step, [])
        if seam.step == "busy" or not seam.name.endswith(" renew"):
            names.append(seam.name)
    return steps


def listed_seams() -> list[Seam]:
    seams = []
    for step, names in json.loads(SEAMS.read_text()).items():
        counts: Counter[str] = Counter()
        for name in names:
            counts[name] += 1
            seams.append(Seam(step, name, counts[name]))
    return seams


@dataclass(frozen=True)
class Kill:
    """Where the process dies, which steps of the scenario it runs until then, and how it is replaced."""

    at: Seam
    steps: Sequence[str]
    patient: bool

    def name(self) -> str:
        manner = "patient" if self.patient else "eager"
        return "-".join((self.at.step, *self.at.name.split(), str(self.at.number), manner))

    def run(self, make_place: MakePlace, expected: dict[str, Any]) -> list[str]:
        """Kill the process, finish its sessions in a fresh one, and judge."""
        tries = 0
        while True:
            tries += 1
            place = make_place(f"{self.name()}-{tries}")
            code = run_process(kill_child.scenario_job, place.url, place.directory, self.steps, self.at)
            if code == -signal.SIGKILL:
                break
            if tries == TRIES:
                return [f"{self.name()}: was not reached, the process ended with {code} {place.errors()}"]
        broken = []
        if run_process(kill_child.finish_job, place.url, place.directory, self.steps, self.patient) != 0:
            broken.append(f"could not be finished: {place.errors()}")
        evidence = asyncio.run(gather_evidence(place))
        mine = {session: came_to for session, came_to in expected.items() if session.partition(".")[0] in self.steps}
        broken += broken_laws(evidence, mine, self.at.step)
        if not broken:
            shutil.rmtree(place.directory)
        return [f"{self.name()}: {sentence}" for sentence in broken]


def kill_at_each(kills: Sequence[Kill], make_place: MakePlace) -> list[str]:
    expected = trace(make_place("uninterrupted")).expected
    with ThreadPoolExecutor(AT_ONCE) as pool:
        judged = [pool.submit(kill.run, make_place, expected) for kill in kills]
        return [sentence for kill in judged for sentence in kill.result()]


def hurried(seams: Sequence[Seam]) -> list[Kill]:
    """Every seam once, in a run that begins a few steps before it."""
    return [Kill(seam, _last_steps(seam), number % EAGER_SHARE != 0) for number, seam in enumerate(seams)]


def thorough(seams: Sequence[Seam]) -> list[Kill]:
    """Every seam of the whole scenario, and both manners of going on after it."""
    return [Kill(seam, STEPS, patient) for seam in seams for patient in (True, False)]


def _last_steps(seam: Seam) -> Sequence[str]:
    if seam.step == "fork":
        return ["single", "fork"]
    last = STEPS.index(seam.step)
    return STEPS[max(0, last - STEPS_BEFORE) : last + 1]


def test_every_durable_boundary_is_listed(tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for number in range(TRIES):
        found = by_step(trace(sqlite_places(tmp_path)(f"traced-{number}")).seams)
        if "HOLDFAST_LIST_SEAMS" in os.environ:
            SEAMS.write_text(json.dumps(found, indent=2) + "\n")
        if found == json.loads(SEAMS.read_text()):
            break
    assert found == json.loads(SEAMS.read_text())


def test_the_uninterrupted_run_keeps_every_promise(tmp_path: Path) -> None:
    traced = trace(sqlite_places(tmp_path)("traced"))
    assert broken_laws(traced.evidence, traced.expected, None) == []
    assert all(row.summary.state.is_terminal for row in traced.evidence.rows.values())


def test_a_process_killed_at_any_boundary_on_sqlite_loses_nothing(tmp_path: Path) -> None:
    broken = kill_at_each(hurried(listed_seams()), sqlite_places(tmp_path))
    assert not broken, "\n".join(broken)


def test_a_process_killed_at_some_boundaries_on_postgresql_loses_nothing(server: str, tmp_path: Path) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    seams = listed_seams()
    chosen = random.Random(seed).sample(seams, len(seams) // POSTGRES_SHARE)
    broken = kill_at_each(hurried(chosen), postgres_places(server, tmp_path))
    assert not broken, f"HOLDFAST_SEED={seed}\n" + "\n".join(broken)


@soak
@pytest.mark.soak
def test_a_process_killed_at_any_boundary_on_sqlite_loses_nothing_however_soon_it_is_replaced(tmp_path: Path) -> None:
    broken = kill_at_each(thorough(listed_seams()), sqlite_places(tmp_path))
    assert not broken, "\n".join(broken)


@soak
@pytest.mark.soak
def test_a_process_killed_at_any_boundary_on_postgresql_loses_nothing(server: str, tmp_path: Path) -> None:
    broken = kill_at_each(thorough(listed_seams()), postgres_places(server, tmp_path))
    assert not broken, "\n".join(broken)


# --- an owner that is paused -----------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return sqlite_places(tmp_path)("paused")
    return postgres_places(request.getfixturevalue("server"), tmp_path)("paused")


@contextlib.asynccontextmanager
async def paused_owner(place: Place, session: str) -> AsyncIterator[CrashProcess]:
    """A process that owns a session, and does not know that time passes."""
    owner = CrashProcess(kill_child.own_job, place.url, place.directory, session)
    try:
        async with asyncio.timeout(HANG_S):
            await until(lambda: owner.exit_code is not None or bool(seen(place, "owning")))
            assert owner.exit_code is None, place.errors()
            owner.pause()
            yield owner
    finally:
        owner.kill()


@pytest.mark.parametrize("session", ["busy", "slow"])
async def test_a_paused_owner_that_wakes_after_its_lease_ran_out_is_refused(place: Place, session: str) -> None:
    async with paused_owner(place, session) as owner:
        result = await finish_for(place, session)
        before = await journal_of(place, session)
        (place.directory / "go").touch()
        owner.resume()
        await until(lambda: owner.exit_code is not None)
        assert owner.exit_code == 0, place.errors()
    assert "lease_lost" in [line["error"] for line in seen(place, "refused")]
    assert [line["content"] for line in seen(place, "result")] == [result]
    assert await journal_of(place, session) == before


async def test_an_answer_sent_to_an_owner_that_died_is_taken_by_whoever_comes_next(place: Place) -> None:
    sender = open_holdfast(place.url, lease_ms=LEASE_MS, upkeep=Upkeep(on=False))
    async with paused_owner(place, "busy"), sender:
        event = await sender.feed("busy", {"q-1": "an answer that was accepted"}, wait=0)
        assert event.status == "running"
    async with open_holdfast(place.url, lease_ms=LEASE_MS) as hf:
        World(place.directory, Ledger(place.directory, "successor")).drive(hf)
        assert await hf.result("busy", timeout=HANG_S) == [did("held", "on"), "an answer that was accepted"]


async def finish_for(place: Place, session: str) -> Any:
    """Take the session over as soon as the lease of its owner has run out, and bring it to its end."""
    ledger = Ledger(place.directory, "successor")
    async with open_holdfast(place.url, lease_ms=LEASE_MS) as hf:
        World(place.directory, ledger).drive(hf)
        host = Host(hf, ledger)
        await host.feed(session, await host.asked(session))
        return await hf.result(session)


def seen(place: Place, what: str) -> list[dict[str, Any]]:
    return [line for line in read_ledger(place.directory) if line["what"] == what]


async def journal_of(place: Place, session: str) -> list[Entry]:
    async with open_store(place.url) as store:
        return [entry async for entry in store.journal(session)]


# --- the laws themselves ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return trace(sqlite_places(tmp_path_factory.mktemp("traced"))("traced"))


def line(what: str, session: str, **more: Any) -> dict[str, Any]:
    return {"who": "child", "what": what, "session": session, **more}


def effect(tool: str, session: str, key: str, asked: str = "q-0") -> dict[str, Any]:
    return line("effect", session, query=asked, tool=tool, key=key, number=2)


@pytest.mark.parametrize(
    ("also_seen", "complaint"),
    [
        (line("acked", "single", query="q-0", content="something else"), "was acknowledged, and the journal has"),
        (line("acked", "single", query="q-7", content="lost"), "was acknowledged, and the journal has []"),
        (line("put", "batch", query="q-1"), "('batch', 'q-1') was put to the host after it had its answer"),
        (effect("never", "never", "never/q-0"), "never: the effect of ['never', 'q-0'] was executed 2 times"),
        (effect("queued", "queued", "queued/q-1", "q-1"), "queued: the effect of ['queued', 'q-1'] was executed 2"),
        (effect("confirm", "confirm", "confirm/q-0"), "confirm: the effect of ['confirm', 'q-0'] was executed 2 times"),
        (effect("idempotent", "idempotent", "other"), "idempotent: ['idempotent', 'q-0'] was executed under different"),
        (effect("safe", "safe", "safe/q-0"), None),
    ],
)
def test_the_judge_notices_what_the_world_should_not_have_seen(
    traced: Traced, also_seen: dict[str, Any], complaint: str | None
) -> None:
    evidence = replace(traced.evidence, seen=[*traced.evidence.seen, also_seen])
    broken = broken_laws(evidence, traced.expected, None)
    assert any(complaint in sentence for sentence in broken) if complaint else not broken


def test_the_judge_notices_what_was_done_again_after_a_restart(traced: Traced) -> None:
    found = line("found", "safe", settled=["q-0"], state="paused")
    evidence = replace(traced.evidence, seen=[found, *traced.evidence.seen])
    broken = broken_laws(evidence, traced.expected, None)
    assert any("the effect of ('safe', 'q-0') was executed after it had its answer" in each for each in broken)
    assert any("the start of batch was acknowledged and is lost" in each for each in broken)
    assert any("the end of cancel was acknowledged and is lost" in each for each in broken)


def test_the_judge_notices_what_a_store_should_not_say(traced: Traced) -> None:
    evidence, expected = traced.evidence, traced.expected
    unknown = {**expected, "never": ["unknown_outcome", expected["never"][1]]}
    assert broken_laws(evidence, unknown, None)
    assert broken_laws(evidence, {**expected, "single": "other"}, "single")
    assert broken_laws(evidence, {**expected, "lost": None}, None)
    assert broken_laws(replace(evidence, mail={**evidence.mail, "busy": 1}), expected, None)
    assert broken_laws(replace(evidence, count=3), expected, None)
    rows = {**evidence.rows, "single": evidence.rows["batch"]}
    assert broken_laws(replace(evidence, rows=rows), expected, None)
    journals = {**evidence.journals, "single": evidence.journals["single"][:-1]}
    assert broken_laws(replace(evidence, journals=journals), expected, None)
