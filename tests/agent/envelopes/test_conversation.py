"""Conversations as envelopes of fluers, and back: nothing that fluers knows is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agent.envelopes.conversation import export_envelope, import_envelope, read, written
from holdfast.agent.envelopes.files import DirectoryEnvelopes
from holdfast.agent.envelopes.store import SessionEnvelope, StoreEnvelopes, read_envelope
from holdfast.agent.machine.messages import (
    AgentMessage,
    ContentBlock,
    ImageBlock,
    ImageSource,
    ReasoningBlock,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.machine.policy import Spec
from holdfast.agent.runtime import Runtime
from holdfast.agent.session import AgentSession
from holdfast.agent.tools import SwitchFrame, ToolError
from holdfast.core.errors import InvalidIdError, InvalidValueError
from holdfast.store import open_store
from holdfast.store.errors import EnvelopeError
from holdfast.testing import ScriptedProvider, reasoning, tool_call
from tests.examples import examples
from tests.tables import each_row

FLUERS = Path(__file__).parent / "fluers_session.json"
"""An envelope such as fluers writes."""


def said(text: str, role: Role = "user") -> AgentMessage:
    return AgentMessage(role, [TextBlock(text)])


def calls(*ids: str) -> AgentMessage:
    return AgentMessage("assistant", [ToolUseBlock(each, "look", {"at": each}) for each in ids])


def result(content: Any, *, is_error: bool = False, call: str = "c1") -> ToolResultBlock:
    return ToolResultBlock(call, content, is_error=is_error)


def around(block: ToolResultBlock, *more: ContentBlock) -> list[AgentMessage]:
    """A conversation with this result."""
    return [said("Look"), calls(block.tool_use_id), AgentMessage("tool", [block, *more]), said("Seen.", "assistant")]


def back(messages: list[AgentMessage]) -> list[AgentMessage]:
    """What is read of what was written, by way of JSON."""
    plain = msgspec.json.encode(written(messages, "s-1"))
    return read(msgspec.json.decode(plain, type=list[AgentMessage]), "s-1")


def an_envelope(*messages: AgentMessage, **fields: Any) -> SessionEnvelope:
    return SessionEnvelope(**{"model": "", "max_turns": 0, "messages": list(messages), "metadata": {}, **fields})


PICTURE = ImageBlock(ImageSource("image/png", b"\x89PNG"))


# --- results as fluers has them ------------------------------------------------------------------------


@each_row(
    ("ours", "theirs"),
    [
        (result("a cup"), {"content": [{"type": "text", "text": "a cup"}]}),
        (result(""), {"content": [{"type": "text", "text": ""}]}),
        (
            result({"n": 42}),
            {"content": [{"type": "text", "text": '{"n":42}'}], "details": {"holdfast": {"form": "json"}}},
        ),
        (
            result({"error": "no such file", "code": "failed"}, is_error=True),
            {
                "content": [{"type": "text", "text": "Error: no such file"}],
                "details": {"holdfast": {"form": "failure", "is_error": True, "code": "failed"}},
            },
        ),
        (result("Error: denied", is_error=True), {"content": [{"type": "text", "text": "Error: denied"}]}),
        (
            result("denied", is_error=True),
            {"content": [{"type": "text", "text": "Error: denied"}], "details": {"holdfast": {"is_error": True}}},
        ),
        (
            result("Error: is how it began"),
            {"content": [{"type": "text", "text": "Error: is how it began"}], "details": {"holdfast": {}}},
        ),
    ],
    ids=["text", "no text", "structured", "failure", "text of an error", "error without its word", "no error"],
)
def test_a_result_is_written_as_fluers_does_and_comes_back_as_it_was(ours: ToolResultBlock, theirs: Any) -> None:
    assert written(around(ours), "s-1")[2] == AgentMessage("tool", [ToolResultBlock("c1", theirs)])
    assert back(around(ours)) == around(ours)


@each_row(
    "content",
    [
        None,
        True,
        7,
        1.5,
        [],
        {},
        [1, "two", None],
        {"content": []},
        {"content": [{"type": "text", "text": "as fluers"}]},
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "more": 1}]},
        {"content": [{"type": "image", "image": {"media_type": "image/png", "data": "iVBORw=="}}]},
        {"content": [{"type": "text", "text": "7"}], "details": {"holdfast": {"form": "json"}}},
        {"content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}], "details": None},
        {"error": "slow", "code": "timeout", "partial": "half"},
    ],
    ids=repr,
)
@each_row("is_error", [False, True])
def test_a_result_of_any_shape_comes_back_as_it_was(content: Any, is_error: bool) -> None:
    messages = around(result(content, is_error=is_error))
    assert back(messages) == messages
    told = written(messages, "s-1")[2].content[0]
    assert isinstance(told, ToolResultBlock)
    assert isinstance(told.content["content"][0]["text"], str)
    assert told.content["content"][0]["text"].startswith("Error:") == is_error


def test_images_that_come_with_a_result_are_among_its_blocks() -> None:
    messages = around(result("the screen"), PICTURE, PICTURE)
    block = written(messages, "s-1")[2].content
    image = {"type": "image", "image": {"media_type": "image/png", "data": "iVBORw=="}}
    assert block == [ToolResultBlock("c1", {"content": [{"type": "text", "text": "the screen"}, image, image]})]
    assert back(messages) == messages


def test_several_results_in_one_message_become_one_in_each() -> None:
    both = AgentMessage("tool", [result("a"), PICTURE, result("b", call="c2")])
    told = back([calls("c1", "c2"), both])
    assert told[1:] == [AgentMessage("tool", [result("a"), PICTURE]), AgentMessage("tool", [result("b", call="c2")])]


def test_a_mark_that_does_not_fit_the_text_any_more_is_not_followed() -> None:
    cut = {"content": [{"type": "text", "text": '{"n":4'}], "details": {"holdfast": {"form": "json"}}}
    told = read(around(ToolResultBlock("c1", cut)), "s-1")
    assert told[2].content == [result(cut)]


def test_a_result_in_no_form_of_fluers_is_taken_as_it_is() -> None:
    for content in (7, "seen", {"seen": True}, {"content": "seen"}, {"content": [], "more": 1}):
        assert read(around(ToolResultBlock("c1", content)), "s-1") == around(result(content))


def test_reasoning_is_left_out_and_a_message_of_it_alone_too() -> None:
    thinking = AgentMessage("assistant", [ReasoningBlock("hm", "sig")])
    told = written([said("Hi"), thinking, AgentMessage("assistant", [ReasoningBlock("hm"), TextBlock("Hi.")])], "s-1")
    assert told == [said("Hi"), said("Hi.", "assistant")]


def test_calls_without_a_result_get_one_that_says_so() -> None:
    messages = [calls("c1", "c2"), AgentMessage("tool", [result("b", call="c2")]), said("And?"), calls("c1")]
    told = read(messages, "s-1")
    assert [message.role for message in told] == ["assistant", "tool", "tool", "user", "assistant", "tool"]
    lost = told[2].content[0]
    assert isinstance(lost, ToolResultBlock)
    assert (lost.tool_use_id, lost.is_error) == ("c1", True)
    assert "outcome of this call is unknown" in lost.content["error"]
    assert read(told, "s-1") == told


# --- any conversation ----------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
images = st.builds(
    ImageBlock, st.builds(ImageSource, st.sampled_from(["image/png", "image/jpeg"]), st.binary(max_size=9))
)
tricky = st.sampled_from(["Error:", "Error: ", "Error: x", "error: x", '{"n":1}', "", "null"])
their_results = st.fixed_dictionaries(
    {"content": st.lists((texts | tricky).map(lambda text: {"type": "text", "text": text}), max_size=3)},
    optional={"details": json_values | st.just({"holdfast": {"form": "json", "is_error": True}})},
)
contents = texts | tricky | json_values | their_results | st.fixed_dictionaries({"error": texts, "code": texts})


@st.composite
def exchanges(draw: st.DrawFn) -> list[AgentMessage]:
    """What a user says and what a model answers, calls and their results among it."""
    part: st.SearchStrategy[ContentBlock] = st.one_of(st.builds(TextBlock, texts), images)
    parts = st.lists(part, min_size=1, max_size=3)
    told = [AgentMessage(draw(st.sampled_from(["user", "system", "signal"])), draw(parts))]
    for number in range(draw(st.integers(0, 2))):
        ids = [f"call_{each}" for each in range(draw(st.integers(1, 3)))]
        made: list[ContentBlock] = [ToolUseBlock(each, "look", draw(json_values)) for each in ids]
        told.append(AgentMessage("assistant", [ReasoningBlock(f"{number}"), *draw(parts), *made]))
        for each in draw(st.permutations(ids)):
            block = ToolResultBlock(each, draw(contents), is_error=draw(st.booleans()))
            told.append(AgentMessage("tool", [block, *draw(st.lists(images, max_size=2))]))
    return [*told, AgentMessage("assistant", draw(parts))]


def without_reasoning(messages: Sequence[AgentMessage]) -> list[AgentMessage]:
    return [
        AgentMessage(each.role, [block for block in each.content if not isinstance(block, ReasoningBlock)])
        for each in messages
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(exchanges(), max_size=3))
def test_every_conversation_comes_back_as_it_was_but_for_reasoning(told: list[list[AgentMessage]]) -> None:
    messages = [message for each in told for message in each]
    assert back(messages) == without_reasoning(messages)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(exchanges(), max_size=3))
def test_what_is_written_has_the_form_of_fluers(told: list[list[AgentMessage]]) -> None:
    for message in written([message for each in told for message in each], "s-1"):
        if message.role == "tool":
            (block,) = message.content
            assert isinstance(block, ToolResultBlock)
            assert not block.is_error
            assert set(block.content) - {"details"} == {"content"}
            msgspec.convert(block.content["content"], list[TextBlock | ImageBlock])


# --- sessions ------------------------------------------------------------------------------------------


def find(what: str) -> Any:
    """Find something."""
    if what == "ghost":
        raise ToolError("there are no ghosts")
    return {"what": what, "n": 1} if what == "cups" else f"a {what}"


async def a_chat(runtime: Runtime) -> AgentSession:
    session = await runtime.session("chat-1").open()
    await session.turn("Find things").run()
    return session


def a_script() -> ScriptedProvider:
    calls = (tool_call("find", what=what) for what in ("hat", "cups", "ghost"))
    return ScriptedProvider([[reasoning("Where?"), *calls], "A hat, cups, no ghost."])


async def test_a_conversation_is_exported_and_goes_on_elsewhere() -> None:
    async with Runtime("memory:", provider=a_script(), tools=[find], model="m-1", instructions="Find.") as runtime:
        session = await a_chat(runtime)
        envelope = await export_envelope(session)
        before = (await session.read_view()).messages
    assert (envelope.model, envelope.max_turns, envelope.system_message) == ("scripted/m-1", 24, "Find.")
    assert envelope.metadata["holdfast_session"] == "chat-1"
    assert [message.role for message in envelope.messages] == ["user", "assistant", "tool", "tool", "tool", "assistant"]

    provider = ScriptedProvider(["As I said."])
    async with Runtime("memory:", provider=provider, model="m-2", instructions="Other.") as runtime:
        session = await import_envelope(runtime, "chat-2", envelope)
        assert (await session.turn("Sure?").run()).text == "As I said."
        request = provider.requests[0]
        assert (request.model, request.system) == ("m-1", "Find.")
        told = without_reasoning([AgentMessage(each.role, each.content) for each in before])  # type: ignore[arg-type]
        assert request.messages == [*told, said("Sure?")]
        view = await session.read_view()
        assert [each.text for each in view.messages if each.role != "tool"][-2:] == ["Sure?", "As I said."]


async def test_what_was_imported_is_exported_before_its_first_turn_and_after() -> None:
    envelope = an_envelope(said("Hi"), said("Hello.", "assistant"), model="scripted/m-1", max_turns=3)
    async with Runtime("memory:", provider=ScriptedProvider(["Yes."])) as runtime:
        session = await import_envelope(runtime, "chat-1", envelope)
        again = await export_envelope(session)
        assert (again.messages, again.model, again.max_turns) == (envelope.messages, "scripted/m-1", 3)
        await session.turn("More").run()
        assert (await export_envelope(session)).messages == [
            *envelope.messages,
            said("More"),
            said("Yes.", "assistant"),
        ]


async def test_the_caller_has_the_last_word_on_how_it_goes_on() -> None:
    envelope = an_envelope(said("Hi"), model="scripted/m-1", max_turns=3, system_message="Be short.")
    async with Runtime("memory:", provider=ScriptedProvider([]), model="own", instructions="Own.") as runtime:
        session = await import_envelope(runtime, "a", envelope)
        assert (session.policy.model, session.policy.instructions) == ("m-1", "Be short.")
        assert session.policy.limits.iterations == 3
        spec = Spec(model="m-9", instructions="Be long.", limits={"tool_calls": 5})
        session = await import_envelope(runtime, "b", envelope, spec=spec)
        assert (session.policy.model, session.policy.instructions) == ("m-9", "Be long.")
        assert (session.policy.limits.iterations, session.policy.limits.tool_calls) == (3, 5)
        session = await import_envelope(runtime, "c", envelope, spec=Spec(limits={"iterations": 9}))
        assert (session.policy.model, session.policy.limits.iterations) == ("m-1", 9)


async def test_what_an_envelope_does_not_say_is_the_runtimes() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([]), model="own", instructions="Own.") as runtime:
        session = await import_envelope(runtime, "a", an_envelope(said("Hi")))
        assert session.policy == runtime.policy


async def test_a_model_of_no_provider_here_is_a_name_with_a_slash() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        session = await import_envelope(runtime, "a", an_envelope(model="maker/large"))
        assert (session.policy.provider, session.policy.model) == ("scripted", "maker/large")


async def test_no_limit_is_written_as_none() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([]), spec=Spec(limits={"iterations": None})) as runtime:
        assert (await export_envelope(await runtime.session("a").open())).max_turns == 0


async def test_remarks_of_the_runtime_go_along() -> None:
    provider = ScriptedProvider([tool_call("find", what="hat"), "Well."])
    async with Runtime("memory:", provider=provider, tools=[find], spec=Spec(limits={"iterations": 1})) as runtime:
        session = await a_chat(runtime)
        messages = (await export_envelope(session)).messages
        assert messages[-1].role == "system"
        assert "stopped" in messages[-1].text
        again = await import_envelope(runtime, "b", an_envelope(*messages))
        await again.turn("Go on").run()
        assert provider.requests[-1].messages[-2].text == f"<runtime>\n{messages[-1].text}\n</runtime>"


async def test_the_task_of_a_frame_is_a_message() -> None:
    def move_on() -> SwitchFrame:
        """Begin the next part."""
        return SwitchFrame("part two", "Go on with part two.")

    provider = ScriptedProvider([tool_call("move_on"), "Here."])
    async with Runtime("memory:", provider=provider, tools=[move_on]) as runtime:
        session = await runtime.session("a").open()
        await session.turn("NewConversation").run()
        await session.turn("There?").run()
        messages = (await export_envelope(session)).messages
        assert [each.text for each in messages if each.role == "user"] == [
            "NewConversation",
            "Go on with part two.",
            "There?",
        ]


async def test_an_envelope_replaces_the_conversation_that_is_there_with_the_next_turn_only() -> None:
    async with Runtime("memory:", provider=ScriptedProvider(["One.", "Two."])) as runtime:
        first = await runtime.session("a").open()
        await first.turn("First").run()
        session = await import_envelope(runtime, "a", an_envelope(said("Before"), said("Yes.", "assistant")))
        assert [each.text for each in (await first.read_view()).messages] == ["First", "One."]
        await session.turn("Second").run()
        view = await first.read_view()
        assert [each.text for each in view.messages] == ["Before", "Yes.", "Second", "Two."]
        assert view.generation == 1


async def test_envelopes_of_sessions_are_kept_by_files_and_stores(tmp_path: Path) -> None:
    async with Runtime("memory:", provider=a_script(), tools=[find]) as runtime:
        envelope = await export_envelope(await a_chat(runtime))
    store = open_store("memory:")
    await store.open()
    for envelopes in (DirectoryEnvelopes(tmp_path), StoreEnvelopes(store)):
        await envelopes.save("chat-1", envelope)
        loaded = await envelopes.load("chat-1")
        assert loaded == envelope
        provider = ScriptedProvider(["Still here."])
        async with Runtime("memory:", provider=provider) as runtime:
            session = await import_envelope(runtime, "chat-1", loaded)
            assert (await session.turn("Sure?").run()).text == "Still here."
            assert len(provider.requests[0].messages) == len(envelope.messages) + 1


# --- from fluers ---------------------------------------------------------------------------------------


async def test_a_session_of_fluers_goes_on_here() -> None:
    envelope = read_envelope("chat-1", msgspec.json.decode(FLUERS.read_bytes()))
    provider = ScriptedProvider(["Gladly."], id="openrouter")
    async with Runtime("memory:", provider=provider, model="own") as runtime:
        session = await import_envelope(runtime, "chat-1", envelope)
        assert (await session.turn("Thanks").run()).text == "Gladly."
    request = provider.requests[0]
    assert (request.model, request.system) == ("acme/swift-2", "You look after a workshop.")
    assert session.policy.limits.iterations == 12
    assert [message.role for message in request.messages] == [
        *("user", "assistant", "tool", "tool", "assistant"),
        *("user", "assistant", "tool", "assistant", "user"),
    ]
    assert request.messages[0].content[1] == PICTURE
    listing, denied, both = [request.messages[number].content for number in (2, 3, 7)]
    assert listing == [ToolResultBlock("call_0", "lathe\nsaw\n")]
    assert denied == [ToolResultBlock("call_1", "Error: denied by policy: no writing today", is_error=True)]
    texts_of = [{"type": "text", "text": "shelf 1: glue"}, {"type": "text", "text": "shelf 2: nails"}]
    assert both == [ToolResultBlock("call_0", {"content": texts_of, "details": {"shelves": 2}}), PICTURE]


async def test_what_came_from_fluers_goes_back_as_it_was() -> None:
    plain = msgspec.json.decode(FLUERS.read_bytes())
    envelope = read_envelope("chat-1", plain)
    async with Runtime("memory:", provider=ScriptedProvider([], id="openrouter"), model="own") as runtime:
        again = await export_envelope(await import_envelope(runtime, "chat-1", envelope))
    assert msgspec.to_builtins(msgspec.structs.replace(again, metadata=envelope.metadata)) == plain


# --- bad envelopes -------------------------------------------------------------------------------------


@each_row(
    ("messages", "why"),
    [
        ([AgentMessage("tool", [result("x")])], r"messages\[0\]: a result of the call 'c1', which was not made"),
        (
            [calls("c1"), said("Hi"), AgentMessage("tool", [result("x")])],
            r"messages\[2\]: a result of the call 'c1', which was not made",
        ),
        (
            [calls("c1"), *[AgentMessage("tool", [result("x")])] * 2],
            r"messages\[2\]: a result of the call 'c1', which was not made",
        ),
        ([calls("c1"), said("x", "tool")], r"messages\[1\]: .* role tool cannot hold text"),
        ([calls("c1"), AgentMessage("tool")], r"messages\[1\]: .* role tool begins with a tool_result"),
        ([calls("c1"), AgentMessage("tool", [PICTURE])], r"messages\[1\]: .* role tool begins with a tool_result"),
        ([AgentMessage("user", [result("x")])], r"messages\[0\]: .* role user cannot hold tool_result"),
        ([AgentMessage("user", [ToolUseBlock("c1", "look", {})])], r"messages\[0\]: .* role user cannot hold tool_use"),
    ],
    ids=["orphan", "late", "twice", "text of a tool", "empty", "picture", "result of a user", "call of a user"],
)
async def test_a_bad_envelope_says_what_is_wrong_and_changes_nothing(messages: list[AgentMessage], why: str) -> None:
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        with pytest.raises(EnvelopeError, match=f"envelope of session 'a': {why}"):
            await import_envelope(runtime, "a", an_envelope(*messages))
        assert (await runtime.mount.holdfast.sessions()).rows == []


async def test_an_envelope_made_by_hand_is_looked_at_too() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([])) as runtime:
        with pytest.raises(InvalidValueError, match="max_turns"):
            await import_envelope(runtime, "a", an_envelope(max_turns=-1))
        with pytest.raises(InvalidValueError, match="surrogate"):
            await import_envelope(runtime, "a", an_envelope(said("\ud800")))
        with pytest.raises(InvalidIdError, match="session id"):
            await import_envelope(runtime, "../a", an_envelope())
        assert (await runtime.mount.holdfast.sessions()).rows == []
