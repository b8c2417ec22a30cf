"""Every fuzz test runs twice: on fixed inputs, and on random ones."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzzer import Fuzzer


@pytest.fixture(params=["fixed", "random"])
def fuzzer(request: pytest.FixtureRequest) -> Fuzzer:
    return Fuzzer(request.node.nodeid, is_random=request.param == "random")
