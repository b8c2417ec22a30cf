"""Every fuzz test runs on fixed inputs; and, where a seed is set as `make fuzz` does, on random ones."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.fuzzer import SEED, Fuzzer


@pytest.fixture(params=["fixed", *(["random"] if os.environ.get(SEED) else [])])
def fuzzer(request: pytest.FixtureRequest) -> Fuzzer:
    return Fuzzer(request.node.nodeid, is_random=request.param == "random")
