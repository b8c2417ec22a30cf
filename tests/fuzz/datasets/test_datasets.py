"""Files of datasets, changed: they are read whole, or refused with the place that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.strategies as st

from holdfast.strategies.evaluation.data.dataset import Dataset
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_bytes, changed_document

ROWS = [
    {"id": "one", "input": "1 + 1", "expected": ["2"], "tags": ["sum"], "weight": 2.0},
    {"input": [{"role": "user", "content": "hello"}], "choices": ["a", "b"], "expected": "a", "context": {"n": 1}},
    {"input": "x", "target": "y", "metadata": {"source": "book"}},
    {"name": "case", "inputs": {"task": "t"}, "expected_output": {"a": 1}, "metadata": {"k": "v"}},
    {"question": "q", "__expected": "contains: Paris", "__description": "d", "__metadata:k": "v"},
]
DOCUMENTS = [
    ROWS,
    {"cases": ROWS[3:4], "evaluators": ["EqualsExpected", {"Contains": "x"}, {"LLMJudge": {"rubric": "r"}}]},
]

LINES = b"\n".join(json.dumps(row).encode() for row in ROWS)
TABLE = b'id,input,expected,tags,weight\none,"1 + 1",2,a;b,1.5\ntwo,"[1, 2]",{"a": 1},c,\n'
YAML = b"""cases:
  - name: one
    inputs: {task: t}
    expected_output: 3
  - name: two
    inputs: x
evaluators:
  - Equals: {value: 3}
"""

WORDS = [
    b"2026-13-45",
    b"2026-01-01T00:00:00Z",
    b"!!python/object:os.system x",
    b"&a [*a]",
    b"? [1, 2]\n",
    b"0x" + b"f" * 5_000,
    b"9" * 5_000,
    b"[" * 5_000,
    b"{" * 500,
    b"NaN",
    b"\xff\xfe",
    b"\x00",
    b'"',
    b"- 1: 2\n",
    b"!!binary x",
    b"!!set {a}",
]


@st.composite
def files(draw: Draw) -> tuple[str, bytes]:
    """A file that was changed: the ending of its name, and what is in it."""
    ending = draw(st.sampled_from([".jsonl", ".json", ".yaml", ".csv", ".tsv"]))
    match ending:
        case ".json":
            return ending, draw(changed_document(DOCUMENTS))
        case ".yaml":
            return ending, draw(changed_bytes([YAML, json.dumps(DOCUMENTS).encode()], words=WORDS))
        case ".jsonl":
            return ending, draw(changed_bytes([LINES], words=WORDS))
        case _:
            return ending, draw(changed_bytes([TABLE, LINES], words=WORDS))


KNOWN = [
    (".yaml", b"- input: 2026-13-45\n"),
    (".yaml", b"- input: 2026-01-01\n"),
    (".yaml", b"- 1: 2\n  input: x\n"),
    (".yaml", b"- input: x\n  target: !!set {a}\n"),
    (".yaml", b"- name: n\n  inputs: x\n  expected_output: 2026-01-01\n"),
    (".yaml", b"- input: &a [*a]\n"),
    (".yaml", b"[" * 5_000),
    (".yaml", b"- input: " + b"9" * 5_000),
    (".json", b'[{"input": ' + b"9" * 5_000 + b"}]"),
    (".csv", b"input\n" + b"[" * 100_000 + b"\n"),
    (".csv", b"weight,input\n[NaN],x\n"),
    (".jsonl", b'{"input": "\\ud800"}'),
]
"""Inputs that programs seldom meet."""


def test_changed_datasets_are_read_or_refused(fuzzer: Fuzzer, tmp_path: Path) -> None:
    def check(changed: tuple[str, bytes]) -> None:
        ending, content = changed
        path = tmp_path / f"data{ending}"
        path.write_bytes(content)
        try:
            dataset = Dataset.load(path)
            for case in dataset:
                case.task.encode()
            assert dataset.digest
        except Exception as error:
            assert_is_declared(error)

    fuzzer.run(check, files(), examples=75, known=KNOWN)
