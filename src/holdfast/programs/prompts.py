"""What the languages share where they compose questions out of `llm`: texts and limits, in one home.

Native strategies import it. Sandboxed Python gets it as constants of its prelude, Lua as a table of its host.
"""

from __future__ import annotations

from holdfast.core.values import Json

JSON_ONLY = "Answer with one valid JSON value and nothing else: no explanation, no code fences."
"""The system text with which `llm_json` asks a second time."""

JSON_REPAIR = (
    (
        "Your last answer could not be read as JSON. Give the same answer again as valid JSON and nothing else.\n\n"
        "The request was:\n\n"
    ),
    "\n\nYour last answer was:\n\n",
)
"""What stands before the request, and before the answer, when `llm_json` asks a second time."""

MAX_CACHED = 256
"""Answers that `cache` keeps, the newest: enough for a strategy that repeats itself, and little memory."""


def json_repair_prompt(request: str, answer: str) -> str:
    """The question with which `llm_json` asks a second time."""
    before_request, before_answer = JSON_REPAIR
    return f"{before_request}{request}{before_answer}{answer}"


def shared_prompts() -> dict[str, Json]:
    """What a program in another language is given when it starts."""
    return {"json_only": JSON_ONLY, "json_repair": list(JSON_REPAIR), "max_cached": MAX_CACHED}
