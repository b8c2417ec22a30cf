"""Processes that are killed while a conversation is summed up, or between a value and the end of its turn.

A first run shows every seam that the turn reaches. Then a process is killed at each of them, in the default run at some
that a seed chooses, and another one goes on: what the turn comes to is what it would have come to.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from holdfast.agent.machine.records import FrameRecord
from holdfast.agent.machine.tree import Frame
from holdfast.agent.machine.turn import MessageOutcome, ValueOutcome
from holdfast.agent.results import TurnResult
from holdfast.testing.crash.processes import run_process
from holdfast.testing.crash.seams import Seam
from tests.agent.crash.child import Job
from tests.agent.crash.compaction_child import NOTES, summing_job
from tests.agent.crash.harness import Found, MakeJob, at_once, find, successor, traced
from tests.agent.crash.services import USAGE

SLICE = 6
"""SeamObserver of each turn at which a process is killed in the default run."""

SEED = int(os.environ.get("HOLDFAST_SEED", "8"))


def ended(job: Job, code: int = 0) -> None:
    found = run_process(summing_job, job)
    errors = job.directory / "error"
    assert found == code, f"{job.name} ended with {found} {errors.read_text() if errors.exists() else ''}"


def killed_at(seam: Seam, make: MakeJob, session: str) -> list[str]:
    job = make(f"{session}-{'-'.join(seam.name.split())}-{seam.number}", {session: "Read it, please."})
    ended(replace(job, deadly=[seam]), -signal.SIGKILL)
    ended(successor(job))
    ended(successor(job, "third"))
    return [f"{seam}: {broken}" for broken in broken_laws(session, find(job)[session])]


def broken_laws(session: str, found: Found) -> Iterator[str]:
    conversation, result = found.conversation, found.result
    is_value = session == "value"
    if result.outcome != (ValueOutcome({"n": 3}) if is_value else MessageOutcome()):
        yield f"the turn came to {result.outcome}"
    if conversation.window != conversation.tree.window_of(conversation.leaf):
        yield "the window is not that of the tree"
    frames = [node.payload for node in conversation.path() if isinstance(node.payload, Frame)]
    if [frame.summary for frame in frames] != ([""] if is_value else ["", NOTES]):
        yield f"the frames are {frames}"
    if sum(isinstance(entry.record, FrameRecord) for entry in found.entries) != len(frames) - 1:
        yield "a frame was opened twice"
    roles = [message.role for message in conversation.messages]
    if roles != ["user", "assistant", "tool", *([] if is_value else ["assistant"])]:
        yield f"the conversation is {roles}"
    told = [msgspec.convert(line["result"], TurnResult) for line in found.lines("told")]
    if len(told) < 2 or any(_plain(each, result) != result for each in told):
        yield f"clients were told {told}, and the journal says {result}"
    asked = Counter(line["query"] for line in found.lines("asked"))
    sources = {source: used.calls for source, used in result.report.by_source.items()}
    if sources != ({"turn": 1} if is_value else {"turn": 2, "compaction": 1}):
        yield f"usage is counted as {sources}"
    if result.usage.total != sum(sources.values()) * ((USAGE.prompt_tokens or 0) + (USAGE.completion_tokens or 0)):
        yield f"usage is {result.usage}"
    if any(count > 2 for count in asked.values()) or len(asked) != sum(sources.values()):
        yield f"the model was asked {asked}"


def _plain(told: TurnResult, known: TurnResult) -> TurnResult:
    """What a client was told, without what only a client knows."""
    return msgspec.structs.replace(told, receipt=known.receipt, output=None)


def seams_of(make: MakeJob, session: str) -> list[Seam]:
    """All that a turn reaches that nobody kills, from the first thing that is durable on."""
    job = make(f"{session}-whole", {session: "Read it, please."})
    ended(job)
    ended(successor(job, "second"))
    assert list(broken_laws(session, find(job)[session])) == []
    seams = traced(job)[session]
    first = next(number for number, seam in enumerate(seams) if seam.name == "after feed")
    return seams[first:]


def all_killed(make: MakeJob, session: str, most: int | None) -> None:
    seams = seams_of(make, session)
    names = [seam.name for seam in seams]
    assert names.count("model asked") == (1 if session == "value" else 3), names
    chosen: list[Any] = seams
    if most is not None:
        # One is always while the model sums up, or before the value is durable: the others are drawn.
        sure = [seam for seam in seams if seam.name in ("model asked", "before feed")][-2:]
        rest = [seam for seam in seams if seam not in sure]
        chosen = [*sure, *random.Random(SEED).sample(rest, min(len(rest), most - len(sure)))]
    broken = at_once(lambda seam: killed_at(seam, make, session), chosen)
    assert not any(broken), "\n".join(sentence for each in broken for sentence in each)


@pytest.mark.parametrize("session", ["notes", "value"])
def test_a_process_that_dies_while_it_sums_up_or_submits_is_gone_on_for(on_sqlite: MakeJob, session: str) -> None:
    all_killed(on_sqlite, session, None if "HOLDFAST_SOAK" in os.environ else SLICE)


@pytest.mark.parametrize("session", ["notes", "value"])
def test_the_same_on_postgresql(on_postgres: MakeJob, session: str) -> None:
    all_killed(on_postgres, session, None if "HOLDFAST_SOAK" in os.environ else 2)
