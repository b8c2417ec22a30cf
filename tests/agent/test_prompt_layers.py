"""The system text of sessions: layers of runtime, session, plugins and turn; and bytes on the wire that stay."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from holdfast.agent.machine.prompt import Contribution, PromptLayer, PromptTemplate, Section, layer_of
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.providers.openai import OpenAIProvider
from holdfast.agent.runtime import Runtime
from holdfast.core.values import encode
from holdfast.testing.model_server import ModelServer
from holdfast.testing.patience import soon
from holdfast.testing.provider import ScriptedProvider, ScriptStep, tool_call
from tests.tables import each_row


def search(words: str) -> str:
    """Look something up."""
    return f"all about {words}"


class Tone(Plugin):
    """Contributes a tone, which it may change."""

    id = "tone"
    tone = "Be kind."

    def prompt(self) -> Sequence[Contribution]:
        return [Contribution("guidance", self.tone, priority=5)]


def systems(provider: ScriptedProvider) -> list[str]:
    return [request.system for request in provider.requests]


# --- layers --------------------------------------------------------------------------------------------


async def test_layers_of_runtime_session_plugin_and_turn_come_together_in_slots() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    core = layer_of(Contribution("intro", "You are a clerk."), Contribution("environment", "It runs on a desk."))
    async with Runtime("memory:", provider=provider, prompt=[core], instructions="Be brief.") as runtime:
        builder = runtime.session("s-1").prompt(layer_of(Contribution("project", "Tabs, not spaces."))).plugin(Tone())
        session = await builder.open()
        await soon(session.turn("Hi").run())
        turn = session.turn("Hi").prompt(layer_of(Contribution("context", "It is Monday.")))
        await soon(turn.run())
        await soon(session.turn("Hi").run())
    start = "You are a clerk.\n\nBe brief.\n\nBe kind.\n\n# Project\n\nTabs, not spaces.\n\n"
    end = "# Environment\n\nIt runs on a desk."
    assert systems(provider) == [start + end, f"{start}# Context\n\nIt is Monday.\n\n{end}", start + end]


async def test_a_higher_layer_may_drop_what_lower_ones_say_of_a_slot() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    core = layer_of(Contribution("intro", "You are a clerk."), "Be formal.")
    async with Runtime("memory:", provider=provider, prompt=[core]) as runtime:
        own = layer_of(Contribution("guidance", "Be yourself."), resets=["guidance"])
        session = await runtime.session("s-1").prompt(own).open()
        await soon(session.turn("Hi").run())
        await soon(session.turn("Hi").prompt(layer_of("Rhyme.", resets=["guidance", "intro"])).run())
    assert systems(provider) == ["You are a clerk.\n\nBe yourself.", "Rhyme."]


async def test_a_plain_text_for_a_turn_is_added_for_that_turn_alone_in_all_its_calls() -> None:
    provider = ScriptedProvider([tool_call("search", words="cats"), "Cats.", "Hello."])
    async with Runtime("memory:", provider=provider, tools=[search], instructions="Be brief.") as runtime:
        session = await runtime.session("s-1").open()
        await soon(session.turn("Cats?").prompt("Rhyme.").run())
        await soon(session.turn("Hi").run())
    assert systems(provider) == ["Be brief.\n\nRhyme.", "Be brief.\n\nRhyme.", "Be brief."]


async def test_several_prompts_of_a_turn_all_count() -> None:
    provider = ScriptedProvider(["Cats.", "Dogs."])
    async with Runtime("memory:", provider=provider, instructions="Be brief.") as runtime:
        session = await runtime.session("s-1").open()
        place = layer_of(Contribution("context", "It is Monday."))
        await soon(session.turn("Cats?").prompt("Be rhymed.").prompt(place).prompt("Be sung.").run())
        await soon(session.turn("Dogs?").prompt("Be rhymed.").prompt(layer_of("Shout.", resets=["guidance"])).run())
    assert systems(provider) == ["Be brief.\n\nBe rhymed.\n\nBe sung.\n\n# Context\n\nIt is Monday.", "Shout."]


async def test_a_template_of_the_session_says_which_slots_are_told_and_in_which_order() -> None:
    provider = ScriptedProvider(["Hello."])
    core = layer_of(Contribution("intro", "You are a clerk."), Contribution("environment", "A desk."), "Be brief.")
    template = PromptTemplate((Section("environment", "Where"), Section("guidance", "How")))
    async with Runtime("memory:", provider=provider, prompt=[core]) as runtime:
        session = await runtime.session("s-1").prompt(PromptLayer(template=template)).open()
        await soon(session.turn("Hi").run())
    assert systems(provider) == ["# Where\n\nA desk.\n\n# How\n\nBe brief."]


async def test_what_requires_a_tool_is_told_while_the_session_has_it() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    core = layer_of(Contribution("guidance", "Search before you answer.", requires_tool="search"), "Be brief.")
    async with Runtime("memory:", provider=provider, prompt=[core], tools=[search]) as runtime:
        session = await runtime.session("s-1").open()
        await soon(session.turn("Hi").run())
        await session.configure(deny=["search"])
        await soon(session.turn("Hi").run())
        await session.configure(deny=[])
        await soon(session.turn("Hi").run())
    with_tool = "Be brief.\n\nSearch before you answer."
    assert systems(provider) == [with_tool, "Be brief.", with_tool]


async def test_a_plugin_is_asked_for_its_words_again_when_it_says_so() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(Tone()).open()
        plugin = (await session.loaded()).hooks.get("tone")
        assert isinstance(plugin, Tone)
        for tone, revision in (("Be kind.", 0), ("Be stern.", 0), ("Be stern.", 1)):
            plugin.tone, plugin.revision = tone, revision
            await soon(session.turn("Hi").run())
    assert systems(provider) == ["Be kind.", "Be kind.", "Be stern."]


@each_row("said", [["Be kind."], [Contribution("guidance", None)], None, [3]])  # type: ignore[arg-type]
async def test_words_of_a_plugin_that_make_no_sense_are_left_out(said: Any) -> None:
    class Odd(Plugin):
        id = "odd"

        def prompt(self) -> Sequence[Contribution]:
            return said  # type: ignore[no-any-return]

    provider = ScriptedProvider(["Hello."])
    async with Runtime("memory:", provider=provider) as runtime:
        session = await runtime.session("s-1").plugin(Odd()).plugin(Tone()).open()
        assert (await soon(session.turn("Hi").run())).text == "Hello."
    assert systems(provider) == ["Be kind."]


async def test_layers_are_recorded_with_the_session_and_the_turn() -> None:
    async with Runtime("memory:", provider=ScriptedProvider(["Hello."])) as runtime:
        own = layer_of(Contribution("project", "Tabs."))
        session = await runtime.session("s-1").prompt(own).open()
        await soon(session.turn("Hi").id("t-1").prompt("Rhyme.").run())
        conversation = await session.conversation()
        assert conversation.policy is not None
        assert conversation.policy.prompt == [own]
        assert conversation.turns["t-1"].prompt == layer_of("Rhyme.")


# --- on the wire ---------------------------------------------------------------------------------------


def before_the_end(content: bytes) -> bytes:
    """The bytes of a request up to the end of its last message: what a service may know from the call before."""
    assert content.count(b'],"stream":') == 1
    return content.partition(b'],"stream":')[0]


def after_the_messages(content: bytes) -> bytes:
    """The rest of it: how the reply is to come, and all tools."""
    return content.partition(b'],"stream":')[2]


async def sent(server: ModelServer, *turns: dict[str, Any], plugins: Sequence[Plugin] = (), **options: Any) -> None:
    provider = OpenAIProvider(server.url)
    core = layer_of(Contribution("intro", "You are a clerk."), Contribution("environment", "A desk."))
    async with Runtime(
        "memory:", provider=provider, model="m-1", tools=[search], prompt=[core], instructions="Be brief.", **options
    ) as runtime:
        builder = runtime.session("s-1")
        for plugin in plugins:
            builder.plugin(plugin)
        session = await builder.open()
        for turn in turns:
            await soon(session.turn(**turn).run())
    await provider.aclose()


CHAT: Sequence[ScriptStep] = (
    "Hello.",
    [tool_call("search", words="cats"), tool_call("search", words="dogs")],
    "All about both.",
    "You are welcome.",
)
SAID: Sequence[dict[str, Any]] = ({"content": "Hi"}, {"content": "Cats and dogs?"}, {"content": "Thanks"})


@each_row("plugins", [0, 2])
async def test_each_request_begins_with_the_bytes_of_the_one_before_unless_a_layer_changed(plugins: int) -> None:
    class Watches(Plugin):
        """Looks at requests and history, and changes nothing."""

        id = "watches"

        def history(self, messages: list[Any]) -> list[Any]:
            return messages

        def before_model(self, request: Any) -> Any:
            return request

    async with ModelServer(CHAT) as server:
        await sent(server, *SAID, plugins=[Tone(), Watches()][:plugins])
        bodies = [received.content for received in server.received]
    assert len(bodies) == 4
    for one, following in itertools.pairwise(bodies):
        assert before_the_end(following).startswith(before_the_end(one))
        assert after_the_messages(following) == after_the_messages(one)
    assert b'"tools":[' in after_the_messages(bodies[0])


async def test_a_layer_that_changes_for_a_turn_changes_the_system_text_from_its_slot_on_and_nothing_else() -> None:
    async with ModelServer(["Hello."], loop=True) as server:
        provider = OpenAIProvider(server.url)
        core = layer_of(Contribution("intro", "You are a clerk."), Contribution("environment", "A desk."))
        async with Runtime("memory:", provider=provider, model="m-1", tools=[search], prompt=[core]) as runtime:
            session = await runtime.session("s-1").open()
            await soon(session.turn("Hi").run())
            await soon(session.turn("Hi").prompt(layer_of(Contribution("context", "It is Monday."))).run())
            await soon(session.turn("Hi").run())
        await provider.aclose()
        plain, changed, again = server.received
    assert plain.body["messages"][0] == again.body["messages"][0]
    assert encode(plain.body["tools"]) == encode(changed.body["tools"]) == encode(again.body["tools"])
    texts = [body["messages"][0]["content"] for body in (plain.body, changed.body)]
    assert texts[0].startswith("You are a clerk.\n\n# ")
    assert texts[1].startswith("You are a clerk.\n\n# Context\n\nIt is Monday.")
    assert before_the_end(again.content).startswith(before_the_end(plain.content))


async def test_another_process_sends_the_same_bytes(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with ModelServer(CHAT) as server:
        for turn in SAID:
            provider = OpenAIProvider(server.url)
            own = layer_of(Contribution("project", "Tabs."), Contribution("guidance", "Be kind."))
            async with Runtime(
                url, provider=provider, model="m-1", tools=[search], instructions="Be brief."
            ) as runtime:
                session = await runtime.session("s-1").prompt(own).plugin(Tone()).open()
                await soon(session.turn(**turn).run())
            await provider.aclose()
        bodies = [received.content for received in server.received]
    for one, following in itertools.pairwise(bodies):
        assert before_the_end(following).startswith(before_the_end(one))
        assert after_the_messages(following) == after_the_messages(one)


async def test_the_prompt_of_an_unchanged_session_is_rendered_once() -> None:
    provider = ScriptedProvider(["Hello."], loop=True)
    core = [layer_of(Contribution("intro", "You are a clerk."))]
    async with Runtime("memory:", provider=provider, prompt=core, instructions="Be brief.") as runtime:
        session = await runtime.session("s-1").plugin(Tone()).open()
        for _ in range(20):
            await soon(session.turn("Hi").run())
        cache = (await session.loaded()).prompts
        assert (cache.hits, cache.misses) == (19, 1)
        assert all(request.system is provider.requests[0].system for request in provider.requests)
