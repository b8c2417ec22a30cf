"""The extension for Claude Desktop and the plugin for Claude Code: what they start is in them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from bundles.build import build, semver


def test_what_the_manifests_start_is_in_the_bundles(tmp_path: Path) -> None:
    wheel = tmp_path / "holdfast-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    bundle, marketplace = build(wheel, tmp_path / "dist")
    with zipfile.ZipFile(bundle) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert {manifest["server"]["entry_point"], "pyproject.toml", wheel.name} <= set(archive.namelist())
        assert wheel.name in archive.read("pyproject.toml").decode()
    listed = json.loads((marketplace / ".claude-plugin" / "marketplace.json").read_text())["plugins"]
    own = marketplace / listed[0]["source"]
    server = json.loads((own / ".mcp.json").read_text())["mcpServers"]["holdfast"]
    assert server["args"][1] == f"${{CLAUDE_PLUGIN_ROOT}}/{wheel.name}[mcp]"
    assert (own / wheel.name).exists()
    assert json.loads((own / ".claude-plugin" / "plugin.json").read_text())["version"] == manifest["version"]


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    wheel = tmp_path / "holdfast-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    first, second = (build(wheel, tmp_path / name)[0] for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_versions_are_as_hosts_want_them() -> None:
    assert [semver(each) for each in ("1.2.3", "0.2.0.dev0")] == ["1.2.3", "0.2.0-dev0"]
