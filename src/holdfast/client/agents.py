"""Agents of a server: `SessionClient` has the words of `AgentSession`, and its builders those of its builders."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from holdfast.agent.cancellation import CancelReceipt
from holdfast.agent.errors import StoreSessionMismatchError
from holdfast.agent.machine.approval import Approval
from holdfast.agent.machine.inbox import Delivery, Item, Slot
from holdfast.agent.machine.policy import Policy, Spec, spec_from
from holdfast.agent.observed_events import ObservedEvent
from holdfast.agent.queue import ItemOutcome, ItemReceipt
from holdfast.agent.result_type import ResultType
from holdfast.agent.results import TurnResult, UsageReport, ViewMessage
from holdfast.agent.session_builder import AgentState
from holdfast.agent.turn_builder import BeginReceipt, Input, content_of
from holdfast.client.api_client import ApiClient
from holdfast.client.observer import ObserverClient
from holdfast.client.reports import PastItemsPage
from holdfast.client.wire import answer_body, seen_of
from holdfast.core.errors import InvalidValueError
from holdfast.core.ids import check_id

WAIT_S = 30.0
"""Seconds that one request waits at a server for the end of a turn; it is asked again and again."""


class SessionClientBuilder:
    """Collects what a session is opened with."""

    def __init__(self, client: ApiClient, agent: str, session_id: str) -> None:
        self._client = client
        self._agent = agent
        self._body: dict[str, Any] = {"id": check_id(session_id, "session id")}

    def spec(self, spec: Spec | None = None, **fields: Any) -> Self:
        """Where the policy differs from the server's."""
        self._body["spec"] = msgspec.to_builtins(spec if spec is not None else spec_from(fields))
        return self

    def approval(self, approval: Approval) -> Self:
        """Add rules about tool calls."""
        self._body["approval"] = msgspec.to_builtins(approval)
        return self

    def parent(self, session_id: str) -> Self:
        """Make this session a child of another one."""
        self._body["parent"] = check_id(session_id, "parent session id")
        return self

    async def open(self) -> SessionClient:
        """Open the stored session, or begin it."""
        report = await self._client.post(f"/agents/{self._agent}/sessions", self._body)
        policy = msgspec.convert(report["policy"], Policy)
        return SessionClient(self._client, report["session_id"], policy)

    async def open_fresh(self) -> SessionClient:
        """Start over under the same id. At the next turn, the stored conversation becomes a closed branch."""
        return await self.open_with_state(AgentState(session_id=self._body["id"], messages=[]))

    async def open_with_state(self, state: AgentState) -> SessionClient:
        """Continue from a conversation that the caller provides; it replaces the stored one at the next turn."""
        if state.session_id != self._body["id"]:
            raise StoreSessionMismatchError(state.session_id, self._body["id"])
        if state.policy is not None:
            raise InvalidValueError("state.policy", "a server keeps its own; say by `spec` how turns are to be run")
        session = await self.open()
        messages = msgspec.to_builtins(state.messages)
        session.next_conversation.body = {"messages": messages, "spec": self._body.get("spec", {})}
        return session


@dataclass
class NextConversation:
    """What the next turn of a session starts over with; None if it goes on."""

    body: dict[str, Any] | None = None


