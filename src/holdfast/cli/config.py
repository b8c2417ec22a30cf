"""The project's `holdfast.toml`: what it says to commands. Options and environment variables win over it.

The file is written by whoever works in the project, and may name code to run: see `served`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_FILE = "holdfast.toml"


def config_file() -> Path | None:
    """The file of the project around the working directory, if there is one."""
    from holdfast.programs.paths import find_project

    root = find_project()
    return root / CONFIG_FILE if root is not None and (root / CONFIG_FILE).is_file() else None


def read_config() -> tuple[Path, dict[str, Any]] | None:
    """The file and what it says, or None if there is none."""
    file = config_file()
    if file is None:
        return None
    import tomllib

    try:
        return file, tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise InputError(f"{file} is not TOML: {error}") from None


def config_texts(key: str, example: str) -> tuple[str, ...]:
    """The texts of a key that has one text or a list of them; none if the key is not there."""
    if (found := read_config()) is None:
        return ()
    file, said = found
    given = said.get(key, [])
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(each, str) and each for each in texts):
        raise InputError(f"{file}: {key} has to be a text or a list of texts, as in {key} = {example}")
    return tuple(texts)


def config_text(key: str, example: str) -> str | None:
    """The text of a key, or None if the key is not there."""
    found = read_config()
    text = found[1].get(key) if found is not None else None
    if text is not None and (not isinstance(text, str) or not text):
        raise InputError(f"{found[0] if found else CONFIG_FILE}: {key} has to be a text, as in {key} = {example}")
    return text


def config_store() -> str | None:
    """The URL of `store`, with a path that begins at the file."""
    url = config_text("store", '"sqlite:///sessions.db"')
    if url is None or (path := url.removeprefix("sqlite:///")) == url:
        return url
    file = config_file()
    assert file is not None
    return f"sqlite:///{os.path.join(file.parent, path)}"
