"""What the outside world has seen in a kill test: a line is durable before the thing it tells of is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Ledger:
    """What the outside world has seen, line by line, in the order in which it was seen."""

    def __init__(self, directory: Path, who: str) -> None:
        self._file = os.open(directory / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._who = who

    def note(self, what: str, session: str, **more: Any) -> None:
        line = json.dumps({"who": self._who, "what": what, "session": session, **more})
        os.write(self._file, line.encode() + b"\n")
        os.fsync(self._file)


def read_ledger(directory: Path) -> list[dict[str, Any]]:
    path = directory / "ledger"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
