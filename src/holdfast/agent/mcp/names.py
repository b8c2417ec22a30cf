"""The names of a server's tools here: valid for models, unique, and the same in every process.

A tool is called `<prefix><its own name>`, with `_` for characters that models do not accept. If that is too long or not
unique, a short hash of its own name is appended. The names depend on which tools there are, and not on their order; a
tool whose name needs no change always keeps it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from hashlib import sha256

MAX_CHARS = 64
"""Characters of a name: what all model services accept."""

HASH_CHARS = 8
"""Hexadecimal digits that tell two names apart: enough for the tools of one server, and still readable."""

_OTHERS = re.compile(r"[^A-Za-z0-9_-]")


def public_names(own: Iterable[str], prefix: str, reserved: Collection[str] = ()) -> dict[str, str]:
    """The name here of each tool, by its own name. None of them is reserved."""
    plain = {name: _OTHERS.sub("_", prefix + name) for name in own}
    kept = {name for name, made in plain.items() if made == prefix + name and _is_usable(made, reserved)}
    used = {plain[name] for name in kept}
    shared = Counter(made for name, made in plain.items() if name not in kept)
    found = {
        name: made
        for name, made in plain.items()
        if name in kept or (made not in used and shared[made] == 1 and _is_usable(made, reserved))
    }
    used |= set(found.values())
    for name in sorted(plain.keys() - found.keys()):
        found[name] = _hashed(name, plain[name], {*used, *reserved})
        used.add(found[name])
    return found


def _is_usable(name: str, reserved: Collection[str]) -> bool:
    return 0 < len(name) <= MAX_CHARS and name not in reserved


def _hashed(own: str, made: str, used: Collection[str]) -> str:
    """The name with a hash; if another tool already has that name, with the next hash."""
    number = 0
    while True:
        digest = sha256(f"{own}\0{number or ''}".encode(errors="surrogatepass")).hexdigest()[:HASH_CHARS]
        name = f"{made[: MAX_CHARS - HASH_CHARS - 1]}_{digest}"
        if name not in used:
            return name
        number += 1
