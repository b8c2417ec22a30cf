"""Running all spec files, several at a time. What runs one is `session.py`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.alc.specs.discovery import Specs
from holdfast.alc.specs.results import FileResult, TestReport
from holdfast.alc.specs.session import Lane, SpecPlan

DEADLINE_S = 120.0
"""Seconds that one spec file may take: a hundred times what a slow one needs."""

MOST_JOBS = 8
"""Files at once, if nobody says how many: more workers than this wait for the disk and for memory."""


def default_jobs() -> int:
    """As many files at once as there are processors for."""
    return min(MOST_JOBS, len(os.sched_getaffinity(0)))


async def run_specs(
    specs: Specs,
    *,
    live: bool = False,
    jobs: int | None = None,
    deadline_s: float = DEADLINE_S,
    is_confined: bool = False,
    on_file: Callable[[FileResult], None] = lambda _: None,
) -> TestReport:
    """Run spec files, each in a VM of its own; `on_file` is called with each result as its file ends.

    Confined ones run in the sandbox, as strategies do; live ones cannot, because they load modules by themselves. The
    working directory of the process is the specs' root meanwhile, because specs open files by relative paths.
    """
    began = time.monotonic()
    waiting = list(reversed(specs.files))
    results: dict[Path, FileResult] = {}

    async def work(plan: SpecPlan) -> None:
        async with Lane(plan) as lane:
            while waiting:
                file = waiting.pop()
                results[file] = await lane.run(file)
                on_file(results[file])

    with contextlib.chdir(specs.root):
        plan = SpecPlan.of(specs, live=live, deadline_s=deadline_s, is_confined=is_confined)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(jobs or default_jobs(), len(specs.files))):
                group.create_task(work(plan))
    return TestReport(
        files=[results[file] for file in specs.files],
        duration_ms=round((time.monotonic() - began) * 1000),
        live=live,
    )
