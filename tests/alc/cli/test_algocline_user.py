"""What someone who comes from algocline does first on the command line."""

from __future__ import annotations

from pathlib import Path

from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.lock import init
from tests.cli.helpers import Home


def test_a_project_with_files_of_algocline_gets_its_project_file_too(tmp_path: Path) -> None:
    (tmp_path / "alc.lock").write_text("version = 1\n")
    assert init(PackageDirectories(tmp_path)).created == str(tmp_path / "alc.toml")


def test_a_package_that_is_run_without_a_task_says_itself_what_it_needs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    package = tmp_path / "packages" / "picky"
    package.mkdir(parents=True)
    (package / "init.lua").write_text(
        "return { run = function(ctx) return ctx.task or error('ctx.task is required', 0) end }"
    )
    told = home.process("run", "picky", "--json", env={"HOLDFAST_PACKAGES_PATH": str(tmp_path / "packages")})
    assert "ctx.task is required" in told.stdout, told.stdout + told.stderr


def test_null_stays_a_value_where_that_is_asked_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    code = "return { type(ctx.none), ctx.none == alc.null }"
    (tmp_path / "kinds.lua").write_text(code)
    run = ("run", str(tmp_path / "kinds.lua"), "--ctx", '{"none": null}')
    assert home.json(*run)["result"] == ["nil", False]
    assert home.json(*run, "--null", "userdata")["result"] == ["userdata", True]
