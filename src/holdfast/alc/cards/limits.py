"""Every limit of the cards, with its unit and the reason for its size."""

MAX_NAME_BYTES = 200
"""UTF-8 bytes in a package name, a card id or an alias: with the longest suffix it still fits into a file name."""

MAX_CARD_BYTES = 4 * 1024 * 1024
"""Bytes of one card's TOML: a thousand times the usual card. What belongs to single cases goes into the samples."""

MAX_CARD_DEPTH = 64
"""Nesting of a card or a filter: the TOML reader of algocline gives up at 80."""

MAX_ALIASES_BYTES = 16 * 1024 * 1024
"""Bytes of the alias table: about a hundred thousand aliases, still read in a second or two."""

MAX_SAMPLE_BYTES = 8 * 1024 * 1024
"""Bytes of one sample as JSON: a long transcript fits, and a line can still be held in memory."""

MAX_SAMPLE_ROWS = 10_000_000
"""Samples of one card: as far as an offset may reach when they are read."""

MAX_SAMPLES_BYTES = 1024 * 1024 * 1024
"""Bytes of one card's samples: what can still be copied to a mirror in seconds."""

MAX_READ_BYTES = 24 * 1024 * 1024
"""Bytes of samples given back by one read: with what surrounds them they stay below the size of one answer."""

LINEAGE_DEPTH = 10
"""Steps that a lineage is followed in each direction, unless it is said otherwise."""

LOCK_WAIT_S = 30.0
"""Seconds to wait for another writer of the same cards: it holds the lock for milliseconds, unless it was stopped."""

PIECE_BYTES = 512 * 1024
"""Bytes of JSON in one piece of samples in the store: a page of samples reads one or two."""

READS_AT_ONCE = 16
"""Cards that are read from the store at the same time: what a pool of connections serves at once."""
