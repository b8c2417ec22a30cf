"""The door: what the endpoints of a server share, and how it closes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from holdfast.agent.runtime import Runtime
from holdfast.core.errors import InvalidValueError
from holdfast.engine.holdfast import Holdfast
from holdfast.serve.http.bulk import BulkOperations
from holdfast.serve.http.counts import Counts
from holdfast.serve.http.limits import MAX_KEY_CHARS
from holdfast.serve.http.links import Links
from holdfast.serve.http.logins import Logins
from holdfast.serve.http.metrics import ServerMetrics
from holdfast.serve.http.rates import Rates
from holdfast.serve.http.session_feed import SessionFeed
from holdfast.serve.http.strategy_scores import StrategyScores
from holdfast.serve.http.tokens import SCOPES, Principal, Tokens, unauthorized
from holdfast.serve.webhooks.registry import Webhooks
from holdfast.serve.webhooks.sender import WebhookSender
from holdfast.store.contract import Store


class Door:
    """A runtime that is served over HTTP."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        name: str = "agent",
        local_token: str | None = None,
        allows_private_webhooks: bool = False,
    ) -> None:
        """`name` is what the runtime's agents are found under; `local_token` is one that the store does not know.

        Whoever has the local token may do everything: it is for the machine that the server runs on.
        `allows_private_webhooks` lets webhooks be sent to addresses of this machine and its network.
        """
        self.runtime = runtime
        self.name = name
        self.closing = asyncio.Event()
        self._local_token = local_token
        loop_time = asyncio.get_running_loop().time
        self.tokens = Tokens(self.store, self.holdfast.now, loop_time)
        self.rates = Rates(loop_time)
        self.logins = Logins(loop_time)
        self.counts = Counts(self.store, loop_time)
        self.feed = SessionFeed(self.store, self.holdfast.now)
        self.strategy_scores = StrategyScores(self.store)
        self.metrics = ServerMetrics()
        self.store.append_timer = self.metrics.commit_s.observe
        self.holdfast.on_commit(self.metrics.on_commit)
        self.is_metrics_open = False
        """Whether metrics are shown to whoever asks, without a token."""
        self.links = Links(self.store, self.holdfast.now)
        self.bulk = BulkOperations(self.holdfast, self.links.secret)
        self.allows_private_webhooks = allows_private_webhooks
        self.webhooks = Webhooks(self.store, self.holdfast.now)
        self.webhook_sender = WebhookSender(
            self.holdfast,
            self.webhooks,
            lambda session_id: runtime.mount.conversations.get(session_id, fresh=True),
            allow_private=allows_private_webhooks,
            counted=lambda outcome: self.metrics.webhooks.update([outcome]),
        )
        self.features: set[str] = set()
        """What this server has beside the API: `console`, `webhooks`, `work`, `demo`; `packages` if it changes them."""

    @property
    def holdfast(self) -> Holdfast:
        """The sessions of the runtime's own store."""
        return self.runtime.mount.holdfast

    @property
    def store(self) -> Store:
        return self.runtime.mount.store

    def new_code(self) -> str | None:
        """A code by which a browser gets the local token, once and soon; None if there is no such token."""
        return None if self._local_token is None else self.logins.new_code(self._local_token)

    def close(self) -> None:
        """End streams, and refuse what comes from now on."""
        self.closing.set()

    async def principal(self, authorization: str | None) -> Principal:
        """Who sends a request with this header. Raises a 401."""
        if authorization is None:
            raise unauthorized("a token is needed")
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise unauthorized("only bearer tokens are taken")
        local = self._local_token
        if local is not None and hmac.compare_digest(token.encode(), local.encode()):
            return Principal("local", frozenset(SCOPES), token_id="local")
        return await self.tokens.principal(token)


def derived_id(prefix: str, principal: Principal, what: str, key: str | None) -> str | None:
    """The id that follows from an `Idempotency-Key`, or None without one.

    The same key of the same client names the same thing, so a request that is sent again finds what the first one made,
    on whichever server and after whichever crash. Nothing has to be remembered for that.
    """
    if key is None:
        return None
    if not 0 < len(key) <= MAX_KEY_CHARS or not key.isprintable():
        raise InvalidValueError("Idempotency-Key", f"it is 1 to {MAX_KEY_CHARS} printable characters")
    text = "\0".join((principal.token_id, what, key))
    return f"{prefix}k{hashlib.sha256(text.encode()).hexdigest()[:32]}"
