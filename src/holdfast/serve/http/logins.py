"""How a browser comes to a token: a code that counts once, a cookie where the connection is encrypted."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie

from holdfast.serve.http.limits import CODE_S, LOGINS_PER_MINUTE
from holdfast.serve.http.problems import ApiError

COOKIE = "__Host-hf"
"""The name lets browsers take the cookie only over HTTPS, for this host alone."""

COOKIE_HEADER = "x-holdfast"
"""What a request has to send beside the cookie: no form or image of another page can."""

MAX_CODES = 100
"""Codes that wait to be used at a time."""


class Logins:
    """Codes that were given out, and who has tried how often."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._codes: dict[str, tuple[float, str]] = {}
        self._tries: dict[str, list[float]] = {}

    def new_code(self, token: str, lasts_s: float = CODE_S) -> str:
        """A code that can be exchanged for a token, once and soon."""
        now = self._monotonic()
        self._codes = {code: each for code, each in self._codes.items() if each[0] > now}
        if len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(24)
        self._codes[code] = (now + lasts_s, token)
        return code

    def token_for(self, code: str) -> str | None:
        """The token that a code stands for; None if it was used, or is too old. From now on it is used."""
        now = self._monotonic()
        for each, (until, token) in list(self._codes.items()):
            if hmac.compare_digest(each.encode(), code.encode()):
                del self._codes[each]
                return token if until > now else None
        return None

    def check_try(self, address: str) -> None:
        """Count a try to log in. Raises a 429 if there were too many from this address."""
        now = self._monotonic()
        self._tries = {each: times for each, times in self._tries.items() if now - times[-1] < 60}
        times = [each for each in self._tries.get(address, []) if now - each < 60]
        if len(times) >= LOGINS_PER_MINUTE:
            wait_s = int(61 - (now - times[0]))
            why = f"more than {LOGINS_PER_MINUTE} tries a minute; the next is welcome in {wait_s} s"
            raise ApiError(429, "too_many_requests", why, {"retry-after": str(wait_s)})
        self._tries[address] = [*times, now]

    def forgive(self, address: str) -> None:
        """Forget the tries of an address: one of them was right."""
        self._tries.pop(address, None)


def cookie_of(token: str) -> str:
    """The header that lets a browser keep a token."""
    return f"{COOKIE}={token}; Path=/; Secure; HttpOnly; SameSite=Strict"


def no_cookie() -> str:
    """The header that takes it back."""
    return f"{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0"


def authorization_in(headers: Mapping[str, str]) -> str | None:
    """Who a request says it is from: its header, or its cookie if the request says that a script sends it."""
    given = headers.get("authorization")
    if given is not None or COOKIE_HEADER not in headers:
        return given
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None or not found.value else f"Bearer {found.value}"
