"""What variables cost: a change stores that variable, and a session grows by what was said."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.core.values import encode
from tests.agent.rlm.helpers import cell, rlm
from tests.agent.rlm.restart_child import HELD


def stored(path: Path) -> tuple[int, int]:
    """Bytes of all records and blobs, and the number of blobs."""
    connection = sqlite3.connect(path)
    try:
        (records,) = connection.execute("SELECT sum(length(body)) FROM journal").fetchone()
        count, blobs = connection.execute("SELECT count(*), coalesce(sum(length(data)), 0) FROM blobs").fetchone()
        return int(records) + int(blobs), int(count)
    finally:
        connection.close()


async def test_a_cell_that_changes_one_of_300_variables_stores_that_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    script = (cell(HELD), "ok", cell("v7 = v8 + v9\nlen(v10)"), "ok")
    async with rlm(*script, store=f"sqlite:///{path}") as agent:
        await agent.turn()
        size, blobs = stored(path)
        await agent.turn()
        more, after = stored(path)
        (_, change) = await agent.bound()
        assert list(change.bindings.set) == ["v7"]
        assert after - blobs == 1  # its value
        assert more - size <= 6_000


async def test_a_hundred_turns_store_what_was_said_and_the_values_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    prose = "The next hundred rows are added to those that were read before, and then the sum is printed again. " * 4
    change = "rows = [n * number for n in range(100)]\nprint(sum(rows))"
    script = [
        each
        for number in range(100)
        for each in (cell(f"number = {number}\n{change}", prose), f"Turn {number}. {prose}")
    ]
    sizes, values = [], 0
    async with rlm(*script, store=f"sqlite:///{path}") as agent:
        for _ in range(100):
            await agent.turn("And the next ones, please, as before.")
            sizes.append(stored(path)[0])
        for record in await agent.bound():
            values += sum(len(encode(leaf)) for leaf in record.bindings.set.values())
        conversation = await agent.runtime.mount.conversations.get("s")
        text = sum(len(message.text.encode()) for message in conversation.messages)
    assert sizes[-1] <= 1.5 * (text + values)
    assert sizes[99] - sizes[49] <= 1.2 * (sizes[49] - sizes[0])
