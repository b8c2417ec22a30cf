"""Single keys, read while a screen is shown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterator

_MOST_KEYS = 64
"""Bytes read at once: nobody presses more keys between two looks."""


@contextlib.contextmanager
def on_keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call a function with each key that is pressed. Nothing is echoed; Ctrl-C still works."""
    import termios

    try:
        stdin = sys.stdin.fileno()
        before = termios.tcgetattr(stdin)
    except (OSError, ValueError, termios.error):
        yield  # no terminal, no keys
        return

    def read() -> None:
        keys = os.read(stdin, _MOST_KEYS).decode(errors="replace")
        if not keys:
            loop.remove_reader(stdin)  # the terminal is gone
        for key in keys:
            press(key)

    single = [*before]
    single[3] = before[3] & ~(termios.ECHO | termios.ICANON)
    loop = asyncio.get_running_loop()
    termios.tcsetattr(stdin, termios.TCSANOW, single)
    loop.add_reader(stdin, read)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(stdin, termios.TCSANOW, before)
