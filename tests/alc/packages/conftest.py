"""Fixtures of package management."""

from pathlib import Path

import pytest

from tests.alc.packages.helpers import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)
