"""Assertions in the shipped kit are shown in full, as those in test files are."""

import pytest

pytest.register_assert_rewrite("holdfast.testing")
