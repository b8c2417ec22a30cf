"""A process that works on cards, for tests that run several or kill one: `card_child.py <what> <directory> <name>`.

It says `ready`, waits for a line, and then says what it has done, a line each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.alc.cards import CardBox
from holdfast.alc.cards.errors import CardExistsError, SamplesExistError

NOW = 1_750_000_000.0
ROUNDS = 25
SAMPLES = 200


def say(text: str) -> None:
    print(text, flush=True)


def slowly(name: str) -> Iterator[str]:
    """Samples that leave the others time to begin with theirs."""
    yield name
    time.sleep(0.002)


def race(box: CardBox, name: str) -> None:
    """Create the same cards and samples as everybody else, and add keys and aliases of one's own to one card."""
    for number in range(ROUNDS):
        try:
            box.create({"pkg": {"name": "race"}, "card_id": f"c{number}", "by": name}, now=NOW)
            say(f"won {number}")
        except CardExistsError:
            pass
        try:
            box.write_samples(f"c{number}", slowly(name))
            say(f"sampled {number}")
        except SamplesExistError:
            pass
        box.append("shared", {f"{name}_{number}": number})
        box.alias_set(f"{name}_{number}", "shared", now=NOW)
    say("done")


def write_for_ever(box: CardBox, name: str) -> None:
    """Create, append and write samples until killed; each is said after it is done."""
    for number in range(1_000_000):
        card_id = f"{name}_{number}"
        bulk = {f"key_{index}": "x" * 50 for index in range(300)}
        box.create({"pkg": {"name": "kill"}, "card_id": card_id, "bulk": bulk, "zz_last": True}, now=NOW)
        say(f"created {card_id}")
        box.append(card_id, {"zzz_appended": bulk})
        say(f"appended {card_id}")
        box.write_samples(card_id, ({"n": index, "wide": "x" * 100} for index in range(SAMPLES)))
        say(f"samples {card_id}")
        box.alias_set(f"alias_{number}", card_id, now=NOW)
        say(f"alias {card_id}")


def hang_while_writing(box: CardBox, name: str) -> None:
    """Stop half-way through the samples of a card."""

    def rows() -> Iterator[str]:
        for _ in range(50_000):
            yield "x" * 100
        say("half")
        time.sleep(600)

    box.write_samples(name, rows())


if __name__ == "__main__":
    what, directory, own_name = sys.argv[1:]
    say("ready")
    sys.stdin.readline()
    {"race": race, "write": write_for_ever, "hang": hang_while_writing}[what](CardBox(Path(directory)), own_name)
