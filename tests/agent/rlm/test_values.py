"""Every value of a variable comes back equal, with its type, or is named as not kept: never as something else."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from pydantic_monty import Monty, MontySession

from holdfast.agent.rlm.inside import JSON, PACK, PACK_EXACTLY, UNPACK
from holdfast.agent.rlm.limits import MAX_VALUE_NODES
from holdfast.agent.rlm.values import is_doubtful, is_tagged, leaf_of, value_in

SCALARS = (
    *("0", "-1", "2**63 - 1", "-2**63", "2**63", "10**40", "1.5", "-0.0", "1e300", "float('nan')", "float('-inf')"),
    *("True", "None", "''", "'é\\n\"'", "'NaN'", "'$'", "b'\\x00ab'", "2+3j", "...", "Decimal('1.50')"),
    *("datetime.date(2020, 2, 29)", "datetime.time(1, 2, 3, 4)", "datetime.timedelta(-1, 5, 7)"),
    *("datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc)", "datetime.datetime(2020, 1, 2)"),
)
HASHABLE = ("1", "'a'", "(1, 'b')", "True", "None", "frozenset([1])", "2**70", "1.5")
FOREIGN = ("range(3)", "re.compile('a')", "len", "int", "lambda: 1", "slice(1, 2)", "{}.keys()", "ValueError('x')")

PRELUDE = """
import collections, datetime, re
from decimal import Decimal
from dataclasses import dataclass
@dataclass
class Point:
    x: int
    y: list
Pair = collections.namedtuple('Pair', 'a b')
"""

VALUES, TOGETHER = 10_000 if "HOLDFAST_SOAK" in os.environ else 2_000, 50
"""Values that are tried, and how many of them in one interpreter."""


def made(chance: random.Random, depth: int, foreign: bool) -> str:
    """An expression for a value; with `foreign`, perhaps one that cannot be kept."""
    if depth == 0 or chance.random() < 0.3:
        return chance.choice((*SCALARS, *FOREIGN)) if foreign else chance.choice(SCALARS)
    parts = [made(chance, depth - 1, foreign) for _ in range(chance.randrange(4))]
    keys = [chance.choice(HASHABLE) for _ in parts]
    pairs = ", ".join(f"{key}: {part}" for key, part in zip(keys, parts, strict=True))
    match chance.randrange(9):
        case 0 | 1:
            return f"[{', '.join(parts)}]"
        case 2:
            return f"tuple([{', '.join(parts)}])"
        case 3:
            return f"{{{pairs}}}"
        case 4:
            return f"set([{', '.join(keys)}])"
        case 5:
            return f"collections.deque([{', '.join(parts)}], 5)"
        case 6:
            return f"Point(1, [{', '.join(parts)}])"
        case 7:
            return f"Pair(1, [{', '.join(parts)}])"
        case _:
            return f"{{'$': [{', '.join(parts)}], 'k': 1}}"


def packed(session: MontySession, name: str) -> list[Any]:
    text = session.feed_run(f"_holdfast_json_of({name}, {MAX_VALUE_NODES})")
    if text is not None and not is_doubtful(text):
        return [True, text]
    found: list[Any] = session.feed_run(f"_holdfast_pack({name}, {MAX_VALUE_NODES})")
    return found


SAME = "repr(w) == repr(v) and type(w) == type(v)"


def test_random_values_come_back_as_they_were_or_are_not_kept() -> None:
    chance = random.Random(11)
    kept = refused = 0
    with Monty(min_processes=1, max_processes=1) as pool:
        for _ in range(VALUES // TOGETHER):
            with pool.checkout(limits={"max_suspensions": 100_000}) as session:
                session.feed_run(PRELUDE + JSON + PACK + PACK_EXACTLY)
                session.feed_run(UNPACK)
                for _ in range(TOGETHER):
                    code = made(chance, 3, foreign=chance.random() < 0.2)
                    session.feed_run(f"v = {code}")
                    is_kept, text = packed(session, "v")
                    is_foreign = any(each in code for each in FOREIGN)
                    if not is_kept:
                        assert is_foreign, (code, text)
                        refused += 1
                        continue
                    leaf = leaf_of(text, "any")
                    inputs = {"text": text}
                    session.feed_run(
                        "w = _holdfast_made(_holdfast_json.loads(text), {'Point': Point, 'Pair': Pair})", inputs=inputs
                    )
                    assert session.feed_run(SAME), code
                    if not leaf.is_special:
                        session.feed_run("None", inputs={"w": value_in(leaf.json)})
                        assert session.feed_run(SAME), code
                    if not is_tagged(text):
                        session.feed_run("w = _holdfast_json.loads(text)", inputs=inputs)
                        assert session.feed_run(SAME), code
                    kept += 1
    assert kept > 1_000
    assert refused > 50


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("[1, 'a']", "[1, 'a']"),
        ("(1,)", "(1,)"),
        ("{2}", "{2}"),
        ("set()", "set([])"),
        ("collections.Counter('aab')", "Counter({'a': 2, 'b': 1})"),
        ("{1: (2, 3)}", "{1: (2, 3)}"),
        ("Point(1, [2])", "Point(x=1, y=[2])"),
        ("Pair(1, {'k': {3}})", "Pair(1, {'k': {3}})"),
        ("collections.deque([1], 5)", "deque([1])"),
        ("Decimal('1.5')", "Decimal('1.5')"),
        ("2**70", str(2**70)),
        ("'é' * 1000", '"' + "é" * 79 + "…"),
        ("list(range(1000))", "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 2…"),
    ],
)
def test_the_beginning_of_a_value_is_shown_as_python_writes_it(code: str, shown: str) -> None:
    with Monty(min_processes=1, max_processes=1) as pool, pool.checkout() as session:
        session.feed_run(PRELUDE + JSON + PACK + PACK_EXACTLY)
        session.feed_run(f"v = {code}")
        is_kept, text = packed(session, "v")
    assert is_kept
    assert leaf_of(text, "any").preview == shown
