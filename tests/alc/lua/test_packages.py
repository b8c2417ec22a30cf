"""Which file a `require` means: roots, projects, pins, and names that nobody should give."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.alc.lua.packages import (
    ModuleEscapeError,
    ModuleNameError,
    Roots,
    UnmetPinError,
    find_module,
    find_package,
    find_roots,
    list_packages,
)
from holdfast.programs.paths import home


class World:
    """A user's home, a project, and an environment that has nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.environ = {"HOME": str(folder / "home"), "HOLDFAST_HOME": str(folder / "own")}
        self.user = folder / "own" / "packages"
        self.theirs = folder / "home" / ".algocline" / "packages"

    def package(self, root: Path, name: str, version: str = "1.0.0", **files: str) -> Path:
        directory = root / name
        directory.mkdir(parents=True, exist_ok=True)
        meta = f'name = "{name.partition("@")[0]}", version = "{version}"'
        (directory / "init.lua").write_text(f"local M = {{}}\nM.meta = {{ {meta} }}\nreturn M\n")
        for file, text in files.items():
            (directory / f"{file}.lua").write_text(text)
        return directory

    def write(self, file: str, text: str) -> None:
        (self.project / file).write_text(text)

    def roots(self) -> Roots:
        return find_roots(self.project, self.environ)

    def module(self, name: str) -> Path | None:
        return find_module(self.roots(), name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- homes and roots ---------------------------------------------------------------------------


def test_one_rule_says_where_home_is_for_whoever_asks(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert home(environ) == tmp_path / ".local/share/holdfast"
    environ["XDG_DATA_HOME"] = str(tmp_path / "data")
    assert home(environ) == tmp_path / "data/holdfast"
    environ["ALC_HOME"] = "~/alc"
    assert home(environ) == tmp_path / "alc"
    assert find_roots(tmp_path, environ).roots == [str(tmp_path / "alc/packages")]
    environ["HOLDFAST_HOME"] = str(tmp_path / "own")
    assert home(environ) == tmp_path / "own"
    assert find_roots(tmp_path, environ).roots == [str(tmp_path / "own/packages"), str(tmp_path / "alc/packages")]


def test_home_is_looked_up_when_it_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "one"))
    assert home() == tmp_path / "one"
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "two"))
    assert home() == tmp_path / "two"


def test_a_directory_of_packages_that_is_made_later_is_found_without_a_restart(world: World) -> None:
    roots = world.roots()
    assert find_module(roots, "late") is None
    world.package(world.user, "late")
    assert find_module(roots, "late") == world.user / "late/init.lua"


def test_every_place_is_searched_in_its_order(world: World) -> None:
    places = [world.theirs, world.user, world.folder / "alc", world.folder / "own_path"]
    world.environ["HOLDFAST_PACKAGES_PATH"] = str(world.folder / "own_path")
    world.environ["ALC_PACKAGES_PATH"] = os.pathsep.join(["", str(world.folder / "alc"), ""])
    for place in places:
        world.package(place, "p")
        assert world.module("p") == place / "p/init.lua"
    world.write("alc.lock", 'version = 1\n[[package]]\nname = "p"\n[package.source]\ntype = "path"\npath = "locked"\n')
    world.package(world.project, "locked")
    assert world.module("p") == world.project / "locked/init.lua"
    world.write("alc.toml", '[packages]\np = { path = "named" }\n')
    world.package(world.project, "named")
    assert world.module("p") == world.project / "named/init.lua"
    world.write("holdfast.toml", '[packages]\np = { path = "ours" }\n')
    world.package(world.project, "ours")
    assert world.module("p") == world.project / "ours/init.lua"
    world.write("alc.local.toml", '[packages.p]\npath = "variant"\n')
    world.package(world.project, "variant")
    assert world.module("p") == world.project / "variant/init.lua"
    world.write("holdfast.local.toml", f'[packages]\np = {{ path = "{world.folder}/elsewhere" }}\n')
    world.package(world.folder, "elsewhere")
    assert world.module("p") == world.folder / "elsewhere/init.lua"


def test_a_file_comes_before_a_directory_and_the_first_root_wins_even_if_broken(world: World) -> None:
    world.environ["ALC_PACKAGES_PATH"] = str(world.folder / "first")
    first = world.package(world.folder / "first", "a", b="this is not Lua (")
    (first / "b").mkdir()
    (first / "b" / "init.lua").write_text("return {}")
    world.package(world.user, "a", b="return {}")
    assert world.module("a.b") == first / "b.lua"
    (first / "b.lua").unlink()
    assert world.module("a.b") == first / "b/init.lua"


