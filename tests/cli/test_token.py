"""`holdfast token`: tokens are made, listed and revoked, and their texts are shown once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.group import cli


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/h.db"


def test_a_token_is_made_listed_and_revoked(store: str) -> None:
    def run(*args: str) -> object:
        done = CliRunner().invoke(cli, ["token", *args, "--store", store, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    made = run("add", "ann", "--scope", "sessions:read", "--days", "2")
    assert isinstance(made, dict)
    assert made["token"].startswith(f"hf_{made['id']}_")
    listed = run("list")
    assert isinstance(listed, list)
    assert [(each["name"], each["scopes"]) for each in listed] == [("ann", ["sessions:read"])]
    assert made["token"] not in json.dumps(listed)
    run("remove", made["id"])
    assert run("list") == []


def test_a_token_that_is_not_there_is_named(store: str) -> None:
    CliRunner().invoke(cli, ["token", "add", "ann", "--scope", "admin", "--store", store])
    done = CliRunner().invoke(cli, ["token", "remove", "abc", "--store", store])
    assert (done.exit_code, "no token 'abc'" in done.output) == (2, True)
