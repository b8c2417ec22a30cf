"""zstd, from the standard library (3.14 and later) or from the package that brings it to earlier versions of Python."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

LEVEL = 3
"""Higher levels cost ten times the time for a tenth of the size."""


def compress(data: bytes) -> bytes:
    """The data, packed."""
    packed: bytes = zstd().compress(data, LEVEL)
    return packed


def decompress(packed: bytes, most: int) -> bytes:
    """What was packed. `ValueError` if it was not packed like this, or is more than `most` bytes."""
    module = zstd()
    unpacker = module.ZstdDecompressor()
    try:
        data: bytes = unpacker.decompress(packed, max_length=most)
    except module.ZstdError as error:
        raise ValueError(str(error)) from None
    if not unpacker.eof:
        raise ValueError(f"it is cut short, or has more than {most} bytes")
    return data


def zstd() -> Any:
    """The module. It is imported when something is packed or unpacked first."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
