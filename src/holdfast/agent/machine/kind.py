"""Registers what the kind `agent` brings to a session. Imported when the first session of an agent is met."""

from __future__ import annotations

from holdfast.agent.machine.compare import AgentComparedJournal
from holdfast.agent.machine.conversation import Conversation
from holdfast.agent.machine.fold import AgentFold
from holdfast.agent.machine.fork_points import AgentForkPoints
from holdfast.agent.machine.mailbox import AGENT_MESSAGES
from holdfast.agent.machine.queries import AGENT_QUERIES
from holdfast.agent.machine.records import AGENT_RECORDS
from holdfast.core.kinds import SessionKind, register

KIND = "agent"
"""The name of the kind, as sessions record it."""

register(
    SessionKind(
        name=KIND,
        fold=AgentFold,
        records=AGENT_RECORDS,
        queries=AGENT_QUERIES,
        messages=AGENT_MESSAGES,
        fork_places=("turn", "node"),
        fork_points=AgentForkPoints,
        view=Conversation,
        compared_journal=AgentComparedJournal,
    )
)
