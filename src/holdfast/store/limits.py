"""Every limit of the stores, with its unit and the reason for its size."""

from holdfast.store.patience import patience

INLINE_VALUE_BYTES = 4096
"""Bytes of JSON up to which a value stays in its record; larger ones become compressed blobs."""

ROW_RECORDS = 64
"""Records in one row of a journal: far above any commit of a session, and few enough to read for one of them."""

SMALL_ROW_BYTES = 1024
"""Bytes of JSON up to which rows of a journal are packed together: what is larger is mostly what somebody said."""

DEFAULT_LEASE_MS = 30_000
"""Milliseconds a session is held without a sign of life: longer than any stall, short enough to wait for."""

READ_LIMIT = 1_000
"""Records, messages, sessions or keys given back by one read, unless fewer are asked for."""

TOTALLED_SESSIONS = 100_000
"""Sessions that are summed up in one read: a tenth of a second."""

GROUP_COMMIT_MAX = 256
"""Writes put into one transaction: past this, the first writers wait longer than the fsync they save."""

GROUP_COMMIT_EARLY = 64
"""Writes to a file that are begun before the turn of the event loop ends, at least, so that the loop makes the next
meanwhile. Fewer to a transaction cost more fsyncs than that saves."""

GROUP_BESIDE_BYTES = 64 * 1024
"""Bytes beside the journal (of snapshot, checkpoint and segment) up to which a commit goes to PostgreSQL together with
others: a full group has at most 16 MB of them."""

BUSY_TIMEOUT_MS = 30_000
"""Milliseconds one process waits for another's write to the same SQLite file before it gives up."""

IN_PLACE_MAX_MS = patience(10)
"""Milliseconds that a read or write may take on the event loop. Those that take longer are slow."""

IN_PLACE_ENTRIES = 512
"""Entries that are read on the event loop: a whole session nearly always, and a few milliseconds at most."""

IN_PLACE_ROWS = 100
"""Sessions that are listed on the event loop, if they are simply the newest ones: a few milliseconds at most."""

IN_PLACE_REST = 20
"""For how many times as long as slow ones took the next ones are left to the threads: so the loop is held up for a
twentieth of the time at most."""

IN_PLACE_ALLOWANCE_S = patience(1.0)
"""Seconds of such a rest that are waived each second: that is 50 ms of slow writes, as on a busy machine."""

IN_ROW_MAX = 32
"""Writes of one task in a row, in one turn of the event loop: a turn costs about a fifth of a write, so more would save
little more."""

IN_ROW_MAX_MS = patience(5)
"""Milliseconds after which such a row ends in any case, so that the other tasks have their turn."""

POLL_MS = 40
"""Milliseconds between looks at a SQLite file where the system cannot tell us that it changed."""

NOTIFY_POLL_MS = 1_000
"""Milliseconds after which a waiting PostgreSQL reader looks by itself: notifications are hints and may be lost."""

CONNECT_TIMEOUT_S = 10.0
"""Seconds to wait for a connection to PostgreSQL to be made: a server that does not answer by then is away."""

COMMAND_TIMEOUT_S = 60.0
"""Seconds one statement may take: far above any of ours, so that a stuck server becomes an error."""

TURN_S = 30.0
"""Seconds to wait for one of the connections to PostgreSQL while all that it allows are taken."""

CLOSE_TIMEOUT_S = 10.0
"""Seconds that closing waits for calls in flight."""

LIVE_BYTES = 64 * 1024
"""Bytes of one live message: far above a delta of text, small enough to be passed between processes."""

LIVE_STREAM_MESSAGES = 2_048
"""Live messages kept for a listener that does not keep up: a long answer, token by token."""

LIVE_STREAM_BYTES = 1024 * 1024
"""Bytes of such messages: a thousand listeners that stand still cost a gigabyte at most."""
