"""The package: its specs hold, and it runs by its name once it is installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

from holdfast.testing.patience import HANG_S

HERE = Path(__file__).parent


def holdfast(home: Path, *args: str) -> str:
    """What a command prints, in a home of its own."""
    env = {**os.environ, "HOLDFAST_HOME": str(home), "HOLDFAST_STORE": f"sqlite:///{home}/sessions.db"}
    command = [sys.executable, "-m", "holdfast.cli", *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_is_installed_tested_and_run_by_its_name(tmp_path: Path) -> None:
    holdfast(tmp_path, "pkg", "install", str(HERE))
    assert json.loads(holdfast(tmp_path, "pkg", "test", str(HERE / "brief"), "--json"))["passed"] == 3
    event = json.loads(holdfast(tmp_path, "run", "brief", "--task", "Kelp is a large brown alga.", "--json"))
    assert "at most 3 sentences" in event["prompt"]
