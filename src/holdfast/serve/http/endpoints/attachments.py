"""Endpoints about attachments: the pictures in a conversation, each by the SHA-256 of its bytes.

They come in with the input of a turn or of an item, as blocks, and are kept with it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from holdfast.agent.machine.messages import ImageBlock
from holdfast.agent.results import ViewMessage
from holdfast.serve.http.endpoint import ApiCall, BytesReply, Endpoints, JsonReply, NoParameters, in_one_piece
from holdfast.serve.http.endpoints.agents import opened
from holdfast.serve.http.problems import ApiError

endpoints = Endpoints()

_BEGINNINGS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF87a": "gif", b"GIF89a": "gif"}
"""How the bytes of a picture begin that browsers may be told the type of."""


class AttachmentReport(msgspec.Struct, frozen=True):
    """A picture in a conversation."""

    id: str
    """The SHA-256 of its bytes."""
    message: str
    """The first message that has it."""
    media_type: str
    """As its bytes say, and not as whoever sent it does."""
    bytes: int


class AttachmentsReport(msgspec.Struct, frozen=True):
    """The pictures of a conversation, in the order in which they came."""

    data: list[AttachmentReport]


@endpoints.add("GET", "/sessions/{session_id}/attachments", "sessions:read", reply=AttachmentsReport)
async def list_attachments(call: ApiCall[NoParameters, None]) -> JsonReply:
    """List the pictures in the conversation of an agent's session."""
    view = await (await opened(call)).read_view()
    found = {report.id: report for report, _ in reversed([*_attachments(view.messages)])}
    return JsonReply(AttachmentsReport([*reversed(found.values())]))


@endpoints.add(
    "GET",
    "/sessions/{session_id}/attachments/{attachment_id}",
    "sessions:read",
    reply=bytes,
    media_type="application/octet-stream",
)
async def show_attachment(call: ApiCall[NoParameters, None]) -> BytesReply:
    """Give the bytes of a picture in the conversation of an agent's session, as a download."""
    wanted = call.path["attachment_id"]
    view = await (await opened(call)).read_view()
    for report, content in _attachments(view.messages):
        if report.id == wanted:
            kind = report.media_type.rpartition("/")[2]
            named = f'attachment; filename="{wanted[:16]}.{kind if kind != "octet-stream" else "bin"}"'
            headers = {"content-disposition": named, "content-security-policy": "sandbox"}
            return BytesReply(in_one_piece(content), report.media_type, headers)
    why = f"the conversation of session '{call.session_id}' has no picture '{wanted[:64]}'"
    raise ApiError(404, "attachment_not_found", why)


def _attachments(messages: list[ViewMessage]) -> Iterator[tuple[AttachmentReport, bytes]]:
    for message in messages:
        for block in message.content:
            if isinstance(block, ImageBlock):
                content = block.image.data
                id = hashlib.sha256(content).hexdigest()
                yield AttachmentReport(id, message.id, _media_type(content), len(content)), content


def _media_type(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    kind = next((kind for begin, kind in _BEGINNINGS.items() if content.startswith(begin)), None)
    return "application/octet-stream" if kind is None else f"image/{kind}"
