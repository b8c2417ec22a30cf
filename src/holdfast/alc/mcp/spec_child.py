"""Runs spec files in a process of its own: they need its working directory, and may be stopped at any time.

It reads what to run from its standard input, and tells on its standard output, a line of JSON each, of every file that
has ended (`file`), and at last of all of them (`report`) or of why there is none (`error`).
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.specs.discovery import Specs
from holdfast.alc.specs.runner import run_specs
from holdfast.core.errors import HoldfastError


class Job(msgspec.Struct):
    """What to run."""

    root: str
    files: list[str]
    package: str | None = None
    live: bool = False

    @classmethod
    def of(cls, specs: Specs, live: bool) -> Job:
        package = None if specs.package is None else str(specs.package)
        return cls(str(specs.root), [str(file) for file in specs.files], package, live)

    def specs(self) -> Specs:
        files = [Path(file) for file in self.files]
        return Specs(Path(self.root), files, None if self.package is None else Path(self.package))


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        report = asyncio.run(
            run_specs(job.specs(), live=job.live, on_file=lambda file: _tell({"file": file.to_json()}))
        )
    except HoldfastError as error:
        _tell({"error": str(error)})
    except KeyboardInterrupt:
        sys.exit(130)  # whoever asked does not wait any more
    else:
        _tell({"report": report.to_json()})


def _tell(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
