"""Finding strategies by words that people use."""

from __future__ import annotations

from holdfast.programs.word_search import best_matches
from holdfast.serve.mcp import catalog
from tests.tables import each_row

TEXTS = {
    "density": "Make a summary denser round by round",
    "refine": "Draft, criticise and revise until nothing is left to change",
    "consistency": "Reason several times; the most frequent answer wins. The answer with the most votes",
    "facts": "Check its facts by independent questions",
}


@each_row(
    ("search", "found"),
    [
        ("summarize", ["density"]),
        ("Summaries", ["density"]),
        ("improve a text", ["refine"]),
        ("vote", ["consistency"]),
        ("verify code", ["facts"]),
        ("", [*TEXTS]),
        ("zebra", []),
    ],
)
def test_a_word_is_found_in_any_of_its_forms_and_by_its_meaning(search: str, found: list[str]) -> None:
    assert best_matches(TEXTS, search) == found


def test_those_with_more_of_the_words_are_found_alone() -> None:
    assert best_matches({"one": "plan a summary", "both": "verify a summary"}, "verify summaries") == ["both"]


async def test_what_people_look_for_is_in_the_library() -> None:
    runnables = await catalog.runnables()
    for search, name in {
        "verify": "chain_of_verification",
        "verify code": "chain_of_verification",
        "summarize": "chain_of_density",
        "improve a text": "self_refine",
        "vote": "self_consistency",
        "debate": "panel",
    }.items():
        assert name in [each.name for each in catalog.matching(runnables, search)], search
