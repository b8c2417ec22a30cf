"""Subagents on the command line: those of the project are found, shown in the tree, and asked about in the chat."""

from __future__ import annotations

import pytest

from holdfast.agent.providers.provider import ModelRequest
from holdfast.testing.provider import ScriptStep, tool_call
from tests.agent.subagents.helpers import results
from tests.cli.chat_helpers import serving, with_tools
from tests.cli.helpers import Home

CRITIC = """---
description: Says what is wrong with a text.
---
You are the critic.
"""


@pytest.fixture
def project(home: Home) -> Home:
    (home.folder / "agents").mkdir()
    (home.folder / "agents" / "critic.md").write_text(CRITIC)
    return with_tools(home)


def play(request: ModelRequest) -> ScriptStep:
    """A model that delegates once, and a critic that adds two numbers if it can."""
    got = results(request)
    if "You are the critic." in request.system:
        can_add = any(tool.name == "add" for tool in request.tools)
        return "too long" if got or not can_add else tool_call("add", a=2, b=3)
    return f"it said: {got[0]}" if got else tool_call("delegate", agent="critic", task="look")


def offered(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.tools]


def test_the_subagents_of_a_project_are_found_and_shown_in_the_tree(project: Home) -> None:
    with serving(play, loop=True) as server:
        said = project.ok("chat", "--model", f"{server.url}#m", "--id", "talk", "-m", "Go")
    assert "it said: too long" in said
    tree = project.ok("show", "talk", "--tree")
    assert "└ .q-2  completed  critic" in tree


def test_agents_can_be_left_out_or_named_instead(project: Home) -> None:
    other = project.folder / "poet.md"
    other.write_text(CRITIC.replace("critic", "poet"))
    with serving("Hi.", loop=True) as server:
        model = ("--model", f"{server.url}#m")
        project.ok("chat", *model, "--no-agents", "-m", "Go")
        assert "delegate" not in offered(server.requests[-1])
        project.ok("chat", *model, "--agents", str(other), "-m", "Go")
        (tool,) = [tool for tool in server.requests[-1].tools if tool.name == "delegate"]
        assert tool.parameters["properties"]["agent"]["enum"] == ["poet"]
        refused = project.call("chat", *model, "--agents", str(other), "--no-agents", "-m", "Go")
    assert refused.exit_code == 2
    assert "either --agents or --no-agents" in refused.stderr


def test_a_subagent_that_needs_a_tool_which_is_missing_is_an_error(project: Home) -> None:
    (project.folder / "agents" / "finder.md").write_text("---\ndescription: x\ntools: [search]\n---\nFind.\n")
    with serving("Hi.") as server:
        refused = project.call("chat", "--model", f"{server.url}#m", "-m", "Go")
    assert refused.exit_code != 0
    assert "subagent 'finder': there is no tool 'search'" in refused.stderr


def test_a_chat_asks_about_the_call_of_a_subagent(project: Home) -> None:
    options = ("--tool", "tools:add", "--confirm", "add", "--id", "talk")
    with (
        serving(play, loop=True) as server,
        project.terminal("chat", "--model", f"{server.url}#m", *options) as terminal,
    ):
        terminal.expect("\n> ")
        terminal.type("Go\n")
        terminal.expect("? add")
        terminal.expect("Run it?")
        terminal.type("y\n")
        terminal.expect("it said: too long")


def test_a_question_of_a_subagent_leaves_a_chat_without_a_person(project: Home) -> None:
    options = ("--tool", "tools:add", "--confirm", "add", "--id", "talk")
    with serving(play, loop=True) as server:
        left = project.process("chat", "--model", f"{server.url}#m", *options, "-m", "Go", "--store", project.url)
        assert "q-2.q-2" in left.stdout + left.stderr
        assert "q-2.q-2" in project.ok("show", "talk", "--tree", "--store", project.url)


def test_a_subagent_that_lacks_a_tool_is_named_with_what_to_do(project: Home) -> None:
    wants = CRITIC.replace("---\nYou", "tools: [find]\n---\nYou")
    (project.folder / "agents" / "critic.md").write_text(wants)
    refused = project.call("chat", "--model", "http://127.0.0.1:9#m", "-m", "Go")
    assert refused.exit_code == 2
    assert "subagent 'critic': there is no tool 'find'" in refused.stderr
    assert "with --tool, or use no subagents with --no-agents" in refused.stderr
