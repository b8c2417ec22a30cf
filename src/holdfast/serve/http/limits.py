"""Every limit of the HTTP API, with its unit and the reason for its size."""

from __future__ import annotations

from holdfast.core.limits import MAX_VALUE_BYTES

BODY_BYTES = 1024 * 1024
"""Bytes of a request body where no value of a session is taken: far above any such request."""

VALUE_BODY_BYTES = MAX_VALUE_BYTES + BODY_BYTES
"""Bytes of a request body where a value is taken: the largest value, and what is around it."""

PAGE_ROWS = 50
"""Rows of a page, unless the request says otherwise."""

MAX_PAGE_ROWS = 1_000
"""Rows of a page at most: about a megabyte of summaries."""

MAX_WAIT_S = 30.0
"""Seconds that a request may wait for something to happen: proxies cut a connection that is silent for 60."""

PING_S = 15.0
"""Seconds of silence after which a stream says that it is alive."""

RETRY_MS = 2_000
"""Milliseconds that a client of a stream should wait before it connects again."""

COALESCE_S = 0.03
"""Seconds for which pieces of text are collected before they are sent as one: nobody reads faster."""

AUTHORITY_S = 60.0
"""Seconds after which a stream looks whether its token still counts."""

TOKEN_CACHE_S = 5.0
"""Seconds for which a token that was looked up is not looked up again; a revoked one counts for as long."""

MAX_KEY_CHARS = 200
"""Characters of an `Idempotency-Key`."""

WRITES_PER_S, WRITES_BURST = 50.0, 200
"""Requests that change something, for each token: more than any person or agent sends, less than a loop does."""

MAX_STREAMS = 20
"""Streams that one token may have open at a time; a browser has six."""

COMPARED_ROWS = 1_000
"""Rows of a comparison that are sent, unless fewer are asked for."""

TREE_NODES = 500
"""Sessions of a tree that are shown."""

COUNT_CACHE_S = 2.0
"""Seconds for which counts of a filter are not counted again: many pages show them, and all of them all the time."""

MAX_LABELS_SHOWN = 500
"""Labels that are listed, the most used first."""

DECIDED_SESSIONS = 200
"""Sessions, those that changed last, among whose last entries answers of people are looked for."""

LOGINS_PER_MINUTE = 5
"""Tries to log in, for each address: enough for typing errors, too few for guessing."""

CODE_S = 300.0
"""Seconds for which the code counts that a browser logs in with: somebody has to find the window that shows it."""

LINK_DAYS = 7
"""Days for which a link to a question counts, unless it says otherwise; 90 at most."""
