"""The research: what is asked, and what is saved."""

from pathlib import Path

from research import work

from holdfast.agent.providers.provider import ModelRequest
from holdfast.testing import ScriptedProvider


def reply(request: ModelRequest) -> str:
    """What the model says to each of the three kinds of question."""
    text = request.messages[-1].text
    if text.startswith("Name"):
        return "Where does kelp grow?\nWho eats it?\nWhat does it cost?"
    return "In cold water." if text.startswith("Answer") else "Kelp grows in cold water."


async def test_a_run_saves_a_report_from_three_answers(tmp_path: Path) -> None:
    model = ScriptedProvider([reply], loop=True)
    file = await work(
        f"sqlite:///{tmp_path}/research.db", tmp_path / "reports", "kelp farming", now=True, provider=model
    )
    assert file is not None
    assert Path(file).read_text() == "Kelp grows in cold water."
    assert len(model.requests) == 5
    assert "Who eats it?\nIn cold water." in model.requests[-1].messages[-1].text
