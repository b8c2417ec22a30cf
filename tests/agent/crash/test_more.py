"""Crashes beside the table: two in a row, several tools, answers from outside, beginning anew; and two processes."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from holdfast.agent.machine.queries import CallQuery, InputQuery, ReplyQuery
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam
from tests.agent.crash.child import TURN, Job, race_job
from tests.agent.crash.harness import (
    AT_ONCE,
    Found,
    MakeJob,
    at_once,
    broken_laws,
    find,
    finished,
    killed,
    killed_soon,
    successor,
    traced,
)
from tests.agent.crash.services import DECLARED
from tests.agent.crash.test_table import INPUTS, Row, soak, table

# --- two crashes ----------------------------------------------------------------------------------------

TWICE = ("after feed-1", "model mid-stream-1", "tool called-1", "tool done-1", "before feed-4")
"""Rows of the table after which, in the default run, the next process is killed too; `make soak` has all of them."""

SECOND_SHARE = 4
"""One in so many seams of the second process is tried in the default run."""


def second_seams(row: Row, make: MakeJob) -> list[Seam]:
    """The seams of a process that goes on after a crash; they differ with the policy."""
    job = _killed_at(row, make, f"{row.name}-traced")
    second = successor(job, patient=True)
    finished(second)
    return [seam for seams in traced(second).values() for seam in seams]


def _killed_at(row: Row, make: MakeJob, run: str) -> Job:
    job = replace(make(run, INPUTS), deadly=[Seam(session, row.seam, row.number) for session in INPUTS])
    killed(job)
    return job


def killed_twice(row: Row, seam: tuple[str, int], sessions: Sequence[str], make: MakeJob) -> list[str]:
    """Kill the process that goes on after a crash at a seam which these sessions have, and let a third one go on."""
    run = "-".join((row.name, "then", *seam[0].split(), str(seam[1])))
    job = _killed_at(row, make, run)
    killed(successor(job, deadly=[Seam(session, *seam) for session in sessions], patient=True))
    finished(successor(job, "third", patient=True, retries=True))
    return [
        f"{run}, {recovery}: {sentence}"
        for recovery, found in find(job).items()
        for sentence in broken_laws(found, [recovery])
    ]


def kill_twice(rows: Sequence[Row], make: MakeJob, share: int, chance: random.Random) -> list[str]:
    runs: list[tuple[Row, tuple[str, int], list[str]]] = []
    for row, seams in zip(rows, at_once(lambda row: second_seams(row, make), rows), strict=True):
        by_name: dict[tuple[str, int], list[str]] = {}
        for seam in seams:
            by_name.setdefault((seam.name, seam.number), []).append(seam.step)
        chosen = chance.sample(sorted(by_name), max(1, len(by_name) // share))
        runs += [(row, seam, by_name[seam]) for seam in chosen]
    return [sentence for broken in at_once(lambda run: killed_twice(*run, make), runs) for sentence in broken]


def test_a_turn_whose_recovery_is_killed_too_has_no_effect_twice_that_can_be_recognised(on_sqlite: MakeJob) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    rows = [row for row in table() if f"{row.seam}-{row.number}" in TWICE]
    assert len(rows) == len(TWICE)
    broken = kill_twice(rows, on_sqlite, SECOND_SHARE, random.Random(seed))
    assert not broken, f"HOLDFAST_SEED={seed}\n" + "\n".join(broken)


@soak
@pytest.mark.soak
def test_a_turn_that_is_killed_anywhere_twice_has_no_effect_twice_that_can_be_recognised(make_job: MakeJob) -> None:
    broken = kill_twice(table()[:-1], make_job, 1, random.Random(0))
    assert not broken, "\n".join(broken)


# --- at any moment --------------------------------------------------------------------------------------

MOMENTS = 12
"""Kills at any moment in the default run; `make soak` has ten times as many."""

LONG_S = 0.12
"""Seconds within which a process is killed: a little longer than it takes to the end of its turns."""


def killed_at_any_moment(number: int, after_s: float, make: MakeJob) -> list[str]:
    job = make(f"moment-{number}", INPUTS)
    killed_soon(job, after_s)
    finished(successor(job, patient=True, retries=True))
    return [
        f"{after_s:.4f} s, {recovery}: {sentence}"
        for recovery, found in find(job).items()
        for sentence in broken_laws(found, [recovery])
    ]


def kill_at_any_moment(count: int, make: MakeJob, chance: random.Random) -> list[str]:
    moments = [(number, chance.uniform(0, LONG_S)) for number in range(count)]
    return [each for broken in at_once(lambda moment: killed_at_any_moment(*moment, make), moments) for each in broken]


def test_a_turn_killed_at_any_moment_has_no_effect_twice_that_can_be_recognised(on_sqlite: MakeJob) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    broken = kill_at_any_moment(MOMENTS, on_sqlite, random.Random(seed))
    assert not broken, f"HOLDFAST_SEED={seed}\n" + "\n".join(broken)


@soak
@pytest.mark.soak
def test_a_turn_killed_at_many_moments_has_no_effect_twice_that_can_be_recognised(make_job: MakeJob) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    broken = kill_at_any_moment(10 * MOMENTS, make_job, random.Random(seed))
    assert not broken, f"HOLDFAST_SEED={seed}\n" + "\n".join(broken)


# --- several tools --------------------------------------------------------------------------------------

SIX = ("safe", "idempotent", "never", "confirm", "safe", "never")

LOST: dict[str, dict[str, Any]] = {
    "never": {"calls": 1, "effects": 1, "told": "unknown_outcome"},
    "safe": {"calls": 2, "effects": 2, "told": "done"},
    "idempotent": {"calls": 2, "effects": 1, "told": "done"},
    "confirm": {"calls": 1, "effects": 1, "told": "done"},
}
"""What comes of a call whose outcome was lost."""


def killed_among_six(stored: int, make: MakeJob) -> list[str]:
    """Kill a process in which so many of six calls have their outcome stored, and all others have had their effect."""
    job = make(f"six-{stored}", {"six": f"use {' '.join(SIX)}"})
    deadly = [Seam("six", f"tool done {number}", 1) for number in range(stored, len(SIX))]
    if stored == len(SIX):
        deadly.append(Seam("six", "after feed", 3))
    elif stored:
        deadly.append(Seam("six", "after partial feed", stored))
    killed(replace(job, deadly=deadly))
    finished(successor(job, retries=True))
    found = find(job)["six"]
    broken = [*broken_laws(found, SIX)]
    for number, tool in enumerate(SIX):
        expected = LOST[tool] if number >= stored else {"calls": 1, "effects": 1, "told": "done"}
        if (came_to := found.executions(f"call_{number + 1}")) != expected:
            broken.append(f"call {number + 1} of '{tool}' came to {came_to}, expected {expected}")
    if found.model_calls != [1, 1]:
        broken.append(f"the model was asked {found.model_calls} times")
    called = [call.name for call in found.result.tool_calls]
    if called != list(SIX):
        broken.append(f"the results are told in the order {called}")
    return [f"{stored} of six: {sentence}" for sentence in broken]


def test_of_six_tools_at_once_only_those_whose_outcome_was_lost_are_looked_at_again(make_job: MakeJob) -> None:
    broken = at_once(lambda stored: killed_among_six(stored, make_job), range(len(SIX) + 1))
    assert not any(broken), "\n".join(sentence for each in broken for sentence in each)


# --- answers from outside -------------------------------------------------------------------------------


def waits_for(found: Found) -> list[type]:
    return [type(each.query) for each in found.session.pending.values()]


@pytest.mark.parametrize("seam", ["before feed", "after feed"])
def test_a_call_that_nothing_here_runs_waits_across_crashes_until_it_is_answered(make_job: MakeJob, seam: str) -> None:
    job = make_job("waiting", {"chat": f"use {DECLARED}"})
    killed(replace(job, deadly=[Seam("chat", "after feed", 2)]))
    assert waits_for(find(job)["chat"]) == [CallQuery]
    killed(successor(job, deadly=[Seam("chat", seam, 1)], answers={DECLARED: "granted"}))
    assert waits_for(find(job)["chat"]) == ([CallQuery] if seam == "before feed" else [ReplyQuery])
    finished(successor(job, "third", answers={DECLARED: "granted"}, retries=True))
    found = find(job)["chat"]
    assert list(broken_laws(found, [])) == ["the conversation is ['user', 'assistant', 'tool', 'assistant']"]
    assert [call.result for call in found.result.tool_calls] == ["granted"]
    assert len(found.lines("waiting")) == (2 if seam == "before feed" else 1)
    assert found.model_calls == [1, 1]


# --- beginning anew -------------------------------------------------------------------------------------


def test_beginning_anew_leaves_the_old_conversation_until_its_first_turn_is_durable(make_job: MakeJob) -> None:
    job = make_job("fresh", {"chat": "use safe"})
    finished(job)
    before = find(job)["chat"]
    killed(successor(job, turn="turn-2", fresh=True, deadly=[Seam("chat", "before feed", 1)]))
    after = find(job)["chat"]
    assert after.entries == before.entries
    finished(successor(job, "third", turn="turn-3"))
    conversation = find(job)["chat"].conversation
    assert (conversation.generation, len(conversation.messages)) == (0, 8)
    assert list(conversation.turns) == [TURN, "turn-3"]


def test_beginning_anew_is_done_once_when_the_client_tries_again(make_job: MakeJob) -> None:
    job = make_job("fresh", {"chat": "use safe"})
    finished(job)
    killed(successor(job, turn="turn-2", fresh=True, deadly=[Seam("chat", "after feed", 1)]))
    conversation = find(job)["chat"].conversation
    assert (conversation.generation, [message.text for message in conversation.messages]) == (1, ["use safe"])
    finished(successor(job, "third", turn="turn-2", fresh=True, then="turn-3"))
    conversation = find(job)["chat"].conversation
    assert (conversation.generation, len(conversation.messages)) == (1, 8)
    assert list(conversation.turns) == [TURN, "turn-2", "turn-3"]
    assert len(conversation.nodes) == 13


# --- two processes --------------------------------------------------------------------------------------

ROUNDS = 12


def raced(make: MakeJob, turns: tuple[str, str]) -> dict[str, Found]:
    """Two processes open the same sessions, one after the other, at the same time."""
    job = make("race", {f"chat-{number}": "use idempotent" for number in range(ROUNDS)})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [
            pool.submit(run_process, race_job, replace(job, name=name, turn=turn), ["one", "other"])
            for name, turn in zip(("one", "other"), turns, strict=True)
        ]
        assert [each.result() for each in running] == [0, 0], (job.directory / "error").read_text()
    return find(job)


def test_two_processes_that_give_the_same_turn_at_once_are_told_the_same(make_job: MakeJob) -> None:
    for session, found in raced(make_job, (TURN, TURN)).items():
        assert list(broken_laws(found, ["idempotent"])) == [], session
        assert len(found.lines("told")) == 2
        assert (found.model_calls, found.executions()) == ([1, 1], {"calls": 1, "effects": 1, "told": "done"})


def test_of_two_turns_given_at_once_one_is_taken_and_the_other_refused_whole(make_job: MakeJob) -> None:
    refused = []
    for session, found in raced(make_job, (TURN, "turn-2")).items():
        turns, told, errors = found.conversation.turns, found.lines("told"), found.lines("refused")
        assert len(turns) == len(told) == 2 - len(errors), session
        assert waits_for(found) == [InputQuery]
        assert len(found.lines("done")) == len(told)
        refused += [line["error"] for line in errors]
    assert set(refused) <= {"turn_contended", "turn_in_progress"}
    assert refused, "they have never met"
