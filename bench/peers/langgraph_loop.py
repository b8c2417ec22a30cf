"""LangGraph: one node that interrupts and loops through a conditional edge, on `SqliteSaver`, durability `sync`."""

from __future__ import annotations

import operator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bench.peers import TORN, Pending, Shown, digest, question, ran


class _State(TypedDict):
    session: str
    pauses: int
    asked: int
    answers: Annotated[list[str], operator.add]


def _graph(saver: Any) -> Any:
    graph, types = import_module("langgraph.graph"), import_module("langgraph.types")

    def ask(state: _State) -> dict[str, Any]:
        ran(state["session"], state["asked"])
        said = types.interrupt(question(state["session"], state["asked"]))
        return {"answers": [said], "asked": state["asked"] + 1}

    builder = graph.StateGraph(_State)
    builder.add_node("ask", ask)
    builder.add_edge(graph.START, "ask")
    builder.add_conditional_edges("ask", lambda state: "ask" if state["asked"] < state["pauses"] else graph.END)
    return builder.compile(checkpointer=saver)


class LangGraphPeer:
    """See `Peer`. Its calls are not asynchronous, as those of its users are not."""

    async def open(self, db: Path) -> None:
        self._opened = import_module("langgraph.checkpoint.sqlite").SqliteSaver.from_conn_string(str(db))
        saver = self._opened.__enter__()
        saver.setup()
        self._graph = _graph(saver)
        self._resume = import_module("langgraph.types").Command

    async def close(self) -> None:
        self._opened.__exit__(None, None, None)

    async def start(self, session: str, pauses: int) -> Shown:
        first = {"session": session, "pauses": pauses, "asked": 0, "answers": []}
        return self._invoke(first, session)

    async def feed(self, session: str, number: int, answer: str) -> Shown:
        return self._invoke(self._resume(resume=answer), session)

    async def pending(self, session: str) -> Pending:
        state = self._graph.get_state(_thread(session))
        if any(task.interrupts for task in state.tasks):
            return int(state.values["asked"])
        return TORN if state.next or state.tasks else None

    async def mend(self, session: str) -> None:
        self._invoke(None, session)

    def _invoke(self, given: Any, session: str) -> Shown:
        said = self._graph.invoke(given, _thread(session), durability="sync")
        if "__interrupt__" in said:
            return str(said["__interrupt__"][0].value)
        return "done", digest(said["answers"])


def _thread(session: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": session}}


def peer() -> LangGraphPeer:
    return LangGraphPeer()
