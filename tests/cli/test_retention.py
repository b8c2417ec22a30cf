"""How much is kept: `gc --max-size`, and the table `retention` of the project's file."""

from __future__ import annotations

import pytest

from holdfast.cli.retention import RetentionRules, parse_size, retention_in_config
from tests.cli.helpers import Home


def ended(home: Home, count: int) -> list[str]:
    sessions = [home.start("greet") for _ in range(count)]
    for session in sessions:
        home.ok("answer", session, "Ada")
    return sessions


def test_gc_deletes_what_has_ended_while_the_store_is_too_large(home: Home) -> None:
    waiting, *over = home.start("greet"), *ended(home, 2)
    assert home.json("gc", "--max-size", "1G") == {"expired": [], "deleted": []}
    assert home.json("gc", "--max-size", "1K") == {"expired": [], "deleted": over}
    assert [each["session_id"] for each in home.json("sessions")["sessions"]] == [waiting]


def test_gc_keeps_what_the_projects_file_says_unless_an_option_says_otherwise(home: Home) -> None:
    over = ended(home, 1)
    (home.folder / "holdfast.toml").write_text('[retention]\nkeep_days = 30\nmax_size = "1K"\n')
    assert home.json("gc", "--keep-days", "30")["deleted"] == []
    assert home.json("gc")["deleted"] == over


def test_what_the_projects_file_says_about_retention_is_read(home: Home) -> None:
    (home.folder / "holdfast.toml").write_text('[retention]\nidle_days = 7\nkeep_days = 0.5\nmax_size = "2G"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home.folder)
        assert retention_in_config() == RetentionRules(7, 0.5, 2_000_000_000)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("retention = 5", "has to be a table"),
        ("[retention]\nkeep_days = -1", "has to be a number of days"),
        ('[retention]\nkeep_days = "long"', "has to be a number of days"),
        ('[retention]\nmax_size = "large"', "has to be a size"),
        ("[retention]\nmax_days = 5", "has no 'max_days'"),
    ],
)
def test_what_the_projects_file_may_not_say_about_retention_is_refused_with_the_reason(
    home: Home, said: str, why: str
) -> None:
    (home.folder / "holdfast.toml").write_text(said)
    refused = home.call("gc")
    assert refused.exit_code == 2
    assert why in refused.stderr


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("500", 500),
        ("1K", 1_000),
        ("1.5 MB", 1_500_000),
        ("20g", 20_000_000_000),
        ("many", None),
        ("-1", None),
    ],
)
def test_sizes_are_read(text: str, size: int | None) -> None:
    assert parse_size(text) == size
