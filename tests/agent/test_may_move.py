"""Which needs of rows a runtime lists sessions of: what only a host can answer is never among them."""

from __future__ import annotations

from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.runtime import Runtime
from holdfast.testing.provider import ScriptedProvider


class Weather(Plugin):
    """Brings one tool."""

    id = "weather"

    def tools(self):  # type: ignore[no-untyped-def]
        def forecast(town: str) -> str:
            """Tell the weather."""
            return f"rain in {town}"

        return [forecast]


async def test_a_runtime_moves_what_it_has_the_tool_for_and_leaves_the_rest_alone() -> None:
    async with Runtime("memory:", provider=ScriptedProvider([]), model="m", plugins=[Weather()]) as runtime:
        offers = runtime.mount.holdfast.engine.owner.offers
        assert offers.may_move("run")
        assert offers.may_move("tool:forecast")
        assert offers.may_move(f"provider:{runtime.policy.provider}")
        assert not offers.may_move("tool:only_the_host_has_it")
        assert not offers.may_move("provider:nobody,tool:only_the_host_has_it")
        assert not offers.may_move("child")
        assert not offers.may_move(f"inbox,provider:{runtime.policy.provider}")
