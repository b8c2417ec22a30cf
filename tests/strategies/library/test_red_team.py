"""The bundled strategy red_team."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import Failure
from holdfast.testing import rehearse
from tests.strategies.library.questions import figures
from tests.strategies.library.rehearsals import TASK, by_role, meta_of, most_calls, pauses, prompts_of, roles, scripted
from tests.tables import each_row

FAILED = Failure("overloaded")
BAD = "Severity: 8\nIt is wrong."
FINE = "Severity: 0\nNothing."


def test_a_draft_is_written_attacked_from_all_angles_at_once_and_hardened() -> None:
    run = rehearse("red_team", {"task": TASK}, scripted("red_team"))
    assert roles(run) == ["draft"] + ["attack"] * 4 + ["revise"]
    assert pauses(run) == [1, 2, 2, 2, 2, 3]
    assert len(run.calls) == most_calls("red_team", {"task": TASK}) == 6
    angles = meta_of("red_team").parameters["angles"].default
    assert [(each["round"], each["angle"], each["severity"]) for each in run.result["attacks"]] == [
        (1, angle, severity) for angle, severity in zip(angles, [0, 7, 1, 1], strict=True)
    ]
    assert run.result["first_draft"] == "There are 12."
    assert run.result["result"] == "There are 12, if every box is full."
    assert run.result["rounds_used"] == 1


def test_a_given_draft_is_not_written_again_and_rounds_cost_a_call_an_angle_and_one() -> None:
    ctx = {"task": TASK, "target": "Seven.", "rounds": 3, "angles": ["facts", "tone"]}
    run = rehearse("red_team", ctx, by_role(attack=BAD, revise=["Eight.", "Nine.", "Twelve."]))
    assert len(run.calls) == most_calls("red_team", ctx) == 9
    assert pauses(run) == [1, 1, 2, 3, 3, 4, 5, 5, 6]
    assert ["Draft:\nSeven.\n" in run.prompts[0], "Draft:\nEight.\n" in run.prompts[3]] == [True, True]
    assert (run.result["first_draft"], run.result["result"], run.result["rounds_used"]) == ("Seven.", "Twelve.", 3)


def test_an_attack_sees_the_task_the_draft_and_one_angle() -> None:
    ctx = {"task": TASK, "target": "Seven.", "angles": ["facts", "tone"]}
    run = rehearse("red_team", ctx, by_role(attack=FINE))
    assert all(prompt.startswith(f"Task:\n{TASK}\n\nDraft:\nSeven.\n\n") for prompt in run.prompts)
    assert ["one angle only, facts." in run.prompts[0], "one angle only, tone." in run.prompts[1]] == [True, True]


def test_the_serious_attacks_are_repaired_the_worst_first() -> None:
    ctx = {"task": TASK, "target": "Seven.", "angles": ["a", "b", "c"], "floor": 4}
    said = ["Severity: 4\nA small flaw.", "Severity: 3\nA trifle.", "**Severity:** 9.5\nA grave flaw."]
    run = rehearse("red_team", ctx, by_role(attack=said, revise="Twelve."))
    (asked,) = prompts_of(run, "revise")
    assert "[c; severity 9.5]\nA grave flaw.\n\n[a; severity 4]\nA small flaw.\n" in asked
    assert "trifle" not in asked
    assert asked.startswith(f"Task:\n{TASK}\n\nDraft:\nSeven.\n\n")


def test_it_stops_when_no_attack_is_serious() -> None:
    ctx = {"task": TASK, "target": "Seven.", "rounds": 5, "angles": ["a", "b"]}
    run = rehearse("red_team", ctx, by_role(attack=[BAD, FINE, FINE, "Severity: 2\nShort."], revise="Twelve."))
    assert roles(run) == ["attack", "attack", "revise", "attack", "attack"]
    assert (run.result["rounds_used"], run.result["result"]) == (2, "Twelve.")


@each_row(
    ("said", "severity", "text"),
    [
        ("Severity: 6/10\nIt is wrong.", 6, "It is wrong."),
        ("## Severity (0-10): 4\nIt is wrong.", 4, "It is wrong."),
        ("Severity: 70\nIt is wrong.", 10, "It is wrong."),
        ("Severity: high\nIt is wrong.", 5, "It is wrong."),
        ("It is wrong in 3 places.", 5, "It is wrong in 3 places."),
        ("I would rather not attack this.", 5, "I would rather not attack this."),
        ("Severity: 8", 8, "Severity: 8"),
    ],
)
def test_severities_are_read_however_they_are_written(said: str, severity: float, text: str) -> None:
    ctx = {"task": TASK, "target": "Seven.", "angles": ["facts"]}
    run = rehearse("red_team", ctx, by_role(attack=said, revise="Twelve."))
    assert run.result["attacks"] == [{"round": 1, "angle": "facts", "severity": severity, "text": text}]
    assert run.result["result"] == "Twelve."


def test_attacks_that_fail_or_say_nothing_are_left_out() -> None:
    ctx = {"task": TASK, "target": "Seven.", "angles": ["a", "b", "c", "d"]}
    said = [FAILED, " ", BAD, Failure("late", "timeout")]
    run = rehearse("red_team", ctx, by_role(attack=said, revise="Twelve."))
    assert [each["angle"] for each in run.result["attacks"]] == ["c"]
    assert run.result["result"] == "Twelve."
    assert run.logs == ["llm_each: item 1 failed: overloaded", "llm_each: item 4 failed: late"]


def test_attacks_that_all_say_nothing_leave_the_draft() -> None:
    run = rehearse("red_team", {"task": TASK, "target": "Seven."}, by_role(attack=""))
    assert len(run.calls) == 4
    assert (run.result["attacks"], run.result["result"]) == ([], "Seven.")


@each_row("nothing", ["", "\n", FAILED, Failure("late", "timeout")])
def test_a_rewrite_that_comes_to_nothing_leaves_the_draft(nothing: str | Failure) -> None:
    run = rehearse("red_team", {"task": TASK, "target": "Seven."}, by_role(attack=BAD, revise=nothing))
    assert len(run.result["attacks"]) == 4
    assert run.result["result"] == "Seven."


def test_if_all_attacks_fail_that_is_the_end() -> None:
    run = rehearse("red_team", {"task": TASK, "target": "Seven."}, by_role(attack=FAILED))
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (red_team.py:")


def test_a_draft_that_fails_ends_it() -> None:
    run = rehearse("red_team", {"task": TASK}, by_role(draft=FAILED))
    assert len(run.calls) == 1
    assert run.error is not None
    assert run.error.startswith("RuntimeError: overloaded (red_team.py:")


async def test_the_rounds_and_the_worst_severity_are_recorded() -> None:
    ctx = {"task": TASK, "target": "Seven.", "angles": ["a"], "rounds": 3}
    said = by_role(attack=["Severity: 9\nWrong.", FINE], revise="Twelve.")
    assert await figures("red_team", ctx, said) == {"rounds": 2, "worst_severity": 9}


@each_row(
    ("given", "told"),
    [
        ({"task": None}, "red_team: ctx has no 'task'"),
        ({"angles": []}, "red_team: 'angles' must name at least one"),
        ({"angles": ["", " "]}, "red_team: 'angles' must name at least one"),
        ({"angles": "facts"}, "'angles' must be list"),
        ({"rounds": 6}, "'rounds' must be at least 1 and at most 5, got 6"),
        ({"floor": 0}, "'floor' must be at least 1 and at most 10, got 0"),
    ],
)
def test_a_wrong_parameter_is_named(given: dict[str, Any], told: str) -> None:
    run = rehearse("red_team", {"task": TASK, **given})
    assert run.calls == []
    assert run.error is not None
    assert told in run.error
