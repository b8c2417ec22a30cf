"""The diagram of a strategy: which questions are one box, and which pauses are a loop."""

from __future__ import annotations

from holdfast.core.queries import HumanQuery, LlmQuery
from holdfast.core.records import Program
from holdfast.strategies.diagram import DiagramLoop, DiagramPause, diagram
from holdfast.strategies.dry_run import DryRun, DryRunPause, DryRunQuery
from tests.tables import each_row


def run_of(*pauses: str) -> DryRun:
    """A run whose pauses ask questions with these roles; those of one pause with a space between them."""
    asked = [
        [DryRunQuery(LlmQuery(f"{role}?", options={"role": role}), "a", "default") for role in p.split()]
        for p in pauses
    ]
    return run_with(*asked)


def run_with(*pauses: list[DryRunQuery]) -> DryRun:
    numbered = [DryRunPause(number, asked) for number, asked in enumerate(pauses, 1)]
    return DryRun(program=Program(kind="native", name="x"), ctx=None, assumed={}, pauses=numbered)


def drawn(run: DryRun) -> list[object]:
    """The diagram in short: the labels of a pause, or a loop as (times, pauses)."""

    def labels(step: DiagramPause) -> str:
        return " ".join(f"{box.label}*{box.times}" if box.times > 1 else box.label for box in step.boxes)

    return [(p.times, [labels(s) for s in p.steps]) if isinstance(p, DiagramLoop) else labels(p) for p in diagram(run)]


@each_row(
    ("pauses", "expected"),
    [
        ([], []),
        (["a"], ["a"]),
        (["a", "b", "c"], ["a", "b", "c"]),
        (["a", "a", "a"], [(3, ["a"])]),
        (["a", "b", "a", "b", "c"], [(2, ["a", "b"]), "c"]),
        (["d", "a", "b", "a", "b", "a", "b"], ["d", (3, ["a", "b"])]),
        (["a", "b", "a"], ["a", "b", "a"]),
        (["a a", "a"], ["a*2", "a"]),
        (["a a", "a a"], [(2, ["a*2"])]),
        (["a b a", "c"], ["a*2 b", "c"]),
        (["a", "a", "b", "a", "a", "b"], [(2, ["a", "a", "b"])]),
    ],
)
def test_pauses_that_come_again_are_a_loop_and_like_questions_one_box(
    pauses: list[str], expected: list[object]
) -> None:
    assert drawn(run_of(*pauses)) == expected


def test_questions_without_a_role_are_told_apart_by_how_they_begin() -> None:
    first, second = (DryRunQuery(LlmQuery(prompt), "a", "default") for prompt in ("Write it.", "Judge it."))
    assert drawn(run_with([first], [second])) == ["llm", "llm"]
    assert drawn(run_with([first], [first])) == [(2, ["llm"])]
    assert drawn(run_with([first, second, first])) == ["llm*2 llm"]


def test_a_person_and_a_model_are_not_the_same_box() -> None:
    model, person = DryRunQuery(LlmQuery("Which?"), "a", "default"), DryRunQuery(HumanQuery("Which?"), "b", "default")
    assert drawn(run_with([model, person])) == ["llm human"]


def test_a_box_says_whether_all_of_its_questions_are_the_same() -> None:
    def asked(prompt: str, system: str | None = None) -> DryRunQuery:
        return DryRunQuery(LlmQuery(prompt, system=system, options={"role": "r"}), "a", "default")

    def is_same(*questions: DryRunQuery) -> bool:
        (step,) = diagram(run_with(list(questions)))
        assert isinstance(step, DiagramPause)
        return step.boxes[0].is_same

    assert is_same(asked("a"), asked("a"))
    assert not is_same(asked("a"), asked("b"))
    assert not is_same(asked("a", "You are one."), asked("a", "You are another."))
