"""`make package`: build the wheel and the sdist, check them, and try them where there is nothing else of Holdfast.

Every extra is tried twice: without it, its command has to name it; with it, the command has to get further. Then the
README, the quickstart, every how-to and every example are followed (see `follow`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.cli.chat_helpers import serving
from tests.package.follow import FollowError, follow_all

ROOT = Path(__file__).parent.parent.parent
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class Extra:
    """A part of Holdfast that comes with an extra."""

    name: str
    args: tuple[str, ...]
    """A call of the command, or, after `python`, of the interpreter."""
    words: str
    """What it prints once the extra is there."""
    stdin: str = ""


EXTRAS = [  # in an order in which none comes with one before
    Extra("sign", ("keys", "--new"), ""),
    Extra("postgres", ("sessions", "--store", "postgresql://nobody@127.0.0.1:1/none"), "cannot be used"),
    Extra("serve", ("serve", "--port", "0", "--host", "no-such-host.invalid"), "cannot listen on no-such-host.invalid"),
    Extra("restate", ("dispatch", "status", "--dispatch", "restate+http://127.0.0.1:1"), "does not answer"),
    Extra("nats", ("dispatch", "status", "--dispatch", "nats://127.0.0.1:1"), "no NATS server answers"),
    Extra("mcp", ("mcp",), ""),
    Extra("providers", ("chat", "--model", "anthropic:claude-sonnet-4-5"), "pydantic-ai-slim[anthropic]", "hello\n"),
]


class Place:
    """A folder outside of the repository with an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "env", with_pip=True)
        self.bin = folder / "env" / "bin"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST"))}
        self._env = {**kept, "HOLDFAST_HOME": str(folder / "home"), "XDG_DATA_HOME": str(folder / "data")}
        self._env.pop("ANTHROPIC_API_KEY", None)

    def pip(self, *args: str) -> None:
        quietly = ("--quiet", "--no-compile", "--disable-pip-version-check")
        ours = (sys.executable, "-m", "pip", "--python", str(self.bin / "python"))  # newer, and twice as quick
        self.run(*ours, "install", *quietly, "-c", str(CONSTRAINTS), *args)

    def run(self, command: str, *args: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(self.bin / command), *args],
            cwd=self.folder,
            env=self._env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if check and done.returncode != 0:
            raise SystemExit(f"{command} {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done


def build(place: Place) -> list[Path]:
    """The wheel and the sdist, checked."""
    place.pip("build", "twine")
    place.run("python", "-m", "build", "--outdir", str(place.folder / "dist"), str(ROOT))
    built = sorted((place.folder / "dist").iterdir())
    place.run("twine", "check", "--strict", *map(str, built))
    return built


def try_extra(place: Place, wheel: Path, extra: Extra) -> None:
    without = place.run("holdfast", *extra.args, stdin=extra.stdin, check=False)
    named = f"holdfast[{extra.name}]"
    if named not in without.stderr:
        raise SystemExit(f"without {named}, `holdfast {' '.join(extra.args)}` does not name it:\n{without.stderr}")
    place.pip(f"{wheel}[{extra.name}]")
    done = place.run("holdfast", *extra.args, stdin=extra.stdin, check=False)
    said = done.stdout + done.stderr
    if named in said or "a bug in Holdfast" in said or extra.words not in said:
        raise SystemExit(f"with {named}, `holdfast {' '.join(extra.args)}` says:\n{said}")


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        say("building the wheel and the sdist")
        built = build(Place(folder / "build"))
        for each in built:
            say(f"  {each.name}, {each.stat().st_size / 1e6:.1f} MB")
        wheel = next(each for each in built if each.suffix == ".whl")
        say("the wheel alone, in a new environment")
        alone = Place(folder / "alone")
        alone.pip(str(wheel))
        alone.run("holdfast", "demo")
        alone.run("holdfast", "run", "cot", "--task", "Is 221 prime?", "--dry-run")
        for extra in EXTRAS:
            say(f"  with the extra {extra.name}")
            try_extra(alone, wheel, extra)
        say("the README, the quickstart, every how-to and every example, followed literally")
        alone.pip(f"{wheel}[all]", "pytest", "pytest-asyncio", "hypothesis")
        follow_pages(alone, wheel)
        say("the sdist, in a new environment")
        source = Place(folder / "source")
        source.pip(str(next(each for each in built if each.suffix == ".gz")))
        source.run("holdfast", "demo")
    say("all of it works")


def follow_pages(place: Place, wheel: Path) -> None:
    """Follow every page, with a scripted model behind a server in the place of OpenAI's."""
    with serving("13 is a prime.", loop=True) as server:
        try:
            for page, steps, took in follow_all(place.folder / "pages", place.bin, wheel, server.url):
                say(f"  {page}: {'FAILED' if steps < 0 else f'{steps} steps'}, {took:.0f} s")
        except FollowError as error:
            raise SystemExit(str(error)) from None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
