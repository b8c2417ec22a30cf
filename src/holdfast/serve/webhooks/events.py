"""What webhooks are told of: read from the last entries of sessions, and named by where it stands in their journals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.inbox import Inbox
from holdfast.agent.machine.turn import outcome_word
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.records import (
    CancelledRecord,
    CompletedRecord,
    Entry,
    ExpiredRecord,
    FailedRecord,
    PausedRecord,
    type_of,
)
from holdfast.engine.process_rows import GONE_MS, ProcessRow
from holdfast.engine.questions import WaitingQuestion
from holdfast.store.session_rows import SessionRow

FIRST_PAUSE = 2
"""Where an agent waits for its first input, before any turn."""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that webhooks may want to know."""

    id: str
    type: str
    session_id: str
    program: str
    at: int
    data: dict[str, Any]
    """What is always told."""
    content: dict[str, Any]
    """What is told only to webhooks that include contents."""

    def body(self, *, with_content: bool) -> str:
        """The body of its delivery."""
        data = {**self.data, **self.content} if with_content else self.data
        told = {"type": self.type, "timestamp": self.at, "data": data}
        return msgspec.json.encode(told, enc_hook=str).decode()


def happenings(row: SessionRow, entries: Sequence[Entry]) -> list[Happening]:
    """What has happened in some entries of a session: turns that ended, and its end."""
    found: list[Happening] = []
    for entry in entries:
        content: dict[str, Any] = {}
        match entry.record:
            case CompletedRecord(result=result):
                kind, state, content = "session.ended", "completed", {"result": result}
            case FailedRecord(error=error):
                kind, state, content = "session.ended", "failed", {"error": error}
            case CancelledRecord() | ExpiredRecord():
                kind, state = "session.ended", type_of(entry.record)
            case PausedRecord(queries=[query]) if query.kind == "input" and entry.position > FIRST_PAUSE:
                kind, state = "turn.ended", ""  # an agent that waits for its next input has ended its turn
            case _:
                continue
        told: dict[str, Any] = {**_about(row), "position": entry.position}
        if state:
            told["state"] = state
        found.append(
            Happening(
                id=f"{row.session_id}.{entry.position}.{kind}",
                type=kind,
                session_id=row.session_id,
                program=row.summary.program,
                at=entry.at,
                data=told,
                content=content,
            )
        )
    return found


def waiting(row: SessionRow, questions: Sequence[WaitingQuestion]) -> Happening:
    """That a session waits for a person or a host. The same questions are the same happening, whatever else happens."""
    queries = [
        {"id": each.query.id, "kind": each.query.kind, "due_at": each.due_at, "tool": getattr(each.query, "name", None)}
        for each in questions
    ]
    asked = [{"id": each.query.id, "text": each.query.text[:PROMPT_PREVIEW_CHARS]} for each in questions]
    last = max(questions, key=lambda each: (each.asked_at, each.query.id)).query.id
    return Happening(
        id=f"{row.session_id}.{last}-{len(questions)}.session.waiting",
        type="session.waiting",
        session_id=row.session_id,
        program=row.summary.program,
        at=max(each.asked_at for each in questions),
        data={**_about(row), "queries": queries},
        content={"asked": asked},
    )


def settled_items(row: SessionRow, conversation: Conversation, inbox: Inbox, since: int) -> list[Happening]:
    """The items of an agent's inbox that are settled since a moment: their turn has ended, or they were withdrawn."""
    found: list[Happening] = []

    def tell(item_id: str, at: int, data: dict[str, Any], content: dict[str, Any]) -> None:
        found.append(
            Happening(
                id=f"{row.session_id}.{item_id}.item.settled",
                type="item.settled",
                session_id=row.session_id,
                program=row.summary.program,
                at=at,
                data={**_about(row), "item_id": item_id, **data},
                content=content,
            )
        )

    for turn in conversation.turns.backwards():
        if turn.ended is not None and turn.ended_at < since:
            break
        for item_id in turn.items if turn.ended is not None else ():
            known = inbox.accepted.get(item_id)
            if known is not None and known.turn == turn.id:  # what was not shown to the model waits again
                assert turn.ended is not None
                done = {"status": "done", "turn": turn.id, "outcome": outcome_word(turn.ended)}
                tell(item_id, turn.ended_at, done, {"result": msgspec.to_builtins(turn.ended)})
    for item_id, known in inbox.accepted.items():
        if known.cancelled is not None and known.cancelled.at >= since:
            withdrawn = {"status": "cancelled", "by": known.cancelled.by}
            tell(item_id, known.cancelled.at, withdrawn, {"reason": known.cancelled.reason})
    return found


def lost_worker(process: ProcessRow) -> Happening:
    """That a process has said nothing for so long that it is taken to be dead."""
    return Happening(
        id=f"{process.name}.{process.seen_at}.worker.lost",
        type="worker.lost",
        session_id="",
        program="",
        at=process.seen_at + GONE_MS,
        data={"worker": process.name, "since": process.since, "seen_at": process.seen_at},
        content={},
    )


def _about(row: SessionRow) -> dict[str, Any]:
    return {"session_id": row.session_id, "program": row.summary.program, "position": row.position}
