"""The scripted model: each kind of step, as a provider and behind a server."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.agent.machine.messages import ReasoningBlock, TextBlock, ToolResultBlock, ToolUseBlock
from holdfast.agent.providers.openai import OpenAIProvider
from holdfast.agent.providers.provider import ModelReply, ModelRequest, Provider, ProviderError
from holdfast.core.queries import Usage
from holdfast.testing import ModelServer, ScriptedProvider, fault, reasoning, reply, stream, tool_call
from holdfast.testing.patience import HANG_S, until
from holdfast.testing.provider import ModelScript, RawReply, ScriptedToolCall, ScriptStep
from tests.agent.providers.helpers import Heard, ask, assistant, hear, tool
from tests.tables import each_row


async def test_a_text_is_a_reply() -> None:
    heard = await hear(ScriptedProvider(["Hello!"]), ask(model="gpt"))
    assert heard.text == ["Hello!"]
    assert heard.reply == ModelReply(content=[TextBlock("Hello!")], stop="end", model="gpt")


async def test_a_stream_comes_in_its_pieces() -> None:
    heard = await hear(ScriptedProvider([stream("It ", "is ", "42.")]))
    assert heard.text == ["It ", "is ", "42."]
    assert heard.reply.content == [TextBlock("It is 42.")]


async def test_several_parts_are_one_reply_in_their_order() -> None:
    parts: list[ScriptStep] = [[reasoning("Hm.", "signed"), "Adding.", tool_call("add", a=2, b=40), tool_call("now")]]
    heard = await hear(ScriptedProvider(parts))
    assert (heard.reasoning, heard.text) == (["Hm."], ["Adding."])
    assert heard.reply.content == [
        ReasoningBlock("Hm.", "signed"),
        TextBlock("Adding."),
        ToolUseBlock("call_1", "add", {"a": 2, "b": 40}),
        ToolUseBlock("call_2", "now", {}),
    ]
    assert heard.reply.stop == "tool_use"


async def test_calls_are_numbered_through_the_conversation_in_any_process() -> None:
    before = [assistant(ToolUseBlock("call_1", "add", {})), tool(ToolResultBlock("call_1", 1))]
    heard = await hear(ScriptedProvider([tool_call("add", a=1)]), ask("Add", *before))
    assert heard.reply.content == [ToolUseBlock("call_2", "add", {"a": 1})]


async def test_a_call_may_have_any_argument_its_own_id_and_text_that_is_no_json() -> None:
    heard = await hear(ScriptedProvider([[tool_call("say", name="x", id=7), ScriptedToolCall("add", "{a", id="c9")]]))
    assert heard.reply.content == [
        ToolUseBlock("call_1", "say", {"name": "x", "id": 7}),
        ToolUseBlock("c9", "add", {"_raw": "{a"}),
    ]


async def test_a_reply_says_its_usage_its_stop_and_its_model() -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=4)
    heard = await hear(ScriptedProvider([reply("cut", usage=usage, stop="length", model="m-9")]))
    assert (heard.reply.usage, heard.reply.stop, heard.reply.model) == (usage, "length", "m-9")


async def test_a_reply_takes_its_time() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await hear(ScriptedProvider([reply(stream("a", "b", every_s=0.03), delay_s=0.05)]))
    assert loop.time() - began > 0.1


async def test_a_fault_is_raised_with_all_that_it_says() -> None:
    with pytest.raises(ProviderError, match="slow down") as caught:
        await hear(ScriptedProvider([fault("rate_limit", "slow down", retry_after_s=1, status=429)]))
    assert (caught.value.fault, caught.value.retry_after_s, caught.value.status) == ("rate_limit", 1, 429)


async def test_a_fault_in_the_middle_comes_after_its_text() -> None:
    heard = Heard()
    with pytest.raises(ProviderError, match="a scripted bad_stream"):
        await hear(ScriptedProvider([fault("bad_stream", after=["Hel", "lo"])]), into=heard)
    assert (heard.text, heard.replies) == (["Hel", "lo"], [])


async def test_a_function_answers_by_the_request() -> None:
    async def later(request: ModelRequest) -> ScriptStep:
        await asyncio.sleep(0)
        return lambda again: again.messages[-1].text.upper()

    provider = ScriptedProvider([lambda request: f"You said {request.messages[-1].text}", later])
    assert (await hear(provider, ask("one"))).text == ["You said one"]
    assert (await hear(provider, ask("two"))).text == ["TWO"]


async def test_requests_are_kept() -> None:
    provider = ScriptedProvider(["a", "b"])
    asked = [ask("one"), ask("two")]
    for request in asked:
        await hear(provider, request)
    assert provider.requests == asked


async def test_a_script_at_its_end_says_what_was_asked() -> None:
    provider = ScriptedProvider(["a"])
    await hear(provider)
    with pytest.raises(ProviderError, match='1 steps, and this is call 2, which asks "What now"') as caught:
        await hear(provider, ask("What now"))
    assert not caught.value.is_retried


async def test_an_empty_script_has_no_answer_even_as_a_loop() -> None:
    with pytest.raises(ProviderError, match="0 steps"):
        await hear(ScriptedProvider([], loop=True))


async def test_a_loop_begins_again() -> None:
    provider = ScriptedProvider(["a", "b"], loop=True)
    assert [(await hear(provider)).text for _ in range(5)] == [["a"], ["b"], ["a"], ["b"], ["a"]]


async def test_two_providers_can_share_a_script() -> None:
    script = ModelScript(["a", "b"])
    heard = [(await hear(ScriptedProvider(script, id=name))).text for name in ("one", "two")]
    assert heard == [["a"], ["b"]]


async def test_bytes_are_for_servers() -> None:
    with pytest.raises(ProviderError, match="needs a ModelServer"):
        await hear(ScriptedProvider([RawReply(body=b"x")]))


def test_it_is_a_provider() -> None:
    provider: Provider = ScriptedProvider([])
    assert isinstance(provider, Provider)
    assert provider.id == "scripted"


# --- behind a server -----------------------------------------------------------------------------------


STEPS: list[ScriptStep] = [
    "Hello!",
    [reasoning("Hm."), stream("a", "b"), tool_call("add", a=2, b=40), ScriptedToolCall("add", "{a")],
    reply("cut", usage=Usage(prompt_tokens=3, completion_tokens=4), stop="length", model="m-9"),
    reply("no", stop="refusal"),
    lambda request: f"You said {request.messages[-1].text}",
]


@each_row("step", STEPS, ids=range(len(STEPS)))
async def test_a_server_gives_what_the_provider_gives(step: ScriptStep) -> None:
    request = ask("Hi", assistant(ToolUseBlock("call_1", "add", {})), tool(ToolResultBlock("call_1", "1")), "there")
    async with ModelServer([step]) as server:
        provider = OpenAIProvider(server.url)
        heard = await hear(provider, request)
        await provider.aclose()
    other = await hear(ScriptedProvider([step]), request)
    assert (heard.reply, heard.text, heard.reasoning) == (other.reply, other.text, other.reasoning)
    assert server.requests == [request]


@each_row("kind", ["rate_limit", "overloaded", "auth", "invalid_request", "context_length"])
async def test_a_servers_faults_are_those_of_the_script_also_within_a_stream(kind: str) -> None:
    faults: list[ScriptStep] = [fault(kind, "why"), fault(kind, "why", after=["Hel"])]  # type: ignore[arg-type]
    async with ModelServer(faults) as server:
        provider = OpenAIProvider(server.url)
        for said in ([], ["Hel"]):
            heard = Heard()
            with pytest.raises(ProviderError, match="why") as caught:
                await hear(provider, into=heard)
            assert (caught.value.fault, heard.text) == (kind, said)
        await provider.aclose()


async def test_a_server_at_the_end_of_its_script_says_so() -> None:
    async with ModelServer([]) as server:
        provider = OpenAIProvider(server.url)
        with pytest.raises(ProviderError, match="the script has 0 steps") as caught:
            await hear(provider)
        await provider.aclose()
    assert not caught.value.is_retried


async def test_a_server_ends_while_clients_still_wait() -> None:
    async with ModelServer([fault("timeout"), reply("late", delay_s=60)]) as server:
        provider = OpenAIProvider(server.url)
        tasks = [asyncio.create_task(hear(provider)) for _ in range(2)]
        await until(lambda: len(server.requests) == 2)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await provider.aclose()
    assert [type(result) for result in results] == [ProviderError, ProviderError]


async def test_a_server_answers_several_at_once() -> None:
    async with ModelServer([reply("ok", delay_s=0.2)], loop=True) as server:
        provider = OpenAIProvider(server.url)
        async with asyncio.timeout(HANG_S):
            heard = await asyncio.gather(*[hear(provider) for _ in range(20)])
        await provider.aclose()
    assert [each.text for each in heard] == [["ok"]] * 20
