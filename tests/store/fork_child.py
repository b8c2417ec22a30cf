"""Forks and deletes sessions of one store until it is killed, and says on its output what was acknowledged.

python -m tests.store.fork_child URL PREFIX SEED
"""

from __future__ import annotations

import asyncio
import random
import sys

from holdfast.core.errors import HoldfastError
from holdfast.store import open_store
from holdfast.testing.laws.forks import fork_of
from holdfast.testing.sessions import ScriptedSession, begin


async def main(url: str, prefix: str, seed: int) -> None:
    chance = random.Random(seed)
    async with open_store(url) as store:
        source = await begin(store, f"{prefix}-0", hold_ms=0)
        await source.log("shared", f"{prefix} {'x' * 5_000}", hold_ms=0)
        living: list[ScriptedSession] = [source]
        say("made", source, source.position)
        for number in range(1, 100_000):
            if len(living) > 1 and chance.random() < 0.45:
                gone = living.pop(chance.randrange(len(living)))
                say("deletes", gone, 0)
                await store.delete(gone.id, 1)
                say("deleted", gone, 0)
                continue
            origin = chance.choice(living)
            fork = await fork_of(origin, f"{prefix}-{number}", chance.randint(2, origin.position), hold_ms=0)
            say("made", fork, fork.position)
            await fork.log(f"{prefix} line {number}", f"{number} {'y' * 5_000}", hold_ms=0)
            say("made", fork, fork.position)
            living.append(fork)


def say(word: str, session: ScriptedSession, position: int) -> None:
    print(word, session.id, position, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    except HoldfastError as error:
        print("fault", error, flush=True)
        raise
