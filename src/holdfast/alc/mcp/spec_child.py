"""Runs spec files in a process of its own: they need its working directory, and may be stopped at any time.

It reads what to run from its standard input. On its standard output it writes lines of JSON: one for every file that
has ended (`file`), and at last one with the report (`report`) or with why there is none (`error`).
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


class SpecRunRequest(msgspec.Struct):
    """What to run."""

    root: str
    files: list[str]
    package: str | None = None
    live: bool = False
    is_confined: bool = True

    @classmethod
    def of(cls, specs: Specs, *, live: bool, is_confined: bool) -> SpecRunRequest:
        package = None if specs.package is None else str(specs.package)
        return cls(str(specs.root), [str(file) for file in specs.files], package, live, is_confined)

    def specs(self) -> Specs:
        files = [Path(file) for file in self.files]
        return Specs(Path(self.root), files, None if self.package is None else Path(self.package))


def main() -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=SpecRunRequest)
    try:
        report = asyncio.run(
            run_specs(
                job.specs(),
                live=job.live,
                is_confined=job.is_confined,
                on_file=lambda file: _write_line({"file": file.to_json()}),
            )
        )
    except HoldfastError as error:
        _write_line({"error": str(error)})
    except KeyboardInterrupt:
        sys.exit(130)  # whoever asked does not wait any more
    else:
        _write_line({"report": report.to_json()})


def _write_line(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
