"""`alc.math` loaded into a Lua VM of the test: its functions called with Python values, errors as `MathError`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lupa.lua54 as lua

from holdfast.alc.lua.vm import RUNTIME

VALUES: dict[str, dict[str, list[Any]]] = json.loads((Path(__file__).parent / "math_values.json").read_text())

_HOST = b"""
    local read = ...
    local host, loaded = {}, {}
    function host.load(name)
        if loaded[name] == nil then loaded[name] = assert(load(read(name), "=" .. name, "t"))(host) end
        return loaded[name]
    end
    function host.try(f, ...)
        local results = table.pack(pcall(f, ...))
        return results[1], results[2]
    end
    return host
"""


class MathError(Exception):
    """What a function of `alc.math` raised."""


class LuaMath:
    """One VM with `alc.math`; calls turn lists into Lua arrays, and arrays and tables back into lists and dicts."""

    def __init__(self) -> None:
        self.vm: Any = lua.LuaRuntime(
            encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False
        )
        self._host: Any = self.vm.execute(_HOST, lambda name: (RUNTIME / f"{name.decode()}.lua").read_bytes())
        self.table: Any = self.load("math")

    def load(self, name: str) -> Any:
        """A file of the runtime."""
        return self._host[b"load"](name.encode())

    def call(self, name: str, *arguments: Any) -> Any:
        """The value that a function gives."""
        ok, value = self._host[b"try"](self.table[name.encode()], *(self.to_lua(argument) for argument in arguments))
        if not ok:
            raise MathError(value.decode())
        return self.to_python(value)

    def eval(self, code: str) -> Any:
        """The value of a chunk in which `m` is `alc.math`."""
        return self.to_python(self.vm.execute(b"local m = ...\n" + code.encode(), self.table))

    def to_lua(self, value: Any) -> Any:
        if isinstance(value, list):
            return self.vm.table_from([self.to_lua(item) for item in value])
        return value.encode() if isinstance(value, str) else value

    def to_python(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if lua.lua_type(value) != "table" or self._is_rng(value):
            return value
        keys = list(value.keys())
        if keys and not isinstance(keys[0], int):
            return {key.decode(): self.to_python(value[key]) for key in keys}
        return [self.to_python(value[i]) for i in range(1, len(keys) + 1)]

    def _is_rng(self, value: Any) -> bool:
        found: bool = self.vm.globals()[b"getmetatable"](value) == b"rng"
        return found
