"""The output of a running tool: what is kept of it, and what live listeners get."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from holdfast.core.values import repaired

KEPT_BYTES = 1024 * 1024
"""UTF-8 bytes of a shortened result that are kept for people to read."""

KEPT_CHARS = 64 * 1024
"""Characters of partial output that are kept while a tool runs, from the beginning and as many from the end: more than
a model sees of it."""

WAITING_CHARS = 256 * 1024
"""Characters of live output that wait for a slow listener. Beyond that the oldest are lost: they are not truth."""


class OutputStream:
    """The output of one run of a tool before it returns. May be written from any thread."""

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self._lock = Lock()
        self._wake = wake
        """Called when output is available after there was none. None if nobody listens."""
        self._head = ""
        self._tail = ""
        self._lost = 0
        self._waiting = ""
        self.is_closed = False

    def write(self, text: str) -> None:
        """Write output that the model sees if the tool fails."""
        self._say(repaired(text), is_kept=True)

    def remark(self, text: str) -> None:
        """Write something for present listeners only."""
        self._say(repaired(text), is_kept=False)

    def close(self) -> None:
        """Ignore all further output."""
        with self._lock:
            self.is_closed = True

    def take(self) -> str:
        """The output since the last call."""
        with self._lock:
            taken, self._waiting = self._waiting, ""
            return taken

    @property
    def kept(self) -> str:
        """Everything that was written; if it is very long, its beginning and end."""
        with self._lock:
            lost = f"\n[… {self._lost} characters were not kept …]\n" if self._lost else ""
            return self._head + lost + self._tail

    def _say(self, text: str, *, is_kept: bool) -> None:
        with self._lock:
            if self.is_closed or not text:
                return
            if is_kept:
                self._keep(text)
            if self._wake is None:
                return
            is_news = not self._waiting
            self._waiting += text
            if len(self._waiting) > WAITING_CHARS:
                self._waiting = "[…]" + self._waiting[-WAITING_CHARS // 2 :]
        if is_news:
            self._wake()

    def _keep(self, text: str) -> None:
        room = KEPT_CHARS - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        self._tail += text
        if len(self._tail) > 2 * KEPT_CHARS:  # cut seldom, not with every word
            self._lost += len(self._tail) - KEPT_CHARS
            self._tail = self._tail[-KEPT_CHARS:]
