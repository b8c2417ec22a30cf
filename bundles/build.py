"""`make bundles`: an extension for Claude Desktop (`.mcpb`), and a plugin for Claude Code, in `dist/`.

Both carry the wheel, and start the server with `uv`, which brings Python and what the wheel needs: neither has to be
installed. They are checked with the hosts' own tools from npm, if there is npm: `mcpb`, and `claude plugin validate`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TOOLS = ("@anthropic-ai/mcpb@2", "@anthropic-ai/claude-code@2")
NPM_S = 600
"""Seconds for the tools from npm: they have 200 MB."""

SKILL = """\
---
name: holdfast
description: Run reasoning strategies (self-consistency, tree of thoughts, verification, panels, ranking) as durable \
sessions. Use it where one answer is not enough, to check, compare, vote, refine or plan.
---

Find a strategy with the tool `strategies`, start it with `run`, and answer what it asks with `answer` until it is
completed. Its questions are for you: answer each one on its own, as if you had not seen the others. A session that was
left is found with `sessions` and resumed with `show` and `answer`.
"""


def project() -> dict[str, Any]:
    """What pyproject.toml says about the package."""
    said: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return said


def semver(version: str) -> str:
    """A version of Python as hosts want it: `0.2.0.dev0` is `0.2.0-dev0`."""
    numbers = version.split(".")
    return ".".join(numbers[:3]) + ("-" + ".".join(numbers[3:]) if numbers[3:] else "")


def about() -> dict[str, Any]:
    """What both manifests say."""
    said = project()
    return {
        "name": "holdfast",
        "version": semver(said["version"]),
        "description": "Durable reasoning strategies on your own model: they ask, you answer, nothing is lost.",
        "author": {"name": said["authors"][0]["name"]},
        "license": said["license"],
    }


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def extension(folder: Path, wheel: Path) -> None:
    """The files of the extension for Claude Desktop."""
    folder.mkdir()
    shutil.copy(wheel, folder)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "holdfast-extension"\nversion = "{project()["version"]}"\n'
        f'requires-python = "{project()["requires-python"]}"\ndependencies = ["holdfast[mcp]"]\n\n'
        f'[tool.uv.sources]\nholdfast = {{ path = "{wheel.name}" }}\n',
        encoding="utf-8",
    )
    (folder / "server.py").write_text(
        'import sys\n\nfrom holdfast.cli import main\n\nsys.argv[1:] = ["mcp"]\nmain()\n', encoding="utf-8"
    )
    write_json(
        folder / "manifest.json",
        {
            "manifest_version": "0.4",
            **about(),
            "display_name": "Holdfast",
            "keywords": project()["keywords"],
            "server": {
                "type": "uv",
                "entry_point": "server.py",
                "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "server.py"]},
            },
            "tools_generated": True,
            "prompts_generated": True,
            "compatibility": {"platforms": ["linux"], "runtimes": {"python": project()["requires-python"]}},
        },
    )


def plugin(folder: Path, wheel: Path) -> None:
    """The files of a marketplace with the plugin for Claude Code."""
    own = folder / "holdfast"
    write_json(
        folder / ".claude-plugin" / "marketplace.json",
        {
            "name": "holdfast",
            "owner": about()["author"],
            "metadata": {"description": about()["description"]},
            "plugins": [{"name": "holdfast", "source": "./holdfast", "description": about()["description"]}],
        },
    )
    write_json(own / ".claude-plugin" / "plugin.json", about())
    start = ["--from", f"${{CLAUDE_PLUGIN_ROOT}}/{wheel.name}[mcp]", "holdfast", "mcp"]
    write_json(own / ".mcp.json", {"mcpServers": {"holdfast": {"command": "uvx", "args": start}}})
    skill = own / "skills" / "holdfast" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL, encoding="utf-8")
    shutil.copy(wheel, own)


def packed(folder: Path, to: Path) -> None:
    """A folder as an archive whose bytes depend on its contents alone."""
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = zipfile.ZipInfo(str(file.relative_to(folder)), (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, file.read_bytes())


def validate(modules: Path, bundle: Path, marketplace: Path) -> None:
    """Have the hosts' own tools look at the results; they print what they find, and fail for errors."""
    bin = modules / ".bin"
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run([bin / "mcpb", "unpack", bundle, unpacked], check=True, timeout=NPM_S, capture_output=True)
        subprocess.run([bin / "mcpb", "validate", f"{unpacked}/manifest.json"], check=True, timeout=NPM_S)
    for what in (marketplace, marketplace / "holdfast"):
        subprocess.run([bin / "claude", "plugin", "validate", what], check=True, timeout=NPM_S)


def tools(folder: Path) -> Path | None:
    """The tools from npm, installed into a folder; None if there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    if not (folder / "node_modules" / ".bin" / "claude").exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder), *TOOLS]
        subprocess.run(install, check=True, timeout=NPM_S)
    return folder / "node_modules"


def build_wheel(to: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(to), str(ROOT)], check=True
    )
    return next(to.glob("holdfast-*.whl"))


def build(wheel: Path, dist: Path) -> tuple[Path, Path]:
    """Both of them, from a wheel: the extension, and the folder of the marketplace."""
    dist.mkdir(exist_ok=True)
    bundle, marketplace = dist / f"holdfast-{about()['version']}.mcpb", dist / "claude-code"
    shutil.rmtree(marketplace, ignore_errors=True)
    plugin(marketplace, wheel)
    with tempfile.TemporaryDirectory() as made:
        extension(Path(made) / "extension", wheel)
        packed(Path(made) / "extension", bundle)
    return bundle, marketplace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-check", action="store_true", help="do not fetch the hosts' tools, and check nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        bundle, marketplace = build(build_wheel(Path(made)), DIST)
    modules = None if options.no_check else tools(DIST / "tools")
    if modules is not None:
        validate(modules, bundle, marketplace)
    checked = "checked with the hosts' own tools" if modules is not None else "not checked: there is no npm"
    print(bundle.relative_to(ROOT))
    print(f"{marketplace.relative_to(ROOT)}: /plugin marketplace add ./dist/claude-code")
    print(checked)


if __name__ == "__main__":
    main()
