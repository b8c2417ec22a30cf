"""Requests to drain: how an operator lets a process on the same store end its work, from wherever the operator is.

A request is a state item under the name of the process, which the process takes back when it has read it. A live
message makes that happen at once; it may be lost, so whoever can be drained also looks now and then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.store.contract import Store
from holdfast.store.patience import pause

NAMESPACE = "holdfast.drains"
"""Where the requests are, in the state of the store; and the live messages about them."""

LOOK_S = pause(5.0)
"""Seconds between looks if nothing is heard."""


class DrainRequest(msgspec.Struct, frozen=True):
    """The wish that a process ends its work."""

    at: int
    by: str
    within_s: float | None = None
    """Seconds that what is under way has to end; None: as the process was started with."""


async def request_drain(store: Store, process: str, request: DrainRequest) -> None:
    """Ask a process to finish what is under way, and to begin nothing more."""
    await store.put_state(NAMESPACE, process, msgspec.to_builtins(request))
    store.publish(NAMESPACE, process.encode())


async def forget_drain(store: Store, process: str) -> None:
    """Take back a request to a process, if there is one."""
    await store.delete_state(NAMESPACE, process)


async def hear_of_drains(store: Store, process: str, drain: Callable[[DrainRequest], None]) -> None:
    """Call a function when a process is asked to drain, until cancelled."""
    with store.listen(NAMESPACE) as news:
        while True:
            item = await store.get_state(NAMESPACE, process)
            if item is not None:
                with contextlib.suppress(msgspec.ValidationError):  # of another version
                    drain(msgspec.convert(item.value, DrainRequest))
                with contextlib.suppress(HoldfastError):  # then it is read once more
                    await store.delete_state(NAMESPACE, process)
            await news.read(LOOK_S)
