"""Every limit of Lua programs, with its unit and the reason for its size. Nothing here is computed."""

DEADLINE_S = 10.0
"""Seconds of computing between two questions: far more than a strategy needs, little enough to wait out. Time in which
other programs have the processor does not count."""

REPLAY_SLACK = 4
"""How many times its deadline a step may compute when it is taken again: it was in time when it was taken, and the
processor may be slower now."""

MAX_DEADLINE_S = 3600.0
"""Seconds that a caller may allow for one step: simulations that ask nothing take minutes."""

MAX_MEMORY_MIB = 4096
"""MiB that a caller may allow to one VM."""

GRACE_S = 1.0
"""Seconds past the deadline after which a worker that does not answer is killed. Most programs are stopped inside the
VM at the deadline itself; what is left is stuck in a place where Lua cannot be interrupted."""

MEMORY_MIB = 64
"""MiB that one VM may hold: a thousand times what a strategy needs."""

HOT_VMS = 256
"""VMs kept between pauses, in all workers together: about 65 MB. The others are rebuilt when needed."""

HOLD_S = 5.0
"""Seconds that a rebuilt VM is kept for the step it was rebuilt for, however many others are wanted meanwhile."""

MAX_WORKERS = 4
"""Worker processes at once, and no more than there are cores. One keeps up with the engine; the others are for
strategies that compute for long."""

MOST_WORKERS = 16
"""Worker processes at once while some are stuck in steps that do not end, so that the other sessions continue."""

CROWD = 8
"""Requests that may wait for a worker before another one is started."""

PATIENCE_S = 0.25
"""Seconds that a session waits behind another one's step before it is rebuilt in another worker."""

IDLE_SHARE = 0.1
"""Share of the processor below which a step waits for something else: its worker's own look-out uses a little of it."""

IDLE_PATIENCE_S = 2.0
"""The same, behind a step that does not use the processor: it waits, or the machine has too much to do."""

START_S = 30.0
"""Seconds that a worker may take to start. Half a second is usual on a busy machine."""

MAX_FAILED_STARTS = 10
"""How many workers in a row may die while they start before that is an error: by then it is not bad luck."""

IN_PLACE_S = 0.0005
"""Seconds to wait in place for a step. Most steps take a tenth of that, and going through the event loop costs more."""

SPIN_S = 0.0002
"""Seconds of those in which the engine keeps looking instead of going to sleep: its processor would take longer to wake
up, and to be as fast as before, than most steps take."""

MAX_DEATHS = 3
"""How often a worker may die while it takes the same step of a session before the session is to blame."""

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""Bytes of one message between engine and worker: above what any step can say, below what would exhaust memory."""
