"""Webhooks as the store keeps them, what they are told, and how that is signed (Standard Webhooks)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from holdfast.core.errors import InvalidValueError

NAMESPACE = "http.webhooks"
"""Where webhooks are, in the state of the store, each under its id."""

DELIVERIES = "http.deliveries"
"""Where what is to be sent is, and what was sent lately, for each webhook."""

EventType: TypeAlias = Literal["session.waiting", "session.ended", "turn.ended", "item.settled", "worker.lost", "ping"]
EVENT_TYPES: tuple[EventType, ...] = get_args(EventType)

MAX_WEBHOOKS = 50
"""Webhooks of a store."""

RETRY_S = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds until each further try of a delivery; after the last one, the webhook is switched off."""

KEPT_DELIVERIES = 100
"""Deliveries of a webhook that are kept, those that are still to be made included."""

OLD_SECRET_MS = 24 * 60 * 60 * 1000
"""Milliseconds for which the old secret signs too, after a new one was made."""

_SECRET = "whsec_"
_SECRET_BYTES = 32


class Webhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where to tell what."""

    id: str
    url: str
    types: list[str]
    include: Literal["ids", "content"] = "ids"
    """Whether what was asked and said is told, too."""
    id_prefix: str = ""
    program: str | None = None
    secret: str
    old_secret: str = ""
    old_until: int = 0
    enabled: bool = True
    why_disabled: str = ""
    created_at: int
    failures: int = 0
    """Failed tries in a row."""
    last_ok_at: int | None = None
    renewed_by: str = ""
    """The request that gave it its present secret, if it can be sent again."""

    def to_json(self) -> dict[str, Any]:
        """The webhook as it is listed, without its secrets."""
        shown: dict[str, Any] = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in ("secret", "old_secret", "old_until", "renewed_by")
        }
        return shown

    def secrets_at(self, now: int) -> list[str]:
        """What its deliveries are signed with."""
        return [self.secret, *([self.old_secret] if self.old_secret and now < self.old_until else [])]

    def wants(self, kind: str, session_id: str, program: str) -> bool:
        """Whether it is to be told of something."""
        return (
            self.enabled
            and (kind in self.types or kind == "ping")
            and session_id.startswith(self.id_prefix)
            and self.program in (None, program)
        )


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a webhook is told."""

    id: str
    """The same whichever process makes it: the session, the position, and the type."""
    type: str
    session_id: str
    body: str
    at: int
    tries: int = 0
    next_at: int = 0
    """When it is tried next (unix ms)."""
    status: int | None = None
    why: str = ""
    done: bool = False
    asked_by: str = ""
    """The request that had it made again last, if that can be sent again."""

    def to_json(self) -> dict[str, Any]:
        """The delivery as it is listed."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("body", "asked_by")}

    def after_try(self, now: int, status: int | None, why: str) -> Delivery:
        """The delivery after a try: done, or to be tried again."""
        ok = status is not None and 200 <= status < 300
        wait_s = RETRY_S[min(self.tries, len(RETRY_S) - 1)]
        jitter = 1 + (int(hashlib.sha256(self.id.encode()).hexdigest()[:4], 16) / 0xFFFF - 0.5) / 5
        return msgspec.structs.replace(
            self,
            tries=self.tries + 1,
            status=status,
            why="" if ok else why,
            done=ok,
            next_at=0 if ok else now + int(wait_s * jitter * 1000),
        )

    @property
    def is_given_up(self) -> bool:
        """Whether it has been tried as often as it may."""
        return not self.done and self.tries > len(RETRY_S)


def new_secret() -> str:
    """A secret that deliveries are signed with."""
    return _SECRET + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a delivery by one secret."""
    key = base64.b64decode(secret.removeprefix(_SECRET))
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def signed_headers(webhook: Webhook, delivery: Delivery, now: int) -> dict[str, str]:
    """The headers of a delivery: what it is, when it is sent, and its signatures."""
    timestamp, body = now // 1000, delivery.body.encode()
    marks = [signature(secret, delivery.id, timestamp, body) for secret in webhook.secrets_at(now)]
    return {
        "content-type": "application/json",
        "webhook-id": delivery.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(marks),
    }


def checked_types(types: list[str]) -> list[str]:
    """The types that a webhook is told of. Raises `InvalidValueError`."""
    if unknown := [each for each in types if each not in EVENT_TYPES]:
        raise InvalidValueError("types", f"no such type: {unknown[0]} (there are: {', '.join(EVENT_TYPES)})")
    if not types:
        raise InvalidValueError("types", f"choose some of {', '.join(EVENT_TYPES)}")
    return sorted(set(types))
