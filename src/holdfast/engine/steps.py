"""Waiting for a step of a program: how long one is waited for before what led to it is committed without it."""

from __future__ import annotations

import asyncio

from holdfast.programs.contract import Step
from holdfast.programs.native.kind import PROMPT_MS
from holdfast.programs.step_future import StepFuture

QUEUED_MS = 1_000
"""Milliseconds that a step may wait for its turn, as where two hundred sessions share two workers."""


async def comes_soon(thought: asyncio.Future[Step]) -> bool:
    """Wait for a step; False if it takes long. The time in which others are before it is not its own."""
    thought.add_done_callback(_heard)
    for _ in range(1 + QUEUED_MS // PROMPT_MS):
        done, _ = await asyncio.wait({thought}, timeout=PROMPT_MS / 1000)
        if done:
            return True
        if not isinstance(thought, StepFuture) or thought.has_begun:
            return False
    return False


async def rest_between_steps(rested: float) -> float:
    """Let the other sessions have a turn if the last one, at `rested`, was long ago; gives the time of the last one."""
    now = asyncio.get_running_loop().time()
    if rested and now - rested > PROMPT_MS / 1000:
        await asyncio.sleep(0)
        return asyncio.get_running_loop().time()
    return rested or now


def _heard(thought: asyncio.Future[Step]) -> None:
    """Look at how a step ended, so that asyncio does not complain that nobody did: nobody may wait for it any more."""
    if not thought.cancelled():
        thought.exception()
