"""`Approve`: the plugin that gives sessions rules about tool calls, and host code that decides about them.

    Runtime(…, plugins=[Approve([Rule.allow("read_*"), Rule.deny("shell", command="*sudo*")], default="confirm")])
    runtime.session("s-1").plugin(Approve(callback=allowed))

Its rules are recorded with the session. The rules of the runtime, of the session and of its parent session are layers:
all of them are asked, and the strictest verdict counts. `agent.machine.approval` says which calls wait for a person,
and what may be answered.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from holdfast.agent.machine.approval import Approval, Rule, Verdict, check_approval
from holdfast.agent.plugins.plugin import AuthorizeVerdict, Deny, Plugin, PluginCall
from holdfast.agent.tools.threads import in_thread
from holdfast.core.errors import InvalidValueError

Callback: TypeAlias = Callable[
    [PluginCall], "AuthorizeVerdict | Deny | bool | Awaitable[AuthorizeVerdict | Deny | bool]"
]
"""Decides about a call: True is `allow`, False is `deny`. Any other value or an exception is a denial."""


class Approve(Plugin):
    """Rules about tool calls; a callback decides where they say so. Without rules, the callback decides about all
    calls.

    With a callback, the plugin's id contains the callback's name. So two of them are never confused, and a process that
    lacks the code denies the call.
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
        """`default` is the verdict on calls that no rule matches: `allow`, or the callback if there is one.

        A callback that is not a coroutine function is called in a thread. `timeout_s` limits how long code or a person
        may take to decide; without it, a person may take for ever.
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
            raise InvalidValueError("approval", "its callback is never used: add Rule.callback(…), or omit the default")

    def approval(self) -> Approval:
        return self._layer

    async def authorize(self, call: PluginCall) -> AuthorizeVerdict | Deny:
        callback = self._callback
        if callback is None:
            return "deny"
        verdict: Any = callback(call) if _is_async(callback) else await in_thread(lambda: callback(call))
        verdict = await verdict if inspect.isawaitable(verdict) else verdict
        if isinstance(verdict, bool):
            return "allow" if verdict else "deny"
        return cast("AuthorizeVerdict | Deny", verdict)  # the caller checks it


def _name(callback: Callable[..., Any]) -> str:
    """The name of a function, the same in every process that has it."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    named = callback if hasattr(callback, "__qualname__") else type(callback)
    return f"{named.__module__}.{named.__qualname__}"


def _is_async(callback: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__)
