"""What the model is told after its reply: output, errors, the rules it broke, and what became of its variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.agent.rlm.limits import (
    ERROR_CHARS,
    LISTED_VARIABLES,
    MAX_CELL_CHARS,
    SHOWN_CHARS,
    SHOWN_HEAD,
)
from holdfast.agent.rlm.variables import Bindings, Leaf, Variable, VariableTable

NATIVE_CALL = (
    "There are no native tool calls here. Every tool is a function in Python: write one ```python cell that calls it."
)
EMPTY = "The reply was empty. Write one ```python cell, or the answer in words."
EMPTY_CELL = "The cell was empty. Put code into it, or answer in words without a cell."
VALUE_WANTED = (
    "This task ends with a value, not with words. Call finish(value) in a ```python cell; if there can be no value,"
    " call fail(reason)."
)
PROSE_TOO_LONG = (
    "The reply met its token limit before it ended. Write less, and put long texts into variables of a cell."
)


def policy(text: str) -> str:
    """A rule of this mode that the reply or its cell broke."""
    return f"[POLICY] {text}"


def unclosed(last_line: str, *, is_cut_short: bool) -> str:
    """The cell has no end."""
    end = f" Its last line was:\n    {last_line.strip()[:200]}\n" if last_line.strip() else " "
    if is_cut_short:
        return policy(
            f"The reply met its token limit inside the cell, and nothing was run.{end}Write a smaller cell, and go on"
            " step by step: variables stay."
        )
    return policy(f"The cell was not closed, and nothing was run.{end}Write it again, and close it with ``` on a line.")


def cell_too_long(chars: int) -> str:
    return policy(
        f"The cell has {chars:,} characters, and {MAX_CELL_CHARS:,} are allowed. Nothing was run. Write a smaller cell."
    )


def refused(problems: Sequence[str]) -> str:
    """The check found something; nothing was run."""
    listed = "\n".join(f"- {each}" for each in problems)
    return f"[ERROR] The cell was not run:\n{listed}"


def output(text: str) -> str:
    """What a cell printed, shortened in its middle."""
    return f"[OUTPUT]\n{shortened(text)}"


def shortened(text: str) -> str:
    """The beginning and the end of a long text, with how much is missing between."""
    text = text.rstrip("\n")
    missing = len(text) - SHOWN_CHARS
    if missing <= 0:
        return text
    tail = SHOWN_CHARS - SHOWN_HEAD
    return f"{text[:SHOWN_HEAD]}\n[… {missing:,} characters are missing here …]\n{text[-tail:]}"


def error(text: str) -> str:
    """An exception of the cell."""
    cut = text if len(text) <= ERROR_CHARS else f"{text[: ERROR_CHARS // 2]}\n…\n{text[-ERROR_CHARS // 2 :]}"
    return f"[ERROR] {cut}"


def bound(before: VariableTable, bindings: Bindings) -> str:
    """What became of variables; empty if nothing did."""
    lines: list[str] = []
    known = {*before.variables, *before.defined}
    new = {name: leaf for name, leaf in bindings.set.items() if name not in known}
    changed = {name: leaf for name, leaf in bindings.set.items() if name in known}
    lines += _listed("new", new)
    lines += _listed("changed", changed)
    lines += [f"the same object: {' = '.join(group)}" for group in bindings.aliases]
    if bindings.definitions:
        lines.append("defined: " + ", ".join(name for each in bindings.definitions for name in each.names))
    if bindings.drop:
        lines.append("dropped: " + ", ".join(bindings.drop))
    lines += [f"not kept: {name}: {why}" for name, why in bindings.not_kept.items()]
    return "[VARIABLES]\n" + "\n".join(lines) if lines else ""


def _listed(word: str, leaves: Mapping[str, Leaf | Variable]) -> list[str]:
    shown = list(leaves.items())[:LISTED_VARIABLES]
    lines = [f"{word}: {described(name, each)}" for name, each in shown]
    more = len(leaves) - len(shown)
    return [*lines, f"… and {more} more"] if more > 0 else lines


def described(name: str, each: Leaf | Variable) -> str:
    """A variable in one line."""
    return f"{name}: {each.kind}, {sized(each.size)}" + (f" = {each.preview}" if each.preview else "")


def sized(count: int) -> str:
    """A number of bytes for people."""
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024 * 1024 else f"{count / (1024 * 1024):.1f} MiB"


def table(variables: VariableTable, projections: Mapping[str, str]) -> str:
    """All names that a cell can read, for the beginning of a turn; empty if there are none."""
    lines = [f"{name} (read-only): {about}" for name, about in projections.items()]
    lines += _listed("variable", variables.variables)
    if defined := sorted(variables.defined):
        lines.append("defined: " + ", ".join(defined))
    return "[VARIABLES]\n" + "\n".join(lines) if lines else ""


def joined(parts: Iterable[str]) -> str:
    """Feedback made of parts."""
    return "\n\n".join(part for part in parts if part)


NOTHING = "[OUTPUT]\n(nothing was printed)"
"""For a cell that did something and showed nothing."""
