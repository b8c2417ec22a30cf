"""Endpoints about how sessions hang together: children, forks, and two of them compared."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.core.compare import CommonFork, ComparedRow, ComparedSession
from holdfast.core.errors import InvalidValueError
from holdfast.serve.http.endpoint import ApiCall, Endpoints, JsonReply, NoParameters, Parameters
from holdfast.serve.http.limits import COMPARED_ROWS, TREE_NODES
from holdfast.store.session_rows import SessionFilter, SessionRow

endpoints = Endpoints()


class TreeNode(msgspec.Struct, frozen=True):
    """A session in its tree."""

    session_id: str
    parent: str | None
    """The session that it hangs on in this tree."""
    depth: int
    relation: Literal["root", "child", "fork"]
    row: SessionRow


class TreeReport(msgspec.Struct, frozen=True):
    """A session with its children and forks, and theirs; each after the one that it hangs on."""

    root: str
    nodes: list[TreeNode]
    tokens: int
    """Of the root and the forks: what children have used is counted in their parents."""
    cost: float
    more: bool
    """Whether there are more sessions in the tree than are shown."""


class CompareParameters(Parameters, frozen=True, kw_only=True):
    """Which sessions to compare."""

    left: str
    right: str
    limit: int = COMPARED_ROWS
    """Rows after what both have in common."""


class ComparisonReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Two sessions compared, as far as the rows were asked for."""

    left: ComparedSession
    right: ComparedSession
    descent: CommonFork | None = None
    difference: str | None = None
    rows: list[ComparedRow]
    more: bool


@endpoints.add("GET", "/sessions/{session_id}/tree", "sessions:read", reply=TreeReport)
async def show_tree(call: ApiCall[NoParameters, None]) -> JsonReply:
    """Show a session with its children and its forks, of any depth."""
    store, root = call.door.store, call.session_id
    nodes: list[TreeNode] = []
    coming = [TreeNode(root, None, 0, "root", await store.session(root))]
    seen = {root}
    is_cut = False
    while coming:
        node = coming.pop()
        if len(nodes) == TREE_NODES:
            is_cut = True
            break
        nodes.append(node)
        below: list[TreeNode] = []
        hangs: list[tuple[Literal["child", "fork"], SessionFilter]] = [
            ("child", SessionFilter(parent=node.session_id)),
            ("fork", SessionFilter(forked_from=node.session_id)),
        ]
        for relation, where in hangs:
            page = await store.sessions(where, limit=TREE_NODES)
            is_cut = is_cut or page.next is not None
            for row in page.rows:
                if row.session_id not in seen and row.session_id.startswith(call.principal.id_prefix):
                    seen.add(row.session_id)
                    below.append(TreeNode(row.session_id, node.session_id, node.depth + 1, relation, row))
        coming += sorted(below, key=lambda each: -each.row.summary.created_at)
    own = [node.row.summary for node in nodes if node.relation != "child"]
    tokens, cost = sum(each.tokens for each in own), sum(each.cost for each in own)
    return JsonReply(TreeReport(root, nodes, tokens, cost, is_cut))


@endpoints.add("GET", "/comparisons", "sessions:read", query=CompareParameters, reply=ComparisonReport)
async def compare_sessions(call: ApiCall[CompareParameters, None]) -> JsonReply:
    """Compare two sessions: how far they say the same, and how they go on from there."""
    query = call.query
    if not 1 <= query.limit <= COMPARED_ROWS:
        raise InvalidValueError("limit", f"a comparison has 1 to {COMPARED_ROWS:,} rows, got {query.limit}")
    for session_id in (query.left, query.right):
        call.principal.check_session(session_id)
    found = await call.door.holdfast.compare(query.left, query.right)
    report = ComparisonReport(
        left=found.left,
        right=found.right,
        descent=found.descent,
        difference=found.difference,
        rows=found.rows[: query.limit],
        more=len(found.rows) > query.limit,
    )
    return JsonReply(report)
