"""LangGraph on the same loop, in an interpreter of its own: a node that interrupts, resumed until it is through.

One half runs here and is a `Rate`; the other half is this file run by the interpreter that has `langgraph` and
`langgraph-checkpoint-sqlite` (`--langgraph-python`, or `HOLDFAST_BENCH_LANGGRAPH`). That half must not need Holdfast.
"""

from __future__ import annotations

import asyncio
import operator
import os
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bench import UnavailableError, texts

VARIABLE = "HOLDFAST_BENCH_LANGGRAPH"
"""The environment variable with the path of the interpreter."""

TEXT_BYTES = 1024
"""Bytes of a prompt, and of an answer."""

_ROOT = Path(__file__).resolve().parent.parent

# --- here ------------------------------------------------------------------------------------------


class LangGraph:
    """A process that runs rounds when told to. Ends with `aclose`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def begin(cls, path: Path, sessions: int, pauses: int) -> LangGraph:
        """Start it on a new database. `UnavailableError` where there is no interpreter that has LangGraph."""
        python = os.environ.get(VARIABLE)
        if not python:
            raise UnavailableError(f"no interpreter is named by --langgraph-python or {VARIABLE}")
        if shutil.which(python) is None:
            raise UnavailableError(f"{python} cannot be run")
        command = (python, "-m", "bench.langgraph_peer", str(path.resolve()), str(sessions), str(pauses))
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=_ROOT)
        peer = cls(process)
        try:
            await peer._answer()
        except UnavailableError:
            await peer.aclose()
            raise
        return peer

    async def rate(self, seconds: float) -> float:
        """Round trips per second of one round, however long it takes."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        await self._process.stdin.drain()
        return float(await self._answer())

    async def _answer(self) -> bytes:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise UnavailableError(f"LangGraph ended with code {await self._process.wait()}; it said why above")
        return line

    async def aclose(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()


# --- in the other interpreter ----------------------------------------------------------------------


class _State(TypedDict):
    pauses: int
    asked: int
    log: Annotated[list[str], operator.add]


def _graph(saver: Any) -> Any:
    """The way of the tutorials: one node that loops through a conditional edge, its history in a reducer list."""
    graph, types = import_module("langgraph.graph"), import_module("langgraph.types")
    prompts = texts(TEXT_BYTES)

    def ask(state: _State) -> dict[str, Any]:
        answer = types.interrupt(prompts[state["asked"] % len(prompts)])
        return {"log": [answer], "asked": state["asked"] + 1}

    builder = graph.StateGraph(_State)
    builder.add_node("ask", ask)
    builder.add_edge(graph.START, "ask")
    builder.add_conditional_edges("ask", lambda state: "ask" if state["asked"] < state["pauses"] else graph.END)
    return builder.compile(checkpointer=saver)


def _round(graph: Any, names: list[str], pauses: int) -> float:
    """Round trips per second: all sessions are started, then fed in turn until they are through."""
    resume = import_module("langgraph.types").Command
    answers = texts(TEXT_BYTES)[::-1]
    threads = [{"configurable": {"thread_id": name}} for name in names]
    began = time.perf_counter()
    for thread in threads:
        graph.invoke({"pauses": pauses, "asked": 0, "log": []}, thread, durability="sync")
    for number in range(pauses):
        for thread in threads:
            told = graph.invoke(resume(resume=answers[number % len(answers)]), thread, durability="sync")
            if ("__interrupt__" in told) != (number + 1 < pauses):
                raise AssertionError(f"pause {number}: got {sorted(told)}")
    return len(threads) * pauses / (time.perf_counter() - began)


def main(path: str, sessions: int, pauses: int) -> None:
    """Say that it is ready, then run one round for each line read, and say how fast that was."""
    saver = import_module("langgraph.checkpoint.sqlite").SqliteSaver
    with saver.from_conn_string(path) as opened:
        opened.setup()
        graph = _graph(opened)
        _round(graph, ["warm"], pauses)
        print("ready", flush=True)
        for number, _ in zip(count(), sys.stdin, strict=False):
            names = [f"{number}-{session}" for session in range(sessions)]
            print(_round(graph, names, pauses), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
