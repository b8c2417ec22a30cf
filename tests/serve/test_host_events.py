"""What a host is told about questions that it would otherwise answer wrongly without anybody noticing."""

from __future__ import annotations

from typing import Any

from holdfast.core.queries import LlmQuery
from holdfast.serve.mcp.host_events import note_on


def queries(*prompts: str, **options: Any) -> list[LlmQuery]:
    return [LlmQuery(id=f"q-{number}", prompt=prompt, options=options) for number, prompt in enumerate(prompts)]


def test_a_question_that_is_asked_several_times_is_to_be_answered_anew_each_time() -> None:
    note = note_on(queries("Why?", "Why?", "Why?"))
    assert note.startswith("q-0 to q-2 are one question, asked 3 times on purpose: answer each from the beginning")


def test_settings_that_hosts_seldom_have_are_named() -> None:
    assert "can't set temperature as the options ask" in note_on(queries("Why?", temperature=1.2, role="reason"))


def test_plain_questions_need_no_note() -> None:
    assert note_on(queries("Why?", "How?", role="reason")) == ""
