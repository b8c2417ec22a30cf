"""Bundled strategies used by other strategies, in Python and in Lua: the parent's host answers the children, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.queries import Failure
from holdfast.programs.sandbox.library import BUNDLED
from holdfast.testing import Rehearsal, rehearse
from tests.strategies.library.rehearsals import TASK, by_role, meta_of, roles, scripted
from tests.tables import each_row

PIPE = {
    "pipe.py": 'def run(ctx):\n    return pipe(["step_back", "cot"], ctx)\n',
    "pipe.lua": 'return alc.pipe({"step_back", "cot"}, ctx)\n',
}
FORK = {
    "fork.py": 'def run(ctx):\n    ctx["came"] = fork(["cot", "plan_and_solve"], ctx)\n    return ctx\n',
    "fork.lua": 'ctx.came = alc.fork({"cot", "plan_and_solve"}, ctx)\nreturn ctx\n',
}
LIBRARY = sorted(path.stem for path in BUNDLED.glob("*.py"))


def asked(run: Rehearsal) -> list[tuple[int, str, str]]:
    """Each question: its pause, its id, its role."""
    return [(call.pause, call.query.id, role) for call, role in zip(run.calls, roles(run), strict=True)]


def perform(tmp_path: Path, file: str, code: str, ctx: dict[str, Any], answers: Any) -> Rehearsal:
    path = tmp_path / file
    path.write_text(code)
    return rehearse(str(path), ctx, answers)


@pytest.mark.parametrize("file", PIPE)
def test_a_pipe_asks_the_questions_of_one_strategy_after_the_other(tmp_path: Path, file: str) -> None:
    said = by_role(
        abstract="How are groups counted?",
        principles="Multiply.",
        answer=["3 * 4, so twelve.", "12"],
        reason="It says twelve.",
    )
    run = perform(tmp_path, file, PIPE[file], {"task": TASK}, said)
    assert asked(run) == [
        (1, "q-0.q-0", "abstract"),
        (2, "q-0.q-1", "principles"),
        (3, "q-0.q-2", "answer"),
        (4, "q-1.q-0", "reason"),
        (5, "q-1.q-1", "answer"),
    ]
    assert all(f":\n{TASK}\n" in prompt for prompt in run.prompts[:3])
    assert all(prompt.startswith("Task:\n3 * 4, so twelve.\n") for prompt in run.prompts[3:])
    assert run.result == {
        "task": "3 * 4, so twelve.",
        "step_back_question": "How are groups counted?",
        "principles": "Multiply.",
        "reasoning": "It says twelve.",
        "result": "12",
        "pipe_history": [
            {"strategy": "step_back", "result": "3 * 4, so twelve."},
            {"strategy": "cot", "result": "12"},
        ],
    }


@pytest.mark.parametrize("file", FORK)
def test_a_fork_asks_the_questions_of_all_strategies_together(tmp_path: Path, file: str) -> None:
    said = by_role(reason="3 * 4", plan="1. Multiply.", solve="3 * 4 = 12", answer=["twelve", "12"])
    run = perform(tmp_path, file, FORK[file], {"task": TASK}, said)
    assert asked(run) == [
        (1, "q-0.q-0", "reason"),
        (1, "q-1.q-0", "plan"),
        (2, "q-0.q-1", "answer"),
        (2, "q-1.q-1", "solve"),
        (3, "q-1.q-2", "answer"),
    ]
    assert run.result["came"] == [
        {"strategy": "cot", "ok": True, "result": {"task": TASK, "reasoning": "3 * 4", "result": "twelve"}},
        {
            "strategy": "plan_and_solve",
            "ok": True,
            "result": {"task": TASK, "plan": "1. Multiply.", "solution": "3 * 4 = 12", "result": "12"},
        },
    ]


@pytest.mark.parametrize("file", FORK)
def test_a_strategy_of_a_fork_that_fails_does_not_lose_the_others(tmp_path: Path, file: str) -> None:
    said = by_role(reason=Failure("no model"), plan="1. Multiply.", solve="3 * 4 = 12", answer="12")
    run = perform(tmp_path, file, FORK[file], {"task": TASK}, said)
    failed, came = run.result["came"]
    assert (failed["strategy"], failed["ok"], came["ok"], came["result"]["result"]) == ("cot", False, True, "12")
    assert "RuntimeError: no model (cot.py:" in failed["error"]


@pytest.mark.parametrize("file", PIPE)
def test_a_strategy_of_a_pipe_that_fails_ends_it_with_its_reason(tmp_path: Path, file: str) -> None:
    said = by_role(abstract="Q?", principles="P", answer="12", reason=Failure("no model"))
    run = perform(tmp_path, file, PIPE[file], {"task": TASK}, said)
    assert len(run.calls) == 4
    assert run.error is not None
    assert "RuntimeError: no model (cot.py:" in run.error


def test_parallel_questions_of_a_child_stay_one_pause(tmp_path: Path) -> None:
    code = 'def run(ctx):\n    return pipe(["best_of_n", "fact_score"], ctx)\n'
    ctx = {"task": TASK, "n": 3}
    said = by_role(
        candidate=["7", "12", "13"], verify=["Score: 1", "Score: 99", "Score: 2"], split="- a\n- b", judge="Yes"
    )
    run = perform(tmp_path, "pipe.py", code, ctx, said)
    assert [(pause, role) for pause, _, role in asked(run)] == [
        *[(1, "candidate")] * 3,
        *[(2, "verify")] * 3,
        (3, "split"),
        *[(4, "judge")] * 2,
    ]
    assert run.prompts[6].startswith("Text:\n12\n")
    assert run.result["result"] == {"score": 1, "supported": 2, "total": 2}


def test_a_result_that_is_no_text_is_the_next_task_as_json(tmp_path: Path) -> None:
    code = 'def run(ctx):\n    return pipe(["fact_score", "cot"], ctx)\n'
    said = by_role(split="- a\n- b", judge=["Yes", "No"], reason="Half.", answer="0.5")
    run = perform(tmp_path, "pipe.py", code, {"task": "A and b."}, said)
    task = run.prompts[3].removeprefix("Task:\n").partition("\n")[0]
    assert json.loads(task) == {"score": 0.5, "supported": 1, "total": 2}
    assert run.result["result"] == "0.5"


def test_children_have_children_of_their_own(tmp_path: Path) -> None:
    code = 'def run(ctx):\n    return pipe(["calibrate", "cot"], ctx)\n'
    ctx = {"task": TASK, "strategy": "step_back"}
    said = by_role(
        answer=["Answer: 7\nConfidence: 10", "So 12.", "12"], abstract="Q?", principles="P", reason="It says 12."
    )
    run = perform(tmp_path, "pipe.py", code, ctx, said)
    assert asked(run) == [
        (1, "q-0.q-0", "answer"),
        (2, "q-0.q-1.q-0", "abstract"),
        (3, "q-0.q-1.q-1", "principles"),
        (4, "q-0.q-1.q-2", "answer"),
        (5, "q-1.q-0", "reason"),
        (6, "q-1.q-1", "answer"),
    ]
    assert [each["result"] for each in run.result["pipe_history"]] == ["So 12.", "12"]


@each_row("name", LIBRARY)
def test_what_a_strategy_leaves_in_ctx_is_no_parameter_of_another(name: str) -> None:
    ctx = {"task": TASK, "text": "The harbour was rebuilt. " * 1000}
    taken = {parameter for other in LIBRARY for parameter in meta_of(other).parameters} - set(ctx)
    run = rehearse(name, ctx, scripted(name))
    assert run.error is None
    assert set(run.result) & taken == set()
