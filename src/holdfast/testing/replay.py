"""`check_replay`: does the code of a test suite still do what exported sessions have recorded?"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.engine.holdfast import open_holdfast
from holdfast.engine.replay_check import ReplayOutcome
from holdfast.engine.upkeep import Upkeep


def check_replay(file: str | os.PathLike[str]) -> ReplayOutcome:
    """Replay the session in an export file on the code that this process has registered.

    For a test: export a session of every kind that production has (`holdfast export SESSION FILE`), import the modules
    with the strategies, and assert that the `state` of each outcome is `ok`. The outcome prints as what is wrong.
    """

    async def check() -> ReplayOutcome:
        async with open_holdfast("memory:", upkeep=Upkeep(on=False)) as hf:
            return await hf.check_replay(Path(file))

    return asyncio.run(check())
