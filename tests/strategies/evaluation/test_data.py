"""Datasets: every format becomes the same cases, and a bad row is told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.strategies.evaluation.data.case import Case
from holdfast.strategies.evaluation.data.dataset import Dataset
from holdfast.strategies.evaluation.errors import DatasetError
from holdfast.strategies.evaluation.plan import Plan


def load(where: Path, name: str, text: str, **options: Any) -> Dataset:
    (where / name).write_text(text, encoding="utf-8")
    return Dataset.load(where / name, **options)


def only(where: Path, name: str, text: str, **options: Any) -> Case:
    (case,) = load(where, name, text, **options).cases
    return case


def test_our_own_rows(tmp_path: Path) -> None:
    row = {
        "id": "a/b c",
        "input": "What is 2 + 2?",
        "expected": [4, "four"],
        "tags": ["sums"],
        "cluster": "p1",
        "context": {"tolerance": 0.1},
        "rubric": "Be exact",
        "weight": 2,
    }
    case = only(tmp_path, "q.jsonl", json.dumps(row) + "\n\n")
    assert case == Case(
        id="a/b c",
        input="What is 2 + 2?",
        expected=["4", "four"],
        tags=["sums"],
        cluster="p1",
        context={"tolerance": 0.1},
        rubric="Be exact",
        weight=2.0,
    )


def test_csv_and_tsv(tmp_path: Path) -> None:
    case = only(tmp_path, "q.csv", 'id,input,expected,tags,choices\n1,"Say ""hi"", please",hi,a; b,"[""x"",""y""]"\n')
    assert (case.id, case.input, case.tags, case.choices) == ("1", 'Say "hi", please', ["a", "b"], ["x", "y"])
    assert only(tmp_path, "q.tsv", "input\texpected\na, b\tc\n").input == "a, b"


def test_rows_of_promptfoo(tmp_path: Path) -> None:
    case = only(tmp_path, "q.csv", "question,__expected,__metadata:level\nCapital of Peru?,contains: Lima,easy\n")
    assert (case.input, case.expected, case.context) == ("Capital of Peru?", ["Lima"], {"level": "easy"})


def test_samples_of_inspect(tmp_path: Path) -> None:
    sample = {"input": "Which?", "target": "B", "choices": ["red", "blue"], "id": 7, "metadata": {"unit": "u3"}}
    case = only(tmp_path, "q.json", json.dumps([sample]), cluster="unit")
    assert (case.id, case.expected, case.cluster) == ("7", ["B"], "u3")
    frozen, _ = Plan(strategies=["model"], models=["a:b"], data=tmp_path / "q.json").freeze()
    assert frozen.graders[0].grader == "choice"
    assert case.task == "Which?\n\nA) red\nB) blue\n\nAnswer with the letter of the right choice."


def test_cases_of_pydantic_evals(tmp_path: Path) -> None:
    text = """
cases:
- name: simple
  inputs: Capital of France?
  expected_output: Paris
  metadata: {difficulty: easy}
