"""Faults: what goes wrong in a run, how often, and until when. Each class is off in half of the seeds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

from holdfast.store.environment import STEP_MS


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What may go wrong. Everything is off by default; `profile` draws a mixture."""

    until_s: float = 8.0
    """Virtual seconds until which things go wrong. Then all is mended, and everything must come to its end."""
    kills: int = 0
    """OS processes that are killed between two callbacks, and started again later."""
    closes: int = 0
    """OS processes that are asked to close, and started again later."""
    stalls: int = 0
    """OS processes that stand still for a while, as on a machine that is suspended."""
    cuts: int = 0
    """Times that an OS process cannot reach the store for a while."""
    jumps: int = 0
    """Clocks that are set forward or back by up to three seconds."""
    skew_s: float = 0.0
    """Seconds by which the clock of an OS process may be wrong from its start."""
    store_errors: float = 0.0
    """Share of the calls of the store that raise, and have written nothing."""
    lost_replies: float = 0.0
    """Share of the writes that happen, while the writer gets an error because its connection broke."""
    slow_calls: float = 0.0
    """Share of the calls of the store that take long."""
    slow_s: float = 0.3
    """Seconds that a slow call takes, on average."""
    stuck_calls: float = 0.0
    """Share of the calls of the store that get no reply for many leases, and then an error; half of them happen."""
    lost_leases: int = 0
    """Times that the store lets others have what an OS process holds, before its leases run out."""
    late_notices: float = 0.0
    """Share of the notifications that are lost on the way, and made up for by the store's own look a second later."""
    repeated_notices: float = 0.0
    """Share of the notifications that come twice."""
    tool_faults: float = 0.0
    """Share of the calls of tools that fail, or hang for seconds."""
    provider_faults: float = 0.0
    """Share of the calls of models that fail, hang for good, or break off in the middle of their stream."""
    repeats: float = 0.0
    """Share of the replies of tools, models and people that come twice."""
    reports_deaths: bool = False
    """Whether the store can tell at once that the holder of a lease is gone."""
    aims: bool = False
    """Whether an owner that stands still goes on in the very moment when another one takes its session."""
    shuffled: float = 0.0
    """Share of the callbacks that do not run in the order in which they became ready."""

    @property
    def hurts_processes(self) -> bool:
        """Whether an OS process may lose a session although it does nothing wrong."""
        return bool(self.kills or self.closes or self.stalls or self.cuts or self.lost_leases)

    @property
    def wrong_by_s(self) -> float:
        """Seconds by which the time of an OS process may be wrong: from its start, and by jumps that pass for drift."""
        return self.skew_s + self.jumps * STEP_MS / 1000

    def __str__(self) -> str:
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return ", ".join(f"{name}={value}" for name, value in given if value and name not in ("until_s", "slow_s"))


def profile(seed: int) -> Faults:
    """The faults of a seed."""
    random = Random(f"{seed}/faults")

    def maybe(*choices: float) -> float:
        chosen = random.choice(choices)
        return chosen if random.random() < 0.5 else 0.0

    return Faults(
        until_s=random.choice((3.0, 6.0, 9.0)),
        kills=int(maybe(1, 2, 5)),
        closes=int(random.random() < 0.3),
        stalls=int(maybe(1, 2, 4)),
        cuts=int(maybe(1, 2)),
        jumps=int(maybe(1, 3)),
        skew_s=maybe(0.1, 2.0),
        store_errors=maybe(0.005, 0.01, 0.03),
        lost_replies=maybe(0.01, 0.03),
        slow_calls=maybe(0.01, 0.05),
        slow_s=random.choice((0.3, 1.0, 3.0)),
        late_notices=maybe(0.05, 0.5),
        repeated_notices=maybe(0.1),
        tool_faults=maybe(0.05),
        provider_faults=maybe(0.05),
        reports_deaths=random.random() < 0.5,
        aims=random.random() < 0.5,
        shuffled=maybe(0.2),
        stuck_calls=maybe(0.002, 0.01),
        lost_leases=int(maybe(1, 3)),
        repeats=maybe(0.1, 0.5),
    )
