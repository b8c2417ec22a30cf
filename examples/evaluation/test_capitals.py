"""The evaluation: its report is right, and a second run asks nothing."""

from pathlib import Path

import capitals
import pytest


async def test_the_better_model_is_found_and_nothing_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    await capitals.main()
    said = capsys.readouterr().out
    assert "model@gpt-4o-mini: 0.50" in said
    assert "model@gpt-4o: 0.83" in said
    assert "<html" in (tmp_path / "capitals.html").read_text()
    await capitals.main()
    assert capsys.readouterr().out.endswith("0 calls; the page is capitals.html\n")
