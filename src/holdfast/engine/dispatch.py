"""The dispatch port: how somebody comes to work on a session, now or at a time.

Rules of this file
------------------
- A dispatcher brings liveness, never safety. Who may write to a session, and what has happened in it, is settled by
  the store alone: nudges may come twice, late, in another order, or to a session that has ended.
- A nudge follows on the commit that it is about, and never comes before it. One that is lost is made up for: whatever
  implements this port also looks at the store now and then, and finds what nobody was nudged for.
- A dispatcher knows sessions by their ids alone. It is told nothing of what is in them, and keeps nothing of it.

`store_dispatch` is the implementation that needs nothing but a store: its notifications are the nudges. `restate` and
`nats` have those for fleets with an engine underneath, and `fleet` what these have in common.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from importlib.util import find_spec

from holdfast.core.errors import HoldfastError
from holdfast.engine.engine import Engine
from holdfast.store.contract import Store

VARIABLE = "HOLDFAST_DISPATCH"
"""The environment variable that names the dispatcher of a fleet on PostgreSQL, if nothing else does."""


class DispatchError(HoldfastError):
    """A dispatcher that cannot be used as asked, or does not do as it is told."""

    why: str
    kind = "dispatch"

    def __str__(self) -> str:
        return self.why


class Dispatch(ABC):
    """What a process tells of sessions that have something to do, and hears of them."""

    is_serving = False
    """Whether work that others leave is brought to this process, so that nothing here has to look for it."""

    @abstractmethod
    def attach(self, engine: Engine) -> None:
        """The engine is open: from now on, nudges follow on its commits."""

    @abstractmethod
    def nudge(self, session_id: str, position: int | None = None) -> None:
        """Somebody should look at a session. Never waits and never fails; the same position twice is one nudge.

        `position` is that of the commit which it follows on; None if nothing was written, as with a message.
        """

    @abstractmethod
    def nudge_at(self, session_id: str, due: int) -> None:
        """Somebody should look at a session at a time (unix ms). The same time twice is one nudge."""

    @abstractmethod
    def serve(self, engine: Engine) -> None:
        """Begin to work on the sessions that nudges name, until `stop`."""

    @abstractmethod
    async def stop(self) -> None:
        """Take no more work. What is under way in sessions is ended with the engine."""

    def look_soon(self) -> None:  # noqa: B027 - not every implementation has passed anything over
        """Something changed that may let sessions run here which could not before."""

    def refuse(self) -> None:  # noqa: B027 - where the store brings work, whoever asks for none gets none
        """Take no more work: this process is about to end."""

    async def until_idle(self) -> None:  # noqa: B027
        """Wait until what was brought here is done, as far as it can be."""

    async def detach(self) -> None:  # noqa: B027
        """The engine is closed, and its sessions are released: tell others of what it has left."""


def open_dispatch(given: str | Dispatch | None, store: Store, *, is_alone: bool = False) -> Dispatch | None:
    """A dispatcher for the processes of a store: as given, by its URL (`restate+http://host:8080`, `nats://host:4222`),
    or else as the environment names one, unless this process is `alone`, or the store needs none."""
    is_for_fleets = store.url.startswith(("postgresql:", "postgres:"))
    if given is None:
        named = os.environ.get(VARIABLE)
        if not named or is_alone or not is_for_fleets:
            return None
        return dispatch_at(named, serves=False)
    if not is_for_fleets:
        scheme = store.url.partition(":")[0]
        raise DispatchError(
            f"a dispatcher is for fleets on PostgreSQL, and this store is of another kind ({scheme}): its processes are"
            " on one machine, and hear of each other's work at once without one; leave `dispatch` out"
        )
    return given if isinstance(given, Dispatch) else dispatch_at(given)


def is_nats(url: str) -> bool:
    """Whether a URL names NATS."""
    return url.startswith(("nats:", "nats+tls:"))


def dispatch_at(url: str, *, serves: bool = True) -> Dispatch:
    """The dispatcher behind a URL; if it does not serve, for a process that sends nudges and is brought none."""
    if is_nats(url):
        from holdfast.engine.nats.dispatch import nats_dispatch

        return nats_dispatch(url, serves=serves)
    from holdfast.engine.restate.dispatch import restate_dispatch

    return restate_dispatch(url, serves=serves)


def check_installed(extra: str, *packages: str) -> None:
    """Raise `DispatchError` if a package is missing which an extra brings."""
    for package in packages:
        if find_spec(package) is None:
            raise DispatchError(f"this dispatcher needs the package `{package}`: pip install 'holdfast[{extra}]'")
