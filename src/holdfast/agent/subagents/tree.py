"""The tree of a session: its children and theirs, what each is doing, and the questions that wait for a person."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.agent.machine.queries import ApprovalQuery, DelegateQuery
from holdfast.core.errors import HoldfastError
from holdfast.core.queries import HumanQuery, Query
from holdfast.core.state import Session
from holdfast.store.contract import Store
from holdfast.store.session_rows import SessionFilter

MOST_NODES = 1_000
"""Sessions of one tree that are shown: a turn may start 32 subagents, and each of those as many."""


class Question(msgspec.Struct, frozen=True):
    """A question to a person, somewhere in a tree."""

    id: str
    """Answer it under this id at the root: `holdfast answer ROOT --query ID`, or `AgentSession.answer(ID, …)`."""
    text: str
    is_approval: bool = False
    """Whether it asks for the approval of a tool call."""


class SessionNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session in its tree."""

    session_id: str
    program: str
    state: str
    task: str = ""
    """What it was asked to do, if it is a subagent."""
    waits_for: list[str] = []
    """The kinds of query that it waits for."""
    questions: list[Question] = []
    tokens: int = 0
    """Those of its subagents that have ended included."""
    cost: float = 0.0
    children: list[SessionNode] = []
    is_cut: bool = False
    """Whether it has more children than are shown."""

    def walk(self, depth: int = 0) -> Iterator[tuple[int, SessionNode]]:
        """It and all below it, each with its depth, parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


async def session_tree(store: Store, session_id: str) -> SessionNode:
    """The tree of a session, as it is now. Raises `SessionNotFoundError`."""
    return await _TreeReader(store, session_id).node(session_id, "")


class _TreeReader:
    def __init__(self, store: Store, root: str) -> None:
        self._store = store
        self._root = root
        self._left = MOST_NODES

    async def node(self, session_id: str, task: str) -> SessionNode:
        self._left -= 1
        # The children first: who asked for them, and what, is in the journal before they are there.
        page = await self._store.sessions(SessionFilter(parent=session_id), limit=max(1, self._left + 1))
        session = await self._store.load(session_id)
        tasks = {
            f"{session_id}.{asked}": pending.query.task
            for asked, pending in session.pending.items()
            if isinstance(pending.query, DelegateQuery)
        }
        children: list[SessionNode] = []
        for row in sorted(page.rows, key=lambda row: row.summary.created_at):
            if self._left > 0:
                try:
                    children.append(await self.node(row.session_id, tasks.get(row.session_id, "")))
                except HoldfastError:
                    continue  # deleted meanwhile, or damaged, which `doctor` reports
        return SessionNode(
            session_id=session_id,
            program=session.started.program.name if session.started is not None else "",
            state=str(session.state),
            task=task,
            waits_for=list(dict.fromkeys(pending.query.kind for pending in session.pending.values())),
            questions=[
                self._question(session, each.query) for each in session.pending.values() if _is_human(each.query)
            ],
            tokens=session.metrics.total_tokens,
            cost=session.metrics.cost,
            children=children,
            is_cut=page.next is not None or len(children) < len(page.rows),
        )

    def _question(self, session: Session, query: Query) -> Question:
        below = session.id.removeprefix(self._root).removeprefix(".")
        asked = f"{below}.{query.id}" if below else query.id
        return Question(asked, query.text, isinstance(query, ApprovalQuery))


def _is_human(query: Query) -> bool:
    return isinstance(query, HumanQuery)