class SessionClient:
    """An agent's session on a server."""

    def __init__(self, client: ApiClient, session_id: str, policy: Policy) -> None:
        self._client = client
        self.session_id = session_id
        self.policy = policy
        """The policy of the next turn, as it was when this handle was opened or last changed it."""
        self.next_conversation = NextConversation()

    @property
    def _path(self) -> str:
        return f"/sessions/{self.session_id}"

    def turn(self, content: Input) -> TurnClientBuilder:
        """A turn with this input, not yet begun: `.run()`, `.begin()` or `.stream()` begin it."""
        return TurnClientBuilder(self._client, self.session_id, content, self.next_conversation)

    async def answer(self, query_id: str, value: Any) -> None:
        """Answer a query that the running turn waits for: a call of a declared tool, or an approval."""
        await self._client.post(f"{self._path}/queries/{query_id}/answer", answer_body(value))

    async def cancel(
        self, turn: str | None = None, *, item: str | None = None, reason: str | None = None
    ) -> CancelReceipt:
        """Stop a turn or withdraw an item by its id; with neither, stop the running turn."""
        if item is not None:
            params = {"reason": reason} if reason is not None else None
            await self._client.request("DELETE", f"{self._path}/items/{item}", params=params)
            outcome = await self.outcome(item)
            state: Any = "withdrawn" if outcome.status == "cancelled" else "stopped"
            return CancelReceipt(session_id=self.session_id, state=state, turn=outcome.turn, item=item)
        shown = await self._client.post(f"{self._path}/turns/{turn or 'current'}/cancel", {"reason": reason})
        return msgspec.convert(shown, CancelReceipt)

    async def stop(self, reason: str = "stopped by the user") -> bool:
        """Stop the running turn, and wait until it is over."""
        return (await self.cancel(reason=reason)).state == "stopped"

    def enqueue(self, content: Input) -> EnqueueClientBuilder:
        """Send an input to the session's inbox: `await session.enqueue("…").id("req-9")`."""
        return EnqueueClientBuilder(self._client, self.session_id, content)

    async def queued_work(self) -> list[Item]:
        """The waiting items of the inbox, in order."""
        return msgspec.convert(await self._client.get(f"{self._path}/items"), list[Item])

    async def past_items(self, *, before: int | None = None, limit: int = 50) -> PastItemsPage:
        """What has left the inbox: taken by turns, or withdrawn. The latest that was sent comes first."""
        return await past_items_of(self._client, self.session_id, before, limit)

    async def outcome(self, item_id: str) -> ItemOutcome:
        """What has become of an item so far. Raises `UnknownItemError`."""
        return msgspec.convert(await self._client.get(f"{self._path}/items/{item_id}"), ItemOutcome)

    async def wait_for(self, item_id: str, timeout: float | None = None) -> ItemOutcome:  # noqa: ASYNC109
        """Wait until any process has settled an item. After a `TimeoutError` it can be waited for again."""
        async with asyncio.timeout(timeout):
            while True:
                shown = await self._client.get(f"{self._path}/items/{item_id}", {"wait_s": WAIT_S})
                if (found := msgspec.convert(shown, ItemOutcome)).is_settled:
                    return found

    async def turn_result(self, turn_id: str, timeout: float | None = None) -> TurnResult:  # noqa: ASYNC109
        """Wait until any process has ended a turn that has begun."""
        async with asyncio.timeout(timeout):
            while True:
                shown = await self._client.get(f"{self._path}/turns/{turn_id}", {"wait_s": WAIT_S})
                if shown.get("result") is not None:
                    return msgspec.convert(shown["result"], TurnResult)

    def observe(self) -> ObserverClient:
        """An observer of the session."""
        return ObserverClient(self._client, self.session_id, entries=False)

    async def messages(self) -> list[ViewMessage]:
        """All messages of the conversation, the oldest first."""
        found: list[ViewMessage] = []
        before: str | None = None
        while True:
            page = await self._client.get(f"{self._path}/conversation", {"before": before, "limit": 1000})
            found = [*msgspec.convert(page["messages"], list[ViewMessage]), *found]
            before = page["before"]
            if before is None:
                return found

    async def usage_report(self) -> UsageReport:
        """The usage of all turns."""
        return msgspec.convert(await self._client.get(f"{self._path}/usage"), UsageReport)

    async def attachments(self) -> list[str]:
        """The ids of the pictures in the conversation, in the order in which they came."""
        return [each["id"] for each in (await self._client.get(f"{self._path}/attachments"))["data"]]

    async def attachment(self, id: str) -> bytes:
        """The bytes of a picture in the conversation."""
        return await self._client.download(f"{self._path}/attachments/{id}")

    async def configure(self, patch: Spec | None = None, **changes: Any) -> Policy:
        """Change the policy from the next turn on, whichever process runs it; what is not named stays."""
        spec = patch if patch is not None else spec_from(changes)
        shown = await self._client.request("PATCH", f"{self._path}/policy", body=spec)
        self.policy = msgspec.convert(shown, Policy)
        return self.policy


