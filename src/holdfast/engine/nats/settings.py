"""`NatsSettings`: where the servers are and what is asked of them, as it is written in a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from holdfast.engine.dispatch import DispatchError

SCHEMES = {"nats": "nats", "nats+tls": "tls"}

DEFAULT_SERVICE_NAME = "holdfast"
"""The name that the servers know a fleet by, if no other is given."""

MOST_REPLICAS = 5
"""Copies that JetStream keeps of a stream at most."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,100}")
_EXPECTED = "expected nats://host:4222 or nats+tls://…, with one host, or several with commas, and no path"


class NatsSettings(msgspec.Struct, frozen=True):
    """How a process reaches JetStream, and what its fleet is called there."""

    servers: tuple[str, ...]
    """Any of them will do, and the next one is tried where one does not answer."""
    service: str = DEFAULT_SERVICE_NAME
    """The name that the servers know the fleet by: fleets with different names do not see each other."""
    pull: int | None = None
    """How many sessions this process takes from the queue at a time; None if it only sends nudges."""
    replicas: int = 1
    """Servers that keep a copy of the queue, if it has to be made."""
    user: str | None = None
    password: str | None = None
    token: str | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """`nats://user:password@host:4222,other:4222?service=NAME&pull=COUNT&replicas=COUNT`; or `token@`."""
        parts = urlsplit(url)
        given, _, hosts = parts.netloc.rpartition("@")
        shown = f"{parts.scheme}://{hosts}"  # without what nobody else may read
        if (scheme := SCHEMES.get(parts.scheme)) is None:
            raise DispatchError(f"'{shown}' is no dispatcher: {_EXPECTED}")
        names = [host for host in hosts.split(",") if host]
        if not names or parts.path.strip("/") or not all(_is_host(each) for each in names):
            raise DispatchError(f"'{shown}' is no dispatcher: {_EXPECTED}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(options.keys() - _OPTIONS):
            raise DispatchError(f"'{shown}': no such option: {', '.join(unknown)} (there are: {', '.join(_OPTIONS)})")
        user, colon, password = given.partition(":")
        settings = cls(
            tuple(f"{scheme}://{name}" for name in names),
            user=unquote(user) if colon else None,
            password=unquote(password) if colon else None,
            token=unquote(user) if user and not colon else None,
        )
        return settings._with_options(options)

    def _with_options(self, options: Mapping[str, str]) -> Self:
        service = options.get("service") or self.service
        if not _NAME.fullmatch(service):
            raise DispatchError(f"'{service}' cannot name a service of NATS: use letters, digits, - and _")
        pull = _count("pull", options.get("pull"), 100_000)
        replicas = _count("replicas", options.get("replicas"), MOST_REPLICAS)
        return msgspec.structs.replace(self, service=service, pull=pull, replicas=replicas or self.replicas)

    def to_send(self) -> Self:
        """These settings, for a process that takes nothing from the queue."""
        return self.to_pull(None)

    def to_pull(self, count: int | None) -> Self:
        """These settings, for a process that takes so many sessions at a time."""
        return msgspec.structs.replace(self, pull=count)

    @property
    def hosts(self) -> str:
        """The servers, as they are shown to people."""
        return ",".join(server.partition("://")[2] for server in self.servers)

    @property
    def stream(self) -> str:
        """The name of the stream that is the fleet's queue."""
        return f"holdfast-{self.service}"

    def subject(self, *words: str) -> str:
        """A subject of the stream."""
        return ".".join(("holdfast", self.service, *words))


_OPTIONS = ("service", "pull", "replicas")


def _is_host(name: str) -> bool:
    try:
        parts = urlsplit(f"nats://{name}")
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _count(name: str, given: str | None, most: int) -> int | None:
    if not given:
        return None
    if not given.isdecimal() or not 1 <= int(given) <= most:
        raise DispatchError(f"`{name}` has to be a number from 1 to {most}, and not '{given}'")
    return int(given)
