"""`alc_pkg_scaffold` and `alc_pkg_test`: new packages, and specs that run in a process beside the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.alc.mcp.packages import TOOLS
from holdfast.engine.holdfast import Holdfast, open_holdfast
from holdfast.testing.patience import until
from tests.alc.mcp.user_packages import files_below, new_user, write_package, write_project
from tests.serve.calls import ERAS, Host, Told, host_of


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return new_user(monkeypatch, tmp_path)


@pytest.fixture
async def holdfast() -> AsyncIterator[Holdfast]:
    async with open_holdfast("memory:") as opened:
        yield opened


@pytest.fixture
async def host(holdfast: Holdfast, tmp_path: Path) -> AsyncIterator[Host]:
    async with host_of(holdfast, TOOLS, directories=[tmp_path]) as opened:
        yield opened


@pytest.fixture
async def trusting(holdfast: Holdfast, tmp_path: Path) -> AsyncIterator[Host]:
    """A host of a server whose operator lets specs run outside of the sandbox."""
    async with host_of(holdfast, TOOLS, directories=[tmp_path], trusts_specs=True) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path / "project")


@pytest.mark.parametrize("era", ERAS)
async def test_a_new_package_is_written_linked_and_tested(holdfast: Holdfast, tmp_path: Path, era: str) -> None:
    steps: list[tuple[float, float | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    async with host_of(holdfast, TOOLS, era) as host:
        told = await host.call(
            "alc_pkg_scaffold", name="mine", target_dir=str(tmp_path), category="debate", description='says "hi"'
        )
        init = tmp_path / "mine" / "init.lua"
        assert (told["status"], told["path"]) == ("ok", str(init))
        assert told["bytes_written"] == init.stat().st_size
        await host.call("alc_pkg_link", path=str(tmp_path / "mine"))
        [listed] = (await host.call("alc_pkg_list", fields=["category", "description"]))["packages"]
        assert listed == {"category": "debate", "description": 'says "hi"'}
        result = await host.client.call_tool("alc_pkg_test", {"pkg": "mine"}, progress_callback=heard)
        await asyncio.sleep(0.1)
    report = result.structured_content
    assert report is not None
    assert (report["passed"], report["failed"], report["pending"], report["total"]) == (3, 0, 0, 3)
    [file] = report["spec_files"]
    assert file["path"] == "mine/spec/mine_spec.lua"
    assert file["tests"] == []
    assert steps == [(1, 1)]


async def test_a_new_package_goes_into_the_servers_directory_by_default(host: Host, tmp_path: Path) -> None:
    told = await host.call("alc_pkg_scaffold", name="mine")
    assert told["path"] == str(tmp_path / "here" / "mine" / "init.lua")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": ""},
        {"name": "Upper"},
        {"name": "../evil"},
        {"name": "a" * 65},
        {"name": "string"},
        {"name": "taken"},
        {"name": 5},
        {"name": "good", "target_dir": "/nowhere"},
        {"name": "good", "target_dir": ""},
        {"name": "good", "target_dir": "a\x00b"},
        {"name": "good", "description": "x" * 3_000},
        {"name": "good", "category": ["x"]},
    ],
)
async def test_a_new_package_that_cannot_be_is_refused_and_nothing_is_written(
    host: Host, tmp_path: Path, arguments: Told
) -> None:
    (tmp_path / "here" / "taken").mkdir()
    before = files_below(tmp_path)
    assert await host.refusal("alc_pkg_scaffold", **arguments)
    assert files_below(tmp_path) == before


PASSES = "lust.it('works', function() end)"


async def test_a_test_that_fails_is_told_with_its_message(host: Host) -> None:
    code = (
        "lust.describe('sums', function()\n"
        "  lust.it('adds', function() lust.expect(1 + 1).to.equal(2) end)\n"
        "  lust.it('errs', function() lust.expect(1 + 1).to.equal(3) end)\n"
        "end)"
    )
    told = await host.call("alc_pkg_test", code=code)
    assert (told["passed"], told["failed"], told["total"]) == (1, 1, 2)
    [file] = told["spec_files"]
    [failed] = file["tests"]
    assert file["path"] == "inline.lua"
    assert "errs" in failed["name"]
    assert (failed["passed"], failed["pending"]) == (False, False)
    assert failed["error"]


async def test_specs_that_are_no_lua_are_one_failure(host: Host) -> None:
    told = await host.call("alc_pkg_test", code="this is not lua")
    assert (told["passed"], told["failed"]) == (0, 1)


async def test_the_servers_working_directory_stays_while_specs_have_theirs(trusting: Host, tmp_path: Path) -> None:
    package = write_package(tmp_path / "work", "reads")
    (package / "spec").mkdir()
    (package / "spec" / "reads_spec.lua").write_text(
        "lust.it('opens by a relative path', function()\n"
        "  for _ = 1, 3e7 do end\n"
        "  assert(io.open('reads/init.lua'))\nend)"
    )
    await trusting.call("alc_pkg_link", path=str(package))
    here = os.getcwd()
    running = asyncio.create_task(trusting.call("alc_pkg_test", pkg="reads"))
    while not running.done():
        assert os.getcwd() == here
        await asyncio.sleep(0.01)
    assert (await running)["passed"] == 1


async def test_one_spec_file_of_a_package_can_require_it(host: Host, tmp_path: Path) -> None:
    package = write_package(tmp_path / "work", "one", helper="return 5")
    (package / "spec").mkdir()
    file = package / "spec" / "one_spec.lua"
    file.write_text("lust.it('requires', function() lust.expect(require('one.helper')).to.equal(5) end)")
    told = await host.call("alc_pkg_test", code_file=str(file))
    assert told["passed"] == 1
    assert told["spec_files"][0]["path"] == "one/spec/one_spec.lua"


async def test_search_paths_and_the_project_are_where_specs_require_from(
    host: Host, tmp_path: Path, project: Path
) -> None:
    write_package(tmp_path / "more", "extra")
    await host.call(
        "alc_pkg_link",
        path=str(write_package(tmp_path / "work", "varied")),
        scope="variant",
        project_root=str(project),
    )
    code = "lust.it('requires', function() require('extra') require('varied') end)"
    paths = [str(tmp_path / "more")]
    assert (await host.call("alc_pkg_test", code=code, search_paths=paths))["failed"] == 1
    told = await host.call("alc_pkg_test", code=code, search_paths=paths, project_root=str(project))
    assert (told["passed"], told["failed"]) == (1, 0)


async def test_spec_files_are_chosen_by_directory_and_by_name(host: Host, tmp_path: Path) -> None:
    package = write_package(tmp_path / "work", "many")
    for path in ("spec/a_spec.lua", "spec/b_spec.lua", "tests/test_c.lua", "checks/d_spec.lua"):
        (package / path).parent.mkdir(exist_ok=True)
        (package / path).write_text(PASSES)
    await host.call("alc_pkg_link", path=str(package))

    async def ran(**arguments: Any) -> list[str]:
        told = await host.call("alc_pkg_test", pkg="many", **arguments)
        return [Path(file["path"]).name for file in told["spec_files"]]

    assert await ran() == ["a_spec.lua", "b_spec.lua", "test_c.lua"]
    assert await ran(filter="a") == ["a_spec.lua"]
    assert await ran(spec_dir="checks") == ["d_spec.lua"]
    assert "no spec files found" in await host.refusal("alc_pkg_test", pkg="many", filter="spec")
    assert "no spec files found" in await host.refusal("alc_pkg_test", pkg="many", spec_dir="nowhere")


async def test_specs_of_a_host_are_confined_unless_the_operator_trusts_them(
    host: Host, trusting: Host, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    escapes = [
        f"assert(io.open('{mark}', 'w'))",
        f"os.execute('touch {mark}')",
        f"io.popen('touch {mark}'):close()",
        "assert(io.open('/etc/passwd'))",
        "assert(os.getenv('PATH'))",
        "debug.getinfo(1)",
        "package.searchpath('x', '/etc/?')",
    ]
    code = "\n".join(f"lust.it('{number}', function() {text} end)" for number, text in enumerate(escapes))
    code += "\nlust.it('harmless', function() lust.expect(1 + 1).to.equal(2) end)"
    told = await host.call("alc_pkg_test", code=code)
    assert (told["passed"], told["failed"]) == (1, len(escapes))
    assert not mark.exists()
    assert (await trusting.call("alc_pkg_test", code=code))["failed"] == 0
    assert mark.exists()


async def test_live_specs_need_the_trust_of_the_operator(host: Host) -> None:
    assert "--trust-specs" in await host.refusal("alc_pkg_test", code="", live=True)


async def test_live_specs_go_through_the_engine(trusting: Host) -> None:
    code = "lust.it('asks', function() with_alc({ llm = function() return 'yes' end }, function()\n"
    code += "lust.expect(alc.llm('well?')).to.equal('yes') end) end)"
    told = await trusting.call("alc_pkg_test", code=code, live=True)
    assert (told["passed"], told["live"]) == (1, {"pauses": 1, "llm_calls": 1})


@pytest.mark.executes  # its children are found by their command lines
async def test_specs_are_stopped_when_the_host_does_not_wait_any_more(holdfast: Holdfast, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = f"lust.it('waits', function() io.open('{mark}', 'w'):close() while true do end end)"
    async with host_of(holdfast, TOOLS, directories=[tmp_path], trusts_specs=True) as host:
        running = asyncio.create_task(host.client.call_tool("alc_pkg_test", {"code": code}))
        await until(mark.exists)
        assert children() != []
        running.cancel()
        await until(lambda: children() == [])


def children() -> list[str]:
    """The processes of this one that run specs."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if b"spec_child" in command and parent == str(os.getpid()):
                found.append(folder.name)
    return found


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "pkg_test: provide exactly one of pkg, code_file, code"),
        ({"pkg": "one", "code": PASSES}, "pkg_test: provide exactly one of pkg, code_file, code"),
        ({"pkg": "one", "code_file": "x.lua", "code": ""}, "pkg_test: provide exactly one of pkg, code_file, code"),
        ({"pkg": "nobody"}, "pkg_test: package 'nobody' not found"),
        ({"pkg": "../one"}, "invalid module name"),
        ({"pkg": "x" * 100_000}, "invalid module name"),
        ({"pkg": "one"}, "pkg_test: no spec files found"),
        ({"pkg": "one", "spec_dir": "../.."}, "leads out of the package"),
        ({"pkg": "one", "spec_dir": "/etc"}, "leads out of the package"),
        ({"code_file": "/nowhere.lua"}, "`code_file`: '/nowhere.lua' is in no directory that files may be read from"),
        ({"code_file": "/etc/passwd"}, "`code_file`: '/etc/passwd' is in no directory that files may be read from"),
        ({"code_file": "a\x00.lua"}, "`code_file`: embedded null byte"),
        ({"code": "x" * (5 << 20)}, "larger than"),
        ({"code": 5}, "`$.code`"),
        ({"code": PASSES, "search_paths": ["/nowhere"]}, "there is no directory '/nowhere'"),
        ({"code": PASSES, "search_paths": "/tmp"}, "`$.search_paths`"),
        ({"code": PASSES, "project_root": "/nowhere"}, "there is no directory '/nowhere'"),
        ({"code": PASSES, "live": "yes"}, "`$.live`"),
    ],
)
async def test_specs_that_cannot_be_run_are_refused(host: Host, home: Path, arguments: Told, why: str) -> None:
    write_package(home / "packages", "one")
    refusal = await host.refusal("alc_pkg_test", **arguments)
    assert why in refusal
    assert len(refusal) < 1_000
