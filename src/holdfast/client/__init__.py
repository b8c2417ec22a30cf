"""The HTTP client: the words of the embedded API, for sessions on a server.

`async with holdfast.connect("http://127.0.0.1:8420", token="…") as hf: …` is used as `holdfast.open(…)` is.
"""

from __future__ import annotations

from holdfast.client.holdfast import HoldfastClient, connect

__all__ = ["HoldfastClient", "connect"]
