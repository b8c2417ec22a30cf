"""Where webhooks may be sent: addresses of other machines that anybody can reach, and nothing inside of one's own.

A name is resolved once, and the request goes to the very address that was checked: a name server cannot change its mind
in between.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from holdfast.core.errors import InvalidValueError


@dataclass(frozen=True)
class Target:
    """An address that was checked."""

    url: str
    """With the number of the machine in place of its name."""
    host: str
    """The name, as it is sent and as certificates are checked for."""


def checked_url(url: str, *, allow_private: bool) -> str:
    """The URL of a webhook. Raises `InvalidValueError` unless it may be one."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidValueError("url", str(error)) from None
    wanted = ("http", "https") if allow_private else ("https",)
    if parts.scheme not in wanted or not parts.hostname:
        raise InvalidValueError("url", f"it begins with {' or '.join(f'{each}://' for each in wanted)}")
    if parts.username is not None or parts.fragment:
        raise InvalidValueError("url", "it has no password and no fragment")
    return url


async def resolved(url: str, *, allow_private: bool) -> Target:
    """Where a webhook is sent to. Raises `InvalidValueError` if that is no address that webhooks may be sent to."""
    parts = urlsplit(checked_url(url, allow_private=allow_private))
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidValueError("url", f"'{host}' cannot be resolved: {error.strerror or error}") from None
    numbers = [str(each[4][0]) for each in found]
    if not allow_private and (inside := [each for each in numbers if not is_public(each)]):
        raise InvalidValueError(
            "url", f"'{host}' is {inside[0]}, an address of this network; `--allow-private-webhooks` lets it be used"
        )
    number = f"[{numbers[0]}]" if ":" in numbers[0] else numbers[0]
    path = parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    return Target(f"{parts.scheme}://{number}:{port}{path}{query}", parts.netloc)


def is_public(number: str) -> bool:
    """Whether an address is one of the open network: not of this machine, this network, or a cloud's own services."""
    address = ip_address(number.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if mapped is not None:
        address = mapped
    return address.is_global and not address.is_multicast
