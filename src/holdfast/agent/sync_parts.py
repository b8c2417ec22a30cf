"""`SyncPart`: a part of a runtime or session (its processes, triggers, commands, …) whose methods block instead of
being awaited."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from holdfast.agent.admin import SessionAdmin, SessionConfig, SessionTools
from holdfast.agent.commands import PluginActions, SessionCommands
from holdfast.agent.processes.processes import Processes, SessionProcesses
from holdfast.agent.triggers.session_triggers import SessionTriggers
from holdfast.agent.triggers.triggers import Triggers
from holdfast.engine.loop_thread import LoopThread

_PARTS = (
    PluginActions,
    Processes,
    SessionAdmin,
    SessionCommands,
    SessionConfig,
    SessionProcesses,
    SessionTools,
    SessionTriggers,
    Triggers,
)


class SyncPart:
    """Has the methods of the part, with the same parameters and results; each returns when it is done."""

    def __init__(self, inner: Any, loop: LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def call(*arguments: Any, **named: Any) -> Any:
            result = found(*arguments, **named)
            if inspect.iscoroutine(result):
                result = self._loop.wait(result)
            return SyncPart(result, self._loop) if isinstance(result, _PARTS) else result

        return call

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._inner) if not name.startswith("_")]
