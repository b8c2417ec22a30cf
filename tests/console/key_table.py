"""The keys of the console as its source lists them, and which test presses each."""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "web" / "src"

TESTED = {
    "Everywhere": {
        "test_two_letters_go_to_each_page_and_are_not_read_while_somebody_types": (
            "g i, g s, g c, g t, g e, g w, g o, g ,"
        ),
        "test_a_session_is_found_from_anywhere": "mod+k",
        "test_the_page_of_keys_is_shown_and_gives_the_focus_back": "?",
    },
    "Inbox": {
        "test_questions_are_walked_and_opened": "j, k, ArrowDown, ArrowUp, Enter",
        "test_a_question_is_put_aside_without_an_answer": "l",
        "test_choices_and_free_answers_are_given_and_several_calls_approved_at_once": "x, A",
    },
    "This question": {
        "test_a_call_is_approved_with_one_key_in_the_inbox": "a",
        "test_a_call_is_denied_with_a_reason": "d",
        "test_a_call_is_approved_with_other_arguments": "e",
        "test_what_is_always_allowed_is_shown_before_it_is": "y",
        "test_choices_and_free_answers_are_given_and_several_calls_approved_at_once": "i, mod+Enter",
    },
    "Sessions": {
        "test_two_letters_go_to_each_page_and_are_not_read_while_somebody_types": "/",
        "test_the_list_of_sessions_is_walked_selected_and_opened": "f, j, k, Enter, o, x, mod+a, c, Escape",
    },
    "Session": {
        "test_the_parts_of_a_session_have_numbers_and_the_journal_is_walked": "1, u",
    },
    "Journal": {
        "test_the_parts_of_a_session_have_numbers_and_the_journal_is_walked": "j, ArrowRight, r",
        "test_a_row_of_the_journal_is_found_linked_and_forked_before": "k, y, F, :",
    },
    "Conversation": {
        "test_the_composer_is_reached_a_turn_stopped_and_the_last_input_taken_back": "c, Escape",
    },
    "Evaluations": {"test_an_evaluation_is_started_topped_up_and_ended_on_its_page": "n"},
    "Queue": {"test_an_item_is_queued_by_key": "n"},
    "Tree": {"test_a_tree_is_folded_and_walked": "j, k, ArrowLeft, ArrowRight, Enter"},
    "Compare": {"test_what_differs_between_two_sessions_is_walked": "n, p, s"},
    "Chat": {"test_a_new_chat_is_one_key_away": "n"},
    "Strategies": {"test_a_strategy_is_found_and_run_by_keys": "/, mod+Enter"},
}
"""For each group of keys, as the page of keys names it, the tests that press them."""

NUMBERED = "1"
"""The keys of the parts of a session are counted in the source, and stand for all numbers here."""


def listed_keys() -> dict[str, set[str]]:
    """The keys of each group, as the source of the console lists them."""
    found: dict[str, set[str]] = {}
    for file in SOURCES.rglob("*.svelte"):
        for name, body in re.findall(r'useKeys\("([^"]+)", \[(.*?)\]\);', file.read_text(), re.DOTALL):
            found.setdefault(name, set()).update(re.findall(r'keys: "([^"]+)"', body))
            if "keys: String(index" in body:
                found[name].add(NUMBERED)
    return found


def keys_with_tests() -> dict[str, set[str]]:
    """The keys of each group that a test presses, by the table."""
    return {
        group: {key.strip(" ") for keys in tests.values() for key in re.split(r", (?!$)", keys)}
        for group, tests in TESTED.items()
    }
