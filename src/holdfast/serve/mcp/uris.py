"""The addresses of resources: what a URI means, and which ones are refused. Nothing in them is decoded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.errors import HoldfastError
from holdfast.core.values import preview

SCHEMES = ("alc", "holdfast")

MAX_URI_CHARS = 2_000
"""Characters of a URI: many times the longest id."""

_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_VARIABLE = re.compile(r"\{(\w+)\}")


class InvalidUriError(HoldfastError):
    """A URI that can be no resource, or parameters out of range."""

    uri: str
    why: str
    kind = "invalid_uri"

    def __str__(self) -> str:
        return f"invalid resource URI {preview(self.uri)}: {self.why}"


class ResourceNotFoundError(HoldfastError):
    """A URI behind which there is nothing."""

    uri: str
    why: str
    kind = "resource_not_found"

    def __str__(self) -> str:
        return f"resource {preview(self.uri)} not found: {self.why}"


@dataclass(frozen=True)
class UriParameter:
    """A parameter after the `?`."""

    name: str
    default: int
    most: int


@dataclass(frozen=True)
class _ResourceUri:
    """A URI taken apart."""

    uri: str
    scheme: str
    segments: tuple[str, ...]
    query: Mapping[str, str]

    def numbers(self, allowed: Sequence[UriParameter]) -> dict[str, int]:
        """The parameters, each with its value or its default."""
        if unknown := sorted(set(self.query) - {each.name for each in allowed}):
            known = ", ".join(each.name for each in allowed) or "it takes none"
            raise InvalidUriError(self.uri, f"unknown parameter {preview(unknown[0])} (there are: {known})")
        found = {}
        for each in allowed:
            text = self.query.get(each.name, str(each.default))
            if not _DIGITS.fullmatch(text):
                raise InvalidUriError(self.uri, f"{each.name} must be a whole number, got {preview(text)}")
            if int(text) > each.most:
                raise InvalidUriError(self.uri, f"{each.name} must be at most {each.most}, got {text}")
            found[each.name] = int(text)
        return found


def parse(uri: str) -> _ResourceUri:
    """Take a URI apart, or say what is wrong with it."""
    if len(uri) > MAX_URI_CHARS:
        raise InvalidUriError(uri, f"it has {len(uri)} characters, and at most {MAX_URI_CHARS} are read")
    scheme, separator, rest = uri.partition("://")
    if not separator:
        raise InvalidUriError(uri, "it has no scheme; use alc://… or holdfast://…")
    if scheme not in SCHEMES:
        raise ResourceNotFoundError(uri, "only alc://… and holdfast://… are served")
    path, questions, query = rest.partition("?")
    if not path.isprintable() or any(c in path for c in " %&\\#") or (scheme == "alc" and "=" in path):
        why = "names are written as they are: no spaces, no control characters, none of % & \\ #"
        raise InvalidUriError(uri, f"{why}{' =' if scheme == 'alc' else ''}")
    segments = tuple(path.split("/"))
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidUriError(uri, "a segment of its path is empty, '.' or '..'")
    if questions and not query:
        raise InvalidUriError(uri, "there is nothing after the '?'")
    return _ResourceUri(uri, scheme, segments, _query(uri, query))


def _query(uri: str, query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InvalidUriError(uri, f"{preview(part)} is not name=value")
        if name in found:
            raise InvalidUriError(uri, f"{preview(name)} is given twice")
        found[name] = value
    return found


class UriTemplate:
    """A URI template, such as `alc://cards/{card_id}/samples{?offset,limit}`."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.scheme, _, path = template.partition("{?")[0].partition("://")
        self._segments = path.split("/")
        self.variables = tuple(_VARIABLE.findall(path))

    def match(self, address: _ResourceUri) -> dict[str, str] | None:
        """The variables in an address; None if it is another one's."""
        if address.scheme != self.scheme or len(address.segments) != len(self._segments):
            return None
        found: dict[str, str] = {}
        for own, given in zip(self._segments, address.segments, strict=True):
            variable = _VARIABLE.fullmatch(own)
            if variable is not None:
                found[variable[1]] = given
            elif own != given:
                return None
        return found
