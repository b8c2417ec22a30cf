"""For the tests of those who build on Holdfast: rehearsals, the store conformance kit, sessions to test with."""

from holdfast.strategies.rehearsal import Call, Rehearsal, rehearse, rehearsed
from holdfast.testing.scenarios import Scenario, begin, picture
from holdfast.testing.stores import StoreContract, store_machine

__all__ = [
    "Call",
    "Rehearsal",
    "Scenario",
    "StoreContract",
    "begin",
    "picture",
    "rehearse",
    "rehearsed",
    "store_machine",
]
