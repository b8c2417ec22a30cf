"""Every limit of sandboxed Python, with its unit and the reason for its size."""

DEADLINE_S = 10.0
"""Seconds of computing between two questions: a strategy mostly waits, and one that does not is in a loop."""

MAX_DEADLINE_S = 3600.0
"""Seconds that a caller may ask for instead."""

MEMORY_MIB = 64
"""MiB of the interpreter's heap: plenty for texts, and all workers together stay small."""

MAX_MEMORY_MIB = 4096
"""MiB that a caller may ask for instead."""

MAX_RECURSION = 500
"""Calls inside calls: deeper than any strategy goes, and far from the worker's own stack."""

MAX_SUSPENSIONS = 100_000
"""Calls of the host in the whole life of a session: questions, log lines, look-ups of the time. monty's own limit is
1,000 in each resume; a strategy that asks a hundred models ten times is not in a loop."""

MAX_PRINTED_CHARS = 64 * 1024
MAX_PRINTED_LINES = 1_000
"""Characters, and lines, of `print` kept of one step: each line is a record of the journal."""

MAX_NOTED_CHARS = 1024 * 1024
MAX_NOTES = 10_000
"""Characters, and lines, of what one step says beside its questions: they go to the journal, in one commit."""

MAX_FIGURE_BYTES = 1024 * 1024
"""Bytes of all figures that a session records about itself: they are kept with its state at every pause."""

MAX_ASKED_BYTES = 64 * 1024 * 1024
"""Bytes of all questions of one pause: they are one record. One long text may be in thousands of them."""

MAX_ITEMS = 1_000_000
"""Items of the arguments of one call, counted as often as they occur: more than the interpreter's memory holds apart
from each other, and looked through in half a second."""

MAX_CODE_CHARS = 256 * 1024
"""Characters of a strategy's source. A page or two is usual; reading one of this size takes seconds."""

MAX_WORKERS = 4
"""Worker processes at most: steps are short, and there are seldom more cores to give."""

HOT_BYTES = 64 * 1024 * 1024
"""Bytes of snapshots kept in memory between pauses; the others are read from the store when they are needed."""

COMPRESSED_FROM = 2 * 1024
"""Bytes from which a dump is compressed: below, it saves less than a page."""

MAX_DEATHS = 3
"""How often in a row a worker may die during a step of a session, before the step is to blame."""

MAX_REPLAY_DEATHS = 30
"""The same, in a replay: its steps were taken before, so it is rather the machine that is to blame."""

KILL_GRACE_S = 1.0
"""Seconds after the deadline until a worker that does not stop by itself is killed."""

CHECKED_SOURCES = 1_000
"""Sources whose check is remembered: checking one takes some 20 ms."""

MAX_MESSAGE_CHARS = 10_000
MAX_LINE_CHARS = 200
"""Characters of an error that a strategy raised, and of a line of its source beside it: people have to read them."""

MAX_TRACED = 10
"""Calls at either end of a traceback that are shown."""

MAX_FINDINGS = 20
"""Faults that an error lists; more than a screen helps nobody."""
