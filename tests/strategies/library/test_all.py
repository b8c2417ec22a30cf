"""What holds for every bundled strategy: what it says about itself is true, and it can be run and composed."""

from __future__ import annotations

import re
from typing import Any

from holdfast.core.queries import LlmQuery
from holdfast.programs.parameters import StrategyDescription, calls_of, filled, read_description
from holdfast.programs.sandbox.kind import PythonKind
from holdfast.programs.sandbox.library import StrategyFile, list_strategies
from holdfast.programs.sandbox.source import python_code
from holdfast.testing import Rehearsal, rehearse
from tests.tables import each_row

MOST_LINES = 160
CATEGORIES = {"reasoning", "sampling", "verification", "debate", "search", "ranking", "writing", "long-text"}
PAPER = re.compile(r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|doi\.org/10\.\d{4,}/\S+)")
LIBRARY = {
    *("analogical", "best_of_n", "calibrate", "chain_of_density", "chain_of_verification", "cot", "fact_score"),
    *("least_to_most", "map_reduce", "mixture_of_agents", "pairwise_rank", "panel", "plan_and_solve", "red_team"),
    *("rlm", "self_consistency", "self_refine", "skeleton_of_thought", "step_back", "tree_of_thoughts", "ucb"),
}
VALUES = {"pairwise_rank", "fact_score"}
"""Those whose result is a JSON value, for they rank or score; that of the others is a text."""

FEWER = {"fact_score", "rlm"}
"""Those whose script does not make them ask all they may by default."""

BUNDLED = [each for each in list_strategies() if each.origin == "bundled"]
every_strategy = each_row("strategy", BUNDLED, ids=[each.name for each in BUNDLED])


def described(strategy: StrategyFile) -> StrategyDescription:
    found = read_description(strategy.path.read_text())
    assert found is not None, f"{strategy.path} has no META"
    return found


def needed(strategy: StrategyFile) -> dict[str, Any]:
    """A ctx with what a strategy must be given, and no more."""
    parameters = described(strategy).meta.parameters
    assert {each.type for each in parameters.values() if each.required} == {"str"}
    return {name: "How many eggs are in 3 boxes of 4?" for name, each in parameters.items() if each.required}


def scripted(strategy: StrategyFile) -> Rehearsal:
    script = {line.when: line.answer for line in described(strategy).meta.script}
    return rehearse(strategy.name, needed(strategy), script)


def test_the_library_has_what_it_should_have() -> None:
    assert {each.name for each in BUNDLED} == LIBRARY


@every_strategy
def test_meta_says_what_it_is_and_what_it_gives(strategy: StrategyFile) -> None:
    meta = described(strategy).meta
    assert meta.name == strategy.name
    assert meta.category in CATEGORIES
    assert re.fullmatch(r"[A-Z][^\n]{10,98}\.", meta.description)
    assert meta.result


@every_strategy
def test_every_parameter_is_described_and_bounded(strategy: StrategyFile) -> None:
    meta = described(strategy).meta
    assert meta.parameters["task"].required
    for name, parameter in meta.parameters.items():
        assert re.fullmatch(r"[A-Z][^\n]{5,}", parameter.description), name
        if parameter.type in ("int", "float"):
            assert parameter.min is not None, name
            assert parameter.max is not None, name
    defaults = {name: each.default for name, each in meta.parameters.items() if each.default is not None}
    assert filled(meta, {**needed(strategy), **defaults}) == filled(meta, needed(strategy))


@every_strategy
def test_every_default_is_there_unless_the_parameter_is_required(strategy: StrategyFile) -> None:
    parameters = described(strategy).meta.parameters
    assert {name for name, each in parameters.items() if each.default is None} == set(needed(strategy))


@every_strategy
def test_it_names_the_paper_it_comes_from(strategy: StrategyFile) -> None:
    paper = described(strategy).meta.paper
    assert paper is not None
    assert PAPER.fullmatch(paper.url)
    assert 1990 <= paper.year <= 2026
    assert re.fullmatch(r"\w[\w'-]*( et al\.|( [\w'-]+)* and \w[\w' -]*)?", paper.authors)
    if arxiv := re.search(r"abs/(\d\d)", paper.url):
        assert 0 <= 2000 + int(arxiv[1]) - paper.year <= 1
    assert len(paper.title) > 10


@every_strategy
def test_its_documentation_says_when_to_use_it_and_what_it_costs(strategy: StrategyFile) -> None:
    doc = described(strategy).doc
    first, *rest = doc.split("\n")
    assert re.fullmatch(r".{20,}[.,]", first)
    assert re.search(r"\bUse it\b", "\n".join(rest))
    assert re.search(r"\bcosts\b[^.]*\bcalls?\b", doc, re.DOTALL)


@every_strategy
def test_it_is_short_enough_to_read(strategy: StrategyFile) -> None:
    assert len(strategy.path.read_text().splitlines()) <= MOST_LINES


async def test_the_checker_finds_nothing_in_any_of_them() -> None:
    kind = PythonKind()
    try:
        found = {each.name: await kind.checker.findings(each.path.read_text()) for each in BUNDLED}
    finally:
        kind.close()
    assert {name: findings for name, findings in found.items() if findings} == {}


@every_strategy
def test_a_rehearsal_with_its_script_makes_the_calls_it_says(strategy: StrategyFile) -> None:
    meta, run = described(strategy).meta, scripted(strategy)
    assert run.error is None
    most = calls_of(meta, filled(meta, needed(strategy)))
    assert most is not None
    assert 0 < len(run.calls) <= most
    assert (len(run.calls) < most) == (strategy.name in FEWER)


@every_strategy
def test_its_script_has_an_answer_to_all_it_asks(strategy: StrategyFile) -> None:
    said = {call.answer for call in scripted(strategy).calls}
    assert said <= {line.answer for line in described(strategy).meta.script}


@every_strategy
def test_every_question_says_what_it_is_for(strategy: StrategyFile) -> None:
    for call in scripted(strategy).calls:
        assert isinstance(call.query, LlmQuery)
        assert re.fullmatch(r"[a-z_]+", str(call.query.options["role"]))


@every_strategy
def test_it_gives_its_ctx_back_with_a_result(strategy: StrategyFile) -> None:
    left = scripted(strategy).result
    assert {name: left[name] for name in needed(strategy)} == needed(strategy)
    assert left["result"]
    assert isinstance(left["result"], str) is (strategy.name not in VALUES)


def test_what_one_leaves_in_ctx_is_no_parameter_of_another() -> None:
    parameters = {name for each in BUNDLED for name in described(each).meta.parameters}
    for each in BUNDLED:
        assert set(scripted(each).result) & (parameters - set(needed(each))) == set(), each.name


@every_strategy
def test_without_a_task_it_says_so_and_asks_nothing(strategy: StrategyFile) -> None:
    run = rehearse(strategy.name, {})
    assert run.calls == []
    assert f"ValueError: {strategy.name}: ctx has no 'task'" in (run.error or "")


@every_strategy
def test_it_takes_the_result_of_another_in_a_pipe_and_leaves_its_own(strategy: StrategyFile) -> None:
    script = {line.when: line.answer for line in described(strategy).meta.script}
    code = f'pipe([lambda ctx: dict(ctx, result=llm("Rough draft")), {strategy.name!r}], ctx)'
    run = rehearse(python_code(code, name="piped"), needed(strategy), {"Rough draft": "A polished task.", **script})
    assert run.error is None
    assert run.result["task"] == "A polished task."
    assert run.result["pipe_history"][1] == {"strategy": strategy.name, "result": run.result["result"]}
    assert run.result["result"]
