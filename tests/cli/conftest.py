"""Fixtures of the command line's tests."""

from pathlib import Path

import pytest

from tests.cli.helpers import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)
