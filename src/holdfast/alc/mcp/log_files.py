"""algocline's log files: one of a session's exchanges and one of its figures, written when it has ended, where
`ALC_LOG_DIR` says. Without that variable there are only the journals, which have all of it; `ALC_LOG_LEVEL=off` writes
none either."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.tools import McpCall, McpToolError, Object

DIRECTORY_VARIABLE = "ALC_LOG_DIR"
LEVEL_VARIABLE = "ALC_LOG_LEVEL"

_ENDED = ("completed", "error", "cancelled", "expired")


def log_directory(environ: Mapping[str, str] | None = None) -> Path | None:
    """Where log files are written, or None if none are."""
    environ = os.environ if environ is None else environ
    given = environ.get(DIRECTORY_VARIABLE)
    return Path(os.path.abspath(os.path.expanduser(given))) if given and is_enabled(environ) else None


def is_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the user wants logs."""
    environ = os.environ if environ is None else environ
    return environ.get(LEVEL_VARIABLE, "").strip().lower() != "off"


async def with_log(call: McpCall, event: Object) -> Object:
    """What a call tells of a session; if the session has ended with it, its log is written. That it could not be
    written is told, and nothing else."""
    directory = log_directory()
    if directory is None or event.get("status") not in _ENDED:
        return event
    from holdfast.alc.mcp.logs import log_of, meta_of

    session_id = event["session_id"]
    document, meta = await log_of(call, session_id), await meta_of(call, session_id)
    if not document["transcript"]:
        return event  # as algocline: a session that asked nothing leaves no log
    try:
        await on_files(_write, directory, session_id, document, meta)
    except McpToolError as error:
        return {**event, "transcript_warning": f"the log was not written: {error}"}
    return event


def _write(directory: Path, session_id: str, document: Object, meta: Object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in ((f"{session_id}.json", document), (f"{session_id}.meta.json", meta)):
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".log-", delete=False) as file:
            file.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
        os.replace(file.name, directory / name)
