"""Every limit of RLM mode, with its unit and the reason for its size."""

MAX_CELL_CHARS = 64 * 1024
"""Characters of one cell: a model that writes more puts data into code, and should put it into variables."""

CELL_S = 10.0
"""Seconds of computing between two questions of a cell: it mostly waits, and one that does not is in a loop."""

MEMORY_MIB = 64
"""MiB of the interpreter's heap in one cell, on top of the projections that the cell mentions."""

MAX_CALLS = 1_000
"""Calls of the host in one cell: a loop over hundreds is usual, and one past this is a mistake."""

MAX_LLM_CALLS = 200
"""Calls of models in all cells of one turn."""

SHOWN_CHARS, SHOWN_HEAD = 10_000, 7_000
"""Characters of output that the model is shown, and how many of these are the beginning."""

KEPT_CHARS = 64 * 1024
"""Characters of output that the journal keeps of one cell."""

ERROR_CHARS = 2_000
"""Characters of an error that the model is shown."""

MAX_VARIABLES = 2_000
"""Names that a session may hold."""

MAX_VALUE_BYTES = 16 * 1024 * 1024
"""Bytes of JSON of one variable."""

MAX_ALL_BYTES = 64 * 1024 * 1024
"""Bytes of JSON of all variables of a session."""

MAX_VALUE_NODES = 300_000
"""Values inside one variable, counted as often as they occur: looked through in a second or two."""

SMALL_CHARS = 512
"""Characters of JSON up to which a variable's value is part of its record; a longer one is a text in it, which is moved
to a blob if it is long, and is not read before the variable is."""

RECORD_BYTES = 8 * 1024
"""Bytes of values in one record of the journal, unless a single one is longer: so much is read for one variable. A
cell that leaves a megabyte is followed by a checkpoint, because it leaves that many records."""

SHOWN_DEPTH = 50
"""Levels of a value that are shown of the last expression of a cell."""

PREVIEW_CHARS = 80
"""Characters of a variable's value in the list of variables."""

LISTED_VARIABLES = 60
"""Variables that one list shows; `variables()` shows all."""

SNAPSHOT_BYTES = 256 * 1024
"""Bytes of a packed snapshot of a waiting cell. A larger one is not kept, and the cell is run again on its answers."""

DEEP_PROJECTION_BYTES = 1024 * 1024
"""Bytes of projections that a cell has read, past which its snapshot is not stored: it holds them all."""

PROJECTION_FACTOR = 16
"""MiB of memory for each MiB of projections that a cell mentions: for the text itself, and for all its lines as a list,
each of which takes some hundred bytes. It is a limit, and not taken unless it is used."""

LEAF_CACHE_BYTES = 32 * 1024 * 1024
"""Bytes of values of variables kept in memory by one engine; the others are read from the journal."""

MAX_TASK_CHARS = 100_000
"""Characters of the task of a new frame."""

MAX_RESULT_CHARS = 20_000
"""Characters of a value that a later turn is shown as the result of an earlier one."""
