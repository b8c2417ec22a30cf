"""An algocline directory: found as it is, adopted whole, and never changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.cards import CardBox
from holdfast.alc.lua.source import lua_code
from holdfast.alc.mcp.logs import TOOLS as LOG_TOOLS
from holdfast.alc.mcp.migration import TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from tests.alc.mcp.user_packages import new_user, write_package
from tests.serve.calls import Host, host_of

NOW = 1_750_000_000.0

LOG = {
    "session_id": "s-187-abc",
    "strategy": "cot",
    "task_hint": "What is…",
    "stats": {"llm_calls": 1},
    "transcript": [{"query_id": "q-0", "prompt": "What?", "system": None, "response": "That."}],
}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    home = new_user(monkeypatch, tmp_path)
    monkeypatch.setenv("ALC_HOME", str(tmp_path / "algocline"))
    monkeypatch.delenv("ALC_LOG_DIR", raising=False)
    return home


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """The directory of somebody who has used algocline for a while."""
    folder = tmp_path / "algocline"
    write_package(folder / "packages", "mine", "1.2.0", helper="return 1")
    (folder / "packages" / "linked").symlink_to(write_package(tmp_path / "work", "linked"))
    source = {"type": "git", "url": "https://example.org/mine", "rev": None}
    (folder / "installed.json").write_text(json.dumps({"packages": {"mine": {"source": source}}}))
    box = CardBox(folder / "cards")
    box.create({"pkg": {"name": "mine"}, "card_id": "c1", "stats": {"pass_rate": 0.5}}, now=NOW)
    box.write_samples("c1", [{"case": 1}])
    box.alias_set("best", "c1", now=NOW)
    files: dict[str, Any] = {
        "scenarios/sums.lua": "return { cases = {} }\n",
        "evals/mine_1.json": '{"status": "completed"}',
        "evals/mine_1.meta.json": '{"eval_id": "mine_1", "strategy": "mine"}',
        "state/shared.json": '{"count": 3, "a key": {"deep": [1, null]}}',
        "state/default.json": '{"seen": true}',
        "logs/s-187-abc.json": json.dumps(LOG),
        "logs/s-187-abc.meta.json": '{"session_id": "s-187-abc", "strategy": "cot", "rounds": 1}',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
async def holdfast() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast) -> AsyncIterator[Host]:
    async with host_of(holdfast, [*TOOLS, *LOG_TOOLS]) as opened:
        yield opened


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


async def result_of(holdfast: Holdfast, code: str, ctx: Any = None) -> Any:
    return (await holdfast.start(lua_code(code), ctx=ctx)).result


# --- adopted -----------------------------------------------------------------------------------------


async def test_everything_is_adopted_and_the_directory_stays_as_it_is(
    host: Host, holdfast: Holdfast, theirs: Path, home: Path, tmp_path: Path
) -> None:
    before = contents(theirs)
    told = await host.call("alc_migrate")
    assert contents(theirs) == before
    adopted = {name: each["adopted"] for name, each in told["adopted"].items() if isinstance(each, dict)}
    assert told["migrated"] is True
    assert adopted == {
        "packages": ["linked", "mine"],
        "cards": ["c1"],
        "aliases": ["best"],
        "scenarios": ["sums.lua"],
        "evals": ["mine_1.json", "mine_1.meta.json"],
        "state": ["default/seen", "shared/a key", "shared/count"],
        "logs": ["s-187-abc.json", "s-187-abc.meta.json"],
        "types": [],
    }
    assert (home / "packages" / "mine" / "helper.lua").read_text() == "return 1"
    assert (home / "packages" / "linked").resolve() == (tmp_path / "work" / "linked").resolve()
    record = json.loads((home / "installed.json").read_text())["packages"]["mine"]
    assert (record["source"]["url"], record["version"]) == ("https://example.org/mine", "1.2.0")
    assert (home / "scenarios" / "sums.lua").is_file()
    assert CardBox(home / "cards").read_samples("c1") == [{"case": 1}]


async def test_the_same_again_adopts_nothing(host: Host, theirs: Path, home: Path) -> None:
    await host.call("alc_migrate")
    before = contents(home)
    told = await host.call("alc_migrate")
    assert (told["status"], told["reason"]) == ("nothing to migrate", "alc.lock not found")
    assert all(not each["adopted"] for each in told["adopted"].values() if isinstance(each, dict))
    assert told["adopted"]["cards"]["present"] == ["c1"]
    assert contents(home) == before


async def test_what_is_there_already_is_not_replaced(host: Host, theirs: Path, home: Path) -> None:
    write_package(home / "packages", "mine", "9.9.9")
    (home / "scenarios").mkdir()
    (home / "scenarios" / "sums.lua").write_text("return 'own'")
    told = (await host.call("alc_migrate"))["adopted"]
    assert (told["packages"]["present"], told["scenarios"]["present"]) == (["mine"], ["sums.lua"])
    assert "9.9.9" in (home / "packages" / "mine" / "init.lua").read_text()
    assert (home / "scenarios" / "sums.lua").read_text() == "return 'own'"


async def test_damage_in_one_place_keeps_nothing_else_from_being_adopted(
    host: Host, theirs: Path, tmp_path: Path
) -> None:
    (theirs / "state" / "broken.json").write_text("{")
    (theirs / "packages" / "mine" / "evil.lua").symlink_to("/etc/passwd")
    (theirs / "scenarios" / "link.lua").symlink_to("/etc/passwd")
    told = (await host.call("alc_migrate"))["adopted"]
    assert "broken.json" in told["state"]["failed"][0]
    assert "leads out of the package" in told["packages"]["failed"][0]
    assert told["scenarios"]["adopted"] == ["sums.lua"]
    assert told["cards"]["adopted"] == ["c1"]


async def test_without_such_a_directory_there_is_nothing_to_migrate(host: Host) -> None:
    told = await host.call("alc_migrate")
    assert (told["status"], told["adopted"]["found"]) == ("nothing to migrate", False)


# --- found as it is ----------------------------------------------------------------------------------


async def test_state_of_a_named_namespace_is_found_without_migration(holdfast: Holdfast, theirs: Path) -> None:
    code = "return { alc.state.get('count'), alc.state.get('a key').deep[1], #alc.state.keys() }"
    assert await result_of(holdfast, code, {"_ns": "shared"}) == [3, 1, 2]
    assert await result_of(holdfast, "return alc.state.get('seen')") is True


async def test_state_that_was_changed_or_deleted_here_stays_so(holdfast: Holdfast, theirs: Path) -> None:
    code = "alc.state.delete('a key') return alc.state.incr('count')"
    assert await result_of(holdfast, code, {"_ns": "shared"}) == 4
    again = "return { alc.state.get('count'), alc.state.has('a key') }"
    assert await result_of(holdfast, again, {"_ns": "shared"}) == [4, False]
    assert json.loads((theirs / "state" / "shared.json").read_text())["count"] == 3


async def test_state_that_was_deleted_is_not_adopted_by_another_process(theirs: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_holdfast(url) as first:
        await result_of(first, "alc.state.delete('count')", {"_ns": "shared"})
    async with open_holdfast(url) as second, host_of(second, TOOLS) as host:
        assert await result_of(second, "return alc.state.has('count')", {"_ns": "shared"}) is False
        await host.call("alc_migrate")
        assert await result_of(second, "return alc.state.has('count')", {"_ns": "shared"}) is False


async def test_cards_and_packages_are_found_without_migration(holdfast: Holdfast, theirs: Path) -> None:
    code = """
        local card, best = alc.card.get('c1'), alc.card.get_by_alias('best')
        return { card.stats.pass_rate, best.card_id, require('mine').meta.name }
    """
    assert await result_of(holdfast, code) == [0.5, "c1", "mine"]


async def test_logs_of_algocline_are_listed_and_shown(host: Host, theirs: Path) -> None:
    [row] = (await host.call("alc_log_view"))["sessions"]
    assert (row["session_id"], row["strategy"]) == ("s-187-abc", "cot")
    shown = await host.call("alc_log_view", session_id="s-187-abc")
    assert shown["transcript"][0]["response"] == "That."
    short = await host.call("alc_log_view", session_id="s-187-abc", max_chars=100)
    assert (short["truncated"], short["original_rounds"]) == (True, 1)
    assert "s-other" in await host.refusal("alc_log_view", session_id="s-other")


# --- projects ----------------------------------------------------------------------------------------

OLD_LOCK = """version = 1
[[package]]
name = "mine"
linked_at = "2024-01-01T00:00:00Z"
[package.source]
type = "local_dir"
path = "/some/path/mine"
"""


async def test_an_old_lock_becomes_a_project_file_with_a_backup(host: Host, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "alc.lock").write_text(OLD_LOCK)
    told = await host.call("alc_migrate", project_root=str(project))
    assert (told["migrated"], told["alc_toml"]) == (True, str(project / "alc.toml"))
    assert told["backup"] == str(project / "alc.lock.bak")
    assert "alc_update" in told["note"]
    assert "/some/path/mine" in (project / "alc.toml").read_text()
    assert (project / "alc.lock.bak").read_text() == OLD_LOCK
    assert not (project / "alc.lock").exists()


async def test_a_new_lock_and_an_existing_project_file_are_left_alone(host: Host, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "alc.lock").write_text('version = 1\n[[package]]\nname = "x"\n[package.source]\ntype = "installed"\n')
    told = await host.call("alc_migrate", project_root=str(project))
    assert told["reason"] == "already new format or no local_dir entries"
    (project / "alc.lock").write_text(OLD_LOCK)
    (project / "alc.toml").write_text("[packages]\n")
    assert "alc.toml already exists" in await host.refusal("alc_migrate", project_root=str(project))
    assert (project / "alc.lock").read_text() == OLD_LOCK
