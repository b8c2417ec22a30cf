"""Large values hold up nobody: they are checked, encoded and stored off the event loop, and kept as they are."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from holdfast.agent.machine.messages import AgentMessage, ContentBlock, ImageBlock, ImageSource, TextBlock
from holdfast.agent.machine.turn_input import PIECE_BYTES, NewConversation, TurnInput, input_of
from holdfast.agent.tools import tool
from holdfast.core.errors import InvalidValueError
from holdfast.core.large import LARGE_CHARS, LARGE_NODES, encode_in_pieces, in_pieces, is_large
from holdfast.core.queries import Value
from holdfast.core.records import AnsweredRecord
from holdfast.core.values import encode_checked, own_copy
from holdfast.engine.holdfast import open_holdfast
from holdfast.programs.native.ctx import Context
from holdfast.testing.loop_meter import LoopMeter
from holdfast.testing.patience import patience, soon
from holdfast.testing.provider import tool_call
from tests.agent.helpers import Home
from tests.engine.helpers import result

MOST_MS = patience(50.0)
"""How long one value may hold the event loop, in CPU time."""


def objects(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"item {number}", "tags": ["a", "b"]} for number in range(count)]


async def test_a_tool_result_of_many_objects_does_not_hold_the_loop(home: Home) -> None:
    listed = objects(40_000)

    @tool
    async def listing() -> Any:
        """List everything."""
        return listed

    async with home.runtime(tool_call("listing"), "Done.", tools=[listing]) as runtime:
        session = await runtime.session("s").open()
        with LoopMeter.running() as meter:
            assert (await soon(session.turn("List").run())).text == "Done."
        assert meter.longest_ms < MOST_MS, meter.what


@pytest.mark.parametrize("size", [0, 1, 2, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_an_image_that_is_encoded_in_pieces_is_the_same_as_one_that_is_not(size: int) -> None:
    content: list[ContentBlock] = [TextBlock("Look"), ImageBlock(ImageSource("image/png", os.urandom(size)))]
    given = TurnInput(turn="t-1", content=content, begin=NewConversation([AgentMessage("user", content)]))
    assert given.to_answer().value == msgspec.to_builtins(given)
    assert input_of(given.to_answer()) == given


async def test_an_image_does_not_hold_the_loop(home: Home) -> None:
    image = ImageBlock(ImageSource("image/png", os.urandom(8_000_000)))
    async with home.runtime("I see.") as runtime:
        session = await runtime.session("s").open()
        with LoopMeter.running() as meter:
            assert (await soon(session.turn([TextBlock("Look"), image]).run())).text == "I see."
        assert meter.longest_ms < MOST_MS, meter.what
    async with home.runtime() as runtime:
        session = await runtime.session("s").open()
        (turn,) = (await session.conversation()).turns.values()
        assert turn.content == [TextBlock("Look"), image]


async def test_a_large_answer_of_a_driver_reaches_its_program_as_it_is() -> None:
    async def asks(ctx: Context) -> Any:
        found = await ctx.tool("listing")
        return [len(found), found[-1]]

    listed = objects(20_000)
    async with open_holdfast("memory:") as hf:
        hf.drive("listing", lambda: listed)
        assert result(await soon(hf.start(asks))) == [20_000, listed[-1]]


def test_what_is_large_is_seen_without_looking_at_all_of_it() -> None:
    assert is_large(list(range(LARGE_NODES)))
    assert is_large({"a": [{"b": "x" * (LARGE_CHARS + 1)}]})
    assert is_large(AnsweredRecord(query_id="q-0", answer=Value(value=list(range(LARGE_NODES)))))
    assert not is_large(list(range(LARGE_NODES - 1)))
    assert not is_large({"a": [{"b": "x" * LARGE_CHARS}]})


@pytest.mark.parametrize(
    "value",
    [
        objects(3_000),
        {"all": objects(3_000), "few": [1, 2], "text": "x" * (LARGE_CHARS + 1)},
        {str(number): {"a": number} for number in range(5_000)},
        [objects(1_500), [objects(1_500)], []],
    ],
    ids=["list", "object", "many keys", "nested"],
)
def test_a_large_value_is_copied_and_encoded_as_any_other(value: Any) -> None:
    assert is_large(value)
    copied = own_copy(value)
    assert copied == value
    assert copied is not value
    assert in_pieces(value, lambda piece: piece) == value
    record = AnsweredRecord(query_id="q-0", answer=Value(value=value))
    assert encode_checked(record, "answer") == encode_in_pieces(record) == msgspec.json.encode(record)
    assert encode_in_pieces(value) == msgspec.json.encode(value)


def test_what_cannot_be_kept_is_found_in_a_large_value() -> None:
    broken = objects(5_000)
    broken[4_000]["name"] = float("nan")
    with pytest.raises(InvalidValueError, match=r"\[4000\]\.name"):
        encode_checked(AnsweredRecord(query_id="q-0", answer=Value(value=broken)), "answer")
    with pytest.raises(InvalidValueError):
        encode_checked(AnsweredRecord(query_id=7, answer=Value(value=objects(5_000))), "answer")  # type: ignore[arg-type]
