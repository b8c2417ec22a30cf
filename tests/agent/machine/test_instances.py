"""What an agent remembers between turns, written down and read back."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.agent.machine.program import AgentInstance, AgentKind
from holdfast.programs.contract import is_checkpoint_kind
from tests.agent.machine.agents import Agent, item


def instance(agent: Agent) -> AgentInstance:
    return agent._instance


def test_an_agent_can_be_kept_between_turns_only() -> None:
    agent = Agent()
    kind = AgentKind()
    assert is_checkpoint_kind(kind)
    state = kind.dump_instance(instance(agent))
    assert state is not None
    assert kind.restore_instance(agent, state) is not None
    agent.send(item("a"))
    agent.begin()
    assert kind.dump_instance(instance(agent)) is None
    agent.reply()
    assert kind.dump_instance(instance(agent)) is not None


@pytest.mark.parametrize("change", [{"format": 0}, {"format": 2}, {"gauge": None}, {"granted": [{}]}])
def test_what_another_version_kept_is_not_used(change: dict[str, object]) -> None:
    agent = Agent()
    state = instance(agent).dump()
    assert state is not None
    changed = msgspec.json.encode({**msgspec.json.decode(state), **change})
    assert AgentInstance.restore(agent, changed) is None
    assert AgentInstance.restore(agent, b"") is None
