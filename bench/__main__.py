"""`python -m bench [name ...]`: run benchmarks, print one table, and keep every round as JSON."""

from __future__ import annotations

import argparse
import asyncio
import fnmatch
import itertools
import json
import os
import platform
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import (
    Figure,
    Plan,
    UnavailableError,
    agent,
    agent_instructions,
    cells,
    cells_instructions,
    cli,
    dispatch,
    engine,
    evaluation,
    fleet,
    fleet_idle,
    growth,
    http,
    inbox,
    instructions,
    journal,
    large_values,
    lua,
    lua_computing,
    lua_instructions,
    mcp,
    observe,
    sandbox,
    scale,
    schedules,
)
from bench.langgraph_peer import VARIABLE as LANGGRAPH_VARIABLE

BENCHMARKS = (
    journal.BENCHMARKS
    | engine.BENCHMARKS
    | instructions.BENCHMARKS
    | growth.BENCHMARKS
    | lua.BENCHMARKS
    | lua_computing.BENCHMARKS
    | lua_instructions.BENCHMARKS
    | sandbox.BENCHMARKS
    | scale.BENCHMARKS
    | dispatch.BENCHMARKS
    | agent.BENCHMARKS
    | agent_instructions.BENCHMARKS
    | cells.BENCHMARKS
    | cells_instructions.BENCHMARKS
    | mcp.BENCHMARKS
    | cli.BENCHMARKS
    | observe.BENCHMARKS
    | inbox.BENCHMARKS
    | fleet.BENCHMARKS
    | fleet_idle.BENCHMARKS
    | large_values.BENCHMARKS
    | schedules.BENCHMARKS
    | evaluation.BENCHMARKS
    | http.BENCHMARKS
)

RESULTS = Path(__file__).parent / "results"
"""Also where the databases lie while they are measured: `/tmp` is in memory on many machines, and syncs nothing."""


def main() -> None:
    options = _options()
    names: list[str] = options.names or list(BENCHMARKS)
    began = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="run-", ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)  # PostgreSQL does not run as root, and must reach its files
        plan = Plan(options.seconds, options.repeat, Path(directory), _say, options.turns)
        found = {name: _run(plan, name) for name in names}
    print(_table(found))
    kept = options.json or RESULTS / f"{'+'.join(options.names)[:80] or 'all'}-{began:%Y%m%dT%H%M%SZ}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(_report(began, plan, found), indent=1) + "\n")
    _say(f"every round: {kept}")
    if any(isinstance(figures, str) and figures.startswith("failed") for figures in found.values()):
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"which ones: {', '.join(BENCHMARKS)}, a beginning of names as 'scale', or a pattern as '*-instructions'"
        " (default: all)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.3,
        help="length of each measurement and of each floor (default: 0.3; short, so that both meet the same noise)",
    )
    parser.add_argument("--repeat", type=int, default=21, help="rounds (default: 21)")
    parser.add_argument("--turns", type=int, default=5_000, help="turns of the longest chat (default: 5000)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where every round is kept")
    parser.add_argument(
        "--langgraph-python",
        metavar="PATH",
        help=f"an interpreter that has langgraph and langgraph-checkpoint-sqlite (default: ${LANGGRAPH_VARIABLE})",
    )
    options = parser.parse_args()
    if options.langgraph_python:
        os.environ[LANGGRAPH_VARIABLE] = options.langgraph_python
    matches = {name: _named(name) for name in options.names}
    if unknown := [name for name, found in matches.items() if not found]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    options.names = list(dict.fromkeys(itertools.chain.from_iterable(matches.values())))
    if options.seconds <= 0 or options.repeat < 1 or options.turns < 1:
        parser.error("--seconds must be above 0, and --repeat and --turns at least 1")
    return options


def _named(name: str) -> list[str]:
    """The benchmarks of a name or pattern, or those whose names begin with it."""
    return fnmatch.filter(BENCHMARKS, name) or fnmatch.filter(BENCHMARKS, f"{name}-*")


def _run(plan: Plan, name: str) -> list[Figure] | str:
    """The figures of one benchmark, or why there are none: one that breaks does not take the others with it."""
    _say(f"{name}: starts (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
    try:
        return asyncio.run(_await(plan, name))
    except UnavailableError as reason:
        _say(f"{name}: skipped: {reason}")
        return f"skipped: {reason}"
    except Exception as error:
        traceback.print_exc()
        return f"failed: {type(error).__name__}: {error}"


async def _await(plan: Plan, name: str) -> list[Figure]:
    return await BENCHMARKS[name](plan)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- the table -------------------------------------------------------------------------------------

_HEADINGS = ("figure", "median", "unit", "min", "max", "floor", "ratio", "min", "max", "target", "met")
_TO_THE_LEFT = {"figure", "unit", "target", "met"}


def _table(found: dict[str, list[Figure] | str]) -> str:
    lines: list[Sequence[str]] = [_HEADINGS]
    notes = []
    for name, figures in found.items():
        if isinstance(figures, str):
            lines.append((name, figures.partition(":")[0], *[""] * (len(_HEADINGS) - 2)))
            notes.append(f"{name}: {figures}")
        else:
            lines.extend(_line(figure) for figure in figures)
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    drawn = ["  ".join(_cell(*cell) for cell in zip(_HEADINGS, line, widths, strict=True)).rstrip() for line in lines]
    drawn.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*drawn, *notes])


def _cell(heading: str, text: str, width: int) -> str:
    return text.ljust(width) if heading in _TO_THE_LEFT else text.rjust(width)


def _line(figure: Figure) -> Sequence[str]:
    low, high = figure.spread
    floors, ratios = figure.floors, figure.ratios
    met = " ".join("yes" if figure.meets(target) else "NO" for target in figure.targets)
    return (
        figure.name,
        _number(figure.value),
        figure.unit,
        *((_number(low), _number(high)) if len(figure.rounds) > 1 else ("", "")),
        _number(sorted(floors)[len(floors) // 2]) if floors else "",
        f"{figure.ratio:.2f}" if figure.ratio is not None else "",
        *((f"{min(ratios):.2f}", f"{max(ratios):.2f}") if len(ratios) > 1 else ("", "")),
        ", ".join(map(str, figure.targets)),
        met,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


# --- the report ------------------------------------------------------------------------------------


def _report(began: datetime, plan: Plan, found: dict[str, list[Figure] | str]) -> dict[str, Any]:
    floors: dict[str, list[float]] = {}
    benchmarks: dict[str, Any] = {}
    for name, figures in found.items():
        if isinstance(figures, str):
            benchmarks[name] = figures
            continue
        benchmarks[name] = [_figure_json(figure) for figure in figures]
        for figure in figures:
            if figure.floor is not None:
                floors.setdefault(f"{figure.floor}, {figure.unit}", []).extend(figure.floors)
    return {
        "began": began.isoformat(timespec="seconds"),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "seconds": plan.seconds,
        "repeat": plan.repeat,
        "floors": floors,
        "benchmarks": benchmarks,
    }


def _figure_json(figure: Figure) -> dict[str, Any]:
    return asdict(figure) | {
        "median": figure.value,
        "ratio": figure.ratio,
        "rounds": [asdict(r) | {"ratio": r.ratio} for r in figure.rounds],
        "targets": [asdict(target) | {"met": figure.meets(target)} for target in figure.targets],
    }


if __name__ == "__main__":
    main()
