"""Subagents as files: what a definition says, and that what cannot be meant is an error at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agent.subagents.definition import AgentDefinition
from holdfast.agent.subagents.errors import AgentDefinitionError
from holdfast.agent.subagents.files import load_agents
from holdfast.agent.subagents.front_matter import FrontMatterError, split_front_matter
from holdfast.core.budget import Budget
from tests.agent.helpers import Home, add
from tests.agent.subagents.helpers import agent

WHOLE = """---
name: researcher
description: Finds things out   # and says where
tools: [add, "mult*"]
deny:
  - delete_*
model: m-2
iterations: 6
budget:
  max_tokens: 20_000
  max_cost: 0.5
result: answer.json
---

You find things out.

Say where you found them.
"""


def write(folder: Path, text: str, name: str = "researcher.md") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_a_file_says_all_that_a_subagent_is(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    (found,) = load_agents(write(tmp_path, WHOLE))
    assert found.name == "researcher"
    assert found.description == "Finds things out"
    assert found.instructions == "You find things out.\n\nSay where you found them."
    assert found.tools == ["add", "mult*"]
    assert found.deny == ["delete_*"]
    assert (found.model, found.mode, found.iterations) == ("m-2", "standard", 6)
    assert found.budget == Budget(max_tokens=20_000, max_cost=0.5)
    assert found.schema == {"type": "object", "properties": {"n": {"type": "integer"}}}


def test_a_short_file_is_enough_and_its_name_is_that_of_the_file(tmp_path: Path) -> None:
    (found,) = load_agents(write(tmp_path, "---\ndescription: 'Writes: poems'\n---\nWrite.", "poet.md"))
    assert found == AgentDefinition(name="poet", description="Writes: poems", instructions="Write.")


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("description: x\ncolor: red", "unknown key: color"),
        ("description: x\nbudget:\n  tokens: 5", "unknown limit in budget: tokens"),
        ("description: x\nname: other", "its name is 'other'"),
        ("tools: [a]", "description"),
        ("description: x\niterations: 0", "iterations must be at least 1"),
        ("description: x\niterations: many", "iterations"),
        ("description: x\nmode: fancy", "mode"),
        ("description: x\nresult: missing.json", "missing.json"),
        ("description: x\nbudget:\n  max_tokens: -1", "max_tokens must be at least 0"),
        ("description: x\ndescription: y", "line 3: 'description' is set a second time"),
        ("description: x\ntools: [a", "line 3: a list in brackets"),
        ("description: x\ntools: {a: b}", "line 3"),
        ("description: |\n  long", "line 2"),
        ("what is this", "line 2: expected 'name: value'"),
        ("description: x\nbudget:\n  a:\n    b: 1", "one level deep"),
        ("description: 'x", "quotes"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_its_file(tmp_path: Path, head: str, told: str) -> None:
    folder = write(tmp_path, f"---\n{head}\n---\nWork.")
    with pytest.raises(AgentDefinitionError) as caught:
        load_agents(folder)
    assert told in str(caught.value)
    assert "researcher.md" in str(caught.value)


def test_a_file_needs_a_head_an_end_of_it_and_instructions(tmp_path: Path) -> None:
    for text in ("just text", "---\ndescription: x\n", "---\ndescription: x\n---\n\n"):
        with pytest.raises(AgentDefinitionError):
            load_agents(write(tmp_path, text))
    with pytest.raises(AgentDefinitionError, match="no such file"):
        load_agents(tmp_path / "nowhere")
    with pytest.raises(FrontMatterError):
        split_front_matter("")


async def test_a_tool_or_a_mode_that_is_not_there_is_an_error_when_the_runtime_opens(home: Home) -> None:
    with pytest.raises(AgentDefinitionError, match="there is no tool 'subtract'"):
        async with home.runtime("x", agents=[agent("worker", tools=["add", "subtract"])], tools=[add]):
            pass
    with pytest.raises(AgentDefinitionError, match="there is no tool 'subtr"):
        async with home.runtime("x", agents=[agent("worker", deny=["subtr*"])], tools=[add]):
            pass


def test_two_of_one_name_are_an_error(home: Home) -> None:
    with pytest.raises(AgentDefinitionError, match="defined twice"):
        home.runtime("x", agents=[agent("one"), agent("one")])


async def test_a_directory_is_given_to_the_runtime(home: Home, tmp_path: Path) -> None:
    folder = write(tmp_path / "agents", "---\ndescription: Writes poems\n---\nWrite.", "poet.md")
    async with home.runtime("x", agents=[folder]) as runtime:
        session = await runtime.session("chat").open()
        (manifest,) = [each for each in await session.observe().active_tool_manifests() if each["name"] == "delegate"]
        assert "- poet: Writes poems" in manifest["description"]
        assert manifest["parameters"]["properties"]["agent"]["enum"] == ["poet"]
        closed = await runtime.session("other").spec(delegation={"depth": 0}).open()
        assert "delegate" not in (await closed.catalog()).names
