"""A real HTTP server for the tests of the HTTP tool: it writes down requests, and honours idempotency keys."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    media: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """What was sent to it, and what it sends back: the replies in turn, the last one for ever."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.replies: list[Reply | Callable[[Seen], Reply]] = [Reply(body=b"{}")]
        self.url = ""
        self.done: dict[str, int] = {}
        """How often was done what a request asked for, by its key."""
        self.held = threading.Event()
        """Cleared, it holds back replies."""
        self.held.set()

    def reply_to(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if seen.key not in self.done:
            self.done[seen.key] = len(self.done) + 1
        self.held.wait(20)
        return reply(seen) if callable(reply) else reply


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a port of its own."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = server.reply_to(Seen(self.command, self.path, headers, body))
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.media:
                    self.send_header("Content-Type", reply.media)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)
            except OSError:
                self.close_connection = True  # whoever asked is gone

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Listening(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that is killed closes its connection in the midst

    listening = Listening(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.held.set()
        listening.shutdown()
        thread.join()
        listening.server_close()
