"""Try the tests that failed in the last run once more, alone, if they are few; `.ci/run` calls it.

What passes only now depends on luck. It is named at the end, so that it is mended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 8
"""Failed tests that may have been unlucky. More than that have a reason."""

FAILED = Path(__file__).parent.parent / ".pytest_cache" / "v" / "cache" / "lastfailed"


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: there is no second try", file=sys.stderr)
        return 1
    done = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *failed], check=False)
    if done.returncode == 0:
        print(f"passed only at the second try: {', '.join(failed)}", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
