"""Exports a conversation as an envelope, the JSON that fluers reads and writes, and continues a session from one.

What an envelope holds of a message
- Text, images and tool calls as they are; roles as they are, the remarks of the runtime (`system`) among them.
- A tool's result as fluers writes it: one in a message, `{"content": [blocks], "details": …}`. Text is a text block,
  anything else is its JSON in a text block, and an error is a text that begins with `Error:`. Where that alone would be
  read as something else, `details` has a mark of ours, so every result comes back as it was. Images that come with a
  result are among its blocks.
- Nothing of reasoning, which fluers does not know, and no message that would be empty.

What is read back from fluers
- A result that is one text is that text. One with more blocks, or with details, stays the object it is; its images are
  taken out, to be shown as images. A text that begins with `Error:` makes it an error.
- Calls without a result get one that says so, as model services refuse conversations without. A result without its
  call, or a block where it cannot stand, is an `EnvelopeError`.

A conversation is its messages on the active path, frames and turns run together. An envelope's metadata is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.envelopes.store import SessionEnvelope, envelope_json
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import (
    AgentMessage,
    ContentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from holdfast.agent.machine.policy import Spec
from holdfast.agent.machine.tree import Frame
from holdfast.agent.session_builder import AgentState
from holdfast.core.values import Json, encode
from holdfast.store.errors import EnvelopeError

if TYPE_CHECKING:
    from holdfast.agent.runtime import Runtime
    from holdfast.agent.session import AgentSession

ERROR = "Error:"
"""How the text of a result begins that is an error, in fluers."""

_LOST = {"error": "the outcome of this call is unknown: the turn ended before it", "code": "no_result"}


async def export_envelope(session: AgentSession) -> SessionEnvelope:
    """The conversation of a session, with what the next turn is run under.

    The model is `provider/name`, as fluers has it; `max_turns` is how often the model may be called in one turn, 0 if
    there is no limit. Raises `EnvelopeError` for messages that a host has put together so that no service takes them.
    """
    conversation = await session.conversation(fresh=True)
    begin, policy = session.begin_in(conversation), session.policy
    messages = _messages(conversation) if begin is None else begin.messages
    return SessionEnvelope(
        model=f"{policy.provider}/{policy.model}",
        max_turns=policy.limits.iterations or 0,
        system_message=policy.instructions or None,
        messages=written(messages, session.session_id),
        metadata={"holdfast_session": session.session_id, "holdfast_position": str(conversation.position)},
    )


async def import_envelope(
    runtime: Runtime, session_id: str, envelope: SessionEnvelope, *, spec: Spec | None = None
) -> AgentSession:
    """A session that continues from the messages of an envelope; at its next turn they replace the stored ones.

    Model, instructions and the number of turns are the envelope's, unless `spec` says otherwise or the envelope does
    not say. A model `provider/name` is of that provider if the runtime has it, and else a name that has a slash.
    Raises `EnvelopeError` and `InvalidValueError`; nothing is written then.
    """
    builder = runtime.session(session_id)
    envelope_json(session_id, envelope)
    messages = read(envelope.messages, session_id)
    builder.spec(_spec(runtime, envelope, spec or Spec()))
    return await builder.open_with_state(AgentState(session_id=session_id, messages=messages))


def _messages(conversation: Conversation) -> list[AgentMessage]:
    """The messages of the active path; the task of a frame is shown to the model as a message, so it is one here."""
    found: list[AgentMessage] = []
    for node in conversation.path():
        match node.payload:
            case AgentMessage() as message:
                found.append(message)
            case Frame(task=task) if task:
                found.append(AgentMessage("user", [TextBlock(task)]))
            case _:
                pass
    return found


def _spec(runtime: Runtime, envelope: SessionEnvelope, said: Spec) -> Spec:
    """What an envelope says of how turns are run, under what the caller says."""
    fields: dict[str, Any] = {"instructions": envelope.system_message}
    provider, _, name = envelope.model.partition("/")
    if said.model is None and said.provider is None:
        known = provider in runtime.providers and name
        fields |= {"provider": provider, "model": name} if known else {"model": envelope.model or None}
    if envelope.max_turns:
        fields["limits"] = {"iterations": envelope.max_turns, **(said.limits or {})}
    own = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not None}
    return Spec(**{**fields, **own, "limits": fields.get("limits", said.limits)})


# --- messages ------------------------------------------------------------------------------------------


def written(messages: list[AgentMessage], session_id: str) -> list[AgentMessage]:
    """Messages of ours as fluers has them."""
    found: list[AgentMessage] = []
    for message in _whole(messages, session_id):
        if message.role == "tool":
            found += [AgentMessage("tool", [_result_out(result, images)]) for result, images in _results(message)]
        else:
            content: list[ContentBlock] = [each for each in message.content if not isinstance(each, ReasoningBlock)]
            found += [AgentMessage(message.role, content)] if content else []
    return found


def read(messages: list[AgentMessage], session_id: str) -> list[AgentMessage]:
    """Messages of fluers as ours."""
    found: list[AgentMessage] = []
    for message in _whole(messages, session_id):
        if message.role == "tool":
            for result, images in _results(message):
                block, more = _result_in(result)
                found.append(AgentMessage("tool", [block, *more, *images]))
        elif message.content:
            found.append(message)
    return found


def _results(message: AgentMessage) -> list[tuple[ToolResultBlock, list[ImageBlock]]]:
    """The results in a message, each with the images after it."""
    found: list[tuple[ToolResultBlock, list[ImageBlock]]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            found.append((block, []))
        elif isinstance(block, ImageBlock):
            found[-1][1].append(block)
    return found


_MAY_HOLD: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "assistant": (TextBlock, ImageBlock, ToolUseBlock, ReasoningBlock),
    "tool": (ToolResultBlock, ImageBlock),
}


def _whole(messages: list[AgentMessage], session_id: str) -> Iterator[AgentMessage]:
    """The messages, each looked at, and with a result for every call."""
    waiting: list[str] = []
    for number, message in enumerate(messages):
        _check(message, f"messages[{number}]", session_id)
        if message.role != "tool":
            yield from _lost(waiting)
            waiting = [block.id for block in message.content if isinstance(block, ToolUseBlock)]
        for block in message.content:
            if isinstance(block, ToolResultBlock):
                if block.tool_use_id not in waiting:
                    why = (
                        f"messages[{number}]: a result of the call '{block.tool_use_id}', which was not made before it"
                    )
                    raise EnvelopeError(session_id, why)
                waiting.remove(block.tool_use_id)
        yield message
    yield from _lost(waiting)


def _check(message: AgentMessage, where: str, session_id: str) -> None:
    allowed = _MAY_HOLD.get(message.role, (TextBlock, ImageBlock))
    for block in message.content:
        if not isinstance(block, allowed):
            kind = block.__struct_config__.tag
            raise EnvelopeError(session_id, f"{where}: a message of the role {message.role} cannot hold {kind}")
    if message.role == "tool" and not isinstance(next(iter(message.content), None), ToolResultBlock):
        raise EnvelopeError(session_id, f"{where}: a message of the role tool begins with a tool_result")


def _lost(calls: list[str]) -> list[AgentMessage]:
    return [AgentMessage("tool", [ToolResultBlock(call, _LOST, is_error=True)]) for call in calls]


# --- results -------------------------------------------------------------------------------------------


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the text of a result does not tell."""

    form: str = "text"
    """`text`, or `json` if the text is the JSON of what was returned, or `failure` if it is the words of one."""
    is_error: bool = False
    code: str = ""


