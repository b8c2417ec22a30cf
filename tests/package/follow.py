"""Follows the README, the quickstart, every how-to and every example literally, where there is nothing but the wheel.

Of each page, the blocks of Python are run, and the lines of its shell blocks that are commands, in order, in a folder
of its own. A page may take some things for granted (a file, a session): `GIVEN` makes them. What can only be run where
its reader works is in `NOT_RUN`, with the reason; an entry that is not met any more is an error, too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

COMMAND_S = 60
"""Seconds that a command may take."""

READY_S = 20
"""Seconds that a command which stays may take until it says something."""

BLOCK = re.compile(r"^( *)```(\w*)(.*?)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PROGRAMS = "holdfast python pytest pip echo cat export curl git openssl cd uvicorn make createdb sqlite3 pg_dump"
COMMAND = re.compile(rf"(?:\$ )?((?:{'|'.join(PROGRAMS.split())})\b.*|token=.*)")
STAYS = re.compile(r"^holdfast (?:worker|serve|mcp --http)|--follow")
PIP = re.compile(r"^pip install '(?:holdfast|\.)\[([\w,]+)\]'(.*)")

NOT_RUN = {
    "make ": "a target of the repository",
    "ynishi/algocline-bundled-packages": "fetches from the network",
    "https://example.org/packages.git": "an invented address",
    "postgresql://app@db": "an invented database server",
    "createdb": "needs a database server",
    "sqlite3 ": "needs the shell of SQLite",
    "pg_dump": "needs a database server",
    "/var/lib/postgresql": "needs a database server",
    "ollama:qwen3": "needs a server of models",
    "localhost:8000/v1": "needs a server of models",
    "http://127.0.0.1:8420": "the server of the block before was stopped",
    "https://wiki.example": "an invented address",
    "mcp-files": "an invented server",
    "holdfast token remove": "the id of a token that was just made",
    "localhost:8000/chats": "the server of the line before was stopped",
    "localhost:8000/tickets": "the server of the line before was stopped",
    "uvicorn": "stays; the test beside it does the same",
    "./my-collection": "an invented directory",
    "app.py:runtime": "an application of the reader's",
    "--host 0.0.0.0": "listens for the network",
    " best": "a card of the reader's",
    "holdfast migrate": "needs an algocline directory",
    "holdfast dispatch": "needs a server of Restate or NATS",
}
"""What is not run, by words of its line, with the reason."""


@dataclass
class Given:
    """What a page takes for granted."""

    shell: str = ""
    """Commands that make it."""
    words: dict[str, str] = field(default_factory=dict)
    """Words of the page that stand for something of the reader's, or would take too long."""
    env: dict[str, str] = field(default_factory=dict)
    """What the page says to set, in its text."""


CHAT = "holdfast chat --model openai:gpt-5 --id talk -m Hello"
ASKS = "holdfast run cot --task Why --model host --id asks"
TRIAGE = """\
mkdir app; printf '%s\\n' 'import holdfast' '@holdfast.strategy' 'async def triage(ctx):' \
'    return await ctx.ask("Which?")' > app/triage.py"""

TOOLS = r"""printf '%s\n' 'def read(path: str) -> str:' '    "Read."' '    return path' 'both = [read]' > tools.py"""
APPROVALS = r"""printf '%s\n' 'from holdfast.agent.tools.catalog import DeclaredTool' \
'approve = DeclaredTool("approve", "Ask.", {"type": "object"})' > approvals.py"""
QUESTIONS = (
    r"""printf '%s\n' '{"input": "2+2?", "expected": "4"}' '{"input": "3+3?", "expected": "6"}' > questions.jsonl"""
)
EXAMPLES = ROOT / "examples"

GIVEN = {
    "docs/how-to/background-work.md": Given(
        words={
            "PROCESS": "$(holdfast ps --all --json | grep -o 'p-[a-z0-9]*' | head -1)",
            '"not needed"': '"not needed" || [ $? = 4 ]',  # those of the page's example are over
        },
        env={"HOLDFAST_STORE": "sqlite:///work.db"},
    ),
    "docs/how-to/change-code.md": Given(
        f"{TRIAGE}; holdfast run app.triage:triage --id s-7k2; holdfast run app.triage:triage --id s-9m4;"
        " mkdir fixtures; holdfast export s-7k2 > fixtures/one.jsonl",
        {"fixtures/*.jsonl": "fixtures/*.jsonl --serve app.triage:triage"},
    ),
    "docs/how-to/chat.md": Given(
        f"{CHAT}; {TOOLS}; {APPROVALS}; printf 'One?\nTwo?\n' > questions.txt; git init -q .;"
        " echo a > notes.txt; git add notes.txt; echo b > notes.txt",
        {"SESSION": "talk", "s-4k7q": "talk"},
        {"HOLDFAST_MODEL": "openai:gpt-5"},
    ),
    "docs/how-to/evaluate.md": Given(QUESTIONS, {"--budget max_cost=5": ""}),
    "docs/how-to/run-lua-strategies.md": Given(
        f"{ASKS}; cp -r {EXAMPLES} examples",
        {"holdfast answer SESSION": "holdfast answer asks", "--resume SESSION": "--resume asks"},
    ),
    "docs/how-to/schedules-and-triggers.md": Given(
        f"{CHAT.replace('talk', 'chat-1')}; echo 'return 1' > nightly.lua",
    ),
    "docs/how-to/several-services.md": Given(
        f"{TRIAGE}; cp app/triage.py triage.py; {ASKS}", {"SESSION": "asks", "run triage": "run triage.py:triage"}
    ),
    "docs/how-to/simulate.md": Given(words={"--seeds 1000": "--seeds 5"}),
    "docs/how-to/work-in-cells.md": Given(
        f"{CHAT}; echo a,b > reviews.csv; mkdir src; echo x > notes.md; echo x > server.log; echo x > src/x.py",
        {"SESSION": "talk"},
    ),
    "examples/strategy_package/README.md": Given(f"cp -r {EXAMPLES}/strategy_package/brief ."),
    "examples/evaluation/README.md": Given(f"cp {EXAMPLES}/evaluation/*.py ."),
    "examples/nightly_research/README.md": Given(
        f"cp {EXAMPLES}/nightly_research/*.py .", {'"kelp farming"': '"kelp farming" --now', "--now --now": "--now"}
    ),
}


