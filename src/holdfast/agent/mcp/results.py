"""The result of a call to a server's tool: JSON for the model, or a `ToolError`. No I/O.

Structured content is used if there is any: the text beside it says the same. Anything that is not text is described.
"""

from __future__ import annotations

import sys
from typing import TypeAlias, assert_never

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from holdfast.agent.machine.excerpt import OutputLimits, shortened
from holdfast.agent.mcp.limits import RESULT_BYTES
from holdfast.agent.tools.context import ToolError
from holdfast.core.values import Json, repaired

_Binary: TypeAlias = ImageContent | AudioContent

_LIMIT = OutputLimits(max_bytes=RESULT_BYTES, max_lines=sys.maxsize)


def value_of(result: CallToolResult, tool: str) -> Json:
    """The value of a result. Raises `ToolError` with the server's message if it is an error."""
    text = shortened("\n".join(_block_text(block) for block in result.content), _LIMIT)
    if result.is_error:
        raise ToolError(text or f"'{tool}' failed, and the server gave no reason")
    if result.structured_content is None:
        return text
    structured = _cut(result.structured_content)
    beside = [_block_text(block) for block in result.content if not isinstance(block, TextContent)]
    return {"structured": structured, "beside": shortened("\n".join(beside), _LIMIT)} if beside else structured


def _cut(value: Json) -> Json:
    try:
        text = msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise ToolError(f"its result has no JSON form: {error}", code="invalid_result") from None
    shown = shortened(text, _LIMIT)
    return value if shown is text else shown


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return repaired(text)
        case ImageContent():
            return _described("image", block)
        case AudioContent():
            return _described("audio", block)
        case ResourceLink(uri=uri, name=name, mime_type=kind, description=about):
            return repaired(f"[link to the resource '{name}', {kind or 'of any kind'}: {uri}{_after(about)}]")
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=kind, blob=blob)):
            return repaired(f"[the resource {uri}, {kind or 'binary'}, {_size(blob)}; not shown]")
        case EmbeddedResource(resource=found):
            assert not isinstance(found, BlobResourceContents)
            return repaired(f"[the resource {found.uri}]\n{found.text}")
    assert_never(block)


def _described(what: str, block: _Binary) -> str:
    return repaired(f"[{what}, {block.mime_type}, {_size(block.data)}; not shown]")


def _size(base64: str) -> str:
    return f"{len(base64.rstrip('=')) * 3 // 4:,} bytes"


def _after(about: str | None) -> str:
    return f" ({about})" if about else ""