def test_a_variant_brings_its_submodules(world: World) -> None:
    variant = world.package(world.project / "dev", "p", sub="return 1")
    world.package(world.user, "p", sub="return 2", only="return 3")
    world.write("holdfast.local.toml", '[packages]\np = { path = "dev/p" }\n')
    assert world.module("p.sub") == variant / "sub.lua"
    assert world.module("p.only") == world.user / "p/only.lua"


def test_a_path_may_mean_the_directory_around_the_package(world: World) -> None:
    world.package(world.project / "lua", "p", sub="return 1")
    world.write("alc.toml", '[packages]\np = { path = "lua" }\n')
    assert world.module("p.sub") == world.project / "lua/p/sub.lua"
    world.package(world.project / "lua", "q")
    world.write("alc.local.toml", '[packages]\nq = { path = "lua" }\n')
    assert world.module("q") == world.project / "lua/q/init.lua"


# --- projects ----------------------------------------------------------------------------------


def test_the_project_is_the_argument_then_the_environment_then_the_nearest_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("argument", "ours", "theirs", "around"):
        (world.folder / name / "inner").mkdir(parents=True)
    (world.folder / "around" / "alc.toml").write_text("")
    monkeypatch.chdir(world.folder / "around" / "inner")
    environ = dict(world.environ)
    assert find_roots(None, environ).project == str(world.folder / "around")
    environ["ALC_PROJECT_ROOT"] = str(world.folder / "theirs")
    assert find_roots(None, environ).project == str(world.folder / "theirs")
    environ["HOLDFAST_PROJECT_ROOT"] = str(world.folder / "ours")
    assert find_roots(None, environ).project == str(world.folder / "ours")
    assert find_roots(world.folder / "argument", environ).project == str(world.folder / "argument")


def test_a_project_root_that_is_no_directory_is_passed_over_with_a_warning(world: World) -> None:
    world.environ["HOLDFAST_PROJECT_ROOT"] = str(world.folder / "nowhere")
    world.environ["ALC_PROJECT_ROOT"] = str(world.project)
    roots = find_roots(None, world.environ)
    assert roots.project == str(world.project)
    assert "HOLDFAST_PROJECT_ROOT" in roots.warnings[0]
    assert "nowhere is not a directory" in roots.warnings[0]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("alc.toml", b"[packages", "alc.toml: "),
        ("alc.toml", b"\xff\xfe", "not text in UTF-8"),
        ("alc.toml", b"packages = 3", "[packages] is not a table"),
        ("alc.toml", b"[packages]\np = 3", "a version or a table"),
        ("alc.toml", b"[packages]\np = {}", "no version, no path and no git"),
        ("alc.toml", b"[packages]\np = { path = 3 }", "path has to be text"),
        ("alc.toml", b'[packages]\n"../p" = "*"', "a name has"),
        ("holdfast.lock", b"version = 2", "lock version 2 is not 1"),
        ("holdfast.lock", b"version = 1\npackage = [3]", "it is not a table"),
        ("holdfast.lock", b'version = 1\n[[package]]\nname = "a/b"', "a name has"),
        ("holdfast.lock", b'version = 1\n[[package]]\nname = "a"\nsource = 3', "its source is not a table"),
        ("holdfast.lock", b'version = 1\n[[package]]\nname = "a"\n[package.source]\ntype = "path"', "but it has none"),
        ("alc.lock", b'version = 1\n[[package]]\nname = "a"\nversion = 1', "version has to be text"),
        ("alc.local.toml", b'[packages]\np = "1.0"', "only directories"),
        ("alc.local.toml", b'[packages]\np = { path = "gone" }', "gone is not a directory"),
    ],
)
def test_a_broken_project_file_is_a_warning_with_its_name_and_the_reason(
    world: World, file: str, content: bytes, said: str
) -> None:
    world.package(world.user, "p")
    (world.project / file).write_bytes(content)
    roots = world.roots()
    assert find_module(roots, "p") == world.user / "p/init.lua"
    assert any(str(world.project / file) in warning and said in warning for warning in roots.warnings), roots.warnings


def test_a_project_file_that_is_a_directory_is_a_warning(world: World) -> None:
    (world.project / "alc.lock").mkdir()
    assert any("alc.lock" in warning for warning in world.roots().warnings)


# --- pins --------------------------------------------------------------------------------------


