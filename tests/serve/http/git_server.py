"""A repository with a Lua package, served by git on this machine."""

from __future__ import annotations

import contextlib
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

_AUTHOR = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]

INIT = 'return {meta = {name = "greeter", version = "1.0.0"}, run = function(ctx) return "hello" end}\n'


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    folder: Path


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={server.folder}"]
        subprocess.run(command, stdin=self.request.fileno(), stdout=self.request.fileno(), check=False)


@contextlib.contextmanager
def served_package(folder: Path) -> Iterator[str]:
    """The URL of a repository that has the package `greeter`."""
    package = folder / "greeter"
    package.mkdir(parents=True)
    (package / "init.lua").write_text(INIT)
    for command in (["init", "--quiet"], ["add", "."], [*_AUTHOR, "commit", "--quiet", "-m", "Greet"]):
        subprocess.run(["git", *command], cwd=package, check=True)
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.folder = folder
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"git://127.0.0.1:{server.server_address[1]}/greeter"
        finally:
            server.shutdown()
