"""What is done for many sessions: some at a time, none twice, and nobody waits for one that is held up."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine import errands
from holdfast.engine.errands import AT_ONCE, Errands
from holdfast.testing.patience import soon


class Held:
    """An errand that ends for a session when it is told to, or at once."""

    def __init__(self, *held: str) -> None:
        self.begun: list[str] = []
        self._held = set(held)
        self._released = asyncio.Event()

    async def __call__(self, session_id: str) -> bool:
        self.begun.append(session_id)
        if session_id in self._held:
            await self._released.wait()
        return session_id != "refused"

    def release(self) -> None:
        self._released.set()


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "LATE_S", 0.02)


async def test_what_is_held_up_or_refused_has_to_be_looked_at_again() -> None:
    errand = Held("held")
    assert await soon(Errands().run(["a", "held", "refused", "b"], errand)) == {"held", "refused"}
    errand.release()


async def test_as_many_as_are_begun_at_once_may_be_held_up_and_the_others_are_done() -> None:
    held = [f"held-{number}" for number in range(2 * AT_ONCE)]
    errand = Held(*held)
    assert await soon(Errands().run([*held, "a"], errand)) == set(held)
    assert errand.begun[-1] == "a"
    errand.release()


async def test_an_errand_that_is_under_way_is_not_begun_again_until_it_is_over() -> None:
    work, errand = Errands(), Held("held")
    for _ in range(2):
        assert await soon(work.run(["held"], errand)) == {"held"}
    assert errand.begun == ["held"]
    errand.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await soon(work.run(["held"], errand)) == set()
    assert errand.begun == ["held", "held"]


async def test_no_more_than_the_most_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "MOST", 2)
    errand = Held("a", "b")
    assert await soon(Errands().run(["a", "b", "c"], errand)) == {"a", "b", "c"}
    assert errand.begun == ["a", "b"]
    errand.release()


async def test_an_error_is_logged_and_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(session_id: str) -> bool:
        if session_id == "broken":
            raise RuntimeError("out of order")
        return True

    assert await soon(Errands().run(["broken", "a"], fails)) == {"broken"}
    assert "session 'broken' could not be looked after" in caplog.text


async def test_what_is_under_way_can_be_cancelled() -> None:
    work = Errands()
    await soon(work.run(["held"], Held("held")))
    ending = work.cancel()
    await soon(asyncio.wait(ending))
    assert [task.cancelled() for task in ending] == [True]
    assert work.cancel() == []
