"""The event loop of simulations: virtual time, processes that do not share a fate, and nothing that is not drawn."""

from __future__ import annotations

import asyncio
import threading
import time
from random import Random

import pytest

from holdfast.testing.simulation.loop import EndlessRunError, SimulatedLoop


def new_loop(seed: int = 1) -> SimulatedLoop:
    return SimulatedLoop(Random(seed))


def test_an_hour_of_waiting_takes_no_time() -> None:
    loop, began = new_loop(), time.monotonic()

    async def wait() -> float:
        await asyncio.sleep(3600)
        return float(loop.time())

    assert loop.run(wait()) == pytest.approx(3600, abs=0.1)
    assert time.monotonic() - began < 5


def test_callbacks_of_one_process_run_in_the_order_of_asyncio() -> None:
    loop = new_loop()
    order: list[int] = []

    async def main() -> None:
        running = asyncio.get_running_loop()
        for number in range(50):
            running.call_soon(order.append, number)
        await asyncio.sleep(1)

    loop.run(main())
    assert order == list(range(50))


def test_a_killed_process_runs_no_line_any_more() -> None:
    loop, lines = new_loop(), []

    async def body() -> None:
        try:
            lines.append("begun")
            await asyncio.sleep(10)
            lines.append("woken")
        finally:
            if not loop.is_closed():  # in the end, everything is let go
                lines.append("finally")

    async def main() -> None:
        process = loop.new_process("one")
        loop.start(process, body())
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(100)

    loop.run(main())
    assert lines == ["begun"]


def test_a_process_that_stands_still_goes_on_where_it_was() -> None:
    loop, woken = new_loop(), []

    async def body() -> None:
        await asyncio.sleep(1)
        woken.append(loop.time())

    async def main() -> None:
        process = loop.new_process("one")
        task = loop.start(process, body())
        await asyncio.sleep(0.5)
        process.stands_until = int(5e9)
        await task

    loop.run(main())
    assert woken == [pytest.approx(5, abs=0.1)]


def test_functions_in_threads_take_virtual_time_and_run_one_at_a_time() -> None:
    loop = new_loop()

    async def main() -> tuple[list[int], float]:
        done = await asyncio.gather(*(asyncio.to_thread(pow, number, 2) for number in range(5)))
        return done, loop.time()

    done, at = loop.run(main())
    assert done == [0, 1, 4, 9, 16]
    assert 0 < at < 0.1


def test_a_call_from_a_thread_that_is_not_simulated_is_reported() -> None:
    loop = new_loop()

    async def main() -> None:
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(print,))
        thread.start()
        thread.join()

    loop.run(main())
    assert "comes from a thread" in loop.unhandled[0][1]["message"]


def test_a_run_in_which_nothing_can_happen_ends_with_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(EndlessRunError, match="nothing will ever happen"):
        new_loop().run(main())


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one() -> None:
    def digest(seed: int) -> str:
        loop = new_loop(seed)

        async def body() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        async def main() -> None:
            processes = [loop.new_process(str(number)) for number in range(4)]
            await asyncio.wait([loop.start(process, body()) for process in processes])

        loop.run(main())
        return str(loop.digest)

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_tasks_in_a_set_come_in_the_order_in_which_they_were_made() -> None:
    loop = new_loop()

    async def nothing() -> None:
        pass

    async def main() -> list[str]:
        tasks = {asyncio.create_task(nothing(), name=str(number)) for number in range(20)}
        return [task.get_name() for task in tasks]

    once, again = loop.run(main()), new_loop().run(main())
    assert once == again


async def test_a_simulation_inside_an_event_loop_is_refused() -> None:
    async def nothing() -> None:
        pass

    coroutine = nothing()
    with pytest.raises(RuntimeError, match="inside an event loop"):
        new_loop().run(coroutine)
    coroutine.close()