def test_a_pin_takes_the_directory_of_its_version(world: World) -> None:
    world.package(world.user, "p", "2.0.0", sub="return 2")
    pinned = world.package(world.user, "p@1.0.0", "1.0.0", sub="return 1")
    assert world.module("p") == world.user / "p/init.lua"
    world.write("alc.toml", '[packages]\np = "1.0.0"\n')
    assert world.module("p") == pinned / "init.lua"
    assert world.module("p.sub") == pinned / "sub.lua"
    assert world.module("p.absent") is None


def test_a_pin_finds_the_version_behind_another_one(world: World) -> None:
    world.environ["ALC_PACKAGES_PATH"] = str(world.folder / "path")
    world.package(world.folder / "path", "p", "2.0.0")
    world.package(world.user, "p", "1.0.0", sub="return 1")
    world.write("holdfast.toml", '[packages]\np = "1.0.0"\n')
    assert world.module("p.sub") == world.user / "p/sub.lua"


@pytest.mark.parametrize("module", ["p", "p.sub"])
def test_a_pin_that_nothing_meets_is_an_error_that_says_what_there_is(world: World, module: str) -> None:
    world.package(world.user, "p", "2.0.0", sub="return 2")
    world.package(world.user, "other")
    world.write("holdfast.toml", '[packages]\np = "1.0.0"\n')
    with pytest.raises(UnmetPinError) as raised:
        world.module(module)
    for part in ("package 'p'", "holdfast.toml", "1.0.0", "2.0.0", str(world.user / "p")):
        assert part in str(raised.value)
    assert world.module("other") == world.user / "other/init.lua"


def test_a_copy_under_the_wrong_version_does_not_meet_a_pin(world: World) -> None:
    world.package(world.user, "p@1.0.0", "2.0.0")
    world.write("alc.toml", '[packages]\np = "1.0.0"\n')
    with pytest.raises(UnmetPinError, match=r"2\.0\.0"):
        world.module("p")


@pytest.mark.parametrize("version", ["^1.0", ">=1", "../x", "1.0/2"])
def test_a_pin_that_is_no_version_is_explained(world: World, version: str) -> None:
    world.package(world.user, "p")
    world.write("alc.toml", f'[packages]\np = "{version}"\n')
    with pytest.raises(UnmetPinError, match="exact version"):
        world.module("p")


def test_any_version_is_what_a_star_asks_for(world: World) -> None:
    world.package(world.user, "p", "7.0.0")
    world.write("alc.toml", '[packages]\np = "*"\n')
    assert world.module("p") == world.user / "p/init.lua"


def test_a_version_beside_a_path_is_enforced(world: World) -> None:
    world.package(world.project, "p", "2.0.0")
    world.write("alc.toml", '[packages]\np = { path = "p", version = "2.0.0" }\n')
    assert world.module("p") == world.project / "p/init.lua"
    world.write("alc.toml", '[packages]\np = { path = "p", version = "1.0.0" }\n')
    with pytest.raises(UnmetPinError, match=r"asks for version 1\.0\.0"):
        world.module("p")


def test_a_path_without_a_package_is_an_error_when_it_is_required(world: World) -> None:
    world.package(world.user, "p")
    world.write("alc.toml", '[packages]\np = { path = "gone" }\n')
    with pytest.raises(UnmetPinError, match=r"no init\.lua"):
        world.module("p")


def test_a_path_in_the_lock_lets_require_find_the_package(world: World) -> None:
    locked = world.package(world.project / "packages", "head_agent", sub="return 1")
    world.write(
        "alc.lock",
        'version = 1\n[[package]]\nname = "head_agent"\nversion = "1.0.0"\n'
        '[package.source]\ntype = "path"\npath = "packages/head_agent"\n',
    )
    assert world.module("head_agent") == locked / "init.lua"
    assert world.module("head_agent.sub") == locked / "sub.lua"
    assert world.module("sub") == locked / "sub.lua"


def test_a_git_entry_is_used_once_its_commit_is_installed(world: World) -> None:
    commit = "0123456789ab" + "c" * 28
    world.write("holdfast.toml", '[packages]\np = { git = "https://x/y", rev = "main" }\n')
    world.package(world.user, "p")
    with pytest.raises(UnmetPinError, match="not locked yet"):
        world.module("p")
    world.write(
        "holdfast.lock",
        'version = 1\n[[package]]\nname = "p"\n'
        f'[package.source]\ntype = "git"\nurl = "https://x/y"\nrev = "{commit}"\n',
    )
    with pytest.raises(UnmetPinError, match="not installed"):
        world.module("p")
    installed = world.package(world.user, "p@0123456789ab")
    assert world.module("p") == installed / "init.lua"


