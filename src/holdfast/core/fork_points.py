"""Where a session can be forked, found in its journal: at its start, before a pause, before a turn, at a node.

The theory
----------
Any beginning of a journal is a journal, and its program can be rebuilt from it. But what a program does when it goes on
(notes, then a question or its end) is written at once, and a beginning that ends between the notes and what they lead
to would have the program note the same again. So such places are passed over: between a waking and what came of it, a
fork is made before the first note. All other places are *sound*.

What is asked when the fork goes on follows from where it is made: before a pause the program runs and asks anew; before
a turn's input the agent waits for that input, which may then be another; after what a model or a tool said the agent
goes on from there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.messages import AgentMessage, ToolResultBlock, ToolUseBlock
from holdfast.agent.machine.tree import FrameOpen, Node
from holdfast.core.limits import PROMPT_PREVIEW_CHARS
from holdfast.core.queries import ChildQuery, HumanQuery, LlmQuery, Query, ToolQuery, kind_of
from holdfast.core.records import (
    CallRecord,
    Entry,
    FrameRecord,
    LoggedRecord,
    PausedRecord,
    ProgressedRecord,
    StartedRecord,
    StatRecord,
    TurnRecord,
)
from holdfast.core.replay import OUTCOMES, Tracker
from holdfast.core.values import encode

_NOTES = (LoggedRecord, ProgressedRecord, StatRecord, TurnRecord, CallRecord, FrameRecord)
"""What a program says beside its questions, written before what it leads to."""

ForkKind: TypeAlias = Literal["start", "pause", "turn", "node"]


class ForkPoint(msgspec.Struct, frozen=True):
    """A place to fork a session at."""

    position: int
    """The last record that the fork shares."""
    kind: ForkKind
    id: str
    """Of the first query of the pause, of the turn, or of the node; empty for the start."""
    text: str
    """What is asked or said there, its beginning."""


class ForkPoints:
    """The places of one session, as far as its journal was folded."""

    def __init__(self, session_id: str) -> None:
        self.points: list[ForkPoint] = []
        self.sound = 0
        """The last sound place so far."""
        self._tracker = Tracker(session_id)
        self._conversation = Conversation(session_id)
        self._is_agent = False
        self._wakes = self._noted = False
        """Whether the program is to go on, and has noted something since."""
        self._unplaced: list[Node] = []
        """Nodes after which there was no sound place yet."""
        self._places: dict[ForkKind, dict[str, int]] = {"pause": {}, "turn": {}, "node": {}}

    def apply(self, entry: Entry) -> None:
        """Fold one more entry."""
        before = self.sound
        self._judge(entry)
        match entry.record:
            case StartedRecord(program=program):
                self._is_agent = program.kind == "agent"
                self.points.append(ForkPoint(entry.position, "start", "", program.name))
            case PausedRecord(queries=[first, *_] as queries):
                for query in queries:
                    self._places["pause"][query.id] = before
                self._point(before, "pause", first.id, "; ".join(map(told, queries)))
            case _:
                pass
        if self._is_agent:
            self._follow(entry, before)

    def place(self, kind: ForkKind, wanted: str) -> int | None:
        """The place that a query, a turn or a node stands for; None if there is none of that id."""
        return self._places[kind].get(wanted)

    def near(self, kind: ForkKind, wanted: str, most: int = 4) -> list[str]:
        """Ids of that kind: those whose numbers are nearest to the one in `wanted`; else the last ones."""
        known = list(self._places[kind])
        number = _number(wanted)
        if number is None or any(_number(each) is None for each in known):
            return known[-most:]
        nearest = sorted(known, key=lambda each: abs((_number(each) or 0) - number))[:most]
        return sorted(nearest, key=known.index)

    def _judge(self, entry: Entry) -> None:
        """Whether the place after an entry is sound."""
        record = entry.record
        if isinstance(record, OUTCOMES):
            self._wakes = self._noted = False
        if self._tracker.apply(entry) is not None:
            self._wakes, self._noted = True, False
        elif self._wakes and isinstance(record, _NOTES):
            self._noted = True
        if not self._noted or self._tracker.session.is_terminal:
            self.sound = entry.position

    def _follow(self, entry: Entry, before: int) -> None:
        """Find the places of what was said with an entry: before a turn's input, and after all else."""
        conversation = self._conversation
        known = len(conversation.nodes)
        conversation.apply(entry)
        said = [*islice(reversed(conversation.nodes.values()), len(conversation.nodes) - known)][::-1]
        turn = conversation.running
        if turn is not None and turn.position == entry.position:
            self._point(before, "turn", turn.id, AgentMessage("user", turn.content).text)
            self._put(said, before)
        elif self._tracker.session.is_terminal:  # nothing follows there; what waited before does
            self._put([*self._unplaced, *said], before)
            self._unplaced = []
        else:
            self._unplaced += said
            if self.sound == entry.position:
                self._put(self._unplaced, entry.position)
                self._unplaced = []

    def _put(self, nodes: Iterable[Node], position: int) -> None:
        for node in nodes:
            self._point(position, "node", node.id, _said(node))

    def _point(self, position: int, kind: ForkKind, found: str, text: str) -> None:
        self._places[kind][found] = position
        self.points.append(ForkPoint(position, kind, found, " ".join(text.split())[:PROMPT_PREVIEW_CHARS]))


def fork_points(session_id: str, entries: Iterable[Entry]) -> ForkPoints:
    """The places of a journal."""
    found = ForkPoints(session_id)
    for entry in entries:
        found.apply(entry)
    return found


def told(query: Query) -> str:
    """What a query asks, in words."""
    match query:
        case LlmQuery(iteration=int() as number, prompt=""):
            return f"the model, call {number} of the turn"
        case LlmQuery(prompt=prompt) | HumanQuery(prompt=prompt):
            return prompt
        case ToolQuery(name=name, arguments=arguments):
            return f"{name} {encode(arguments).decode()}"
        case ChildQuery(program=program):
            return f"the program {program}"
        case _:
            return kind_of(query)


def message_text(message: AgentMessage) -> str:
    """All that a message says, on as few lines as it takes."""
    parts = [message.text] if message.text else []
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            parts.append(f"calls {block.name} {encode(block.input).decode()}")
        elif isinstance(block, ToolResultBlock):
            parts.append(block.content if isinstance(block.content, str) else encode(block.content).decode())
    return "\n".join(parts)


def _said(node: Node) -> str:
    match node.payload:
        case AgentMessage(role=role):
            return f"{role}: {message_text(node.payload)}"
        case FrameOpen(reason=reason, task=task, summary=summary):
            told = task or summary
            return f"a new window ({reason})" + (f": {told}" if told else "")


def _number(found: str) -> int | None:
    match = re.match(r"[a-z]-(\d+)", found)
    return int(match[1]) if match else None
