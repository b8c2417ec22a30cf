"""The webhooks of a store, and what each of them has still to be told, all of it in the store's state."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.serve.http.problems import ApiError
from holdfast.serve.webhooks.records import (
    DELIVERIES,
    KEPT_DELIVERIES,
    MAX_WEBHOOKS,
    NAMESPACE,
    OLD_SECRET_MS,
    Delivery,
    Webhook,
    new_secret,
)
from holdfast.store.contract import Store
from holdfast.store.errors import StateConflictError


class Webhooks:
    """Reads and writes webhooks and their deliveries."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    async def list(self) -> Sequence[Webhook]:
        """All of them, by id."""
        keys = await self._store.list_state(NAMESPACE)
        found = [await self._store.get_state(NAMESPACE, key) for key in keys]
        return [msgspec.convert(item.value, Webhook) for item in found if item is not None]

    async def get(self, webhook_id: str) -> Webhook:
        """One of them. Raises a 404."""
        item = await self._store.get_state(NAMESPACE, webhook_id)
        if item is None:
            raise ApiError(404, "unknown_webhook", f"there is no webhook '{webhook_id}'")
        return msgspec.convert(item.value, Webhook)

    async def add(self, url: str, types: Sequence[str], *, id: str | None = None, **fields: Any) -> Webhook:
        """A new one, with a secret of its own. With an `id`, the same again is the same webhook.

        Raises a 409 if the one that has this id is another, and if there are too many.
        """
        if len(await self._store.list_state(NAMESPACE)) >= MAX_WEBHOOKS:
            raise ApiError(409, "too_many_webhooks", f"there are {MAX_WEBHOOKS} webhooks; remove one first")
        webhook = Webhook(
            id=id or f"wh-{secrets.token_hex(6)}",
            url=url,
            types=[*types],
            secret=new_secret(),
            created_at=self._now(),
            **fields,
        )
        try:
            await self._store.put_state(NAMESPACE, webhook.id, msgspec.to_builtins(webhook), expected=0)
        except StateConflictError:
            found = await self.get(webhook.id)
            if (found.url, found.types) != (webhook.url, webhook.types):
                why = f"this request has made webhook '{webhook.id}' before, with another address or other types"
                raise ApiError(409, "webhook_exists", why) from None
            return found
        return webhook

    async def change(self, webhook_id: str, **fields: Any) -> Webhook:
        """Change some fields. Raises a 404."""
        await self.get(webhook_id)
        item = await self._store.update_state(
            NAMESPACE,
            webhook_id,
            lambda value: msgspec.to_builtins(msgspec.structs.replace(msgspec.convert(value, Webhook), **fields)),
        )
        return msgspec.convert(item.value, Webhook)

    async def renew_secret(self, webhook_id: str, by: str = "") -> Webhook:
        """Give it a new secret; the old one signs too for a day. Raises a 404.

        `by` names the request: if it gave the webhook its present secret, nothing changes.
        """
        await self.get(webhook_id)
        fields = {"secret": new_secret(), "old_until": self._now() + OLD_SECRET_MS, "renewed_by": by}

        def renewed(value: Any) -> Any:
            webhook = msgspec.convert(value, Webhook)
            if by and webhook.renewed_by == by:
                return value
            return msgspec.to_builtins(msgspec.structs.replace(webhook, old_secret=webhook.secret, **fields))

        item = await self._store.update_state(NAMESPACE, webhook_id, renewed)
        return msgspec.convert(item.value, Webhook)

    async def remove(self, webhook_id: str) -> None:
        """Forget it, and what it was to be told. Raises a 404."""
        await self.get(webhook_id)
        await self._store.delete_state(NAMESPACE, webhook_id)
        await self._store.delete_state(DELIVERIES, webhook_id)

    async def deliveries(self, webhook_id: str) -> Sequence[Delivery]:
        """Its deliveries, the latest first."""
        item = await self._store.get_state(DELIVERIES, webhook_id)
        return [] if item is None else msgspec.convert(item.value, list[Delivery])

    async def put(self, webhook_id: str, delivery: Delivery) -> bool:
        """Add a delivery, or replace the one with its id; False if it was there already and stays as it is."""
        is_new = True

        def changed(value: Any) -> Any:
            nonlocal is_new
            kept = msgspec.convert(value or [], list[Delivery])
            known = next((each for each in kept if each.id == delivery.id), None)
            is_new = known is None
            if known is not None and delivery.tries == 0 and not (known.done and delivery.next_at):
                return value  # it was told of before
            others = [each for each in kept if each.id != delivery.id]
            return msgspec.to_builtins([delivery, *others][:KEPT_DELIVERIES])

        await self._store.update_state(DELIVERIES, webhook_id, changed)
        return is_new
