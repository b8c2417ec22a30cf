"""What the processes of crash tests have in common: a job, what it leaves behind, and how it is worked."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.testing.crash.seams import Seam


class Job(NamedTuple):
    """What a process does, and where it dies."""

    url: str
    directory: Path
    scenario: str = "background"
    name: str = "first"
    deadly: Seam | None = None

    @property
    def trace(self) -> Path:
        return self.directory / f"trace-{self.name}"

    @property
    def ledger(self) -> Path:
        """A line for each time that the tool was run."""
        return self.directory / "ledger"

    @property
    def error(self) -> str:
        """The traceback of the process that failed; empty if none did."""
        path = self.directory / "error"
        return path.read_text() if path.exists() else ""

    def run(self, work: Callable[[Job], Awaitable[None]]) -> None:
        """Work the job, and leave the traceback behind if it fails."""

        async def worked() -> None:
            await work(self)

        try:
            asyncio.run(worked())
        except BaseException:
            (self.directory / "error").write_text(traceback.format_exc())
            raise
