"""The simulated store keeps the contract of stores, on a plain event loop and without faults."""

from __future__ import annotations

import pytest

from holdfast.store import Store
from holdfast.testing import StoreContract
from holdfast.testing.simulation.store import Link, SimulatedStore, StoreServer

_servers: dict[str, StoreServer] = {}


def _open(url: str, *, reports_deaths: bool) -> Store:
    server = _servers.setdefault(url, StoreServer(reports_deaths=reports_deaths))
    return SimulatedStore(server, Link())


class TestSimulatedStore(StoreContract):
    @pytest.fixture
    def store_url(self, request: pytest.FixtureRequest) -> str:
        return f"{request.node.nodeid}/plain"

    def open_store(self, url: str) -> Store:
        return _open(url, reports_deaths=False)

    async def blob_ids(self, store: Store) -> set[str]:
        assert isinstance(store, SimulatedStore)
        return set(store._server._blobs)


class TestSimulatedStoreThatReportsDeaths(TestSimulatedStore):
    @pytest.fixture
    def store_url(self, request: pytest.FixtureRequest) -> str:
        return f"{request.node.nodeid}/deaths"

    def open_store(self, url: str) -> Store:
        return _open(url, reports_deaths=True)
