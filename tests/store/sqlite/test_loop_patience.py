"""When the event loop writes to a SQLite file itself, and when it leaves that to the thread."""

from __future__ import annotations

import time

import pytest

from holdfast.store.limits import IN_PLACE_ALLOWANCE_S, IN_PLACE_MAX_MS, IN_PLACE_REST
from holdfast.store.sqlite.loop_patience import LoopPatience
from holdfast.store.sqlite.schema import StoreConnection
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import NotHereError

SLOW_S = IN_PLACE_MAX_MS / 1000 * 1.5


async def test_after_a_very_slow_write_the_loop_leaves_writing_to_the_thread(store: SqliteStore) -> None:
    def slow(_: StoreConnection) -> None:
        time.sleep(max(SLOW_S, IN_PLACE_ALLOWANCE_S / 2))

    assert store._writer is not None
    await store._writer.submit(slow)
    with pytest.raises(NotHereError):
        store._writer.write_here(lambda _: None)


def test_what_is_slow_now_and_then_stays_in_place() -> None:
    waits, now = LoopPatience(), 1_000.0
    for _ in range(100):
        waits.waited(now, now + SLOW_S)
        now += SLOW_S
        assert waits.rests_until < now
        now += SLOW_S * IN_PLACE_REST


def test_what_is_always_slow_holds_up_the_loop_for_a_twentieth_of_the_time() -> None:
    waits, began, held_up = LoopPatience(), 1_000.0, 0.0
    now = began
    while now < began + 1_000:
        now = max(now, waits.rests_until)
        waits.waited(now, now + SLOW_S)
        now += SLOW_S
        held_up += SLOW_S
    assert held_up < (now - began + IN_PLACE_ALLOWANCE_S) / IN_PLACE_REST + 2 * SLOW_S


def test_quick_writes_never_lead_to_a_rest() -> None:
    waits = LoopPatience()
    for number in range(1_000):
        waits.waited(number, number + IN_PLACE_MAX_MS / 1000 / 2)
    assert waits.rests_until == 0.0
