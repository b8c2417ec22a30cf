"""Tools that are too many to be told of: a model finds them by words, and calls them by name."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from holdfast.agent.machine.approval import Approval, Rule
from holdfast.agent.machine.policy import CATALOG_TOKENS
from holdfast.agent.machine.queries import ApprovalQuery
from holdfast.agent.plugins.plugin import Deny, Plugin, PluginCall
from holdfast.agent.runtime import Runtime
from holdfast.agent.tools import RemoteTool, ToolContext
from holdfast.agent.tools.session_catalog import SessionCatalog
from holdfast.testing.patience import soon, until
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.tables import each_row

SYSTEMS = {
    "github": ("repository", ["issue", "pull_request", "branch", "release", "workflow_run"]),
    "gitlab": ("project", ["issue", "merge_request", "branch", "pipeline"]),
    "jira": ("board", ["ticket", "sprint", "epic", "comment"]),
    "slack": ("workspace", ["message", "channel", "reminder", "user"]),
    "gmail": ("mailbox", ["message", "draft", "label", "thread"]),
    "calendar": ("calendar", ["event", "attendee", "reminder"]),
    "drive": ("drive", ["file", "folder", "permission"]),
    "postgres": ("database", ["table", "row", "index"]),
    "stripe": ("account", ["invoice", "refund", "customer", "subscription"]),
    "aws": ("region", ["instance", "bucket", "queue", "function"]),
}
VERBS = {
    "list": "List every {thing} of a {place}, the newest first.",
    "get": "Look up one {thing} of a {place} by its id.",
    "create": "Create a new {thing} in a {place}.",
    "update": "Change the fields of an existing {thing} in a {place}.",
    "delete": "Remove a {thing} from a {place} for good.",
}
SINGLE = {
    "weather_forecast": "Tell the weather of the coming days at a place.",
    "currency_convert": "Convert an amount of money from one currency into another at today's rate.",
    "image_resize": "Scale a picture to a width and height.",
    "pdf_extract_text": "Read the text of a PDF document, page by page.",
    "translate_text": "Translate text between languages.",
    "send_sms": "Send a text message to a mobile phone.",
    "shell_run": "Run a command in a shell on the build machine.",
    "web_search": "Search the web for pages about something.",
    "file_hash": "Work out the checksum of a local file.",
    "flightStatus": "Say whether a flight is on time.",
}


def many() -> list[RemoteTool]:
    """Two hundred tools, as a workplace with a dozen integrations has them."""
    made: dict[str, str] = dict(SINGLE)
    for (system, (place, things)), (verb, words) in itertools.product(SYSTEMS.items(), VERBS.items()):
        for thing in things:
            words_for = words.format(thing=thing.replace("_", " "), place=place)
            made[f"{system}_{verb}_{thing}"] = f"{system.capitalize()}: {words_for}"
    names = list(made)[:200]
    return [_remote(name, made[name]) for name in names]


def _remote(name: str, description: str) -> RemoteTool:
    async def call(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        return {"tool": name, **arguments}

    properties = {
        "id": {"type": "string", "description": "Which one, by the id that a list gives."},
        "place": {"type": "string", "description": "Where it is. The one that was used last, if it is left out."},
        "fields": {"type": "object", "description": "What it is to be, by name."},
    }
    return RemoteTool(name, description, {"type": "object", "properties": properties}, call, owner=_owner(name))


def _owner(name: str) -> str:
    system = name.partition("_")[0]
    return f"the server '{system}'" if system in SYSTEMS else "the host"


TOOLS = many()


def test_the_catalog_of_these_tests_is_as_large_as_it_says() -> None:
    catalog = SessionCatalog({tool.name: tool for tool in TOOLS})
    assert len(catalog.names) == 200
    assert catalog.tokens > CATALOG_TOKENS


@each_row(
    ("words", "best"),
    [
        ("create github issue", "github_create_issue"),
        ("open a new pull request", "github_create_pull_request"),
        ("merge request", "gitlab_create_merge_request"),
        ("list slack channels", "slack_list_channel"),
        ("refund a customer in stripe", "stripe_create_refund"),
        ("delete a file from drive", "drive_delete_file"),
        ("weather", "weather_forecast"),
        ("what is the weather tomorrow in Rome", "weather_forecast"),
        ("convert dollars to another currency", "currency_convert"),
        ("read a pdf", "pdf_extract_text"),
        ("translate to French", "translate_text"),
        ("sms", "send_sms"),
        ("is my flight on time", "flightStatus"),
        ("shell command", "shell_run"),
        ("jira_update_sprint", "jira_update_sprint"),
        ("CalendarCreateEvent", "calendar_create_event"),
        ("invoices", "stripe_list_invoice"),
    ],
)
def test_the_tool_that_is_meant_is_among_the_first(words: str, best: str) -> None:
    catalog = SessionCatalog({tool.name: tool for tool in TOOLS})
    found = [spec.name for spec in catalog.find(words)]
    assert best in found[:5], found
    assert len(found) <= 8


def test_an_exact_name_comes_first_and_nonsense_finds_nothing() -> None:
    catalog = SessionCatalog({tool.name: tool for tool in TOOLS})
    for tool in TOOLS:
        assert catalog.find(tool.name)[0].name == tool.name
    assert catalog.find("xyzzy") == []
    assert catalog.find("!? -") == []


def test_the_same_words_find_the_same_tools_whatever_order_they_came_in() -> None:
    one = SessionCatalog({tool.name: tool for tool in TOOLS})
    other = SessionCatalog({tool.name: tool for tool in reversed(TOOLS)})
    for words in ("create issue", "delete", "list every message"):
        assert [spec.name for spec in one.find(words)] == [spec.name for spec in other.find(words)]


# --- in turns ------------------------------------------------------------------------------------------


def results(provider: ScriptedProvider) -> list[Any]:
    messages = [message for message in provider.requests[-1].messages if message.role == "tool"]
    return [block.content for message in messages for block in message.content]  # type: ignore[union-attr]


async def worked(*script: ScriptStep, plugins: Sequence[Plugin] = (), **spec: Any) -> ScriptedProvider:
    provider = ScriptedProvider([*script, "Done."])
    async with Runtime("memory:", provider=provider, tools=TOOLS) as runtime:
        builder = runtime.session("s-1").spec(**spec)
        for plugin in plugins:
            builder.plugin(plugin)
        session = await builder.open()
        assert (await soon(session.turn("Go").run())).text == "Done."
    return provider


async def test_a_model_is_told_how_to_find_tools_and_calls_what_it_has_found() -> None:
    provider = await worked(
        tool_call("find_tools", words="create github issue"),
        tool_call("call_tool", name="github_create_issue", arguments={"place": "holdfast"}),
    )
    assert [tool.name for tool in provider.requests[0].tools] == ["find_tools", "call_tool"]
    assert "There are 200" in provider.requests[0].tools[0].description
    found, called = results(provider)
    assert found[0]["name"] == "github_create_issue"
    assert found[0]["parameters"]["properties"].keys() == {"id", "place", "fields"}
    assert called == {"tool": "github_create_issue", "place": "holdfast"}


async def test_a_tool_called_by_its_own_name_although_not_told_of_is_run() -> None:
    provider = await worked(tool_call("github_create_issue", place="holdfast"))
    assert results(provider) == [{"tool": "github_create_issue", "place": "holdfast"}]


async def test_a_few_tools_are_all_told() -> None:
    provider = await worked(tool_call("weather_forecast"), tools=["weather_*", "send_sms"])
    assert [tool.name for tool in provider.requests[0].tools] == ["weather_forecast", "send_sms"]


async def test_how_many_may_be_told_is_the_sessions_to_say() -> None:
    provider = await worked(catalog_tokens=1_000_000)
    assert len(provider.requests[0].tools) == 200
    provider = await worked(tools=["weather_forecast"], catalog_tokens=1)
    assert [tool.name for tool in provider.requests[0].tools] == ["find_tools", "call_tool"]


async def test_tools_that_the_session_may_not_use_are_neither_found_nor_called() -> None:
    provider = await worked(
        tool_call("find_tools", words="github create issue"),
        tool_call("call_tool", name="github_create_issue", arguments={}),
        tool_call("github_create_issue"),
        deny=["github_*"],
    )
    found, called, direct = results(provider)
    assert not [tool for tool in found if tool["name"].startswith("github")]
    assert called["code"] == direct["code"] == "unknown_tool"
    assert "did you mean 'gitlab_create_issue'" in called["error"]


async def test_searching_is_no_tool_where_all_are_told() -> None:
    provider = await worked(tool_call("find_tools", words="weather"), tools=["weather_forecast"])
    assert results(provider)[0]["code"] == "unknown_tool"


@each_row(
    ("call", "told"),
    [
        (tool_call("find_tools"), "give the words to search for"),
        (tool_call("find_tools", words="  "), "give the words to search for"),
        (tool_call("find_tools", words=7), "give the words to search for"),
        (tool_call("call_tool"), "takes the name of a tool as 'name'"),
        (tool_call("call_tool", name="send_sms"), "takes the name of a tool as 'name'"),
        (tool_call("call_tool", name="send_sms", arguments="{}"), "takes the name of a tool as 'name'"),
        (tool_call("call_tool", name="send_smss", arguments={}), "did you mean 'send_sms'"),
        (tool_call("call_tool", name="call_tool", arguments={}), "takes the name of a tool as 'name'"),
        (tool_call("call_tool", name="holdfast.command", arguments={"name": "x"}), "holdfast.command"),
        (tool_call("call_tool", name="send_sms", arguments={"id": 5}), "id"),
    ],
)
async def test_a_call_that_makes_no_sense_says_how_it_is_done(call: ScriptStep, told: str) -> None:
    provider = await worked(call)
    (result,) = results(provider)
    assert told in result["error"]


async def test_words_that_fit_nothing_say_so() -> None:
    provider = await worked(tool_call("find_tools", words="xyzzy"))
    assert results(provider) == ["no tool matches 'xyzzy'; try other words"]


async def test_plugins_see_the_tool_that_is_meant() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []

    class Guard(Plugin):
        id = "guard"

        def before_tool(self, call: PluginCall) -> Deny | None:
            seen.append((call.tool, call.arguments))
            return Deny("nothing is deleted") if "_delete_" in call.tool else None

    provider = await worked(
        tool_call("call_tool", name="drive_delete_file", arguments={"id": "f-1"}),
        tool_call("call_tool", name="drive_get_file", arguments={"id": "f-1"}),
        plugins=[Guard()],
    )
    assert seen == [("drive_delete_file", {"id": "f-1"}), ("drive_get_file", {"id": "f-1"})]
    denied, got = results(provider)
    assert denied == {"error": "not allowed: nothing is deleted", "code": "denied"}
    assert got == {"tool": "drive_get_file", "id": "f-1"}


async def test_rules_and_approvals_are_about_the_tool_that_is_meant() -> None:
    rules = Approval(rules=[Rule("*_delete_*", "deny"), Rule("send_sms", "confirm")])
    script: list[ScriptStep] = [
        tool_call("call_tool", name="drive_delete_file", arguments={"id": "f-1"}),
        tool_call("call_tool", name="send_sms", arguments={"id": "+1"}),
        "Done.",
    ]
    provider = ScriptedProvider(script)
    async with Runtime("memory:", provider=provider, tools=TOOLS) as runtime:
        session = await runtime.session("s-1").approval(rules).open()
        running = session.turn("Go").id("t-1")

        async def asked() -> list[ApprovalQuery]:
            queries = (await session.conversation()).asked.values()
            return [query for query in queries if isinstance(query, ApprovalQuery)]

        task = asyncio.create_task(soon(running.run()))
        await until(asked)
        (query,) = await asked()
        assert (query.approves.tool, query.approves.arguments) == ("send_sms", {"id": "+1"})
        await session.answer(query.id, "approve")
        assert (await task).text == "Done."
    denied, sent = results(provider)
    assert denied["code"] == "denied"
    assert sent == {"tool": "send_sms", "id": "+1"}


async def test_what_is_told_of_searching_stays_the_same_from_turn_to_turn() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider, tools=TOOLS) as runtime:
        session = await runtime.session("s-1").open()
        for _ in range(3):
            await soon(session.turn("Hi").run())
    assert provider.requests[0].tools is provider.requests[2].tools
