"""Items survive the death of their process at every seam: each that was accepted comes to one outcome, in its order."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace

import pytest

from holdfast.agent.machine.fold import agent_fold
from holdfast.agent.machine.turn import MessageOutcome
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam, read_trace
from tests.agent.crash.child import Job
from tests.agent.crash.harness import Found, MakeJob, at_once, find, successor
from tests.agent.crash.items_child import ITEMS, SESSION, UNWANTED, items_job

SHARE = {"sqlite": 5, "postgresql": 16}
"""One in so many seams is tried in the default run; `make soak` tries all of them."""

INPUTS = {SESSION: ""}


def seams(make: MakeJob) -> list[Seam]:
    """The places where a process that sends and works items can die."""
    job = make("traced", INPUTS)
    assert run_process(items_job, job) == 0, _error(job)
    assert broken(find(job)[SESSION]) == []
    return [seam for seam in read_trace(job.trace) if not seam.name.endswith(" renew")]


def died_at(seam: Seam, make: MakeJob) -> list[str]:
    """Kill a process there, let another one do the same again, and say what is not as it should be."""
    job = replace(make("-".join((*seam.name.split(), str(seam.number))), INPUTS), deadly=[seam])
    code = run_process(items_job, job)
    if code == 0:
        return []  # who is first of two who write at the same time may differ, and with it how often a seam is reached
    assert code == -signal.SIGKILL, f"{seam}: it ended with {code} {_error(job)}"
    again = successor(job)
    code = run_process(items_job, again)
    if code != 0:
        return [f"{seam}: the second process ended with {code} {_error(job)}"]
    return [f"{seam}: {sentence}" for sentence in broken(find(job)[SESSION])]


def _error(job: Job) -> str:
    path = job.directory / "error"
    return path.read_text() if path.exists() else ""


def broken(found: Found) -> list[str]:
    """What was promised, and is not so."""
    sentences = []
    known = agent_fold(found.session).inbox.accepted
    in_turns = Counter(item for turn in found.conversation.turns.values() for item in turn.items)
    if list(known) != list(ITEMS):
        sentences.append(f"it has the items {list(known)}")
    for item, outcome in known.items():
        if in_turns[item] + (outcome.state == "cancelled") != 1:
            sentences.append(f"item {item} is {outcome.state}, and in {in_turns[item]} turns")
    if known[UNWANTED].state != "cancelled":
        sentences.append(f"what was taken back is {known[UNWANTED].state}")
    if any(turn.ended != MessageOutcome() for turn in found.conversation.turns.values()):
        sentences.append(f"turns came to {[turn.ended for turn in found.conversation.turns.values()]}")
    places = [found.conversation.turns[each.turn].position for each in known.values() if each.turn is not None]
    if places != sorted(places):
        sentences.append(f"they were taken in another order: {places}")
    told = {(line["item"], line["status"], line["turn"]) for line in found.lines("told")}
    if len(told) > len(ITEMS):
        sentences.append(f"different things were told of one item: {sorted(told, key=str)}")
    return sentences


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_items_survive_a_kill_at_every_seam(request: pytest.FixtureRequest, store: str) -> None:
    make: MakeJob = request.getfixturevalue("on_sqlite" if store == "sqlite" else "on_postgres")
    places = seams(make)
    assert len({seam.name for seam in places}) > 8
    if "HOLDFAST_SOAK" not in os.environ:
        places = places[:: SHARE[store]]
    assert [sentence for sentences in at_once(lambda seam: died_at(seam, make), places) for sentence in sentences] == []
