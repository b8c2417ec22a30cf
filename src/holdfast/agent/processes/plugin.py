"""The plugin `ProcessControls`: a model starts background work, looks after it, and is woken when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from holdfast.agent.machine.approval import ruling
from holdfast.agent.machine.policy import Policy
from holdfast.agent.plugins.plugin import Plugin
from holdfast.agent.processes.errors import NotAProcessError
from holdfast.agent.processes.handles import ProcessReport
from holdfast.agent.processes.processes import Processes, derived_process_id, strategy, tool_call
from holdfast.agent.processes.terms import RecoveryContract, Work
from holdfast.agent.tools.catalog import Toolish
from holdfast.agent.tools.context import ToolContext, ToolError
from holdfast.agent.tools.function import FunctionTool
from holdfast.agent.tools.tool import Tool
from holdfast.core.records import Program
from holdfast.core.values import Json
from holdfast.programs.lookup import find_program
from holdfast.programs.registry import Function, Strategy

MAX_WAIT_S = 60.0
"""Seconds that a model may wait for a process in one call. For longer work it ends its turn, and is woken."""

OWN = "start_process", "list_processes", "show_process", "wait_for_process", "signal_process", "cancel_process"


class ProcessControls(Plugin):
    """Lets a model run tools and strategies in the background.

    It may start tools of its own that need no approval, and the strategies that are named here. Processes belong to
    the session, end with it, and wake it with an item in its inbox when their work is over.
    """

    id = "processes"

    def __init__(self, strategies: Mapping[str, Strategy | Function | Program | str] | None = None) -> None:
        """`strategies` are those that a model may start, by the names that it uses for them."""
        self._strategies = {name: find_program(each) for name, each in (strategies or {}).items()}

    def instructions(self) -> str:
        named = f" The strategies are: {', '.join(sorted(self._strategies))}." if self._strategies else ""
        return (
            "You can run long work in the background with start_process. You get a message when it is over, so you need"
            f" not wait for it: say that it is under way, and end your turn.{named}"
        )

    def tools(self) -> Sequence[Toolish]:
        return [shared.calling(getattr(self, name)) for name, shared in _shared_tools().items()]

    # --- the tools ----------------------------------------------------------------------------------

    async def start_process(
        self,
        ctx: ToolContext,
        *,
        tool: str | None = None,
        strategy: str | None = None,
        arguments: dict[str, Any] | None = None,
        label: str = "",
    ) -> dict[str, Any]:
        """Start a tool or a strategy in the background. You get a message when it is over.

        Args:
            tool: The tool to call; give this or a strategy.
            strategy: The strategy to run.
            arguments: The arguments of the tool, or the input of the strategy.
            label: A few words that say what this is for.
        """
        work, recovery = await self._work(tool, strategy, arguments or {})
        receipt = await self._processes.start(
            work,
            recovery=recovery,
            owner=ctx.session_id,
            wake=ctx.session_id,
            label=label,
            id=derived_process_id(ctx.session_id, ctx.key),
            service=(await self._service(ctx.session_id)),
        )
        return {"process": receipt.id}

    async def list_processes(self, ctx: ToolContext, *, finished: bool = False) -> list[dict[str, Any]]:
        """List your background work that is not over.

        Args:
            finished: Also list what is over.
        """
        handles = await self._processes.list(owner=ctx.session_id, every=finished)
        return [{"process": each.id, "title": each.title, "status": each.status} for each in handles]

    async def show_process(self, ctx: ToolContext, process: str) -> dict[str, Any]:
        """Show the status and the result of one of your processes.

        Args:
            process: Its id.
        """
        return _shown(await self._own(ctx, process))

    async def wait_for_process(self, ctx: ToolContext, process: str, seconds: float = 10.0) -> dict[str, Any]:
        """Wait a moment for one of your processes; if it is not over then, you get its status.

        Args:
            process: Its id.
            seconds: How long to wait, at most 60.
        """
        await self._own(ctx, process)
        try:
            return _shown(await self._processes.wait(process, min(max(seconds, 0.0), MAX_WAIT_S)))
        except TimeoutError:
            return _shown(await self._processes.show(process))

    async def signal_process(self, ctx: ToolContext, process: str, name: str, value: Any = None) -> str:
        """Send a signal to one of your processes, such as the answer to what its strategy asks.

        Args:
            process: Its id.
            name: What it waits for.
            value: What to tell it.
        """
        await self._own(ctx, process)
        await self._processes.signal(process, name, value, key=derived_process_id(ctx.key), by=ctx.session_id)
        return "sent"

    async def cancel_process(self, ctx: ToolContext, process: str, reason: str = "") -> dict[str, Any]:
        """Cancel one of your processes.

        Args:
            process: Its id.
            reason: Why.
        """
        await self._own(ctx, process)
        return _shown(await self._processes.cancel(process, reason or None, by=ctx.session_id))

    # --- inside -------------------------------------------------------------------------------------

    @property
    def _processes(self) -> Processes:
        return self.session.services.mount.processes

    async def _service(self, session_id: str) -> str | None:
        started = (await self.session.services.mount.holdfast.session(session_id)).started
        return started.service if started is not None else None

    async def _own(self, ctx: ToolContext, process: str) -> ProcessReport:
        """A process that the session owns or observes; others are none of the model's business."""
        try:
            report = await self._processes.show(process)
        except NotAProcessError:
            report = None
        if report is None or ctx.session_id not in (report.handle.owner, *report.terms.observers):
            raise ToolError(f"there is no process '{process}' of yours; list_processes lists them", code="not_found")
        return report

    async def _work(
        self, tool: str | None, named: str | None, arguments: dict[str, Json]
    ) -> tuple[Work, RecoveryContract]:
        if (tool is None) == (named is None):
            raise ToolError("give a tool or a strategy, and not both", code="invalid_arguments")
        if named is not None:
            if named not in self._strategies:
                known = ", ".join(sorted(self._strategies)) or "none"
                raise ToolError(f"there is no strategy '{named}'; the strategies are: {known}", code="not_found")
            return strategy(self._strategies[named], arguments), "rerunnable"
        assert tool is not None
        return tool_call(tool, arguments), await self._contract(tool, arguments)

    async def _contract(self, tool: str, arguments: dict[str, Json]) -> RecoveryContract:
        """What the recovery of a tool means in the background. Raises if the model may not start it there."""
        context = self.session.services
        conversation = await context.conversation()
        policy = conversation.policy or Policy()
        loaded = await context.mount.loaded_sessions.get(context.session_id, policy, self.session.parent)
        entry = loaded.tool(tool)
        if tool in OWN or tool not in loaded.catalog(policy).names or not isinstance(entry, Tool):
            raise ToolError(f"the tool '{tool}' cannot be run in the background", code="not_found")
        found = ruling(policy.approval, tool, arguments)
        if found.verdict != "allow" or found.callbacks:
            why = f"calls of '{tool}' need an approval: call it directly"
            raise ToolError(f"{why} ({found.reason})" if found.reason else why, code="refused")
        return "rerunnable" if entry.recovery in ("safe", "idempotent") else "owner_bound"


def _shown(report: ProcessReport) -> dict[str, Any]:
    shown = {"process": report.id, "title": report.handle.title, "status": report.status}
    if report.status == "completed":
        shown["result"] = report.result
    elif report.error is not None:
        shown["error"] = report.error
    return msgspec.to_builtins(shown)  # type: ignore[no-any-return]


@cache
def _shared_tools() -> dict[str, FunctionTool[..., Any]]:
    """The tools for all sessions; their schemas are computed once."""
    plugin = ProcessControls()
    recoveries: dict[str, Any] = {"list_processes": "safe", "show_process": "safe", "wait_for_process": "safe"}
    return {name: Tool.of(getattr(plugin, name), recovery=recoveries.get(name, "idempotent")) for name in OWN}
