"""The Restate server of the process that runs tests."""

from tests.engine.restate.conftest import restate, restate_program

__all__ = ["restate", "restate_program"]
