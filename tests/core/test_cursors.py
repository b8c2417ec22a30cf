"""Cursors: what goes in comes out, and nothing else is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.cursors import Cursor, InvalidCursorError, cursor_text, read_cursor

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,40}", fullmatch=True)
NUMBERS = st.integers(0, 2**63 - 1)
CURSORS = st.builds(Cursor, IDS, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["", "8f00a1c2"]), NUMBERS)


@given(CURSORS)
def test_a_cursor_is_read_as_it_was_written(cursor: Cursor) -> None:
    text = cursor_text(cursor)
    assert read_cursor(text, cursor.session_id) == cursor
    assert text.replace("-", "").replace("_", "").isalnum()  # safe in addresses, headers and shells


@given(CURSORS, st.data())
def test_a_cursor_with_another_character_is_none(cursor: Cursor, data: st.DataObject) -> None:
    text = cursor_text(cursor)
    place = data.draw(st.integers(0, len(text) - 2))  # the last one may have bits that say nothing
    other = data.draw(st.sampled_from("aZ09-_é").filter(lambda each: each != text[place]))
    with pytest.raises(InvalidCursorError) as raised:
        read_cursor(text[:place] + other + text[place + 1 :], cursor.session_id)
    assert raised.value.why in ("garbled", "version")


@given(st.text(max_size=60))
def test_no_other_text_is_a_cursor(text: str) -> None:
    with pytest.raises(InvalidCursorError):
        read_cursor(text, "s")
