"""Processes that save the same envelope: readers see a whole one, and a killed writer loses nothing acknowledged."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from holdfast.agent.envelopes.store import EnvelopeReport
from holdfast.testing.patience import soon
from tests.agent.envelopes.helpers import a_rig, version

WRITER = """
import asyncio, sys
from contextlib import AsyncExitStack
from pathlib import Path
from tests.agent.envelopes.helpers import a_rig, version

async def main(kind, path, number):
    async with AsyncExitStack() as stack:
        envelopes = (await a_rig(kind, Path(path), stack)).envelopes
        while True:
            await envelopes.save("s-1", version(number))
            print(number, flush=True)
            number += 1

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def a_writer(kind: str, path: Path, number: int) -> subprocess.Popen[str]:
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(path), str(number)], cwd=root, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
async def test_a_writer_killed_while_saving_leaves_the_last_acknowledged_envelope_or_the_next(
    kind: str, tmp_path: Path
) -> None:
    chance = random.Random(2)
    for start in (0, 1_000_000, 2_000_000, 3_000_000):
        with a_writer(kind, tmp_path, start) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            await asyncio.sleep(chance.uniform(0, 0.1))
            writer.kill()
            lines = writer.stdout.read().split("\n")  # the last piece may be cut off
        acknowledged = int(lines[-2]) if len(lines) > 1 else start
        async with AsyncExitStack() as stack:
            envelopes = (await a_rig(kind, tmp_path, stack)).envelopes
            found = await envelopes.load("s-1")
            assert found in (version(acknowledged), version(acknowledged + 1))
            assert await envelopes.list() == EnvelopeReport(["s-1"], {})


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
async def test_readers_never_see_a_part_while_two_processes_save_the_same_id(kind: str, tmp_path: Path) -> None:
    with a_writer(kind, tmp_path, 0) as one, a_writer(kind, tmp_path, 1_000_000) as other:
        try:
            for writer in (one, other):
                assert writer.stdout is not None
                await asyncio.to_thread(writer.stdout.readline)
            async with AsyncExitStack() as stack:
                envelopes = (await a_rig(kind, tmp_path, stack)).envelopes
                seen: list[str] = []

                async def read_many() -> None:
                    while len(seen) < 100 or len(set(seen)) < 2:  # the writers may not have had their turn meanwhile
                        found = await envelopes.load("s-1")
                        assert found is not None
                        assert found == version(int(found.metadata["n"]))
                        seen.append(str(found.metadata["n"]))

                await soon(read_many())
        finally:
            one.kill()
            other.kill()
