"""What a tool is given beside its arguments, and what it may return or raise beside plain values."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.agent.tools.output import OutputStream
from holdfast.agent.tools.subprocesses import SubprocessResult, run_process
from holdfast.core.errors import HoldfastError
from holdfast.core.values import Json


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """One run of a tool. A parameter annotated with this class gets it; the model does not see that parameter.

    A tool can be called without a runtime, in a test for instance, with `ToolContext()`.
    """

    session_id: str = ""
    turn: str = ""
    """The turn in which the model made the call. Empty where no turn did, but a strategy."""
    call_id: str = ""
    """The model's own id of the call; the id of the query where a strategy asks."""
    tool: str = ""
    key: str = ""
    """An idempotency key: the same whenever this call is run again, after a crash or a failure, and for no other."""
    attempt: int = 1
    """1, and one more after each process that died while the call was under way."""
    retry: int = 0
    """How often the call was run again in this attempt, because the tool said that it may."""
    deadline: float | None = None
    """When its time is over, as `time.monotonic()` counts; None: never."""
    _output: OutputStream = field(default_factory=OutputStream, repr=False, compare=False)

    def output(self, text: str) -> None:
        """Say something before the result is there.

        Whoever watches the turn sees it at once. If the tool fails, or its time runs out, the model is shown it as
        `partial`; a tool that returns says in its result what it has to say.
        """
        self._output.write(text)

    def progress(self, step: float, total: float | None = None, message: str = "") -> None:
        """Tell whoever watches the turn how far the tool is. It is not kept."""
        far = f"{step}" if total is None else f"{step} of {total}"
        self._output.remark(f"{message} ({far})\n".lstrip())

    async def run(
        self,
        *argv: str,
        stdin: str = "",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SubprocessResult:
        """Run a process in a group of its own. What it says is told as `output` while it runs, and given at the end.

        If the turn is stopped meanwhile, or the time of the tool is over, the group is asked to end, and killed after
        two seconds.
        """
        return await run_process(argv, self.output, stdin=stdin, cwd=cwd, env=env)

    @property
    def left_s(self) -> float | None:
        """Seconds until its time is over; None: for ever."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nobody waits for the tool any more: it was cancelled, or its time is over.

        A function in a thread cannot be stopped from outside. It can look here, and stop by itself.
        """
        return self._output.is_closed


class Finish(msgspec.Struct, frozen=True):
    """Returned by a tool to end the turn with a value."""

    value: Json = None


class SwitchFrame(msgspec.Struct, frozen=True):
    """Returned by a tool to go on in a fresh window: the model then sees `task`, and nothing from before."""

    frame: str
    task: str


TURNS_OWN = frozenset(["cancelled"])
"""Codes that say something about the turn, and that a tool cannot say."""


class ToolError(HoldfastError):
    """Raised by a tool that failed: the model is told the message and the code, as the result of its call.

    Any other exception is told as well. This one says more: what kind of failure it is, and whether the same call may
    go well later (`retryable`), which is heeded if the tool has a `Retry`.
    """

    kind = "tool_error"

    def __init__(
        self, message: str, *, code: str = "failed", retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        if code in TURNS_OWN:
            raise ValueError(
                f"the code '{code}' is that of a turn that was stopped; choose another for the tool's failure"
            )
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        """How long the other side asks to be left alone."""
