"""`make bench-peers`: install other runtimes in environments of their own, run the same work on each, print a table.

    python -m bench.peers [--repeat 3] [NAME …]

The environments are in `.peers/`, and stay there. Peers that need a server of their own are not run: see the notes
below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import RUNS

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENTS = ROOT / ".peers"

LONG = 200
"""Answers behind a long session."""

SHORT = 20
"""Answers behind a short one, and questions of one that is killed."""

TRIALS = 5
"""How often a process is killed."""

LIMIT_S = 900
"""Seconds that a phase may take."""

NOTES = """\
Round trips: answer in, durable, next question out; one session after another, and 50 at a time. Floor: commits of one
2 KB row a second on the same disk in the same run (SQLite, WAL, synchronous FULL). Bytes: of a session that is paused
with so many answers behind it; what was said is 40 and 400 KB. Resume: from the start of a new interpreter to the
next question of a session with 200 answers behind it. Kill -9, five times: acknowledged answers that were lost /
sessions that somebody had to mend before they showed a question / sessions that could not be brought to their end;
and how often code between two questions ran again.
Not run here: Temporal and Restate, which need a server of their own, and algocline, which keeps sessions in memory.\
"""


@dataclass(frozen=True)
class Entry:
    """A peer: its adapter, and what is installed for it."""

    title: str
    module: str
    packages: tuple[str, ...] = ()
    """None for Holdfast, which runs in this interpreter."""


PEERS = {
    "holdfast": Entry("Holdfast", "holdfast_peer"),
    "langgraph": Entry("LangGraph, loop, sync", "langgraph_loop", ("langgraph>=1.2,<2", "langgraph-checkpoint-sqlite")),
    "dbos": Entry("DBOS, recv", "dbos_events", ("dbos>=3.3,<4",)),
    "pydantic-ai": Entry("pydantic-ai, by hand", "pydantic_ai_history", ("pydantic-ai-slim>=2,<3",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(PEERS)} (default: all)")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of what is timed; the median counts (default: 3)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PEERS]:
        parser.error(f"no peer is called {', '.join(unknown)}; there are {', '.join(PEERS)}")
    runners = {name: _Runner(name, PEERS[name]) for name in options.names or PEERS}
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in runners}
    for _ in range(options.repeat):  # in turn, so that all of them meet the same hours of the machine
        for name, runner in runners.items():
            rounds[name].append(runner.phase("speed"))
    rows = [_row(runner, rounds[name], options.repeat) for name, runner in runners.items()]
    _print_table(rows)
    print(f"\n{NOTES}")


def _row(runner: _Runner, rounds: list[dict[str, Any]], repeat: int) -> list[str]:
    small, large = (runner.phase("size", pauses)["bytes"] for pauses in (SHORT, LONG))
    resumed = [runner.resumed() for _ in range(repeat)]
    kills = [runner.killed(seed) for seed in range(TRIALS)]
    lost, torn, failed, again = (sum(column) for column in zip(*kills, strict=True))
    single = statistics.median(each["single"] for each in rounds)
    return [
        f"{runner.title} {runner.version}".strip(),
        f"{single:,.0f}",
        f"{statistics.median(each['single'] / each['floor'] for each in rounds):.2f}",
        f"{statistics.median(each['many'] for each in rounds):,.0f}",
        f"{small / 1000:,.0f} k",
        f"{large / 1000:,.0f} k",
        "{:,.0f} ({:,.0f})".format(
            *(statistics.median(each[key] for each in resumed) for key in ("process_ms", "feed_ms"))
        ),
        f"{lost} / {torn} / {failed}",
        f"{again / TRIALS:.1f}",
    ]


class _Runner:
    """Runs the phases of a peer in its environment."""

    def __init__(self, name: str, entry: Entry) -> None:
        self._entry = entry
        self.title = entry.title
        self._python = _environment(name, entry.packages) if entry.packages else Path(sys.executable)
        self.version = self._version()

    def _version(self) -> str:
        if not self._entry.packages:
            return ""
        package = self._entry.packages[0].partition(">")[0]
        code = f"from importlib.metadata import version; print(version({package!r}))"
        return subprocess.run([self._python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    def phase(self, phase: str, number: int = 0) -> dict[str, Any]:
        """One phase on a new file."""
        _say(f"{self.title}: {phase} {number or ''}")
        with _folder() as folder:
            return self._run(phase, folder / "peer.db", number)

    def resumed(self) -> dict[str, Any]:
        _say(f"{self.title}: resume {LONG}")
        with _folder() as folder:
            self._run("prepare", folder / "peer.db", LONG)
            began = time.perf_counter()
            figures = self._run("resume", folder / "peer.db", LONG)
            return {**figures, "process_ms": (time.perf_counter() - began) * 1000}

    def killed(self, seed: int) -> tuple[int, int, int, int]:
        """A trial: acknowledged answers that were lost, whether it was torn, failed, and how often code ran again."""
        _say(f"{self.title}: kill {seed + 1} of {TRIALS}")
        with _folder() as folder:
            os.environ[RUNS] = str(folder / "runs")
            try:
                acknowledged = self._work_until_killed(folder / "peer.db", random.Random(seed))
                found = self._run("verify", folder / "peer.db", SHORT)
            finally:
                del os.environ[RUNS]
            runs = Counter((folder / "runs").read_text().splitlines())
        lost = max(0, acknowledged + 1 - found["pending"]) if found["pending"] >= 0 else 0
        return lost, int(found["torn"]), int(not found["ended"]), sum(runs.values()) - len(runs)

    def _work_until_killed(self, db: Path, chance: random.Random) -> int:
        """Kill it after some answer; the number of the last one that it said was acknowledged."""
        last, until = -1, chance.randrange(2, SHORT - 4)
        with subprocess.Popen(self._command("work", db, SHORT), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("ack "):
                    last = int(line.split()[1])
                    if last >= until:
                        process.kill()
        return last

    def _run(self, phase: str, db: Path, number: int) -> dict[str, Any]:
        done = subprocess.run(
            self._command(phase, db, number), capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=ROOT
        )
        if done.returncode != 0:
            raise subprocess.SubprocessError(f"{phase}: {done.stderr.strip().splitlines()[-1:]}")
        figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return figures

    def _command(self, phase: str, db: Path, number: int) -> list[str]:
        return [str(self._python), "-m", "bench.peers.phases", self._entry.module, phase, str(db), str(number)]


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder for databases on this disk: `/tmp` is in memory on many machines, and syncs nothing."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ENVIRONMENTS, prefix="run-", ignore_cleanup_errors=True) as made:
        yield Path(made)


def _environment(name: str, packages: tuple[str, ...]) -> Path:
    """The interpreter of a peer, which is installed if it is not there yet."""
    folder = ENVIRONMENTS / name
    ready, wanted = folder / ".ready", "\n".join(packages)
    if not ready.exists() or ready.read_text() != wanted:
        _say(f"installing {', '.join(packages)} into {folder.relative_to(ROOT)} …")
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *packages], check=True, stdout=sys.stderr)
        ready.write_text(wanted)
    return folder / "bin" / "python"


HEADINGS = (
    "peer",
    "single /s",
    "× floor",
    "50 at a time /s",
    "bytes at 20",
    "at 200",
    "resume ms (of it, feed)",
    "kill -9: lost / torn / failed",
    "code run again",
)


def _print_table(rows: list[list[str]]) -> None:
    """The rows, as Markdown that reads well in a terminal too."""
    table = [list(HEADINGS), *([*row, *[""] * (len(HEADINGS) - len(row))] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print("\n".join(lines))


def _say(text: str) -> None:
    print(text.rstrip(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
