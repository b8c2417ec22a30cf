"""Fixtures of package management."""

from pathlib import Path

import pytest

from .helpers import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)
