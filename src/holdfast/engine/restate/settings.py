"""`RestateSettings`: where the engine is, and where it finds this process; as they are written in a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self
from urllib.parse import parse_qsl, urlsplit

import msgspec

from holdfast.engine.dispatch import DispatchError

SCHEMES = {"restate+http": "http", "restate+https": "https"}

DEFAULT_SERVICE_NAME = "holdfast"
"""The name that the engine knows a fleet by, if no other is given."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,100}")


class RestateSettings(msgspec.Struct, frozen=True):
    """How a process and the engine reach each other."""

    ingresses: tuple[str, ...]
    """Where nudges are sent: any node of the engine will do, and the next one is tried where one does not answer."""
    service: str = DEFAULT_SERVICE_NAME
    """The name that the engine knows the fleet by: fleets with different names do not see each other."""
    listen: str | None = None
    """The host and port that nudges are brought to; None if this process only sends them."""
    register: str | None = None
    """The admin URL of the engine, if this process has to make itself known to it."""
    advertise: str | None = None
    """Where the engine finds the fleet: the balancer in front of it. None: where this process listens."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """`restate+http://host:8080,other:8080?service=NAME&listen=HOST:PORT&register=URL&advertise=URL`."""
        parts = urlsplit(url)
        if (scheme := SCHEMES.get(parts.scheme)) is None:
            raise DispatchError(
                f"'{parts.scheme}:' names no dispatcher: expected restate+http://host:8080 or restate+https://…, or"
                " nats://host:4222"
            )
        hosts = [host for host in parts.netloc.split(",") if host]
        if not hosts or parts.path.strip("/"):
            raise DispatchError(f"'{url}' is no dispatcher: expected one host, or several with commas, and no path")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(options.keys() - _OPTIONS):
            raise DispatchError(f"'{url}': no such option: {', '.join(unknown)} (there are: {', '.join(_OPTIONS)})")
        return cls(tuple(f"{scheme}://{host}" for host in hosts)).with_options(options)

    def with_options(self, options: Mapping[str, str | None]) -> Self:
        """These settings, with those options that have a value in place of their own."""
        given = {name: value for name, value in options.items() if value}
        changed = msgspec.structs.replace(self, **given)
        if not _NAME.fullmatch(changed.service):
            raise DispatchError(
                f"'{changed.service}' cannot name a service of the engine: use letters, digits, -, _ and ."
            )
        for name, value in (("register", changed.register), ("advertise", changed.advertise)):
            if value is not None and urlsplit(value).scheme not in ("http", "https"):
                raise DispatchError(f"{name} has to be a URL, as http://host:9070, and not '{value}'")
        if changed.listen is not None:
            changed.address  # noqa: B018 - raises if it is none
        elif changed.register is not None or changed.advertise is not None:
            raise DispatchError("who is registered with the engine has to listen somewhere: give `listen`, too")
        return changed

    def to_send(self) -> Self:
        """These settings, for a process that is brought nothing."""
        return msgspec.structs.replace(self, listen=None, register=None, advertise=None)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on."""
        host, _, port = (self.listen or "").rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise DispatchError(f"`listen` has to be HOST:PORT, as 127.0.0.1:9080, and not '{self.listen}'")
        return host.strip("[]"), int(port)


_OPTIONS = ("service", "listen", "register", "advertise")
