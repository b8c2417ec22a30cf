"""The crash harness: processes that die by SIGKILL, at a named place or at a random moment, and what is judged after.

- `processes`: processes forked from a parent that has Holdfast loaded, and their exit codes;
- `seams`: the places where a process may die, right before and after something becomes durable;
- `store_writers`: writers that are killed at random while they write to one store, and the laws it has to keep.

A harness for something else than a store brings its own work (a function that a process runs) and its own judge.
"""

from holdfast.testing.crash.processes import CrashProcess, run_process
from holdfast.testing.crash.seams import Seam, SeamObserver, read_trace
from holdfast.testing.crash.store_writers import AppendReceipt, CrashReport, CrashSpec, broken_laws, crash_writers

__all__ = [
    "AppendReceipt",
    "CrashProcess",
    "CrashReport",
    "CrashSpec",
    "Seam",
    "SeamObserver",
    "broken_laws",
    "crash_writers",
    "read_trace",
    "run_process",
]
