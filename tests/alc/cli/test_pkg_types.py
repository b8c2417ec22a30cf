"""`pkg types`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from holdfast.alc.cli.pkg_types import types_command
from holdfast.alc.lua.stubs import render_stubs


def test_the_stubs_are_printed() -> None:
    done = CliRunner().invoke(types_command, [])
    assert done.exit_code == 0, done.output
    assert done.output == render_stubs()


def test_the_stubs_are_written_and_the_editor_settings_name_their_directory(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "types"
    done = CliRunner().invoke(types_command, ["--output", str(directory), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert Path(told["path"]).read_text() == render_stubs()
    assert told["luarc"]["workspace.library"] == [str(directory)]
    assert [each.name for each in directory.iterdir()] == ["alc.d.lua"]


def test_writing_the_stubs_again_replaces_them(tmp_path: Path) -> None:
    (tmp_path / "alc.d.lua").write_text("old")
    done = CliRunner().invoke(types_command, ["--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "alc.d.lua").read_text() == render_stubs()
    settings = json.loads(done.output.partition(":\n")[2])
    assert settings == {"runtime.version": "Lua 5.4", "workspace.library": [str(tmp_path)]}


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = CliRunner().invoke(types_command, ["--output", str(tmp_path / "taken")])
    assert done.exit_code == 2
    assert "is a file" in done.output
