"""Runs the official MCP conformance suite against our server and prints what passed, what failed, what does not apply.

`python -m tests.serve.conformance.run` from the repository's root; `make conformance` does that.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from tests.serve.conformance.node import NodeMissingError, installed, node_22

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
REVISIONS = ("2025-11-25", "2026-07-28")
BASELINE = Path(__file__).with_name("baseline.yml")
ROOT = Path(__file__).parents[3]
START_TIMEOUT_S = 20
END_TIMEOUT_S = 10
SUITE_TIMEOUT_S = 60
"""Seconds for one revision, which takes about three."""

Verdict: TypeAlias = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Scenario:
    """What became of one scenario under one revision."""

    revision: str
    name: str
    passed: int = 0
    """Checks that passed."""
    problems: list[str] = field(default_factory=list)
    """Checks that failed or warned, and why."""
    skipped: list[str] = field(default_factory=list)
    """Checks that the suite itself found not applicable, and why."""
    reason: str | None = None
    """Why the scenario does not apply to us, where the baseline lists it."""
    required: bool = True
    """Whether the revision requires it. The others are extensions, or later than the revision."""

    @property
    def verdict(self) -> Verdict:
        if self.reason is None:
            return "failed" if self.problems else "passed" if self.passed else "not applicable"
        malformed = any(each.startswith("wire-schema") for each in self.problems)
        return "not applicable" if self.problems and not malformed else "failed"

    @property
    def why(self) -> str:
        match self.verdict:
            case "not applicable":
                return self.reason or "; ".join(self.skipped)
            case "failed":
                return "; ".join(self.problems) or "it is in the baseline, and passes: remove it there"
            case "passed":
                return f"{len(self.skipped)} checks are not applicable" if self.skipped else ""


def baseline(text: str) -> dict[str, str]:
    """The scenarios that do not apply, each with its reason: the comment above it."""
    reasons: dict[str, str] = {}
    comment: list[str] = []
    closed = True
    for line in map(str.strip, text.splitlines()):
        if line.startswith("#"):
            comment = [line.lstrip("# ")] if closed else [*comment, line.lstrip("# ")]
            closed = False
        else:
            closed = True
            if line.startswith("- "):
                reasons[line[2:]] = " ".join(comment)
    return reasons


async def conformance() -> list[Scenario]:
    """Run the suite at every revision. Raises `NodeMissingError` where it cannot be installed."""
    package = await asyncio.to_thread(installed, f"{PACKAGE}@{VERSION}") / PACKAGE
    node = await asyncio.to_thread(node_22)
    reasons = baseline(BASELINE.read_text())

    async def scenarios(revision: str) -> list[Scenario]:
        with tempfile.TemporaryDirectory() as folder:
            async with _served() as url:
                await _suite([str(node), str(package / "dist" / "index.js")], url, revision, folder)
            required = _required((package / "requirements" / f"{revision}.yaml").read_text())
            return _read(Path(folder), revision, required, reasons)

    found = [each for run in await asyncio.gather(*map(scenarios, REVISIONS)) for each in run]  # both mostly wait
    unknown = reasons.keys() - {each.name for each in found}
    found += [Scenario("baseline", name, problems=["there is no such scenario"]) for name in sorted(unknown)]
    return found


@contextlib.asynccontextmanager
async def _served() -> AsyncIterator[str]:
    """The address of our server with the fixtures, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.serve.conformance.fixtures", cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise RuntimeError("the server with the fixtures did not start; its errors are above")
        yield url
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and make it."""
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _suite(command: list[str], url: str, revision: str, folder: str) -> None:
    """One run of the suite. Its exit code says only that something failed, which the results say in detail."""
    arguments = ["server", "--url", url, "--requirements", revision, "-o", folder]
    process = await asyncio.create_subprocess_exec(
        *command, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(SUITE_TIMEOUT_S):
            told, _ = await process.communicate()
    finally:
        await _end(process)
    if b"=== SUMMARY ===" not in told:
        raise RuntimeError(f"the suite did not come to an end at {revision}:\n{told.decode()[-2000:]}")


def _read(folder: Path, revision: str, required: list[str], reasons: dict[str, str]) -> list[Scenario]:
    found = []
    for results in sorted(folder.glob("*/checks.json")):
        named = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", results.parent.name)
        assert named is not None, results
        checks = json.loads(results.read_text())
        passed = sum(check["status"] == "SUCCESS" for check in checks)
        name = named[1]
        scenario = Scenario(revision, name, passed, reason=reasons.get(name), required=name in required)
        for check in checks:
            why = check.get("errorMessage") or (check.get("details") or {}).get("note") or ""
            if check["status"] in ("FAILURE", "WARNING"):
                scenario.problems.append(f"{check['id']}: {why}")
            elif check["status"] == "SKIPPED":
                scenario.skipped.append(f"{check['id']}: {why}")
        found.append(scenario)
    ran = {each.name for each in found}
    found += [Scenario(revision, name, problems=["it did not run"]) for name in required if name not in ran]
    return found


def _required(text: str) -> list[str]:
    """The scenarios for servers in a list of requirements."""
    section = re.search(r"^server:\n((?:\s+- .*\n|\n)*)", text, re.MULTILINE)
    return re.findall(r"- (\S+)", section[1]) if section else []


def report(found: Iterable[Scenario]) -> str:
    """A table for each revision: what it requires, then what it does not."""
    groups: dict[str, list[Scenario]] = {}
    for each in found:
        groups.setdefault(each.revision if each.required else f"{each.revision}, not required", []).append(each)
    return "\n\n".join(_table(title, scenarios) for title, scenarios in groups.items())


def _table(title: str, scenarios: list[Scenario]) -> str:
    verdicts = [each.verdict for each in scenarios]
    told = ", ".join(f"{verdicts.count(each)} {each}" for each in ("passed", "failed", "not applicable"))
    lines = [f"{title}: {told}; {sum(each.passed for each in scenarios)} checks passed"]
    lines += [f"  {each.verdict:<15} {each.passed:>3}  {each.name:<46} {each.why}".rstrip() for each in scenarios]
    return "\n".join(lines)


def main() -> int:
    try:
        found = asyncio.run(conformance())
    except NodeMissingError as error:
        print(f"the conformance suite cannot run here: {error}", file=sys.stderr)
        return 2
    print(report(found))
    return 1 if any(each.verdict == "failed" for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
