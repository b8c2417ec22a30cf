"""The laws are checked while a run goes on, whenever every process waits: what was wrong in between is found."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec

from holdfast import strategy
from holdfast.programs.native.ctx import Context
from holdfast.testing.simulation import Client, Faults, Scenario, simulate


@strategy(name="simulated_one_question")
async def one_question(ctx: Context) -> Any:
    return await ctx.ask("Well?")


class BrieflyWrong(Scenario):
    """For a while in the middle, the store lists the session other than it is."""

    name: ClassVar[str] = "briefly wrong"
    clients: ClassVar[tuple[int, int]] = (1, 1)
    is_wrong: ClassVar[bool] = True

    async def drive(self, client: Client, number: int) -> None:
        await client.start(one_question, "s")
        while not (asked := await client.open_questions("s")):
            await client.rest()
        stored: Any = self.world.server._by_id["s"]
        right = stored.summary
        if self.is_wrong:
            stored.summary = msgspec.structs.replace(right, pending=right.pending + 1)
        await asyncio.sleep(4.0)
        stored.summary = right
        await client.feed(*asked[0], "well")


class NeverWrong(BrieflyWrong):
    """The same without that."""

    is_wrong: ClassVar[bool] = False


def test_what_is_wrong_only_for_a_while_is_found() -> None:
    wrong, right = (simulate(each, 1, Faults(until_s=1.0)).problems for each in (BrieflyWrong, NeverWrong))
    assert [problem.law for problem in wrong] == ["replay"]
    assert "when all was quiet" in wrong[0].text
    assert right == []
