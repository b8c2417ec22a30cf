"""Our server against the official conformance suite, at both protocol revisions that it serves."""

from __future__ import annotations

import pytest

from tests.serve.conformance.node import NodeMissingError
from tests.serve.conformance.run import Scenario, baseline, conformance, report


async def test_every_scenario_that_applies_passes() -> None:
    try:
        found = await conformance()
    except NodeMissingError as error:
        pytest.skip(f"the conformance suite cannot run here: {error}")
    assert not [each for each in found if each.verdict == "failed"], report(found)
    for revision, at_least in (("2025-11-25", 26), ("2026-07-28", 37)):
        required = [each for each in found if each.revision == revision and each.required]
        assert sum(each.verdict == "passed" for each in required) >= at_least, report(found)


def test_a_listed_scenario_that_passes_is_an_error() -> None:
    assert Scenario("2026-07-28", "caching", passed=8, reason="it is not ours").verdict == "failed"


def test_a_malformed_message_is_never_excused() -> None:
    excused = Scenario("2026-07-28", "tasks-lifecycle", problems=["tasks-get: no task"], reason="it is not ours")
    malformed = Scenario("2026-07-28", "tasks-lifecycle", problems=["wire-schema-valid: bad"], reason="it is not ours")
    assert (excused.verdict, malformed.verdict) == ("not applicable", "failed")


def test_each_exception_has_the_comment_above_it_as_its_reason() -> None:
    text = "# about the file\nserver:\n  # no logging\n  # here\n  - one\n  - two\n\n  # no tasks\n  - three\n"
    assert baseline(text) == {"one": "no logging here", "two": "no logging here", "three": "no tasks"}