evaluators:
- EqualsExpected
- Contains: Par
- MaxDuration: {seconds: 2}
- LLMJudge: {rubric: "Is it polite?"}
"""
    case = only(tmp_path, "q.yaml", text)
    frozen, _ = Plan(strategies=["model"], models=["a:b"], data=tmp_path / "q.yaml").freeze()
    assert [spec.grader for spec in frozen.graders] == ["exact_match", "has", "max_duration", "llm_yes_no"]
    assert (case.id, case.input, case.expected) == ("simple", "Capital of France?", ["Paris"])
    assert case.context == {"difficulty": "easy"}


def test_scenarios_in_lua(tmp_path: Path) -> None:
    file = tmp_path / "sums.lua"
    file.write_text(
        """local cases = {}
        for i = 1, 3 do cases[i] = { input = i .. "+1?", expected = i + 1, name = "sum-" .. i, tags = { "sums" } } end
        return { cases = cases, { "contains", weight = 0.7 }, { "length", "pass_50", weight = 0.3 } }"""
    )
    data = Dataset.load(file)
    assert [(case.id, case.input, case.expected) for case in data] == [
        (f"sum-{number}", f"{number}+1?", [str(number + 1)]) for number in (1, 2, 3)
    ]
    assert data.graders == [
        {"grader": "contains", "weight": 0.7},
        {"grader": "length", "scorer": "pass_50", "weight": 0.3},
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("return 5", "returns a number"),
        ("return { cases = {{input = 'x'}}, graders = { function() end } }", "grader #1 is code"),
        ("return { cases = {{input = 'x'}}, graders = { 'regex' } }", "pattern of Lua"),
        ("return { cases = {{input = 'x'}}, provider = function() end }", "provider of its own"),
        ("return { cases = {{input = alc.llm('a case?')}} }", "it must ask nothing"),
        ("return {", "expected"),
        ("return {}", "it has no cases"),
    ],
)
def test_a_scenario_that_is_no_data_is_refused_with_what_to_do(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "s.lua").write_text(text)
    with pytest.raises(DatasetError, match=why):
        Dataset.load(tmp_path / "s.lua")


def test_other_names_are_mapped(tmp_path: Path) -> None:
    row = {"question": "q?", "answer": "a", "passage": 12, "source": "wiki"}
    case = only(
        tmp_path, "q.jsonl", json.dumps(row), fields={"input": "question", "expected": "answer"}, cluster="passage"
    )
    assert (case.input, case.expected, case.cluster) == ("q?", ["a"], "12")
    assert case.context["source"] == "wiki"


def test_a_row_without_an_id_is_named_by_its_input_and_not_by_its_place(tmp_path: Path) -> None:
    rows = ['{"input": "one"}', '{"input": "two"}']
    forward, back = (load(tmp_path, "q.jsonl", "\n".join(order)).cases for order in (rows, rows[::-1]))
    assert [case.id for case in forward] == [case.id for case in back][::-1]


def test_an_object_is_the_ctx_of_a_strategy() -> None:
    case = Dataset([{"input": {"task": "Sum up", "text": "long"}}]).cases[0]
    assert case.ctx({"style": "brief"}) == {"task": "Sum up", "text": "long", "style": "brief"}
    messages = Dataset(
        [{"input": [{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}]}]
    ).cases[0]
    assert messages.task == "system: Be kind\n\nHi"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("q.jsonl", '{"input": "a"}\n{"input": ', "line 2: it is not JSON"),
        ("q.jsonl", '{"input": "a"}\n{"input": "a"}', "row 2: its id"),
        ("q.jsonl", '{"input": "a", "answer": 1}', "unknown fields answer"),
        ("q.jsonl", '{"expected": "a"}', "it has no input"),
        ("q.jsonl", '{"input": "a", "weight": NaN}', "NaN is not a JSON number"),
        ("q.jsonl", '{"input": "a", "expected": {"x": 1}}', "expected must be a text"),
        ("q.jsonl", '{"input": "a", "weight": -1}', "weight must be more than 0"),
        ("q.jsonl", "[1]", "a row is an object"),
        ("q.jsonl", "", "it has no cases"),
        ("q.csv", "input\na,b\n", "more cells"),
        ("q.json", '"text"', "expected a list of rows"),
        ("q.yaml", "a: [", "it is not YAML"),
        ("q.json", '{"cases": [{"inputs": "a"}], "evaluators": ["Magic"]}', "'Magic' is not known"),
        ("q.parquet", "", "write it as JSONL first"),
        ("q.txt", "", "unknown extension"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, name: str, text: str, why: str) -> None:
    with pytest.raises(DatasetError, match=why):
        load(tmp_path, name, text)


def test_a_row_that_is_too_large_is_refused() -> None:
    with pytest.raises(DatasetError, match="at most 1,048,576"):
        Dataset([{"input": "x" * 1_100_000}])


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    data = Dataset([{"input": f"{number}"} for number in range(100)])
    first, second = data.sample(10, 3), data.sample(10, 3)
    assert first.digest == second.digest
    assert len(first) == 10
    assert data.sample(10, 4).digest != first.digest
    assert [int(str(case.input)) for case in first] == sorted(int(str(case.input)) for case in first)
