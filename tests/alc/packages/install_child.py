"""A process that installs a directory, to be killed or to race. Given a stage and a number, it kills itself there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.install import Options, Progress, install


def main() -> None:
    nowhere, source, times, stage, number = sys.argv[1:]

    def die(progress: Progress) -> None:
        if (progress.stage, str(progress.done)) == (stage, number):
            os.kill(os.getpid(), signal.SIGKILL)

    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(times)):
        install(PackageDirectories(Path(nowhere)), [source], Options(in_project=False, force=True, progress=die))
    print("done", flush=True)


if __name__ == "__main__":
    main()
