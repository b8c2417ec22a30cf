"""How much slower than usual this machine may be: the factor in `HOLDFAST_PATIENCE`, read here and nowhere else.

Limits on wall-clock time that tell a quick step from a slow one are multiplied by it, and so are the deadlines of
tests. It changes which thread does something and when something is given up, never what is stored.
"""

import os

PATIENCE = float(os.environ.get("HOLDFAST_PATIENCE") or 1)
"""1 on a machine that is not busy otherwise."""


def patience(seconds: float) -> float:
    """A time limit as it holds on this machine."""
    return seconds * PATIENCE


FAR_SLOWER = 20
"""How much slower a machine may be before it looks at what others do more seldom than usual. A few times slower, it
has to look as often as ever, because somebody waits; a thousand times slower, as under an emulator, it would do little
else."""


def pause(duration: float) -> float:
    """A pause between two looks as it is on this machine, in the unit that it is given in."""
    return duration * max(1.0, PATIENCE / FAR_SLOWER)
