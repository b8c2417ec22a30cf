"""Sources that somebody else wrote: what would leave them, run, or use up the machine is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.alc.hub import source_tree
from holdfast.alc.hub.documents import write_below
from holdfast.alc.hub.index import index_of_tree, read_index
from holdfast.alc.hub.publication import DocumentOrder, dist, gendoc, reindex
from holdfast.alc.hub.remote import fetch_index, index_url
from holdfast.alc.hub.source_tree import SourceTree, opened
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import GitError, SourceError
from holdfast.alc.packages.git import fetch
from tests.alc.mcp.user_packages import Repository, files_below, new_user, write_package


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return new_user(monkeypatch, tmp_path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "init.lua").write_text('local M = {}\nM.meta = { name = "stolen" }\nreturn M\n')
    (tmp_path / "private" / "secret.txt").write_text("hunter2")
    return tmp_path / "private"


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    write_package(tmp_path / "collection", "good")
    return tmp_path / "collection"


ENVIRON = dict(os.environ)


# --- reading -----------------------------------------------------------------------------------------


def test_a_link_to_a_package_outside_is_not_indexed(collection: Path, secret: Path) -> None:
    (collection / "linked").symlink_to(secret)
    (collection / "half").mkdir()
    (collection / "half" / "init.lua").symlink_to(secret / "init.lua")
    with pytest.raises(SourceError, match="link"):
        index_of_tree(SourceTree(collection, "it"))
    (collection / "half" / "init.lua").unlink()
    assert [entry.name for entry in index_of_tree(SourceTree(collection, "it")).packages] == ["good"]


@pytest.mark.parametrize("path", [("..", "secret.txt"), ("../private/secret.txt",), ("",), (".",), ("a\0b",)])
def test_a_path_that_leaves_the_tree_is_refused(collection: Path, secret: Path, path: tuple[str, ...]) -> None:
    with pytest.raises(SourceError, match="not a file of it"):
        SourceTree(collection, "it").read(*path)


def test_a_file_behind_a_linked_directory_is_refused(collection: Path, secret: Path) -> None:
    (collection / "linked").symlink_to(secret)
    with pytest.raises(SourceError, match="behind a link"):
        SourceTree(collection, "it").read("linked", "secret.txt")


def test_a_pipe_and_a_huge_file_are_refused(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tree, "MAX_FILE_BYTES", 1024)
    (collection / "good" / "large.lua").write_bytes(b"x" * 1025)
    with pytest.raises(SourceError, match="more than"):
        SourceTree(collection, "it").read("good", "large.lua")
    os.mkfifo(collection / "good" / "pipe")
    with pytest.raises(SourceError, match="not a regular file"):
        SourceTree(collection, "it").read("good", "pipe")
    with pytest.raises(SourceError, match="neither a file nor a directory"), opened(str(collection), ENVIRON):
        pass


def test_too_many_files_and_too_deep_directories_are_refused(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_tree, "MAX_ENTRIES", 20)
    for number in range(30):
        (collection / f"file-{number}").touch()
    with pytest.raises(SourceError, match="more than 20 files"), opened(str(collection), ENVIRON):
        pass
    monkeypatch.setattr(source_tree, "MAX_ENTRIES", 1000)
    (collection / Path(*["d"] * (source_tree.MAX_DEPTH + 2))).mkdir(parents=True)
    with pytest.raises(SourceError, match="deep"), opened(str(collection), ENVIRON):
        pass


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"not json", "not one"),
        (b"[" * 100_000, "not one"),
        (b'{"schema_version": "other/v1"}', "schema"),
        (b'{"schema_version": "hub_index/v0", "packages": 3}', "not one"),
    ],
)
def test_an_index_that_is_none_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        read_index(data, "it")


def test_entries_of_an_index_that_are_no_packages_are_left_out() -> None:
    names = ["good", "../../etc", "a/b", "", "x" * 500]
    packages = ",".join(f'{{"name": "{name}", "description": "{"d" * 30_000}"}}' for name in names)
    index = read_index(f'{{"schema_version":"hub_index/v0","packages":[{packages}, 7]}}'.encode(), "it")
    assert [entry.name for entry in index.packages] == ["good"]
    assert len(index.packages[0].description) == 20_000


# --- git ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch /tmp/pwned",
        "-u./evil",
        "ext::sh -c 'touch pwned'",
        "fd::17/foo",
        "ssh://-oProxyCommand=touch/x",
        "file:///nowhere --upload-pack=x",
        "git://host/a\0b",
    ],
)
def test_git_options_and_commands_in_urls_are_refused(url: str, home: Path, tmp_path: Path) -> None:
    before = files_below(tmp_path)
    where = PackageDirectories()
    for work in (
        lambda: fetch_index(where, url),
        lambda: reindex(url, str(tmp_path / "index.json"), ENVIRON),
        lambda: gendoc(DocumentOrder(url, str(tmp_path / "out")), ENVIRON),
    ):
        with pytest.raises((SourceError, GitError)):
            work()
    assert files_below(tmp_path) == before


def test_hooks_and_submodules_of_a_repository_are_neither_run_nor_fetched(tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    write_package(inner.directory, "inside")
    inner.commit()
    outer = Repository(tmp_path / "outer")
    write_package(outer.directory, "good")
    (outer.directory / ".gitmodules").write_text(f'[submodule "sub"]\n\tpath = sub\n\turl = {inner.url}\n')
    outer.commit()
    hook = outer.directory / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    hook.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text("[submodule]\n\trecurse = true\n[init]\n\ttemplateDir = " + str(outer.directory / ".git") + "\n")
    fetch(outer.url, None, tmp_path / "checkout", {**os.environ, "GIT_CONFIG_GLOBAL": str(config)})
    assert (tmp_path / "checkout" / "good" / "init.lua").is_file()
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "checkout" / "sub").exists()


def test_links_in_a_repository_lead_nowhere(tmp_path: Path, secret: Path) -> None:
    repository = Repository(tmp_path / "repository")
    write_package(repository.directory, "good")
    (repository.directory / "evil").symlink_to(secret)
    (repository.directory / "hub_index.json").symlink_to(secret / "secret.txt")
    repository.commit()
    with pytest.raises(SourceError, match="link"):
        fetch_index(PackageDirectories(), repository.url)
    report = reindex(repository.url, None, ENVIRON)
    assert report.package_count == 1


# --- writing -----------------------------------------------------------------------------------------


def test_documents_are_not_written_through_links_of_the_source(collection: Path, secret: Path, tmp_path: Path) -> None:
    (collection / "docs").symlink_to(secret)
    with pytest.raises(SourceError, match="is a link"):
        gendoc(DocumentOrder(str(collection)), ENVIRON)
    (collection / "docs").unlink()
    (collection / "docs").mkdir()
    (collection / "docs" / "narrative").symlink_to(secret)
    with pytest.raises(SourceError, match="is a link"):
        gendoc(DocumentOrder(str(collection)), ENVIRON)
    (collection / "hub_index.json").symlink_to(secret / "secret.txt")
    (collection / "docs" / "narrative").unlink()
    with pytest.raises(SourceError, match="not replaced"):
        dist(DocumentOrder(str(collection)), None, ENVIRON)
    assert sorted(os.listdir(secret)) == ["init.lua", "secret.txt"]
    assert (secret / "secret.txt").read_text() == "hunter2"


def test_a_refused_file_keeps_all_others_from_being_written(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b.txt").symlink_to(tmp_path / "target")
    with pytest.raises(SourceError):
        write_below(tmp_path / "out", {"a.txt": b"a", "b.txt": b"b"})
    assert os.listdir(tmp_path / "out") == ["b.txt"]


def test_a_package_that_names_itself_like_a_path_is_documented_under_its_directory(tmp_path: Path) -> None:
    package = write_package(tmp_path / "collection", "good")
    package.joinpath("init.lua").write_text('local M = {}\nM.meta = { name = "../../evil" }\nreturn M\n')
    report = gendoc(DocumentOrder(str(tmp_path / "collection"), str(tmp_path / "out")), ENVIRON)
    assert "narrative/good.md" in report.files
    assert not (tmp_path / "evil.md").exists()


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("https://github.com/a/b", "https://raw.githubusercontent.com/a/b/main/hub_index.json"),
        ("https://github.com/a/b.git/", "https://raw.githubusercontent.com/a/b/main/hub_index.json"),
        ("https://example.org/index.json", "https://example.org/index.json"),
        ("https://example.org/repository", None),
        ("file:///etc/passwd.json", None),
        ("git@github.com:a/b", None),
    ],
)
def test_where_the_index_of_a_source_is(source: str, url: str | None) -> None:
    assert index_url(source) == url
