"""Which card came from which: a walk over `metadata.prior_card_id`, up to parents and down to children. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from holdfast.alc.cards.limits import LINEAGE_DEPTH
from holdfast.core.values import Json

Direction: TypeAlias = Literal["up", "down", "both"]


@dataclass(frozen=True)
class Kin:
    """One card as a lineage sees it."""

    card_id: str
    pkg: str
    card: dict[str, Json]

    @property
    def prior_card_id(self) -> str | None:
        return self._metadata("prior_card_id")

    @property
    def prior_relation(self) -> str | None:
        return self._metadata("prior_relation")

    def _metadata(self, key: str) -> str | None:
        metadata = self.card.get("metadata")
        value = metadata.get(key) if isinstance(metadata, dict) else None
        return value if isinstance(value, str) else None


@dataclass(frozen=True)
class LineageQuery:
    """Whose lineage is asked for, and how much of it."""

    card_id: str
    direction: Direction = "up"
    depth: int = LINEAGE_DEPTH
    include_stats: bool = True
    relation_filter: tuple[str, ...] | None = None
    """Only steps with one of these relations are taken; None takes all."""

    def takes(self, child: Kin) -> bool:
        """Whether the step between a card and its parent is taken."""
        return self.relation_filter is None or child.prior_relation in self.relation_filter


@dataclass
class _Walk:
    query: LineageQuery
    kin: Mapping[str, Kin]
    nodes: list[Json] = field(default_factory=list)
    edges: list[Json] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    truncated: bool = False

    def visit(self, one: Kin, depth: int) -> None:
        node: dict[str, Json] = {"card_id": one.card_id, "pkg": one.pkg, "depth": depth}
        if one.prior_card_id is not None:
            node["prior_card_id"] = one.prior_card_id
        if one.prior_relation is not None:
            node["prior_relation"] = one.prior_relation
        if self.query.include_stats and "stats" in one.card:
            node["stats"] = one.card["stats"]
        self.seen.add(one.card_id)
        self.nodes.append(node)

    def join(self, child: Kin, parent: Kin) -> None:
        edge: dict[str, Json] = {"from": child.card_id, "to": parent.card_id}
        if child.prior_relation is not None:
            edge["relation"] = child.prior_relation
        self.edges.append(edge)

    def parent_of(self, child: Kin) -> Kin | None:
        """The parent that is still to be visited, if there is one."""
        prior = child.prior_card_id
        if prior is None or prior in self.seen or not self.query.takes(child):
            return None
        return self.kin.get(prior)

    def up(self, child: Kin) -> None:
        for step in range(1, self.query.depth + 1):
            parent = self.parent_of(child)
            if parent is None:
                return
            self.visit(parent, -step)
            self.join(child, parent)
            child = parent
        self.truncated |= self.parent_of(child) is not None

    def down(self, root: Kin, children: Mapping[str, list[Kin]]) -> None:
        edge_of_tree = [root]
        for step in range(1, self.query.depth + 1):
            next_edge: list[Kin] = []
            for parent in edge_of_tree:
                for child in children.get(parent.card_id, ()):
                    if child.card_id not in self.seen and self.query.takes(child):
                        self.visit(child, step)
                        self.join(child, parent)
                        next_edge.append(child)
            edge_of_tree = next_edge
            if not edge_of_tree:
                return
        self.truncated |= any(
            child.card_id not in self.seen and self.query.takes(child)
            for parent in edge_of_tree
            for child in children.get(parent.card_id, ())
        )


def lineage(cards: Iterable[Kin], query: LineageQuery) -> Json:
    """The lineage of a card as nodes and edges (from child to parent), the card itself first; None if it is unknown."""
    kin: dict[str, Kin] = {}
    for one in cards:
        kin.setdefault(one.card_id, one)
    root = kin.get(query.card_id)
    if root is None:
        return None
    walk = _Walk(query, kin)
    walk.visit(root, 0)
    if query.direction in ("up", "both"):
        walk.up(root)
    if query.direction in ("down", "both"):
        children: dict[str, list[Kin]] = {}
        for card_id in sorted(kin):
            prior = kin[card_id].prior_card_id
            if prior is not None:
                children.setdefault(prior, []).append(kin[card_id])
        walk.down(root, children)
    return {"root": root.card_id, "nodes": walk.nodes, "edges": walk.edges, "truncated": walk.truncated}
