"""Cursors that watchers bring back, changed: a place of the session, or refused."""

from __future__ import annotations

import base64
from hashlib import blake2b

import hypothesis.strategies as st

from holdfast.core.cursors import Cursor, cursor_text, read_cursor
from tests.fuzz.fuzzer import Fuzzer, assert_is_declared
from tests.fuzz.generation import Draw, changed_document, changed_text

PLACES = [["s", 1, 2, 3, "ring", 4], ["s", 1_700_000_000_000], ["t", 0, 0]]

TEXTS = [cursor_text(Cursor("s", 1, 2, 3, "ring", 4)), cursor_text(Cursor("other", 1)), "c2-abc", "c1-"]


@st.composite
def cursors(draw: Draw) -> str:
    """A cursor that was mistyped, or one that somebody has made up with a fitting check sum."""
    if draw(st.booleans()):
        return draw(changed_text(TEXTS, words=["c1-", "c²-", "=", "\ud800", "\0"]))
    body = draw(changed_document(PLACES))
    check = blake2b(body, digest_size=6, person=b"holdfast-cursor").digest()
    return f"c1-{base64.urlsafe_b64encode(check + body).rstrip(b'=').decode()}"


def test_changed_cursors_name_a_place_or_are_refused(fuzzer: Fuzzer) -> None:
    def check(text: str) -> None:
        try:
            cursor = read_cursor(text, "s")
        except Exception as error:
            assert_is_declared(error)
        else:
            assert cursor.session_id == "s"
            assert min(cursor.position, cursor.part, cursor.live) >= 0

    fuzzer.run(check, cursors(), examples=100)
