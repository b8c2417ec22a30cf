"""The earlier part of a conversation: segments that are written once, and decoded when something in them is asked for.

A segment holds what a conversation gained between two moments at which no turn was under way: its new nodes, and the
turns that ended. So a turn and its messages are always in the same segment. In front of it, in two lines of plain text,
are the number of nodes and turns, and the ids of the turns: that much is known of a segment before it is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from itertools import islice
from typing import TypeVar

import msgspec

from holdfast.agent.machine.messages import AgentMessage
from holdfast.agent.machine.tree import Frame, Node
from holdfast.agent.machine.turn_state import TurnState
from holdfast.core.values import encode
from holdfast.zstd import compress, decompress

FORMAT = 1
"""Changes whenever the conversation of a journal, or its form, does: what another version wrote is not used."""

MAX_PART_BYTES = 1024 * 1024 * 1024
"""Bytes of JSON in a segment: far above what its turns can say, and a limit to what a damaged one can fill."""

T = TypeVar("T")


class Part(msgspec.Struct, omit_defaults=True):
    """What a conversation gained: a segment, before it is packed."""

    messages: list[Node[AgentMessage]] = []
    frames: list[tuple[int, Node[Frame]]] = []
    """Each with the number of messages before it."""
    turns: list[TurnState] = []
    """Turns that ended, without what was said in them."""
    said: list[tuple[int, int]] = []
    """For each of them, the number of its first message, and how many it has."""
    repeated: int = 0
    """How many of them have the id of an earlier turn."""

    def add_frame(self, node: Node[Frame]) -> None:
        self.frames.append((len(self.messages), node))

    def add_turn(self, turn: TurnState) -> None:
        """Add a turn that has just ended: the latest messages are its own."""
        count = len(turn.messages)
        self.said.append((len(self.messages) - count, count))
        is_said = turn.command is None and count > 0
        self.turns.append(msgspec.structs.replace(turn, messages=[], content=[] if is_said else turn.content))

    def copied(self) -> Part:
        """A part that can be changed without changing this one."""
        turns = [msgspec.structs.replace(turn) for turn in self.turns]
        return Part(self.messages, self.frames, turns, self.said, self.repeated)

    @property
    def node_count(self) -> int:
        return len(self.messages) + len(self.frames)

    def nodes(self) -> list[Node]:
        """All nodes, in their order."""
        nodes: list[Node] = list(self.messages)
        for earlier, (place, frame) in enumerate(self.frames):
            nodes.insert(place + earlier, frame)
        return nodes

    def whole_turns(self) -> dict[str, TurnState]:
        """The turns by id, with what was said in them. The part is no use as such after that."""
        messages = [node.payload for node in self.messages]
        for turn, (first, count) in zip(self.turns, self.said, strict=True):
            turn.messages = messages[first : first + count]
            if count and turn.command is None:
                turn.content = turn.messages[0].content
        return {turn.id: turn for turn in self.turns}


class ConversationSegment(msgspec.Struct, frozen=True):
    """What a conversation gained between two positions of its journal, packed."""

    after: int
    position: int
    data: bytes


class _Header(msgspec.Struct, frozen=True):
    """What is known of a segment before it is decoded."""

    format: int
    nodes: int
    turns: int
    repeated: int
    """How many of the turns have the id of an earlier one."""


_headers = msgspec.json.Decoder(_Header)
_ids = msgspec.json.Decoder(list[str])
_parts = msgspec.json.Decoder(Part)


def _segment_in(data: bytes) -> _Segment:
    """A segment that is not decoded. Raises `ValueError` if another version wrote it."""
    start, ids, packed = data.split(b"\n", 2)
    header = _headers.decode(start)
    if header.format != FORMAT:
        raise ValueError(f"a segment has the format {header.format}, and this is {FORMAT}")
    return _Segment(header, ids, packed)


def pack(part: Part) -> bytes:
    """A segment."""
    header = _Header(FORMAT, part.node_count, len(part.turns), part.repeated)
    ids = [turn.id for turn in part.turns]
    return b"\n".join((encode(header), encode(ids), compress(encode(part))))


class _Segment(msgspec.Struct, frozen=True):
    """A segment that was not decoded yet."""

    header: _Header
    ids: bytes
    packed: bytes

    def turn_ids(self) -> list[str]:
        return _ids.decode(self.ids)

    def part(self) -> Part:
        return _parts.decode(decompress(self.packed, MAX_PART_BYTES))


class Archive:
    """The segments of a conversation, and all that was decoded of them or added since."""

    def __init__(self, *, keep_all: bool = True) -> None:
        self.nodes: ArchivedNodes = ArchivedNodes(self)
        self.turns: ArchivedTurns = ArchivedTurns(self)
        self.closed_nodes = self.closed_turns = 0
        """Nodes and turns before the conversation last began anew. Unless all are kept, those nodes are forgotten."""
        self.node_count = self.turn_count = 0
        """How many nodes and turns there are in all segments."""
        self._keep_all = keep_all
        self._segments: list[_Segment] = []
        """Those that are not decoded, the oldest first."""
        self._decoded: list[_Segment] = []
        """The ones after those, of which all is in memory."""
        self._batch = 1
        """How many to decode the next time: each time twice as many, since what is there already is moved."""

    def add_segment(self, data: bytes) -> None:
        """Add the next segment, of which nothing is in memory. Raises `ValueError` if another version wrote it."""
        segment = _segment_in(data)
        self._segments.append(segment)
        self.nodes.count += segment.header.nodes
        self.turns.count += segment.header.turns - segment.header.repeated
        self._count(segment.header)

    def put_away(self, gained: Part) -> bytes:
        """Make the next segment, of all that was gained since the last one, and forget what is in earlier ones."""
        data = pack(gained)
        segment = _segment_in(data)
        self._count(segment.header)
        self._segments += self._decoded
        self._decoded = [segment]
        self._batch = 1
        self.nodes.forget_all_but([node.id for node in gained.nodes()])
        self.turns.forget_all_but([turn.id for turn in gained.turns])
        return data

    def _count(self, header: _Header) -> None:
        self.node_count += header.nodes
        self.turn_count += header.turns

    def close_branch(self, gained: Part) -> None:
        """The conversation begins anew: all that is in segments, and what was `gained` since, is before that."""
        self.closed_nodes = self.node_count + gained.node_count
        self.closed_turns = self.turn_count + len(gained.turns)
        if not self._keep_all:
            self.nodes.here, self.nodes.count = {}, 0
            for turn in self.turns.here.values():
                _forget(turn)

    def restore(self, closed: tuple[int, int], gained: Part) -> None:
        """Add what comes after all segments. So many nodes and turns were before the conversation last began anew."""
        self.closed_nodes, self.closed_turns = closed
        if not self._keep_all:
            self.nodes.count = max(0, self.nodes.count - self.closed_nodes)
        self.nodes.here = self._nodes_in(gained, self.node_count)
        self.nodes.count += len(self.nodes.here)
        self.turns.here = self._turns_in(gained.copied(), self.turn_count)
        self.turns.count += len(gained.turns) - gained.repeated

    @property
    def undecoded_turns(self) -> list[str]:
        """The ids of the turns that were not decoded yet."""
        return [turn_id for segment in self._segments for turn_id in segment.turn_ids()]

    def decode_more(self) -> bool:
        """Decode the latest segments that were not decoded yet; False if there are none."""
        if not self._segments:
            return False
        first = max(0, len(self._segments) - self._batch)
        latest, self._segments = self._segments[first:], self._segments[:first]
        self._decoded = [*latest, *self._decoded]
        self._batch *= 2
        nodes: dict[str, Node] = {}
        turns: dict[str, TurnState] = {}
        node_number = sum(segment.header.nodes for segment in self._segments)
        turn_number = sum(segment.header.turns for segment in self._segments)
        for segment in latest:
            part = segment.part()
            nodes |= self._nodes_in(part, node_number)
            turns |= self._turns_in(part, turn_number)
            node_number += segment.header.nodes
            turn_number += segment.header.turns
        self.nodes.prepend(nodes)
        self.turns.prepend(turns)
        return True

    def _nodes_in(self, part: Part, first: int) -> dict[str, Node]:
        """The nodes of a part that are kept. `first` is the number of its first node."""
        nodes = part.nodes()
        if not self._keep_all and first < self.closed_nodes:
            nodes = nodes[self.closed_nodes - first :]
        return {node.id: node for node in nodes}

    def _turns_in(self, part: Part, first: int) -> dict[str, TurnState]:
        """The turns of a part. `first` is the number of its first turn."""
        turns = part.whole_turns()
        if not self._keep_all and first < self.closed_turns:
            for turn in part.turns[: self.closed_turns - first]:
                _forget(turn)
        return turns


def _forget(turn: TurnState) -> None:
    """Forget what was said in a turn. The journal still has it."""
    turn.messages, turn.calls, turn.is_whole = [], [], False


class _Archived(Mapping[str, T]):
    """Things by id, in the order in which they came. Those in segments are decoded when they are asked for."""

    def __init__(self, archive: Archive) -> None:
        self.here: dict[str, T] = {}
        """Those that are in memory."""
        self.count = 0
        self._archive = archive

    def prepend(self, earlier: dict[str, T]) -> None:
        self.here = earlier | self.here

    def forget_all_but(self, kept: Iterable[str]) -> None:
        """Keep only these in memory."""
        self.here = {key: self.here[key] for key in kept if key in self.here}

    def after(self, count: int) -> list[T]:
        """All but the first ones, so many of them."""
        return [*islice(self.backwards(), max(0, len(self) - count))][::-1]

    def _all(self) -> dict[str, T]:
        while self._archive.decode_more():
            pass
        return self.here

    def __getitem__(self, key: str) -> T:
        while key not in self.here and self._archive.decode_more():
            pass
        return self.here[key]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def values(self) -> ValuesView[T]:
        return self._all().values()

    def backwards(self) -> Iterator[T]:
        """From the latest to the first. No more is decoded than is asked for."""
        yield from reversed(self.here.values())
        seen = len(self.here)
        while self._archive.decode_more():
            earlier = list(self.here.values())[: len(self.here) - seen]
            yield from reversed(earlier)
            seen += len(earlier)

    def __repr__(self) -> str:
        return f"<{len(self)}, of which {len(self.here)} are in memory>"


class ArchivedNodes(_Archived[Node]):
    """The nodes of a conversation."""

    def add(self, node: Node) -> None:
        self.here[node.id] = node
        self.count += 1


class ArchivedTurns(_Archived[TurnState]):
    """The turns of a conversation."""

    _archived: set[str] | None = None
    """The ids of those in segments, as far as they were not in memory when this was first asked for."""

    def forget_all_but(self, kept: Iterable[str]) -> None:
        if self._archived is not None:
            self._archived |= self.here.keys()
        super().forget_all_but(kept)

    def add(self, turn: TurnState) -> bool:
        """Add a turn; False if there was one with the same id, whose place it takes."""
        is_new = turn.id not in self
        if is_new:
            self.count += 1
        else:
            self._all()
        self.here[turn.id] = turn
        return is_new

    def __contains__(self, turn_id: object) -> bool:
        if turn_id in self.here:
            return True
        if self._archived is None:
            self._archived = set(self._archive.undecoded_turns)
        return turn_id in self._archived

    def __getitem__(self, turn_id: str) -> TurnState:
        if turn_id not in self:
            raise KeyError(turn_id)
        return super().__getitem__(turn_id)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._archive.undecoded_turns, *self.here]))