class FollowError(Exception):
    """A page that cannot be followed: where, which command, and what it said."""


def pages() -> list[str]:
    files = [ROOT / "README.md", ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    files += sorted((ROOT / "examples").rglob("README.md"))
    return [str(file.relative_to(ROOT)) for file in files]


def steps(page: str) -> Iterator[tuple[str, str]]:
    """What a page has to be followed in: `("python", code)` and `("shell", line)`, in order."""
    for block in BLOCK.finditer((ROOT / page).read_text()):
        indent, language, more, text = block.groups()
        text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        if language == "python" and not more and "# doctest: not run" not in text:
            yield "python", text
        elif language in ("", "sh", "console"):
            for line in re.sub(r"\\\n\s*", "", text).splitlines():
                if found := COMMAND.match(line):
                    yield "shell", re.sub(r"(?:^|\s)#\s.*$", "", found[1]).strip()


class Reader:
    """Somebody who follows a page, in a folder of their own."""

    def __init__(self, folder: Path, bin: Path, wheel: Path, model_url: str) -> None:
        self._folder, self._wheel = folder, wheel
        folder.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST"))}
        self._env = {
            **kept,
            "PATH": f"{bin}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "XDG_DATA_HOME": str(folder / "data"),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": model_url,
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def follow(self, page: str, unmet: set[str]) -> int:
        """Follow a page; how many steps that were. Words of `NOT_RUN` that are met are taken from `unmet`."""
        given, done = GIVEN.get(page, Given()), 0
        self._env |= given.env
        if given.shell:
            self._shell(f"set -e; {given.shell}", page)
        for kind, text in steps(page):
            if kind == "python":
                (self._folder / "example.py").write_text(text)
                self._shell("python example.py", page)
            elif met := [words for words in NOT_RUN if words in text]:
                unmet -= set(met)
                continue
            else:
                self._command(text, given, page)
            done += 1
        return done

    def _command(self, line: str, given: Given, page: str) -> None:
        for word, meant in given.words.items():
            line = line.replace(word, meant)
        line = line.replace('"…"', '"why"')
        if installs := PIP.match(line):
            line = f"pip install -q '{self._wheel}[{installs[1]}]'{installs[2]}"
        if line.startswith(("export ", "token=", "cd ")):
            self._remember(line)
        elif STAYS.search(line):
            self._stay(line, page)
        else:
            self._shell(line, page)

    def _remember(self, line: str) -> None:
        """Settings of the shell count for the lines that follow."""
        for name, value in re.findall(r"(\w+)=(\S+)", line):
            if "…" not in value and "$" not in value:
                self._env[name] = value

    def _shell(self, line: str, page: str) -> None:
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        if done.returncode != 0 or "a bug in Holdfast" in said:
            raise FollowError(f"{page}: {line}\nexit {done.returncode}\n{said[-2000:]}")

    def _stay(self, line: str, page: str) -> None:
        """Run a command that stays until it says something, then end it as a shell does."""
        log = self._folder / "said"
        with log.open("wb") as said:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said,
            )  # fmt: skip
            until = time.monotonic() + READY_S
            while not log.stat().st_size and process.poll() is None and time.monotonic() < until:
                time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
            code = process.wait(COMMAND_S)
        if code not in (0, -signal.SIGTERM, 130, 143) or "a bug in Holdfast" in log.read_text():
            raise FollowError(f"{page}: {line}\nexit {code}\n{log.read_text()[-2000:]}")


def follow_all(
    folder: Path, bin: Path, wheel: Path, model_url: str, only: str = ""
) -> Iterator[tuple[str, int, float]]:
    """Follow every page: its name, its steps, and the seconds that took. Raises `FollowError` for those that failed."""
    unmet, failed = set(NOT_RUN), []
    for number, page in enumerate(each for each in pages() if only in each):
        began = time.monotonic()
        try:
            count = Reader(folder / str(number), bin, wheel, model_url).follow(page, unmet)
        except FollowError as error:
            failed.append(str(error))
            count = -1
        except subprocess.TimeoutExpired as error:
            failed.append(f"{page}: {error}")
            count = -1
        yield page, count, time.monotonic() - began
    if unmet and not only:
        failed.append(f"NOT_RUN has words that no page has any more: {', '.join(sorted(unmet))}")
    if failed:
        raise FollowError("\n\n".join(failed))
