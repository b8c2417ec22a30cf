"""The built files of the console: they are what the sources say, and need no Node and no other host."""

from __future__ import annotations

import json
import re
from pathlib import Path

from holdfast.serve.console.files import BUILT, built_from, console_files, console_page, is_page, sources_digest

WEB = Path(__file__).parents[2] / "web"


def test_the_committed_build_was_made_from_the_committed_sources() -> None:
    assert built_from() == sources_digest(WEB), "the sources in web/ have changed: run `make web`"


def test_every_file_that_the_document_names_is_there_below_any_root() -> None:
    for root in ("", "/tools/holdfast"):
        text = console_page(root).content.decode()
        named = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert named
        assert all(each.removeprefix(root) in console_files() for each in named)
        assert f'name="root" content="{root}"' in text


def test_no_file_names_another_host() -> None:
    harmless = ("http://www.w3.org/", "https://svelte.dev/e/")
    for path, file in console_files().items():
        if path.endswith((".js", ".css", ".svg")):
            found = re.findall(r"https?://[\w.-]+[^\"'`\s]*", file.content.decode())
            assert [each for each in found if not each.startswith(harmless)] == [], path
    assert "//" not in re.sub(r"<!doctype[^>]*>", "", console_page("").content.decode())


def test_themes_differ_in_colours_alone() -> None:
    """So that what is sound in one theme needs nothing but its colours checked in the other."""
    components = "".join(file.read_text() for file in WEB.glob("src/**/*.svelte"))
    styles = [file.read_text() for file in WEB.glob("src/**/*.css")] + re.findall(
        r"(?s)<style>(.*?)</style>", components
    )
    assert len(styles) > 20
    assert [each for each in styles if "prefers-color-scheme" in each] == []
    rules = re.findall(r"(?m)^.*data-theme.*$", "".join(styles))
    assert rules == [f':root[data-theme="{theme}"] {{ color-scheme: {theme}; }}' for theme in ("light", "dark")]


def test_paths_of_pages_are_known_and_nothing_else_is_a_page() -> None:
    assert all(map(is_page, ("/", "/inbox", "/s/chat-1", "/a/signed", "/compare", "/evals/e-1")))
    assert not any(map(is_page, ("", "/api/v1/sessions", "/metrics", "/etc/passwd", "s", "//evil.test")))


def test_versions_are_exact_and_no_lock_file_is_kept() -> None:
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert [name for name, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)] == []
    assert "package-lock=false" in (WEB / ".npmrc").read_text()


def test_licences_go_with_what_is_shipped() -> None:
    text = (BUILT / "licenses.txt").read_text()
    for name in ("svelte", "markdown-it", "diff", "@fontsource-variable/geist"):
        assert f"\n{name}\n" in f"\n{text}"
