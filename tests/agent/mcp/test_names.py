"""Names of tools: such as models take, each for one tool, whatever the order in which a server lists them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.mcp.names import public_names

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

names = st.lists(
    st.one_of(st.text(max_size=80), st.sampled_from(["a.b", "a b", "a_b", "llm", "x" * 90, ""])), unique=True
)


def test_a_name_that_models_take_is_kept_behind_the_prefix() -> None:
    assert public_names(["add", "get-all"], "srv_") == {"add": "srv_add", "get-all": "srv_get-all"}


def test_without_a_prefix_names_are_the_servers_own() -> None:
    assert public_names(["add"], "") == {"add": "add"}


def test_what_models_do_not_take_becomes_an_underscore() -> None:
    assert public_names(["files/read.all"], "") == {"files/read.all": "files_read_all"}


def test_names_that_become_the_same_are_told_apart_and_the_one_that_needs_no_change_keeps_its_name() -> None:
    found = public_names(["a.b", "a b", "a_b"], "")
    assert found["a_b"] == "a_b"
    assert found["a.b"].startswith("a_b_")
    assert found["a b"].startswith("a_b_")
    assert len(set(found.values())) == 3


def test_a_name_that_is_too_long_ends_with_a_hash_that_is_the_same_everywhere() -> None:
    found = public_names(["l" * 100], "srv_")
    assert found == {"l" * 100: f"srv_{'l' * 51}_19fd986f"}


def test_a_reserved_name_gets_a_hash() -> None:
    assert public_names(["llm"], "", ["llm"])["llm"].startswith("llm_")


def test_a_server_cannot_take_the_name_that_another_of_its_tools_would_get() -> None:
    taken = public_names(["a.b", "a b"], "")["a.b"]
    found = public_names(["a.b", "a b", taken], "")
    assert found[taken] == taken
    assert len(set(found.values())) == 3


@given(names, st.sampled_from(["", "srv_", "日本_"]), st.randoms())
def test_names_are_valid_and_unique_and_do_not_depend_on_the_order(own, prefix, random) -> None:  # type: ignore[no-untyped-def]
    found = public_names(own, prefix, ["llm"])
    assert set(found) == set(own)
    assert len(set(found.values())) == len(own)
    assert all(NAME.match(name) and name != "llm" for name in found.values())
    shuffled = list(own)
    random.shuffle(shuffled)
    assert public_names(shuffled, prefix, ["llm"]) == found
