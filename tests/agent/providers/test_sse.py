"""Server-sent events, however their bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.providers.sse import ServerEvent, ServerEventReader, TooLargeError
from tests.tables import each_row

STREAM = (
    b": a comment\n\ndata: one\n\nevent: named\ndata: two\ndata:  three\nid: 7\nretry: 10\n\n"
    b"data\n\nunknown: x\n\n:\n\ndata:four\n\n"
)
EVENTS = [
    ServerEvent(b"one"),
    ServerEvent(b"two\n three", b"named", "7"),
    ServerEvent(b""),
    ServerEvent(b"four"),
]


def parsed(*pieces: bytes, by: ServerEventReader | None = None) -> list[ServerEvent]:
    parser = by or ServerEventReader()
    return [event for piece in pieces for event in parser.feed(piece)]


@each_row("newline", [b"\n", b"\r\n", b"\r"])
def test_lines_end_with_lf_crlf_or_cr(newline: bytes) -> None:
    assert parsed(STREAM.replace(b"\n", newline)) == EVENTS


@given(newline=st.sampled_from([b"\n", b"\r\n", b"\r"]), cuts=st.sets(st.integers(0, 2 * len(STREAM))))
def test_the_same_events_come_wherever_the_bytes_are_cut(newline: bytes, cuts: set[int]) -> None:
    stream = STREAM.replace(b"\n", newline)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert parsed(*pieces) == EVENTS


def test_an_event_that_ends_with_cr_is_not_held_back_until_more_comes() -> None:
    assert parsed(b"data: one\r\r") == [ServerEvent(b"one")]


def test_a_cr_and_an_lf_in_two_pieces_are_one_end_of_line() -> None:
    assert parsed(b"data: one\r", b"\ndata: two\r", b"\n\r", b"\n") == [ServerEvent(b"one\ntwo")]


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    assert parsed(b"\xef\xbb\xbfdata: one\n\n") == [ServerEvent(b"one")]


def test_what_the_stream_ends_with_can_be_had_without_its_empty_line() -> None:
    for ending in (b"", b"\n"):
        parser = ServerEventReader()
        assert list(parser.feed(b"data: [DONE]" + ending)) == []
        assert parser.close() == ServerEvent(b"[DONE]")
        assert parser.close() is None


def test_an_event_that_is_too_large_is_refused_before_it_is_whole() -> None:
    parser = ServerEventReader(max_event_bytes=100)
    assert parsed(*[b"data: 456\n"] * 20, by=parser) == []
    with pytest.raises(TooLargeError, match="more than 100 bytes"):
        parsed(*[b"data: 456\n"] * 20, by=parser)


def test_one_endless_line_is_refused_too() -> None:
    parser = ServerEventReader(max_event_bytes=100)
    assert parsed(*[b"x"] * 100, by=parser) == []
    with pytest.raises(TooLargeError):
        parsed(b"x", by=parser)


def test_comments_for_hours_are_no_large_event() -> None:
    parser = ServerEventReader(max_event_bytes=100)
    list(parser.feed(b"data: one\n"))
    for _ in range(1000):
        list(parser.feed(b": still here\n"))
    assert list(parser.feed(b"\n")) == [ServerEvent(b"one")]
