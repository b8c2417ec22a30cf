"""Assembles an OpenAI chat-completions reply from its chunks. Nothing here reads a socket.

Services differ more than their documents say: fields are null, missing or of another type, usage comes in other places,
calls come without index or id. What can be understood is accepted; the rest is a `BadReplyError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import msgspec

from holdfast.agent.machine.messages import ContentBlock, ReasoningBlock, TextBlock, ToolUseBlock
from holdfast.agent.providers.arguments import read_arguments
from holdfast.agent.providers.provider import ModelReply, ReasoningDelta, Stop, TextDelta
from holdfast.core.queries import Usage
from holdfast.core.values import Json, repaired

MAX_REPLY_CHARS = 16 * 1024 * 1024
"""Characters of one reply: more than any model writes, and few enough to store as one value."""

MAX_TOKENS = 10**12
"""Tokens of one call: more is an error of the service, and sums of such numbers could not be stored."""

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "end_turn": "end",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


class BadReplyError(ValueError):
    """A service has sent something that is not a reply."""


class _Call(msgspec.Struct):
    """A tool call, as far as it has arrived."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = []


class _Part(msgspec.Struct):
    """Text or reasoning, as far as it has arrived."""

    is_reasoning: bool
    text: list[str] = []


class ReplyReader:
    """Takes chunks, and yields deltas and at the end the reply."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._calls: list[_Call] = []
        self._size = 0
        self._half = {False: "", True: ""}
        self._finish = ""
        self._refused = False
        self._usage: dict[str, Json] = {}
        self._model = ""
        self._is_begun = False

    def take(self, chunk: Json) -> Iterator[TextDelta | ReasoningDelta]:
        """One chunk of a stream, or the whole of a reply that was not streamed. Raises `BadReplyError`."""
        if not isinstance(chunk, dict):
            raise BadReplyError(f"a chunk is not an object, but {type(chunk).__name__}")
        if isinstance(chunk.get("model"), str):
            self._model = repaired(chunk["model"])
        self._note_usage(chunk.get("usage"))
        self._note_usage(_object(chunk.get("x_groq")).get("usage"))
        for choice in _objects(chunk.get("choices")):
            if choice.get("index") not in (None, 0):
                continue  # one answer was asked for
            self._is_begun = True
            self._note_usage(choice.get("usage"))
            if isinstance(choice.get("finish_reason"), str):
                self._finish = choice["finish_reason"] or self._finish
            yield from self._take_message(_object(choice.get("delta") or choice.get("message")))

    def reply(self) -> ModelReply:
        """The reply, once all is there. Raises `BadReplyError`."""
        if not self._is_begun:
            raise BadReplyError("it contains no answer")
        if self._finish == "error":
            raise BadReplyError("the service aborted the answer because of an internal error")
        content: list[ContentBlock] = []
        for part in self._parts:
            text = "".join(part.text)
            content.append(ReasoningBlock(text) if part.is_reasoning else TextBlock(text))
        content += self._tool_uses()
        return ModelReply(content=content, stop=self._stop(), usage=_usage(self._usage), model=self._model)

    # --- what is said ------------------------------------------------------------------------------

    def _take_message(self, message: dict[str, Json]) -> Iterator[TextDelta | ReasoningDelta]:
        thought = message.get("reasoning_content")
        yield from self._say(True, thought if isinstance(thought, str) else message.get("reasoning"))
        content = message.get("content")
        if isinstance(content, list):
            for part in _objects(content):
                yield from self._take_part(part)
        else:
            yield from self._say(False, content)
        if message.get("refusal"):
            self._refused = True
            yield from self._say(False, message["refusal"])
        for call in _objects(message.get("tool_calls")):
            self._take_call(call)

    def _take_part(self, part: dict[str, Json]) -> Iterator[TextDelta | ReasoningDelta]:
        thought = part.get("thinking")
        if isinstance(thought, list):
            for piece in _objects(thought):
                yield from self._say(True, piece.get("text"))
        else:
            yield from self._say(True, thought)
        yield from self._say(False, part.get("text"))

    def _say(self, is_reasoning: bool, text: Json) -> Iterator[TextDelta | ReasoningDelta]:
        if not isinstance(text, str) or not text:
            return
        # Services that count in UTF-16 may split a character between two chunks.
        text = _joined_halves(self._half[is_reasoning] + text)
        self._half[is_reasoning] = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text.removesuffix(self._half[is_reasoning])
        if text:
            self._keep(is_reasoning, repaired(text))
            yield (ReasoningDelta if is_reasoning else TextDelta)(self._parts[-1].text[-1])

    def _keep(self, is_reasoning: bool, text: str) -> None:
        self._grow(len(text))
        if not self._parts or self._parts[-1].is_reasoning != is_reasoning:
            self._parts.append(_Part(is_reasoning))
        self._parts[-1].text.append(text)

    def _grow(self, chars: int) -> None:
        self._size += chars
        if self._size > MAX_REPLY_CHARS:
            raise BadReplyError(f"a reply of more than {MAX_REPLY_CHARS} characters")

    # --- calls -------------------------------------------------------------------------------------

    def _take_call(self, piece: dict[str, Json]) -> None:
        function = _object(piece.get("function"))
        call = self._call_of(piece.get("index"), piece.get("id") or "", bool(function.get("name")))
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(name, str) and not call.name:
            call.name = repaired(name)
        if arguments is not None:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            self._grow(len(text))
            call.arguments.append(text)

    def _call_of(self, index: Json, given_id: Json, is_named: bool) -> _Call:
        """The call that a piece belongs to: by its index, and by its id if a service gives all calls the same index."""
        call_id = repaired(given_id if isinstance(given_id, str) else str(given_id))
        last = self._calls[-1] if self._calls else None
        if isinstance(index, int):
            call = next((call for call in reversed(self._calls) if call.index == index), None)
        else:
            is_next = last is None or (call_id != last.id if call_id else is_named)
            call = None if is_next else last
            index = len(self._calls)
        # A different id alone proves nothing: some services invent one for every piece.
        if call is not None and not (is_named and call_id and call.id and call_id != call.id):
            call.id = call.id or call_id
            return call
        self._calls.append(_Call(index, call_id))
        return self._calls[-1]

    def _tool_uses(self) -> list[ToolUseBlock]:
        uses: list[ToolUseBlock] = []
        for call in sorted(self._calls, key=lambda call: call.index):
            if not call.name:
                raise BadReplyError("a tool call without the name of the tool")
            is_fresh = call.id and all(call.id != use.id for use in uses)
            call_id = call.id if is_fresh else f"call_{uuid4().hex[:24]}"
            uses.append(ToolUseBlock(call_id, call.name, read_arguments("".join(call.arguments))))
        return uses

    # --- the end -----------------------------------------------------------------------------------

    def _stop(self) -> Stop:
        if self._refused:
            return "refusal"
        stop = _STOPS.get(self._finish, "other" if self._finish else "end")
        if self._calls and stop in ("end", "other"):
            return "tool_use"
        return "end" if stop == "tool_use" and not self._calls else stop

    def _note_usage(self, usage: Json) -> None:
        if isinstance(usage, dict):
            self._usage.update(usage)


def read_json(data: bytes) -> Json:
    """JSON from a service. Halves of characters, which are invalid text, are accepted; `_say` joins them."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            quoted = data[:120].decode("utf-8", "replace")
            raise BadReplyError(f"invalid JSON: {quoted}") from None


def _joined_halves(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _usage(reported: dict[str, Json]) -> Usage | None:
    """The usage in our terms. `cost` is what the service bills, if it says so."""
    into, out = _object(reported.get("prompt_tokens_details")), _object(reported.get("completion_tokens_details"))
    prompt, completion = _count(reported.get("prompt_tokens")), _count(reported.get("completion_tokens"))
    reasoning = _count(out.get("reasoning_tokens"))
    if reasoning and prompt is not None and completion is not None:
        # Some services count reasoning separately from the completion; only the total tells.
        is_beside = reported.get("total_tokens") == prompt + completion + reasoning
        completion += reasoning if is_beside else 0
    cached = _count(into.get("cached_tokens"))
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cache_read_tokens=cached if cached is not None else _count(reported.get("prompt_cache_hit_tokens")),
        cache_write_tokens=_count(into.get("cache_write_tokens")),
        reasoning_tokens=reasoning,
        cost=_amount(reported.get("cost")),
    )
    return None if usage == Usage() else usage


def _count(value: Json) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < MAX_TOKENS else None


def _amount(value: Json) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e9 else None
