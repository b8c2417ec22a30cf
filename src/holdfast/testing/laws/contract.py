"""The store conformance kit: every sentence of the Store contract as a test that runs on any store.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store_url(self, tmp_path):
            return f"mystore:///{tmp_path}/new"

        def open_store(self, url):
            return MyStore(url)

Needs pytest with pytest-asyncio in auto mode, and hypothesis for the model; they are imported when the class is made
and when the model runs, not before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from holdfast.store.contract import Store
from holdfast.testing.laws.blobs import LargeValueLaws
from holdfast.testing.laws.checkpoints import CheckpointLaws
from holdfast.testing.laws.ends import DeletionLaws, PruningLaws
from holdfast.testing.laws.forks import ForkLaws, SharedEndLaws
from holdfast.testing.laws.hostile import HostileLaws
from holdfast.testing.laws.inventory import InventoryLaws
from holdfast.testing.laws.journal import AppendLaws, CreationLaws, DamageLaws, ReadingLaws
from holdfast.testing.laws.leases import FencingLaws, HolderLaws, LeaseLaws
from holdfast.testing.laws.listings import DueLaws, ListingLaws, RepairLaws
from holdfast.testing.laws.live import LiveLaws
from holdfast.testing.laws.mailbox import MailboxLaws, TakingLaws
from holdfast.testing.laws.overview import OverviewLaws
from holdfast.testing.laws.permits import PermitLaws
from holdfast.testing.laws.snapshots import SnapshotLaws
from holdfast.testing.laws.state import StateLaws, StateWriteLaws
from holdfast.testing.laws.upkeep import ExpiredLeaseLaws, OpenLaws
from holdfast.testing.laws.watch import SharingLaws, WatchLaws

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine


class StoreContract(
    CreationLaws,
    AppendLaws,
    ReadingLaws,
    DamageLaws,
    FencingLaws,
    LeaseLaws,
    HolderLaws,
    MailboxLaws,
    TakingLaws,
    ListingLaws,
    DueLaws,
    RepairLaws,
    OverviewLaws,
    InventoryLaws,
    LargeValueLaws,
    SnapshotLaws,
    CheckpointLaws,
    StateLaws,
    StateWriteLaws,
    DeletionLaws,
    PruningLaws,
    OpenLaws,
    ExpiredLeaseLaws,
    PermitLaws,
    ForkLaws,
    SharedEndLaws,
    WatchLaws,
    LiveLaws,
    SharingLaws,
    HostileLaws,
):
    """All laws. A subclass says which store: a fixture `store_url` for an empty one, and `open_store` if need be."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Give the class its fixture `store`. Here, so that pytest is needed by those who run the laws only."""
        super().__init_subclass__(**given)
        import pytest_asyncio

        async def store(self: StoreContract, store_url: str) -> AsyncIterator[Store]:
            async with self.open_store(store_url) as opened:
                yield opened

        cls.store = pytest_asyncio.fixture(store)  # type: ignore[attr-defined]

    def test_every_sequence_of_calls_agrees_with_the_model(self, store_url: str) -> None:
        from hypothesis.stateful import run_state_machine_as_test

        from holdfast.testing.laws.machine import SETTINGS

        run_state_machine_as_test(store_machine(lambda: self.open_store(store_url)), settings=SETTINGS)


def store_machine(open_store: Callable[[], Store]) -> type[RuleBasedStateMachine]:
    """A hypothesis state machine that compares a store with a model made of dicts, call by call.

    `open_store` is called for each run of the machine and may give the same data again: every run uses ids of its own.
    """
    from holdfast.testing.laws.machine import machine_for

    return machine_for(open_store)