class TurnClientBuilder:
    """A turn that has not begun."""

    def __init__(self, client: ApiClient, session_id: str, content: Input, conversation: NextConversation) -> None:
        self._client = client
        self._conversation = conversation
        self._session_id = session_id
        self._body: dict[str, Any] = {"input": msgspec.to_builtins(content_of(content))}
        self._type: ResultType | None = None

    def id(self, turn_id: str) -> Self:
        """Name the turn. Running it again with the same id and input joins it, or returns its result."""
        self._body["id"] = check_id(turn_id, "turn id")
        return self

    def output(self, wanted: Any) -> Self:
        """Make the turn return a value of a type."""
        self._type = ResultType.of(wanted)
        self._body["output"] = self._type.schema
        return self

    def prompt(self, text: str) -> Self:
        """Add to the system text for this turn only."""
        before = self._body.get("prompt")
        self._body["prompt"] = text if before is None else f"{before}\n\n{text}"
        return self

    def plugin_input(self, plugin_id: str, value: Any) -> Self:
        """Give a plugin of the session its input for this turn."""
        self._body.setdefault("plugin_inputs", {})[plugin_id] = value
        return self

    async def begin(self) -> BeginReceipt:
        """Begin the turn, or join it, and return once it is durable."""
        report = await self._post({})
        replayed, is_over = bool(report.get("replayed")), report["status"] == "done"
        return BeginReceipt(self._session_id, report["turn"], replayed, is_over)

    async def run(self, *, wait: float | None = None) -> TurnResult:
        """Run the turn to its end. After `wait` seconds, `TimeoutError`; the turn continues, and can be joined."""
        async with asyncio.timeout(wait):
            shown = await self._post({"wait_s": WAIT_S})
            while shown.get("result") is None:
                path = f"/sessions/{self._session_id}/turns/{shown['turn']}"
                shown = await self._client.get(path, {"wait_s": WAIT_S})
        result = msgspec.convert(shown["result"], TurnResult)
        if self._type is None or result.value is None:
            return result
        return msgspec.structs.replace(result, output=self._type.parse(result.value))

    async def stream(self) -> AsyncGenerator[ObservedEvent, None]:
        """Run the turn, and yield its events as they come, until it is over or waits for somebody.

        They are those of the session's observer. If the connection breaks, `observe().subscribe_from` follows the
        session from the last cursor.
        """
        session_id = self._session_id
        events = self._client.stream("POST", f"/sessions/{session_id}/turns", body=self._whole({}))
        async with contextlib.aclosing(events) as coming:
            async for after, data in coming:
                self._conversation.body = None  # it was accepted
                if after is not None:
                    yield seen_of(data, after, session_id)

    async def _post(self, more: dict[str, Any]) -> Any:
        report = await self._client.post(f"/sessions/{self._session_id}/turns", self._whole(more))
        self._conversation.body = None  # it was accepted
        return report

    def _whole(self, more: dict[str, Any]) -> dict[str, Any]:
        begin = self._conversation.body
        return {**self._body, **more} if begin is None else {**self._body, **more, "begin": begin}


class EnqueueClientBuilder:
    """An item that has not been sent. Awaiting the builder sends it, and returns a receipt once it is durable."""

    def __init__(self, client: ApiClient, session_id: str, content: Input) -> None:
        self._client = client
        self._session_id = session_id
        self._body: dict[str, Any] = {"input": msgspec.to_builtins(content_of(content))}

    def id(self, item_id: str) -> Self:
        """Name the item. The same id with the same content is the same item; with other content, a conflict."""
        self._body["id"] = check_id(item_id, "item id")
        return self

    def delivery(self, delivery: Delivery) -> Self:
        """`after_turn` (the default): once the running turn is over; `boundary`: at its next safe point."""
        self._body["delivery"] = delivery
        return self

    def slot(self, slot: Slot, merge_key: str = "") -> Self:
        """`exclusive` (the default): a turn of its own; `join`: one turn with others of the same key."""
        self._body |= {"slot": slot, "merge_key": merge_key}
        return self

    def available_at(self, at: float) -> Self:
        """Hold the item back until this time (unix seconds)."""
        self._body["available_at"] = at
        return self

    def after(self, seconds: float) -> Self:
        """Hold the item back for this many seconds."""
        self._body["after_s"] = seconds
        return self

    def output(self, wanted: Any) -> Self:
        """Make its turn return a value of a type."""
        self._body["output"] = ResultType.of(wanted).schema
        return self

    def __await__(self) -> Generator[Any, None, ItemReceipt]:
        return self.send().__await__()

    async def send(self) -> ItemReceipt:
        """Send it; the same as awaiting the builder."""
        report = await self._client.post(f"/sessions/{self._session_id}/items", self._body)
        return ItemReceipt(self._session_id, report["item_id"], bool(report.get("replayed")))


async def past_items_of(client: ApiClient, session_id: str, before: int | None, limit: int) -> PastItemsPage:
    """A page of the items that have left the inbox of a session."""
    shown = await client.get(f"/sessions/{session_id}/past-items", {"before": before, "limit": limit})
    return msgspec.convert(shown, PastItemsPage)
