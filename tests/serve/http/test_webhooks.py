"""Webhooks: what happens is told once to each, signed, again until it is taken, and never to addresses inside."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Runtime
from holdfast.core.errors import InvalidValueError
from holdfast.engine.listed_offers import ListedOffers
from holdfast.engine.process_rows import GONE_MS, ProcessRow
from holdfast.engine.process_rows import NAMESPACE as PROCESSES
from holdfast.serve.http.door import Door
from holdfast.serve.webhooks import sender as sender_module
from holdfast.serve.webhooks.address import checked_url, is_public, resolved
from holdfast.serve.webhooks.records import RETRY_S, Delivery, Webhook, new_secret, signature
from holdfast.serve.webhooks.sender import LEASE_KEY, LEASE_NAMESPACE
from holdfast.testing.patience import until
from holdfast.testing.provider import ScriptedProvider
from tests.serve.http.programs import two_questions
from tests.serve.http.receiver import Receiver


@contextlib.asynccontextmanager
async def _door(tmp_path: Path, **options: Any) -> AsyncIterator[Door]:
    async with Runtime(f"sqlite:///{tmp_path}/s.db") as runtime:
        yield Door(runtime, allows_private_webhooks=True, **options)


@contextlib.asynccontextmanager
async def _sending(door: Door) -> AsyncIterator[None]:
    task = asyncio.create_task(door.webhook_sender.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _answer_all(door: Door, session_id: str) -> None:
    await door.holdfast.feed(session_id, {"q-0": "bug"})
    await door.holdfast.feed(session_id, {"q-1": "yes"})


async def test_the_end_of_a_session_is_told_with_a_signature_that_can_be_checked(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with _door(tmp_path) as door:
        webhook = await door.webhooks.add(receiver.url, ["session.ended"])
        await door.holdfast.start(two_questions, id="s-1")
        async with _sending(door):
            await _answer_all(door, "s-1")
            await until(lambda: receiver.got)
        headers, body = receiver.got[0]
        told = json.loads(body)
        assert (told["type"], told["data"]["session_id"], told["data"]["state"]) == (
            "session.ended",
            "s-1",
            "completed",
        )
        assert "result" not in told["data"], "contents are told only where the webhook says so"
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(webhook.secret.removeprefix("whsec_"))
        expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        position = (await door.store.session("s-1")).position
        assert headers["webhook-id"] == f"s-1.{position}.session.ended"


async def test_a_question_is_told_once_it_has_waited_for_a_while(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "QUIET_MS", 10)
    async with _door(tmp_path) as door:
        await door.webhooks.add(receiver.url, ["session.waiting"], include="content")
        async with _sending(door):
            await door.holdfast.start(two_questions, id="s-1", llm="host")
            await until(lambda: receiver.got)
            await door.holdfast.feed("s-1", {"q-0": "bug"})
            await until(lambda: len(receiver.got) == 2)
        asked = [json.loads(body)["data"]["asked"][0]["text"] for _, body in receiver.got]
        assert asked == ["Bug, wish or question?", "File it?"]


async def test_the_end_of_a_turn_is_told(tmp_path: Path, receiver: Receiver) -> None:
    provider = ScriptedProvider(["So."], loop=True)
    async with Runtime(f"sqlite:///{tmp_path}/s.db", provider=provider) as runtime:
        door = Door(runtime, allows_private_webhooks=True)
        await door.webhooks.add(receiver.url, ["turn.ended"])
        async with _sending(door):
            session = await runtime.session("chat").open()
            await session.turn("Why?").run()
            await until(lambda: receiver.got)
        assert receiver.types() == ["turn.ended"]


async def test_an_item_that_became_a_turn_and_one_that_was_withdrawn_are_told_once_each(
    tmp_path: Path, receiver: Receiver
) -> None:
    provider = ScriptedProvider(["So."], loop=True)
    async with Runtime(f"sqlite:///{tmp_path}/s.db", provider=provider) as runtime:
        door = Door(runtime, allows_private_webhooks=True)
        await door.webhooks.add(receiver.url, ["item.settled"])
        session = await runtime.session("chat").open()
        for item_id in ("i-1", "i-2", "i-3"):
            await session.enqueue("Why?").id(item_id)
        async with _sending(door):
            await session.queued_turn(["i-1"]).run()
            await session.cancel_queued_work("i-2", "too late", by="ann")
            await until(lambda: len(receiver.got) == 2)
        told = {each["data"]["item_id"]: each["data"] for each in (json.loads(body) for _, body in receiver.got)}
        assert (told["i-1"]["status"], told["i-1"]["outcome"]) == ("done", "message")
        assert (told["i-2"]["status"], told["i-2"]["by"]) == ("cancelled", "ann")
        ids = sorted(headers["webhook-id"] for headers, _ in receiver.got)
        assert ids == ["chat.i-1.item.settled", "chat.i-2.item.settled"]


async def test_a_worker_that_is_silent_for_too_long_is_told_of_once(tmp_path: Path, receiver: Receiver) -> None:
    async with _door(tmp_path) as door:
        await door.webhooks.add(receiver.url, ["worker.lost"])
        now = door.holdfast.now()
        for name, silent_ms in (("dead.1.ab", GONE_MS - 1), ("well.2.cd", 0), ("old.3.ef", 2 * GONE_MS)):
            row = ProcessRow(name, 0, now - silent_ms, ListedOffers())
            await door.store.put_state(PROCESSES, name, msgspec.to_builtins(row))
        async with _sending(door):
            await until(lambda: receiver.got)
        async with _sending(door):  # another sender sees the same
            await until(lambda: _looked(door))
        (told,) = [json.loads(body)["data"]["worker"] for _, body in receiver.got]
        assert told == "dead.1.ab", "and not of one that was lost before there was a webhook"


async def _looked(door: Door) -> bool:
    """Whether a sender has looked since it began."""
    item = await door.store.get_state(LEASE_NAMESPACE, LEASE_KEY)
    return item is not None and isinstance(item.value, dict) and item.value["until"] > 0


async def test_of_several_servers_one_sends_and_each_delivery_is_made_once(tmp_path: Path, receiver: Receiver) -> None:
    async with _door(tmp_path) as door, Runtime(door.store.url) as other:
        second = Door(other, allows_private_webhooks=True)
        await door.webhooks.add(receiver.url, ["session.ended"])
        for number in range(4):
            await door.holdfast.start(two_questions, id=f"s-{number}")
        async with _sending(door), _sending(second):
            for number in range(4):
                await _answer_all(door, f"s-{number}")
            await until(lambda: len(receiver.got) >= 4)
        ids = [headers["webhook-id"] for headers, _ in receiver.got]
        assert len(ids) == len(set(ids)) == 4


async def test_what_a_sender_left_undone_the_next_one_does(tmp_path: Path, receiver: Receiver) -> None:
    receiver.status = 500
    async with _door(tmp_path) as door:
        webhook = await door.webhooks.add(receiver.url, ["session.ended"])
        await door.holdfast.start(two_questions, id="s-1")

        async def is_noted() -> bool:
            return any(each.tries for each in await door.webhooks.deliveries(webhook.id))

        async with _sending(door):
            await _answer_all(door, "s-1")
            await until(is_noted)
        (waiting,) = await door.webhooks.deliveries(webhook.id)
        assert (waiting.done, waiting.status, waiting.tries) == (False, 500, 1)
        receiver.status = 204
        tried = await door.webhook_sender.send(webhook, waiting)
        assert (tried.done, len(receiver.got)) == (True, 2)
        assert receiver.got[0][0]["webhook-id"] == receiver.got[1][0]["webhook-id"]


async def test_a_receiver_that_is_gone_switches_its_webhook_off(tmp_path: Path, receiver: Receiver) -> None:
    receiver.status = 410
    async with _door(tmp_path) as door:
        webhook = await door.webhooks.add(receiver.url, ["session.ended"])
        await door.webhook_sender.send(webhook, _delivery())
        assert (await door.webhooks.get(webhook.id)).enabled is False


def test_a_delivery_is_tried_for_two_days_and_then_given_up() -> None:
    delivery, now = _delivery(), 0
    for number, wait_s in enumerate(RETRY_S, 1):
        delivery = delivery.after_try(now, None, "no answer")
        assert not delivery.is_given_up
        assert 0.85 * wait_s * 1000 < delivery.next_at - now < 1.15 * wait_s * 1000
        assert delivery.tries == number
    assert delivery.after_try(now, 503, "busy").is_given_up
    assert delivery.after_try(now, 200, "").done


def test_while_a_secret_is_changed_both_sign() -> None:
    old, new = new_secret(), new_secret()
    webhook = Webhook(id="w", url="u", types=[], secret=new, old_secret=old, old_until=10, created_at=0)
    assert webhook.secrets_at(9) == [new, old]
    assert webhook.secrets_at(10) == [new]
    assert signature(new, "i", 1, b"{}") != signature(old, "i", 1, b"{}")
    assert "secret" not in json.dumps(webhook.to_json())


@pytest.mark.parametrize(
    "number",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.9",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "fd00::2",
        "0.0.0.0",
        "::ffff:10.0.0.1",
    ],
)
def test_an_address_inside_is_not_public(number: str) -> None:
    assert not is_public(number)
    assert is_public("93.184.216.34")


async def test_a_webhook_is_never_sent_to_an_address_inside(tmp_path: Path, receiver: Receiver) -> None:
    with pytest.raises(InvalidValueError, match="https"):
        checked_url(receiver.url, allow_private=False)
    with pytest.raises(InvalidValueError, match="an address of this network"):
        await resolved("https://localhost/hook", allow_private=False)
    async with Runtime(f"sqlite:///{tmp_path}/s.db") as runtime:
        door = Door(runtime)
        webhook = await door.webhooks.add("https://localhost:1/hook", ["ping"])
        tried = await door.webhook_sender.send(webhook, _delivery())
        assert "an address of this network" in tried.why


def _delivery() -> Delivery:
    return Delivery(id="s-1.4.session.ended", type="session.ended", session_id="s-1", body="{}", at=0)
