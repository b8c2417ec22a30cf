"""For the tests of those who build on Holdfast: the store conformance kit, and sessions to test with."""

from holdfast.testing.scenarios import Scenario, begin, picture
from holdfast.testing.stores import StoreContract, store_machine

__all__ = ["Scenario", "StoreContract", "begin", "picture", "store_machine"]
