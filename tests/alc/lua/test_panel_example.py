"""The example `examples/panel.lua`, run as it is."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast.core.queries import LlmQuery

PANEL = Path(__file__).parents[3] / "examples" / "panel.lua"


async def test_the_panel_asks_in_three_pauses_and_follows_its_scores() -> None:
    asked: list[LlmQuery] = []

    async def model(query: LlmQuery) -> str:
        asked.append(query)
        if "from 1 to 10" not in query.prompt:
            return str(query.options.get("role", "one paragraph"))
        return "9/10" if "Answer: tester" in query.prompt else "I give it a 4."

    async with holdfast.open("memory:") as hf:
        hf.drive("llm", model)
        event = await hf.start(str(PANEL), ctx={"task": "How?"})
    told = event.to_json()
    assert told["result"] == {"advice": "one paragraph", "from": "tester", "score": 9.0}
    assert told["stats"]["custom"] == {"score_engineer": 4.0, "score_tester": 9.0, "score_manager": 4.0}
    assert (len(asked), told["stats"]["auto"]["pauses"]) == (3 + 6 + 1, 3)
