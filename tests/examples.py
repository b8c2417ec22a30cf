"""How many examples tests of properties try: few and always the same ones in the suite, many others in `make soak`."""

import os

SOAK = bool(os.environ.get("HOLDFAST_SOAK"))

SOAK_FACTOR = 20


def examples(count: int) -> int:
    """The number of examples of a test that tries some in the suite."""
    return count * SOAK_FACTOR if SOAK else count
