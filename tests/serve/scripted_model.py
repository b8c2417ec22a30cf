"""A model behind a local endpoint, for hosts that want one: it says what a script tells it to, word for word.

It speaks the two forms that hosts use: responses (`/v1/responses`) and chat completions (`/v1/chat/completions`), both
as streams. It listens on loopback only, and answers so many requests and no more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

MAX_REQUESTS = 30
"""Requests that are answered, so that a host and a script which do not understand each other come to an end."""


@dataclass(frozen=True)
class Turn:
    """What the model is given."""

    tools: dict[str, str | None]
    """The tools by their names, each with its namespace, if it has one."""
    results: list[str]
    """What the tools gave, the oldest first."""


@dataclass(frozen=True)
class Use:
    """The model calls the tool whose name, which hosts may prefix with that of the server, ends like this."""

    tool: str
    arguments: dict[str, Any]
    namespace: str | None = None
    """Where the host has the tool, if it keeps those of a server together."""


Script: TypeAlias = Callable[[Turn], Use | str]


@dataclass
class Model:
    """A model under way."""

    url: str = ""
    turns: list[Turn] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@contextmanager
def scripted_model(script: Script) -> Iterator[Model]:
    """Serve the script, on a free port, while the context lasts."""
    model = Model()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(model, script)) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield model
        finally:
            server.shutdown()
            serving.join()


def _handler(model: Model, script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            form = {"/v1/responses": _responses, "/v1/chat/completions": _completions}.get(self.path)
            if form is None or len(model.turns) >= MAX_REQUESTS:
                model.problems.append(f"refused {self.path} after {len(model.turns)} turns")
                self.send_error(400)
                return
            turn, said = form
            model.turns.append(turn(body))
            told = script(model.turns[-1])
            events = said(_full_name(told, model.turns[-1]), len(model.turns))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join(events).encode())

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


def _full_name(told: Use | str, turn: Turn) -> Use | str:
    if isinstance(told, str):
        return told
    named = [name for name in turn.tools if name.endswith(told.tool)]
    if not named:
        return f"there is no tool {told.tool} among {sorted(turn.tools)}"
    return Use(named[0], told.arguments, turn.tools[named[0]])


# --- responses -------------------------------------------------------------------------------------


def _read_responses(body: dict[str, Any]) -> Turn:
    tools: dict[str, str | None] = {}
    for tool in body.get("tools", []):
        tools |= {inner["name"]: tool["name"] for inner in tool.get("tools", [])} or {tool.get("name", ""): None}
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    return Turn(tools, [output if isinstance(output, str) else json.dumps(output) for output in outputs])


def _write_responses(told: Use | str, number: int) -> Iterator[str]:
    response = {"id": f"resp-{number}", "output": []}
    item: dict[str, Any] = {"type": "message", "role": "assistant", "id": f"item-{number}"}
    if isinstance(told, str):
        item["content"] = [{"type": "output_text", "text": told}]
    else:
        called = {"name": told.tool, "arguments": json.dumps(told.arguments), "call_id": f"call-{number}"}
        item = {"type": "function_call", "id": f"item-{number}", **called}
        if told.namespace is not None:
            item["namespace"] = told.namespace
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    for event in (
        {"type": "response.created", "response": response},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "usage": usage}},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


_responses = (_read_responses, _write_responses)


# --- chat completions ------------------------------------------------------------------------------


def _read_completions(body: dict[str, Any]) -> Turn:
    tools: dict[str, str | None] = {tool["function"]["name"]: None for tool in body.get("tools", [])}
    outputs = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    return Turn(tools, [output if isinstance(output, str) else json.dumps(output) for output in outputs])


def _write_completions(told: Use | str, number: int) -> Iterator[str]:
    if isinstance(told, str):
        delta: dict[str, Any] = {"role": "assistant", "content": told}
    else:
        function = {"name": told.tool, "arguments": json.dumps(told.arguments)}
        called = {"index": 0, "id": f"call-{number}", "type": "function", "function": function}
        delta = {"role": "assistant", "tool_calls": [called]}
    ended = "stop" if isinstance(told, str) else "tool_calls"
    for choice in ({"index": 0, "delta": delta}, {"index": 0, "delta": {}, "finish_reason": ended}):
        chunk = {"id": f"chat-{number}", "object": "chat.completion.chunk", "model": "scripted", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


_completions = (_read_completions, _write_completions)
