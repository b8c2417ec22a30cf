"""One Lua VM: made from a spec, then stepped. Everything but the reading of files happens in Lua, in `runtime/`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import lupa.lua54 as lua

from holdfast.alc.lua.frames import VmSpec, VmWaking
from holdfast.alc.lua.kept import Module, place_of
from holdfast.alc.lua.outcomes import memory_text, message_of, raised
from holdfast.alc.lua.packages import Roots, find_module
from holdfast.alc.lua.scenario_files import scenario_file_reader
from holdfast.alc.lua.stopper import Stopper, WatchedProgram
from holdfast.core.values import encode
from holdfast.programs.prompts import shared_prompts

RUNTIME = Path(__file__).parent / "runtime"

_POPEN_TIMEOUT_S = 60

_SLACK = 256 * 1024
"""Bytes of a VM's memory that handing over a step's answers may take beside the answers themselves."""


class Vm:
    """A program and its globals. `step` never raises: whatever goes wrong is an outcome."""

    def __init__(self, spec: VmSpec, stopper: Stopper | None = None) -> None:
        """Without a stopper, the program looks at the clock itself, which makes it slower."""
        self._stopper, self._watched = stopper, WatchedProgram()
        runtime = new_runtime(spec.memory_mib * 1024 * 1024)
        self._memory_mib = spec.memory_mib
        self._runtime = runtime
        # The callbacks must not refer to the VM: a cycle through Lua is never collected.
        driver = runtime.globals()[b"load"](chunk_of(b"driver"), b"=holdfast/driver", b"b")
        self._step = driver(
            _guarded(runtime, chunk_of),
            _guarded(runtime, module_reader(spec.modules, spec.roots)),
            _guarded(runtime, scenario_reader(spec.scenarios)),
            _popen(runtime) if spec.is_trusted else None,
            spec.config,
            encode(shared_prompts()),
            spec.is_trusted,
            spec.null_is_nil,
            _guarded(runtime, scenario_file_reader(spec.roots.project, spec.is_trusted)),
            None if stopper is None else partial(stopper.take_over, self._watched),
        )

    def step(self, waking: VmWaking, *, is_replay: bool = False) -> bytes:
        """The outcome of one step, as `outcomes.py` reads it. That of a replay says where the program asks."""
        if not self._has_room_for(waking):
            return self._full()
        if self._stopper is None:
            return self._stepped(waking, is_replay)
        self._stopper.begin(self._watched, is_replay)
        try:
            return self._stepped(waking, is_replay)
        finally:
            self._stopper.end()

    def _stepped(self, waking: VmWaking, is_replay: bool) -> bytes:
        try:
            outcome = self._step(
                is_replay, waking.at, waking.llm_calls, waking.left, waking.refusal, waking.forms, *waking.answers
            )
            return message_of(outcome, waking.first_id)
        except lua.LuaMemoryError:
            return self._full()
        except Exception as error:
            return raised(f"the Lua VM failed: {_error_text(error)}", "vm")

    def _has_room_for(self, waking: VmWaking) -> bool:
        """Whether a step's answers fit into the VM. Where they are handed over, Lua ends the process if they do not."""
        room = self._memory_mib * 1024 * 1024 - _SLACK - sum(map(len, waking.answers)) - 64 * len(waking.answers)
        if self._runtime.get_memory_used() <= room:
            return True
        self._runtime.gccollect()
        return bool(self._runtime.get_memory_used() <= room)

    def _full(self) -> bytes:
        return raised(memory_text(self._memory_mib), "memory")


def new_runtime(max_memory: int) -> Any:
    """A Lua VM whose strings are bytes, and from which nothing of Python can be reached."""
    return lua.LuaRuntime(
        encoding=None,
        unpack_returned_tuples=True,
        register_eval=False,
        register_builtins=False,
        attribute_filter=_deny,
        max_memory=max_memory,
    )


@cache
def chunk_of(name: bytes) -> bytes:
    """A file of the runtime, compiled."""
    path = RUNTIME / f"{name.decode()}.lua"
    runtime = new_runtime(0)
    scope = runtime.globals()
    compiled = scope[b"load"](path.read_bytes(), b"=holdfast/" + name, b"t")
    if isinstance(compiled, tuple):
        raise SyntaxError(compiled[1].decode())
    dumped: bytes = scope[b"string"][b"dump"](compiled, True)
    return dumped


_GUARD = b"""
local look, take, plenty = ...
local count, rep = collectgarbage, string.rep
return function(...)
	local size = look(...)
	if count("count") * 1024 + size > plenty then rep(" ", size) end
	return take()
end
"""


def _guarded(runtime: Any, function: Callable[[bytes], Any]) -> Any:
    """A function of ours, for Lua: first it is called and gives the size of its values, then it hands them over.

    In between, Lua makes room for them, or finds that there is none. Where lupa hands values over it must not find that
    out: Lua's error would jump over Python's frames, and the process would hang.
    """
    values: list[Any] = []

    def look(name: bytes) -> int:
        values[:] = [function(name)]
        given = values[0] if isinstance(values[0], tuple) else values
        return 1024 + sum(len(value) for value in given if value is not None)

    def take() -> Any:
        return values.pop()

    return runtime.globals()[b"load"](_GUARD, b"=holdfast/guard")(look, take, runtime.get_max_memory() // 2)


def module_reader(
    modules: Mapping[str, Module], roots: Roots
) -> Callable[[bytes], tuple[bytes | None, bytes | None, bytes | None]]:
    """What `require` calls: the source of a module and its chunk name, or where it was looked for."""

    def read(name: bytes) -> tuple[bytes | None, bytes | None, bytes | None]:
        try:
            text = name.decode()
            if (kept := modules.get(text)) is not None:
                return kept.text.encode(), b"@" + kept.place.encode(), None
            path = find_module(roots, text)
            if path is not None:
                return path.read_bytes(), b"@" + place_of(path, text).encode(), None
            places = "".join(f"\n\tno module '{text}' in {root}" for root in roots.roots)
            return None, None, (places or "\n\tthere are no package directories").encode()
        except Exception as error:  # an exception of Python's must not be seen by a program
            return None, None, f"\n\t{error}".encode(errors="replace")

    return read


def scenario_reader(directories: str) -> Callable[[bytes], bytes | None]:
    """What reads a scenario by its name, in the first of some directories (separated as in PATH) that has it."""

    def read(name: bytes) -> bytes | None:
        try:
            text = name.decode()
            if not text or "/" in text or "\\" in text or ".." in text or "\0" in text:
                return None
            files = [Path(each) / f"{text}.lua" for each in directories.split(os.pathsep)]
            return next((file.read_bytes() for file in files if file.is_file()), None)
        except Exception:
            return None

    return read


def _popen(runtime: Any) -> Any:
    """`io.popen` for reading, which this build of Lua lacks: the output of a command as lines."""

    def run(command: bytes) -> tuple[bytes | None, bytes | None]:
        try:
            done = subprocess.run(
                command.decode(), shell=True, stdout=subprocess.PIPE, timeout=_POPEN_TIMEOUT_S, check=False
            )
            return done.stdout, None
        except Exception as error:
            return None, str(error).encode()

    compiled = runtime.globals()[b"load"](chunk_of(b"popen"), b"=holdfast/popen", b"b")
    return compiled(_guarded(runtime, run))


def _deny(_object: object, _name: object, _is_setting: bool) -> object:
    raise AttributeError("nothing of Python can be reached from Lua")


def _error_text(error: Exception) -> str:
    detail = error.args[0] if error.args else error
    return detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