def test_a_variant_wins_over_a_pin_that_is_not_met(world: World) -> None:
    world.package(world.project, "dev")
    world.write("alc.toml", '[packages]\np = "9.9.9"\n')
    world.write("alc.local.toml", '[packages]\np = { path = "dev" }\n')
    assert world.module("p") == world.project / "dev/init.lua"


# --- names and links ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.",
        "../a",
        "a/b",
        "a\\b",
        "a\0b",
        "/etc/passwd",
        "a\nb",
        "c:a",
        "a" * 256,
        "\ud800",
    ],
)
def test_a_module_name_that_could_leave_a_root_is_refused(world: World, name: str) -> None:
    with pytest.raises(ModuleNameError):
        world.module(name)


@pytest.mark.parametrize("name", ["a.b", "a b", "", "@", "-x", "a@1.0"])
def test_a_package_name_that_is_none_is_refused(world: World, name: str) -> None:
    with pytest.raises(ModuleNameError):
        find_package(world.roots(), name)


@pytest.mark.parametrize("variable", ["ALC_PKG_STRICT", "HOLDFAST_PKG_STRICT"])
@pytest.mark.parametrize("value", ["1", "true", "TRUE"])
def test_a_link_out_of_its_root_is_refused_only_where_that_is_asked_for(
    world: World, variable: str, value: str
) -> None:
    target = world.package(world.folder / "elsewhere", "p")
    world.package(world.user, "inside", sub="return 1")
    (world.user / "p").symlink_to(target)
    (world.user / "alias").symlink_to(world.user / "inside")
    assert world.module("p") == world.user / "p/init.lua"
    world.environ[variable] = value
    assert world.module("alias.sub") == world.user / "alias/sub.lua"
    with pytest.raises(ModuleEscapeError, match="leaves"):
        world.module("p")
    world.environ[variable] = "0"
    assert world.module("p") == world.user / "p/init.lua"


# --- packages ----------------------------------------------------------------------------------


def test_a_package_is_found_with_its_metadata_and_origin(world: World) -> None:
    world.package(world.user, "p", "3.1.4")
    (world.user / "single.lua").write_text("return {}")
    package = find_package(world.roots(), "p")
    assert package is not None
    assert (package.version, package.origin, package.directory) == ("3.1.4", "user", str(world.user / "p"))
    assert package.meta is not None
    assert package.meta.name == "p"
    assert find_package(world.roots(), "single") is None
    assert find_package(world.roots(), "absent") is None


def test_the_list_marks_what_another_package_hides(world: World) -> None:
    world.environ["ALC_PACKAGES_PATH"] = str(world.folder / "path")
    world.package(world.folder / "path", "p", "2.0.0")
    world.package(world.user, "p", "1.0.0")
    world.package(world.user, "p@0.9.0", "0.9.0")
    world.package(world.theirs, "q")
    world.package(world.project / "v", "q", "5.0.0", inner="return {}")
    (world.project / "v" / "q" / "helper").mkdir()
    (world.project / "v" / "q" / "helper" / "init.lua").write_text("return {}")
    world.write("alc.local.toml", '[packages]\nq = { path = "v/q" }\n')
    (world.user / "not-a-package").mkdir()
    (world.user / ".staging-1").mkdir()
    listed = [(each.name, each.version, each.origin, each.active) for each in list_packages(world.roots())]
    assert listed == [
        ("p", "2.0.0", "path", True),
        ("p", "1.0.0", "user", False),
        ("p", "0.9.0", "user", False),
        ("q", "5.0.0", "variant", True),
        ("q", "1.0.0", "user", False),
    ]
    hidden = list_packages(world.roots())[1]
    assert hidden.overridden_by == str(world.folder / "path" / "p")


def test_the_list_shows_broken_links_and_unmet_pins(world: World) -> None:
    world.package(world.user, "p", "1.0.0")
    (world.user / "gone").symlink_to(world.folder / "nowhere")
    world.write("alc.toml", '[packages]\np = "2.0.0"\n')
    gone, pinned = list_packages(world.roots())
    assert (gone.name, gone.active, gone.link) == ("gone", False, str(world.folder / "nowhere"))
    assert "not there" in str(gone.error)
    assert not pinned.active
    assert "2.0.0" in str(pinned.error)


def test_the_list_does_not_run_the_packages(world: World) -> None:
    marker = world.folder / "ran"
    directory = world.package(world.user, "p")
    (directory / "init.lua").write_text(
        f'io.open("{marker}", "w"):write("x"):close() return {{ meta = {{ name = "p" }} }}'
    )
    meta = list_packages(world.roots())[0].meta
    assert meta is not None
    assert meta.name == "p"
    assert not marker.exists()
