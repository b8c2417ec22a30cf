"""Stops a program that computes for too long, without slowing down those that do not.

Lua looks for a hook after every instruction once one is set, which costs half of its speed. So a program runs without:
a thread of the worker looks at the clock, and sets the hook of a program that is past its deadline. The hook is the one
that the driver gave the program, taken out when it was made. Setting it from another thread is what `lua_sethook` is
made for, except that the program runs on meanwhile: if that ever breaks a VM, it is one that is about to end, in a
process that can be lost.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import lupa.lua54 as lua

LOOK_S = 0.1
"""Seconds between two looks at the clock."""

_COUNT_MASK = 1 << 3
_EVERY = 1_000
"""Instructions between two calls of a hook that is to stop a program."""


class WatchedProgram:
    """The coroutine of a program, and how long it may compute in one step."""

    __slots__ = ("deadline_s", "hook", "is_hooked", "pointer", "replay_deadline_s")

    def __init__(self) -> None:
        self.pointer: int | None = None
        self.hook: int | None = None
        self.deadline_s = self.replay_deadline_s = 0.0
        self.is_hooked = False


class Stopper:
    """Watches the step that a worker takes. `Stopper.found()` gives None where Lua's functions cannot be reached:
    then programs keep their hooks."""

    def __init__(self, library: Any) -> None:
        self._get_hook, self._set_hook = library.lua_gethook, library.lua_sethook
        self._get_hook.argtypes, self._get_hook.restype = [ctypes.c_void_p], ctypes.c_void_p
        self._set_hook.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
        self._set_hook.restype = None
        self._running: WatchedProgram | None = None
        self._is_replay = False
        self._steps = 0
        self._setting = threading.Lock()
        self._is_setting = False
        threading.Thread(target=self._watch, daemon=True).start()

    @classmethod
    def found(cls) -> Stopper | None:
        try:
            return cls(ctypes.CDLL(lua.__file__))
        except (AttributeError, OSError):
            return None

    def take_over(self, program: WatchedProgram, pointer: bytes, deadline_s: float, slack: float) -> None:
        """Take the hook out of a coroutine, given as `%p` shows it, and watch it instead."""
        program.pointer = int(pointer, 16)
        program.hook = self._get_hook(program.pointer)
        program.deadline_s, program.replay_deadline_s = deadline_s, deadline_s * slack
        self._set_hook(program.pointer, None, 0, 0)

    def begin(self, program: WatchedProgram, is_replay: bool) -> None:
        """A step of a program begins. Most are over before anybody looks, so that little is done here."""
        if program.is_hooked:  # the last step ended just when it was to be stopped
            program.is_hooked = False
            self._set_hook(program.pointer, None, 0, 0)
        self._steps += 1
        self._is_replay = is_replay
        self._running = program

    def end(self) -> None:
        """The step is over: from now on its VM may be dropped."""
        self._running = None
        if self._is_setting:
            with self._setting:  # until the hook of this very program is set
                pass

    def _watch(self) -> None:
        seen, began_s = 0, 0.0
        while True:
            time.sleep(LOOK_S)
            program, step = self._running, self._steps
            if program is None or program.pointer is None or program.is_hooked:
                continue
            if step != seen:
                seen, began_s = step, time.process_time()
                continue
            allowed_s = program.replay_deadline_s if self._is_replay else program.deadline_s
            if time.process_time() - began_s >= allowed_s:
                self._stop(program)

    def _stop(self, program: WatchedProgram) -> None:
        with self._setting:
            self._is_setting = True
            # Looked at after saying so: either the end of the step waits for this, or this sees the end.
            if self._running is program:
                program.is_hooked = True
                self._set_hook(program.pointer, program.hook, _COUNT_MASK, _EVERY)
            self._is_setting = False
