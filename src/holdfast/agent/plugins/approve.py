"""`Approve`: the plugin that gives sessions rules about calls of tools, and code of the host that decides about them.

    Runtime(…, plugins=[Approve([Rule.allow("read_*"), Rule.deny("shell", command="*sudo*")], default="confirm")])
    runtime.session("s-1").plugin(Approve(callback=allowed))

Its rules are recorded with the session. Those that every session of a runtime has, those of a session's own, and those
of the session that it is a child of are layers: all are asked, and the strictest counts. Which calls wait for somebody,
and what may be answered, is told by `core.approval`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from holdfast.agent.machine.approval import Approval, Rule, Verdict, check_approval
from holdfast.agent.plugins.plugin import Deny, Plugin, PluginCall, Said
from holdfast.agent.tools.threads import in_thread
from holdfast.core.errors import InvalidValueError

Callback: TypeAlias = Callable[[PluginCall], "Said | Deny | bool | Awaitable[Said | Deny | bool]"]
"""Decides about a call: True is `allow`, False is `deny`. Anything else, and whatever it raises, is a denial."""


class Approve(Plugin):
    """Rules about calls of tools; where they say so, a callback decides. Without rules, the callback decides all.

    The id of one with a callback has the callback's name in it. So two of them never stand in for each other; and a
    process that does not have the code which is to decide denies the call.
    """

    id = "approve"

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        *,
        default: Verdict | None = None,
        callback: Callback | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """`default` is for calls that no rule speaks of: `allow`, unless there is a callback.

        A callback that is no coroutine is called in a thread. `timeout_s` is how long somebody may take to decide, be
        it code or a person; a person may take for ever, if it is not given.
        """
        if callback is not None:
            self.id = f"{Approve.id}:{_name(callback)}"
        self._callback = callback
        self._layer = Approval(
            rules=list(rules),
            default=default or ("allow" if callback is None else "callback"),
            callback="" if callback is None else self.id,
            timeout_ms=None if timeout_s is None else round(timeout_s * 1000),
        )
        check_approval(self._layer)
        if callback is not None and "callback" not in {self._layer.default, *(rule.verdict for rule in rules)}:
            raise InvalidValueError("approval", "nothing is left to its callback: add Rule.callback(…), or no default")

    def approval(self) -> Approval:
        return self._layer

    async def authorize(self, call: PluginCall) -> Said | Deny:
        callback = self._callback
        if callback is None:
            return "deny"
        said: Any = callback(call) if _is_async(callback) else await in_thread(lambda: callback(call))
        said = await said if inspect.isawaitable(said) else said
        if isinstance(said, bool):
            return "allow" if said else "deny"
        return cast("Said | Deny", said)  # whatever else it is, is looked at by who asks


def _name(callback: Callable[..., Any]) -> str:
    """The name of a function, the same in every process that has it."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    named = callback if hasattr(callback, "__qualname__") else type(callback)
    return f"{named.__module__}.{named.__qualname__}"


def _is_async(callback: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)
