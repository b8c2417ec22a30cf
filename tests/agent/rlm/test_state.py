"""What variables cost: a change stores that variable, and a session grows by what was said."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.agent.machine.records import BoundRecord, LeavesRecord
from holdfast.agent.rlm.limits import RECORD_BYTES
from holdfast.agent.rlm.values import leaf_of
from holdfast.agent.rlm.variables import Bindings, VariableTable
from holdfast.core.values import encode
from holdfast.store import open_store
from holdfast.store.codec import unpack_blob
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


def bound_in_records(bindings: Bindings, before: int) -> tuple[list[LeavesRecord], BoundRecord, VariableTable]:
    """The records of bindings that are written after a position, and the table that follows from them."""
    parts, rest = bindings.split()
    table = VariableTable()
    table.bind(rest, before + len(parts) + 1)
    return [LeavesRecord(values=each) for each in parts], BoundRecord(cell=1, bindings=rest), table


def test_values_that_make_a_long_record_are_in_records_of_their_own() -> None:
    texts = {f"v{n}": encode("x" * (n * 100 % 7_000)).decode() for n in range(100)}
    texts["long"], texts["last"] = encode("y" * 50_000).decode(), "1"
    bindings = Bindings(set={name: leaf_of(text, "str") for name, text in texts.items()}, aliases=[["long", "other"]])
    leaves, bound, table = bound_in_records(bindings, 10)
    assert all(sum(map(len, each.values.values())) <= RECORD_BYTES for each in leaves if "long" not in each.values)
    assert [list(each.values) for each in leaves if "long" in each.values] == [["long"]]
    assert sum(len(leaf.json) for leaf in bound.bindings.set.values() if not leaf.back) <= RECORD_BYTES
    assert "last" in table.variables  # it fits in although others before it did not
    for name, text in {**texts, "other": texts["long"]}.items():
        variable = table.variables[name]
        kept = variable.leaf or name
        if variable.position == 10 + len(leaves) + 1:
            assert bound.bindings.set[kept].json == text
        else:
            assert leaves[variable.position - 11].values[kept] == text


def test_a_few_small_values_are_in_the_record_of_the_cell() -> None:
    bindings = Bindings(set={f"v{n}": leaf_of("[1, 2]", "list") for n in range(50)})
    assert bindings.split() == ([], bindings)


DISTINCT = "for n in range(300):\n    exec(f'v{n} = list(range({n}, {n} + 600))')"
"""A cell that makes 300 variables of 3 KB, each with another value."""


def lose_values_without(path: Path, *names: str) -> int:
    """Delete all blobs with values of variables but those that have these; gives how many are left."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT id, packing, size, data FROM blobs").fetchall()
        left = [row[0] for row in rows if any(f'"{name}":'.encode() in (unpack_blob(*row) or b"") for name in names)]
        connection.execute(f"DELETE FROM blobs WHERE id NOT IN ({','.join('?' * len(left))})", left)
        connection.commit()
        return len(left)
    finally:
        connection.close()


async def test_a_session_that_is_opened_again_reads_the_variables_that_its_cell_reads(tmp_path: Path) -> None:
    """It does not notice that the other values are lost."""
    path = tmp_path / "s.db"
    store = f"sqlite:///{path}"
    async with rlm(cell(f"{DISTINCT}\nfinish(1)"), "ok", "ok", store=store) as agent:
        await agent.turn()
        await agent.turn()  # writes the checkpoint
        (made,) = await agent.bound()
        assert made.bindings.set["v0"].back == 0
        assert made.bindings.set["v299"].back > 0
    async with open_store(store) as opened:
        found = await opened.checkpoint("s")
    assert found is not None, "the cell that made them is not read again"
    assert lose_values_without(path, "v7", "v250") <= 3
    async with rlm(cell("finish([v7[0], v250[599]])"), store=store) as agent:
        assert (await agent.turn()).value == [7, 849]


async def test_a_cell_may_read_all_variables_at_once(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    async with rlm(cell(DISTINCT), "ok", store=store) as agent:
        await agent.turn()
    everything = f"finish(sum([{', '.join(f'v{n}[0]' for n in range(300))}]))"
    async with rlm(cell(everything), store=store) as agent:
        assert (await agent.turn()).value == sum(range(300))


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
