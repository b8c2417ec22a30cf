"""Errors: what a class of them takes, and what is told of one."""

from __future__ import annotations

import pytest

from holdfast.core.errors import HoldfastError, NotAdoptedError, SessionDeletedError, SessionExistsError


def test_an_error_takes_its_fields_by_position_and_by_name() -> None:
    error = SessionExistsError("s-1", difference="it runs another program")
    assert (error.session_id, error.difference) == ("s-1", "it runs another program")
    assert SessionExistsError("s-1").difference is None


def test_fields_of_the_base_come_first() -> None:
    error = SessionDeletedError("s-1", 7)
    assert (error.session_id, error.deleted_at) == ("s-1", 7)


@pytest.mark.parametrize(
    ("given", "named"),
    [((), {}), (("s-1", None, "more"), {}), (("s-1",), {"session_id": "s-2"}), (("s-1",), {"unknown": 1})],
    ids=["missing", "too many", "twice", "unknown"],
)
def test_fields_that_do_not_fit_are_refused(given: tuple[str, ...], named: dict[str, object]) -> None:
    kind: type[HoldfastError] = SessionExistsError
    with pytest.raises(TypeError, match="SessionExistsError takes session_id, difference"):
        kind(*given, **named)


def test_an_error_shows_its_fields() -> None:
    error = NotAdoptedError("s-1", "answered", "paused", "imported")
    assert repr(error) == "NotAdoptedError(session_id='s-1', record='answered', expected='paused', actual='imported')"


def test_an_error_without_fields_has_a_text() -> None:
    assert str(HoldfastError("it broke")) == "it broke"
    assert HoldfastError("it broke").to_json() == {"kind": "error", "error": "it broke"}


def test_an_error_without_fields_takes_no_names() -> None:
    with pytest.raises(TypeError, match="HoldfastError takes a text"):
        HoldfastError("it broke", session_id="s-1")
