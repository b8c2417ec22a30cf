"""A database for each test, a store on it, and watches that do not poll."""

from __future__ import annotations

import pytest

from holdfast.store.postgres import notify as postgres_notify
from tests.store.pg_fixtures import database, postgres_url, store
from tests.store.postgres.helpers import NEVER_MS

__all__ = ["database", "no_polling", "postgres_url", "store"]


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_notify, "NOTIFY_POLL_MS", NEVER_MS)
