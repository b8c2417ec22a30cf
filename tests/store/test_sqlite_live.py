"""Live messages between store objects on one SQLite file, as between processes: by sockets beside the file."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from holdfast.store import Store, open_store
from holdfast.store.sqlite.live import DATAGRAM_BYTES, LOOK_S, socket_directory
from holdfast.store.watch import MissedMessages
from holdfast.testing.laws.live import listened, payloads
from holdfast.testing.patience import HANG_S


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/a.db"


async def _until_heard(publisher: Store, session_id: str) -> None:
    async with asyncio.timeout(HANG_S):
        while not publisher.may_be_heard(session_id):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(LOOK_S)


async def test_a_listener_hears_another_store_object_in_order(url: str) -> None:
    async with open_store(url) as one, open_store(url) as other:
        assert not one.may_be_heard("s-1")
        with other.listen("s-1") as stream, other.listen("s-2") as silent:
            await _until_heard(one, "s-1")
            sent = [b"%d" % number for number in range(200)]
            for payload in sent:
                one.publish("s-1", payload)
            assert await listened(stream, sent[-1]) == sent
            assert await silent.read(0.05) == []


async def test_what_one_publishes_itself_is_heard_once(url: str) -> None:
    async with open_store(url) as one, open_store(url) as other:
        with one.listen("s-1") as own, other.listen("s-1") as stream:
            await _until_heard(one, "s-1")
            one.publish("s-1", b"hello")
            assert await listened(stream, b"hello") == [b"hello"]
            assert await own.read(0.1) == [b"hello"]
            assert await own.read(0.1) == []


async def test_much_at_once_comes_in_several_datagrams(url: str) -> None:
    async with open_store(url) as one, open_store(url) as other:
        with other.listen("s-1") as stream:
            await _until_heard(one, "s-1")
            sent = [bytes([number]) * (DATAGRAM_BYTES // 3) for number in range(8)]
            for payload in sent:
                one.publish("s-1", payload)
            assert payloads(await listened(stream, sent[-1])) == sent


async def test_a_listener_that_stands_still_is_told_that_it_missed_something(url: str) -> None:
    async with open_store(url) as one, open_store(url) as other:
        with other.listen("s-1") as stream:
            await _until_heard(one, "s-1")
            loop = asyncio.get_running_loop()
            opened = other._streams._socket  # type: ignore[attr-defined]
            loop.remove_reader(opened)
            for number in range(2_000):
                one._publisher._waiting = {"s-1": [b"x" * 1_000 + b"%d" % number]}  # type: ignore[attr-defined]
                one._publisher._send()  # type: ignore[attr-defined]
            loop.add_reader(opened, other._streams._read)  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
            await stream.read()
            one.publish("s-1", b"the last")
            heard = await listened(stream, b"the last")
            assert heard == [MissedMessages(), b"the last"]


async def test_the_socket_of_a_dead_process_is_removed(url: str, tmp_path: Path) -> None:
    async with open_store(url) as one:
        directory = Path(socket_directory(str(tmp_path / "a.db")))
        directory.mkdir(exist_ok=True)  # a long path has it elsewhere, and an earlier run may have had the same
        left = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        left.bind(str(directory / "left"))
        left.close()
        assert one.may_be_heard("s-1")
        one.publish("s-1", b"hello")
        async with asyncio.timeout(HANG_S):
            while (directory / "left").exists():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)


async def test_nothing_is_left_beside_the_file_when_nobody_listens(url: str, tmp_path: Path) -> None:
    async with open_store(url) as one:
        with one.listen("s-1"):
            assert Path(socket_directory(str(tmp_path / "a.db"))).is_dir()
        assert not Path(socket_directory(str(tmp_path / "a.db"))).exists()


def test_a_long_path_has_its_sockets_in_a_temporary_directory() -> None:
    assert socket_directory("/x/a.db") == "/x/a.db-live"
    assert len(socket_directory("/" + "x" * 200 + "/a.db")) < 100


async def test_a_store_that_is_closed_publishes_nothing_and_opens_no_socket(url: str) -> None:
    async with open_store(url) as other, open_store(url) as one:
        with other.listen("s-1") as stream:
            await _until_heard(one, "s-1")
            await one.close()
            one.publish("s-1", b"late")
            assert await stream.read(0.1) == []
            await one.open()
            one.publish("s-1", b"again")
            assert await listened(stream, b"again") == [b"again"]
