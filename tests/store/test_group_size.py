"""How many writes are a group before the turn of the event loop ends."""

from __future__ import annotations

from holdfast.store.group_size import GroupSize
from holdfast.store.limits import GROUP_COMMIT_MAX


def test_a_crowd_that_came_at_once_is_written_in_halves_from_then_on() -> None:
    size = GroupSize(8)
    size.begun(200)
    assert size.early == 100
    for _ in range(5):  # one half is begun while nothing else is under way, the other beside it
        size.begun(100)
        size.begun(200)
        assert size.early == 100


def test_a_crowd_that_has_gone_is_forgotten_after_two_groups() -> None:
    size = GroupSize(8)
    size.begun(200)
    size.begun(10)
    size.begun(10)
    assert size.early == 8


def test_a_group_is_never_smaller_than_is_worth_it_nor_larger_than_a_transaction() -> None:
    size = GroupSize(8)
    assert size.early == 8
    size.begun(3)
    assert size.early == 8
    size.begun(100 * GROUP_COMMIT_MAX)
    assert size.early == GROUP_COMMIT_MAX
