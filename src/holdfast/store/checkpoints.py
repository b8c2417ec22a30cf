"""Checkpoints and segments as stores keep them: sealed with a checksum, and given back only if all of them fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias
from zlib import crc32

from holdfast.store.commits import Checkpoint, Segment

StoredRow: TypeAlias = tuple[Any, Any, Any, Any]
"""What a row should hold: after (0 for a checkpoint), position, checksum, data."""


def seal_checkpoint(session_id: str, checkpoint: Checkpoint) -> StoredRow:
    """A checkpoint as a row."""
    return _seal(session_id, 0, checkpoint.position, checkpoint.state)


def seal_segment(session_id: str, segment: Segment) -> StoredRow:
    """A segment as a row."""
    return _seal(session_id, segment.after, segment.position, segment.data)


def open_rows(
    session_id: str, reach: int, row: StoredRow | None, segments: Iterable[StoredRow]
) -> tuple[Checkpoint, list[Segment]] | None:
    """The checkpoint and the segments in rows of a session whose journal ends at `reach`; None unless all are sound."""
    if row is None or not _is_sound(session_id, row):
        return None
    checkpoint = Checkpoint(row[1], row[3])
    sound: list[Segment] = []
    for segment in segments:
        if not _is_sound(session_id, segment):
            return None
        sound.append(Segment(segment[0], segment[1], segment[3]))
    return chain_of(reach, checkpoint, sound)


def chain_of(
    reach: int, checkpoint: Checkpoint | None, segments: Iterable[Segment]
) -> tuple[Checkpoint, list[Segment]] | None:
    """A checkpoint and the segments up to its position, in order; None if the journal, which ends at `reach`, does not
    have that position, or a segment is missing."""
    if checkpoint is None or not 0 < checkpoint.position <= reach:
        return None
    chain = [segment for segment in segments if segment.position <= checkpoint.position]
    end = 0
    for segment in chain:
        if segment.after != end:
            return None
        end = segment.position
    return checkpoint, chain


def _seal(session_id: str, after: int, position: int, data: bytes) -> StoredRow:
    return after, position, _checksum(session_id, after, position, data), data


def _is_sound(session_id: str, row: StoredRow) -> bool:
    after, position, checksum, data = row
    return (
        isinstance(after, int)
        and isinstance(position, int)
        and isinstance(data, bytes)
        and _checksum(session_id, after, position, data) == checksum
    )


def _checksum(session_id: str, after: int, position: int, data: bytes) -> int:
    return crc32(data, crc32(b"%b/%d/%d/" % (session_id.encode(), after, position)))
