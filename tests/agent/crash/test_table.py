"""The crash table: what becomes of a turn whose process is killed, for every place where that makes a difference.

`../crash_table.json` has a row for each seam of a turn: the places right before and after something becomes durable,
and those between what the model and the tool do. A seam that is new, or gone, fails the first test until there is a
ruling for it.

Each row is executed in one process for all four policies: a session for each goes as far as that seam, and stays there;
when the last of them has come, the process is killed. A fresh process then does what a client does that was not told:
it opens the sessions and gives the same turn under the same id.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.crash.seams import Seam
from tests.agent.crash.harness import MakeJob, at_once, broken_laws, find, finished, killed, successor, traced
from tests.agent.crash.services import RECOVERIES

TABLE = Path(__file__).parent.with_name("crash_table.json")

INPUTS = {name: f"use {name}" for name in RECOVERIES}

POSTGRES_ROWS = 8
"""Rows that are tried on PostgreSQL in the default run; `make soak` tries all of them."""

EAGER_SHARE = 4
"""One in so many killed processes is replaced at once in the default run, while the dead still hold their leases."""

soak = pytest.mark.skipif("HOLDFAST_SOAK" not in os.environ, reason="long; `make soak` runs it")


class Row:
    """A row of the table."""

    def __init__(self, seam: str, number: int, rulings: dict[str, Any]) -> None:
        self.seam = seam
        self.number = number
        """How often the seam was reached until then."""
        self.rulings = rulings

    @property
    def name(self) -> str:
        return "-".join((*self.seam.split(), str(self.number)))

    def effects(self, recovery: str) -> int:
        count: int = self.rulings[recovery]["effects"]
        return count

    def run(self, make: MakeJob, *, patient: bool, beside: str | None = None) -> list[str]:
        """Kill a process there, let another one go on, and compare.

        With `beside`, it is killed at that seam, which is reached while the sessions stay at this one.
        """
        run = "-".join((self.name, "patient" if patient else "eager", *(beside or "").split()))
        deadly = [Seam(session, self.seam, self.number) for session in INPUTS]
        if beside is not None:
            deadly += [Seam(session, beside, 1) for session in INPUTS]
        first = replace(make(run, INPUTS), deadly=deadly)
        killed(first)
        finished(successor(first, patient=patient, retries=True))
        broken = []
        for recovery, found in find(first).items():
            broken += [f"{run}, {recovery}: {sentence}" for sentence in broken_laws(found, [recovery])]
            came_to = {"model": found.model_calls, recovery: found.executions(), "end": found.end}
            ruled = {key: self.rulings[key] for key in came_to}
            if came_to != ruled:
                where = self.rulings["what"]
                broken.append(f"{run} ({where}), {recovery}: it came to {came_to}, and the table says {ruled}")
        return broken


def table() -> list[Row]:
    counts: Counter[str] = Counter()
    rows = []
    data = json.loads(TABLE.read_text())
    for row in data["rows"]:
        counts[row["seam"]] += 1
        rows.append(Row(row["seam"], counts[row["seam"]], {**row, "end": data["end"]}))
    return rows


def run_rows(rows: Sequence[tuple[Row, bool]], make: MakeJob) -> list[str]:
    """Run rows, each patiently or not; gives what went wrong."""
    return [sentence for broken in at_once(lambda row: row[0].run(make, patient=row[1]), rows) for sentence in broken]


# --- the table ------------------------------------------------------------------------------------------


def test_the_table_has_every_seam_of_a_turn_in_its_order(make_job: MakeJob) -> None:
    job = make_job("traced", INPUTS)
    finished(job)
    for session, seams in traced(job).items():
        assert [(seam.name, seam.number) for seam in seams] == [(row.seam, row.number) for row in table()], session
    for recovery, found in find(job).items():
        assert list(broken_laws(found, [recovery])) == []
        assert (found.model_calls, found.executions()) == ([1, 1], {"calls": 1, "effects": 1, "told": "done"})


def test_no_row_has_more_executions_than_lash_has_there() -> None:
    rows = [row for row in table() if row.rulings["lash"] is not None]
    assert len(rows) == 15
    for row in rows:
        for recovery in RECOVERIES:
            assert row.effects(recovery) <= row.rulings["lash"]["executions"], (row.name, recovery)


def test_an_effect_whose_outcome_was_lost_is_not_repeated_where_it_can_be_recognised() -> None:
    window = [row for row in table() if row.rulings["lash"] is not None and row.rulings["lash"]["executions"] == 2]
    assert [row.seam for row in window] == ["tool done", "after effect", "before feed"]
    for row in window:
        assert {name: row.effects(name) for name in RECOVERIES} == {
            "never": 1,
            "safe": 2,
            "idempotent": 1,
            "confirm": 1,
        }
        assert row.rulings["never"]["told"] == "unknown_outcome"


def test_only_a_tool_that_is_never_run_again_may_come_to_nothing() -> None:
    for row in table():
        for recovery in RECOVERIES:
            is_unknown = row.rulings[recovery]["told"] == "unknown_outcome"
            assert row.effects(recovery) >= 1 or (recovery == "never" and is_unknown), (row.name, recovery)
            assert recovery == "never" or not is_unknown, (row.name, recovery)


# --- the rows -------------------------------------------------------------------------------------------


def test_a_turn_killed_anywhere_on_sqlite_comes_to_what_the_table_says(on_sqlite: MakeJob) -> None:
    broken = run_rows([(row, number % EAGER_SHARE != 0) for number, row in enumerate(table())], on_sqlite)
    assert not broken, "\n".join(broken)


def test_a_turn_killed_somewhere_on_postgresql_comes_to_what_the_table_says(on_postgres: MakeJob) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1_000_000))
    chance = random.Random(seed)
    rows = [(row, chance.randrange(EAGER_SHARE) != 0) for row in chance.sample(table(), POSTGRES_ROWS)]
    broken = run_rows(rows, on_postgres)
    assert not broken, f"HOLDFAST_SEED={seed}\n" + "\n".join(broken)


def test_a_turn_whose_owner_is_killed_while_it_holds_on_to_it_comes_to_the_same(make_job: MakeJob) -> None:
    rulings = {row.seam: row for row in table() if row.seam.startswith("tool ")}
    runs = [(rulings[held], renewal) for held in rulings for renewal in ("before renew", "after renew")]
    broken = at_once(lambda run: run[0].run(make_job, patient=True, beside=run[1]), runs)
    assert not any(broken), "\n".join(sentence for each in broken for sentence in each)


@soak
@pytest.mark.soak
def test_a_turn_killed_anywhere_comes_to_what_the_table_says_however_soon_it_is_replaced(make_job: MakeJob) -> None:
    broken = run_rows([(row, patient) for row in table() for patient in (True, False)], make_job)
    assert not broken, "\n".join(broken)
