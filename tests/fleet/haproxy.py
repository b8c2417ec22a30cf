"""haproxy before the workers of a fleet, set up as the page about fleets says: attempts are spread, one by one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

PROGRAM = shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy")

WHY_NOT = "" if PROGRAM else "haproxy is not installed (Debian: haproxy)"

_CONFIG = """
defaults
    mode http
    timeout connect 1s
    timeout client 24h
    timeout server 24h
frontend engine
    bind {address}
    default_backend workers
backend workers
    balance leastconn
    option httpchk GET /health
    default-server check inter 500ms on-marked-down shutdown-sessions
{servers}
"""


@contextlib.contextmanager
def haproxy(folder: Path, address: str, workers: Sequence[str], before: Sequence[str] = ()) -> Iterator[None]:
    """Run it at an address before workers at theirs, which need not be there yet; `before` as for `Workers.start`."""
    assert PROGRAM is not None
    servers = "\n".join(f"    server w{number} {worker}" for number, worker in enumerate(workers))
    config = folder / "haproxy.cfg"
    config.write_text(_CONFIG.format(address=address, servers=servers))
    process = subprocess.Popen([*before, PROGRAM, "-q", "-db", "-f", config], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
