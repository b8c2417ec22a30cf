"""Reports: the page and the exports of an evaluation, at the sizes that they must bear."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
import re
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.core.events import CompletedEvent
from holdfast.programs.kinds import get_language
from holdfast.store import open_store
from holdfast.store.errors import StoreUnavailableError
from holdfast.store.patience import patience
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.evaluation import Evaluation
from holdfast.strategies.evaluation.orders import Terms, terms_of
from holdfast.strategies.evaluation.plan import Plan
from holdfast.strategies.evaluation.report.agreement import agreement
from holdfast.strategies.evaluation.report.cards import write_cards
from holdfast.strategies.evaluation.report.drawings import pareto
from holdfast.strategies.evaluation.report.exports import as_csv, as_jsonl
from holdfast.strategies.evaluation.report.inspect_log import write_inspect_logs
from holdfast.strategies.evaluation.report.page import report_page
from holdfast.strategies.evaluation.report.report import EvaluationReport, make_report
from holdfast.strategies.evaluation.rows import TrialRows
from holdfast.strategies.evaluation.trials import GradeRow, TrialKey, TrialRow, parse_trial_id
from tests.strategies.evaluation.helpers import MODEL, bench, plan


def made_up(arms: int, cases: int, repeat: int) -> tuple[Terms, Dataset, TrialRows]:
    """An evaluation of this size, with rows that nobody has run."""
    words = "a question about one of many things which somebody wants to know the answer to, in full length"
    data = Dataset([{"id": f"case-{n}", "input": f"{words} {n}", "tags": [f"t{n % 3}"]} for n in range(cases)])
    models = [f"openai:model-{number}" for number in range(arms)]
    frozen, _ = Plan(strategies=["model"], models=models, data=data, graders=["contains"], repeat=repeat).freeze()
    terms, rows, generator = terms_of(frozen, [{"do": "run"}]), TrialRows("e-1"), random.Random(1)
    grader = frozen.graders[0].digest
    for arm in frozen.arms:
        for number in range(cases):
            for each in range(repeat):
                key = TrialKey(arm.name, number, each)
                rows.add_trial(key, TrialRow(number, 1, 1, "done", 1, 100, 20, 0.001, 1, 400))
                rows.add_grade(grader, key, GradeRow(number, 1, float(generator.random() < 0.6)))
    return terms, data, rows


def report_of(terms: Terms, data: Dataset, rows: TrialRows) -> EvaluationReport:
    return make_report("e-1", (terms, data.cases, {"state": "done"}), rows)


def test_a_report_of_27000_trials_is_small_and_quick() -> None:
    terms, data, rows = made_up(9, 1_000, 3)
    began = time.process_time()
    page = report_page([report_of(terms, data, rows)])
    assert time.process_time() - began < patience(3.0)
    assert len(page.encode()) < 1_000_000


def test_a_page_of_3000_trials_is_smaller() -> None:
    page = report_page([report_of(*made_up(1, 1_000, 3))])
    assert len(page.encode()) < 300_000


def test_a_page_needs_nothing_from_outside() -> None:
    terms, data, rows = made_up(2, 5, 2)
    page = report_page([report_of(terms, data, rows)])
    assert not re.search(r"(?:src|href)\s*=", page)
    assert "url(" not in page
    assert "import" not in page.split("<script>")[1]
    visible = re.sub(r"<script>.*</script>", "", page, flags=re.S)
    for needed in ("model@model-0", "case-1", "Score against cost", "row minus column"):
        assert needed in visible, "readable without scripts"


def test_texts_of_cases_cannot_break_the_page() -> None:
    row = {"id": "<img src=x onerror=alert(1)>", "input": "</script><script>alert(2)</script>", "tags": ["<b>"]}
    data = Dataset([row])
    frozen, _ = Plan(strategies=["model"], models=["a:b"], data=data, graders=["contains"]).freeze()
    terms, rows = terms_of(frozen, [{"do": "run"}]), TrialRows("e-1")
    key = TrialKey(frozen.arms[0].name, 0, 0)
    rows.add_trial(key, TrialRow(0, 1, 1, "error", error="<i>no</i>"))
    page = report_page([report_of(terms, data, rows)])
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert "<i>no</i>" not in page


def test_no_arm_beats_those_on_the_line() -> None:
    assert pareto([(1.0, 0.5), (2.0, 0.4), (3.0, 0.9), (1.0, 0.6), (4.0, 0.9)]) == [3, 2]


def test_people_and_graders_are_compared() -> None:
    report = report_of(*made_up(1, 50, 1))
    scores = [tries[0].score for tries in report.trials["model@model-0"]]
    labels = [{"case": f"case-{n}", "passed": "yes" if score == 1.0 else "no"} for n, score in enumerate(scores)]
    assert agreement(report, labels).kappa == 1.0
    found = agreement(report, [*labels, {"case": "elsewhere", "passed": "yes"}])
    assert (found.trials, found.unknown) == (50, 1)


def test_ids_of_trials_can_be_read_back() -> None:
    key = TrialKey("cot@gpt-4o.n=3", 17, 2)
    for attempt in (1, 2):
        assert parse_trial_id(key.session_id("e-1", attempt), "e-1") == (key, attempt)
    assert parse_trial_id("e-1.t-a-17-0.q-3", "e-1") is None
    assert parse_trial_id("e-2.t-a-17-0", "e-1") is None


async def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    terms, data, rows = made_up(2, 300, 2)
    async with bench(tmp_path) as here:
        store = here.runtime.mount.holdfast.store
        await rows.write(store)
        read = await TrialRows.load(store, "e-1")
        assert sorted(read.trials()) == sorted(rows.trials())
        assert report_of(terms, data, read).to_json() == report_of(terms, data, rows).to_json()
        key = (await store.list_state(rows.namespace, prefix="t:"))[0]
        await store.put_state(rows.namespace, key, "[[damaged")
        assert len(list((await TrialRows.load(store, "e-1")).trials())) < 1200, "damage is a loss, and no error"


async def test_rows_whose_writing_failed_are_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'rows.db'}") as store:
        rows = TrialRows("e-1")
        rows.add_trial(TrialKey("a", 1, 0), TrialRow(1, 1, 1, "done"))
        with monkeypatch.context() as broken:

            async def refuse(*_: object, **__: object) -> int:
                raise StoreUnavailableError("rows.db", "the disk is full")

            broken.setattr(store, "put_state", refuse)
            with pytest.raises(StoreUnavailableError):
                await rows.write(store)
        assert rows.unwritten > 0
        await rows.write(store)
        assert rows.unwritten == 0
        assert (await TrialRows.load(store, "e-1")).trial(TrialKey("a", 1, 0)) == TrialRow(1, 1, 1, "done")


async def test_two_who_write_rows_lose_none_of_each_other(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        store = here.runtime.mount.holdfast.store
        first, second = TrialRows("e-1"), TrialRows("e-1")
        first.add_trial(TrialKey("a", 0, 0), TrialRow(0, 1, 1, "error"))
        second.add_trial(TrialKey("a", 0, 0), TrialRow(0, 2, 2, "done"))
        second.add_trial(TrialKey("a", 1, 0), TrialRow(1, 1, 1, "done"))
        await second.write(store)
        await first.write(store)
        read = {key.case: row.attempt for key, row in (await TrialRows.load(store, "e-1")).trials()}
        assert read == {0: 2, 1: 1}


async def test_trials_are_exported_a_line_each(tmp_path: Path) -> None:
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan(4, repeat=2))
        lines = [json.loads(line) async for line in as_jsonl(ev)]
        assert len(lines) == 8
        assert lines[0]["session"] == "e-1.t-model@gpt-4o-0-0"
        assert [grade["score"] for grade in lines[0]["grades"].values()] == [1.0]
        table = list(csv.DictReader([line async for line in as_csv(ev)]))
        assert [row["score"] for row in table] == [str(line["score"]) for line in lines]


async def test_cells_of_a_table_are_no_formulas(tmp_path: Path) -> None:
    async with bench(tmp_path, lambda request: "=1+1") as here:
        ev = await here.evaluate(plan(1))
        (row,) = csv.DictReader([line async for line in as_csv(ev)])
        assert row["answer"] == "'=1+1"


async def test_cards_have_figures_trials_and_the_first_arm_as_their_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    async with bench(tmp_path) as here:
        ev = await here.evaluate(plan(4, strategies=[{"strategy": "model", "grid": {"max_tokens": [5, 9]}}]))
        hf = here.runtime.mount.holdfast
        first, second = await write_cards(ev, hf)
        read = "return { alc.card.get(ctx.id), alc.card.read_samples(ctx.id) }"
        event = await hf.start(get_language("lua").program(read, name="read", file="read.lua"), ctx={"id": second})
        assert isinstance(event, CompletedEvent)
        card, samples = cast(Any, event.result)
    assert (card["pkg"]["name"], card["model"]["id"], card["strategy_params"]) == ("model", MODEL, {"max_tokens": 9})
    assert (card["stats"]["mean_score"], card["stats"]["passed"], card["cost"]["llm_calls"]) == (0.5, 2, 4)
    assert card["metadata"]["holdfast_session"] == "e-1"
    assert (card["metadata"]["prior_card_id"], card["metadata"]["prior_relation"]) == (first, "baseline")
    assert [sample["score"] for sample in samples] == [1.0, 0.0, 1.0, 0.0]


async def logs_of(tmp_path: Path) -> tuple[list[Path], EvaluationReport]:
    async with bench(tmp_path) as here:
        ev: Evaluation = await here.evaluate(plan(6, repeat=2))
        return await write_inspect_logs(ev, tmp_path / "logs"), await ev.report()


async def test_a_log_of_inspect_has_the_parts_that_its_reader_needs(tmp_path: Path) -> None:
    (file,), _ = await logs_of(tmp_path)
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        header = json.loads(archive.read("header.json"))
    assert {"_journal/start.json", "_journal/summaries/1.json", "summaries.json", "header.json"} <= set(names)
    assert sum(name.startswith("samples/") for name in names) == 12
    assert header["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5


INSPECT = os.environ.get("HOLDFAST_INSPECT_PYTHON")
"""A Python that has inspect_ai, which is too large to be installed for one test."""

READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1])
figures = {"status": log.status, "samples": len(log.samples)}
figures["answers"] = [each.output.completion for each in log.samples]
figures["accuracy"] = log.results.scores[0].metrics["accuracy"].value
figures["summaries"] = len(read_eval_log_sample_summaries(sys.argv[1]))
print(json.dumps(figures))
"""


@pytest.mark.soak
@pytest.mark.skipif(INSPECT is None, reason="name a Python that has inspect_ai in HOLDFAST_INSPECT_PYTHON")
def test_inspect_reads_its_log(tmp_path: Path) -> None:
    (file,), report = asyncio.run(logs_of(tmp_path))
    read = subprocess.run([str(INSPECT), "-c", READ, str(file)], capture_output=True, text=True, check=False)
    assert read.returncode == 0, read.stderr
    figures = json.loads(read.stdout.splitlines()[-1])
    assert report.arms[0].score is not None
    assert (figures["status"], figures["samples"], figures["summaries"]) == ("success", 12, 12)
    assert figures["accuracy"] == report.arms[0].score.mean
    assert sorted(set(figures["answers"])) == ["0", "2", "4", "?"]
    dumped = subprocess.run(
        [str(INSPECT), "-m", "inspect_ai", "log", "dump", str(file)], capture_output=True, text=True, check=False
    )
    assert dumped.returncode == 0, dumped.stderr