class _Details(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    holdfast: _Mark


class _ToolResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A result as fluers has it. With fields that it does not have, it is a value that somebody returned."""

    content: list[TextBlock | ImageBlock]
    details: Json = None


def _result_out(block: ToolResultBlock, images: list[ImageBlock]) -> ToolResultBlock:
    plain = ToolResultBlock(block.tool_use_id, block.content)
    if _shape(block.content) is None or _result_in(plain) != (block, []):
        text, mark = _text_of(block)
        plain = _wrapped(block.tool_use_id, text, None)
        if _result_in(plain) != (block, []):
            plain = _wrapped(block.tool_use_id, text, mark)
    if images:
        content = [*plain.content["content"], *msgspec.to_builtins(images)]
        return ToolResultBlock(block.tool_use_id, {**plain.content, "content": content})
    return plain


def _text_of(block: ToolResultBlock) -> tuple[str, _Mark]:
    content, before = block.content, f"{ERROR} " if block.is_error else ""
    match content:
        case str():
            has_prefix = block.is_error and content.startswith(ERROR)
            return content if has_prefix else before + content, _Mark(is_error=block.is_error)
        case {"error": str() as said, "code": str() as code} if block.is_error and len(content) == 2:
            return before + said, _Mark("failure", is_error=True, code=code)
        case _:
            return before + encode(content).decode(), _Mark("json", is_error=block.is_error)


def _wrapped(call: str, text: str, mark: _Mark | None) -> ToolResultBlock:
    made: dict[str, Json] = {"content": [{"type": "text", "text": text}]}
    if mark is not None:
        made["details"] = {"holdfast": msgspec.to_builtins(mark)}
    return ToolResultBlock(call, made)


def _result_in(block: ToolResultBlock) -> tuple[ToolResultBlock, list[ImageBlock]]:
    """A result as fluers wrote it, or we did; and the images in it."""
    found = _shape(block.content)
    if found is None:  # no result of fluers; its blocks may hold any JSON
        return block, []
    texts = [each for each in found.content if isinstance(each, TextBlock)]
    images = [each for each in found.content if isinstance(each, ImageBlock)]
    if len(texts) == 1 and (ours := _marked(block.tool_use_id, texts[0].text, found.details)) is not None:
        return ours, images
    is_error = block.is_error or any(text.text.startswith(ERROR) for text in texts)
    content: Json = "".join(text.text for text in texts)
    if len(texts) > 1 or found.details is not None:
        content = {"content": msgspec.to_builtins(texts)}
        if found.details is not None:
            content["details"] = found.details
    return ToolResultBlock(block.tool_use_id, content, is_error=is_error), images


def _shape(content: Json) -> _ToolResult | None:
    try:
        return msgspec.convert(content, _ToolResult)
    except msgspec.ValidationError:
        return None


def _marked(call: str, text: str, details: Json) -> ToolResultBlock | None:
    """A result that bears our mark; None if it does not, or was changed so that the mark does not fit any more."""
    try:
        mark = msgspec.convert(details, _Details).holdfast
        said = text.removeprefix(f"{ERROR} ") if mark.is_error else text
        content = msgspec.json.decode(said) if mark.form == "json" else said
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
    if mark.form == "failure":
        content = {"error": said, "code": mark.code}
    return ToolResultBlock(call, content, is_error=mark.is_error)
