"""algocline's tools for packages and projects, by their names; the work is in `holdfast.alc.packages`."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from holdfast.alc.cards.tool import own_library
from holdfast.alc.hub.card_collection import install_bundled_cards
from holdfast.alc.mcp import package_list, package_tests
from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.mcp.package_list import cleaned
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.health import HealthFinding, HealthReport, RepairReport, doctor, repair
from holdfast.alc.packages.install import InstallReport, Options, Progress, install, packages_in
from holdfast.alc.packages.links import LinkReport, RemoveReport, link, remove, unlink
from holdfast.alc.packages.lock import init, update
from holdfast.alc.packages.project_files import family
from holdfast.alc.packages.records import Records
from holdfast.alc.packages.scaffold import scaffold
from holdfast.alc.packages.sources import SourceAddress, public_url
from holdfast.serve.mcp.directories import directory, on_files
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot, about

MAX_TEXT_CHARS = 2_000
"""Characters of a description or category: a few sentences, which lists show."""

Name: TypeAlias = Annotated[str, about("The package's name.")]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]


# --- install ---------------------------------------------------------------------------------------


class InstallParams(Params):
    url: Annotated[str, about("A git URL (URL@revision pins one) or a directory: one package, or several in it.")]
    name: Annotated[str | None, about("The name to install it under; for a single package only.")] = None
    force: Annotated[bool | None, about("Replace packages of the same name from elsewhere.")] = None
    project_root: ProjectRoot = None


async def alc_pkg_install(call: McpCall, params: InstallParams) -> Object:
    where = directories_of(params.project_root)
    async with _telling(call) as tell:
        options = Options(name=params.name, force=bool(params.force), protected=call.allowed.trusted, progress=tell)
        report: InstallReport = await on_files(install, where, [params.url], options)
    shown: Object = report.to_json()
    if shown["mode"] == "local_collection":
        shown["installed"] = [name for name in shown["installed"] if name not in shown["updated"]]
    if shown["mode"].endswith("collection"):
        # A collection's cards are not copied: they are records of this user's own runs.
        shown |= {"cards_installed": [], "scenarios_installed": report.scenarios.installed}
        shown["scenarios_failures"] = report.scenarios.failures
        linked = [each for each in shown["skipped"] if (where.packages / each).is_symlink()]
        shown["skipped_symlinks"] = linked
        # Those that its packages bring along are: they say what a package was measured to do.
        changed, library = [*shown["installed"], *shown["updated"]], own_library(call.holdfast.store)
        shown["cards_installed"] = await install_bundled_cards(library, where.packages, changed)
    return _clean(shown)


@contextlib.asynccontextmanager
async def _telling(call: McpCall) -> AsyncIterator[Callable[[Progress], None]]:
    """Report progress made in threads to the host: in order, and each step higher than the one before."""
    loop = asyncio.get_running_loop()
    said: asyncio.Queue[Progress | None] = asyncio.Queue()

    def say(progress: Progress) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens, and the work goes on
            loop.call_soon_threadsafe(said.put_nowait, progress)

    async def tell() -> None:
        step = 0
        while (progress := await said.get()) is not None:
            step += 1
            count = f" ({progress.done} of {progress.total})" if progress.total else ""
            await call.progress(step, None, f"{progress.stage} {public_url(progress.source)}{count}")

    telling = asyncio.create_task(tell())
    try:
        yield say
        said.put_nowait(None)
        await telling
    finally:
        telling.cancel()


# --- remove, link, unlink --------------------------------------------------------------------------


class RemoveParams(Params):
    name: Name
    project_root: ProjectRoot = None
    version: Annotated[str | None, about("Only this version.")] = None
    scope: Annotated[
        Literal["project", "global", "all"] | None,
        about("From the project's file and lock (the default), from the user's list of installed packages, or both."),
    ] = None
    delete_files: Annotated[bool, about("With scope global or all: delete the installed directory as well.")] = False


async def alc_pkg_remove(call: McpCall, params: RemoveParams) -> Object:
    where = directories_of(params.project_root)
    scope = params.scope or "project"
    if scope == "project" and where.root is None:
        raise McpToolError(
            f"alc.toml not found: cannot remove '{params.name[:80]}' without a project root."
            " Provide project_root or run from a project directory."
        )
    kept = not params.delete_files
    report: RemoveReport = await on_files(
        remove, where, params.name, scope=scope, version=params.version, keep_files=kept
    )
    shown: Object = msgspec.to_builtins(report)
    records = str(where.home / "installed.json")
    if scope == "all":
        shown["project_removed"] = any(each != records for each in report.changed)
        shown["global_removed"] = records in report.changed or bool(report.deleted)
        shown["project_note"] = None if shown["project_removed"] else "the project does not name it"
        shown["global_note"] = None if shown["global_removed"] else "it is not in the list of installed packages"
    elif scope == "global":
        shown["installed_json"] = records
    elif where.root is not None:
        own = family(where.root)
        shown |= {"alc_toml": str(where.root / f"{own}.toml"), "alc_lock": str(where.root / f"{own}.lock")}
    return _clean(shown)


class LinkParams(Params):
    path: Annotated[str, about("The directory: of one package, or of several.")]
    name: Annotated[str | None, about("The name of a single package.")] = None
    force: Annotated[bool | None, about("Replace an installed package of the same name; not for a variant.")] = None
    scope: Annotated[
        Literal["global", "variant"] | None,
        about("For the user, by a symbolic link (the default), or for this project, by its local file."),
    ] = None
    project_root: ProjectRoot = None


async def alc_pkg_link(call: McpCall, params: LinkParams) -> Object:
    where = directories_of(params.project_root)
    report = await on_files(_link, where, directory(params.path, "path"), params)
    shown: Object = msgspec.to_builtins(report)
    local = shown.pop("local_file", None)
    return _clean(shown if local is None else {**shown, "alc_local_toml": local})


def _link(where: PackageDirectories, path: Path, params: LinkParams) -> LinkReport:
    scope, force = params.scope or "global", bool(params.force)
    if scope == "global" and not force:
        # A link may be replaced by another: what it led to stays. Only a directory would be lost.
        places = [
            where.packages / name for name in packages_in(path, SourceAddress(str(path), path=str(path)), params.name)
        ]
        force = all(place.is_symlink() for place in places if os.path.lexists(place))
    return link(where, path, name=params.name, force=force, scope=scope)


class UnlinkParams(Params):
    name: Name
    project_root: ProjectRoot = None


async def alc_pkg_unlink(call: McpCall, params: UnlinkParams) -> Object:
    report = await on_files(unlink, directories_of(params.project_root), params.name)
    return _clean(msgspec.to_builtins(report))


# --- doctor, repair --------------------------------------------------------------------------------


class DoctorParams(Params):
    name: Annotated[str | None, about("Only this package.")] = None
    project_root: ProjectRoot = None


async def alc_pkg_doctor(call: McpCall, params: DoctorParams) -> Object:
    report: HealthReport = await on_files(doctor, directories_of(params.project_root), params.name)
    return _clean({**report.to_json(), "healthy": [{"name": name} for name in report.healthy]})


class RepairParams(Params):
    name: Annotated[str | None, about("Only this package.")] = None
    project_root: ProjectRoot = None
    force: Annotated[bool, about("Also put back the original of packages that were changed after install.")] = False


async def alc_pkg_repair(call: McpCall, params: RepairParams) -> Object:
    return _clean(await on_files(_repair, directories_of(params.project_root), params))


def _repair(where: PackageDirectories, params: RepairParams) -> Object:
    before = doctor(where, params.name)
    found: dict[str, HealthFinding] = {}
    for each in before.findings:
        if each.kind != "shadowed":
            found.setdefault(each.name, each)
    report: RepairReport = repair(where, params.name, force=params.force)
    records = Records(where.home)

    def repair_json(name: str, why: str, *keys: str) -> Object:
        finding, entry = found.get(name), records.get(name)
        known: Object = {
            "kind": finding.kind if finding else "unknown",
            "reason": why,
            "suggestion": finding.suggestion if finding else "",
            "action": "reinstall",
            "source": str(entry.source) if entry is not None else None,
        }
        return {"name": name, **{key: known[key] for key in keys}}

    return {
        "ok": report.ok,
        "repaired": [
            repair_json(each.name, each.why, "kind", "action", "source", "reason") for each in report.repaired
        ],
        "skipped": [
            *({"name": name, "reason": "healthy"} for name in before.healthy),
            *(repair_json(each.name, each.why, "kind", "reason", "suggestion") for each in report.skipped),
        ],
        "unrepairable": [
            repair_json(each.name, each.why, "kind", "reason", "suggestion") for each in report.unrepairable
        ],
        "failed": [repair_json(each.name, each.why, "kind", "reason") for each in report.failed],
    }


# --- scaffold, init, update ------------------------------------------------------------------------


class ScaffoldParams(Params):
    name: Annotated[str, about("Its name: 1 to 64 of a-z, 0-9 and '_', beginning with a letter.")]
    target_dir: Annotated[str | None, about("Where its directory is made; the server's directory if left out.")] = None
    category: Annotated[Text | None, about("Its category, as 'reasoning'.")] = None
    description: Annotated[Text | None, about("What it does, in a line.")] = None


async def alc_pkg_scaffold(call: McpCall, params: ScaffoldParams) -> Object:
    target = directory(params.target_dir if params.target_dir is not None else ".", "target_dir")
    report = await on_files(scaffold, params.name, target, category=params.category, description=params.description)
    made = Path(report.path)
    return _clean(
        {
            "status": report.status,
            "path": str(made / "init.lua"),
            "bytes_written": (made / "init.lua").stat().st_size,
            "directory": str(made),
            "files": report.files,
        }
    )


class ProjectParams(Params):
    project_root: ProjectRoot = None


async def alc_init(call: McpCall, params: ProjectParams) -> Object:
    around = os.environ.get("HOLDFAST_PROJECT_ROOT") or os.environ.get("ALC_PROJECT_ROOT") or "."
    named = params.project_root if params.project_root is not None else around
    return _clean(await on_files(_init, directories_of(named)))


def _init(where: PackageDirectories) -> Object:
    shown: Object = msgspec.to_builtins(init(where))
    return shown


async def alc_update(call: McpCall, params: ProjectParams) -> Object:
    return _clean((await on_files(update, directories_of(params.project_root))).to_json())


def _clean(shown: Any) -> Object:
    clean: Object = cleaned(shown)
    return clean


_NAMES: Object = {"type": "array", "items": {"type": "string"}}
_ROWS: Object = {"type": "array", "items": {"type": "object"}}


def _output(required: str, **properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": required.split()}


TOOLS: list[McpTool[Any]] = [
    package_list.TOOL,
    McpTool(
        "alc_pkg_install",
        "Install strategy packages",
        "Install Lua packages from a git URL or a local directory (one package, or a collection of them) for this"
        " user; a project, if there is one, gets them into its file and lock. All are put in place at once, or none."
        " `installed` and `updated` say what changed, `skipped` and `refused` what did not and `packages` why.",
        InstallParams,
        alc_pkg_install,
        destructive=True,
        open_world=True,
        output=_output("installed mode", installed=_NAMES, mode={"type": "string"}, skipped=_NAMES),
    ),
    McpTool(
        "alc_pkg_remove",
        "Remove a strategy package",
        "Take a package out of the project's file and lock (scope project), out of the user's list of installed"
        " packages (global), or both (all). Its files stay unless delete_files is set.",
        RemoveParams,
        alc_pkg_remove,
        destructive=True,
        output=_output("removed scope", removed={"type": "string"}, scope={"type": "string"}),
    ),
    McpTool(
        "alc_pkg_link",
        "Link a package in development",
        "Use the packages in a directory where they are, without a copy, so that changes count at the next run: for"
        " this user (scope global) or only for this project (scope variant). A link that has the name is replaced.",
        LinkParams,
        alc_pkg_link,
        idempotent=True,
        output=_output("linked mode targets scope", linked=_NAMES, mode={"type": "string"}, targets={"type": "object"}),
    ),
    McpTool(
        "alc_pkg_unlink",
        "Unlink a package",
        "Undo alc_pkg_link: remove the link, or the project's variant, of that name. What it led to stays.",
        UnlinkParams,
        alc_pkg_unlink,
        destructive=True,
        output=_output("unlinked", unlinked={"type": "string"}),
    ),
    McpTool(
        "alc_pkg_doctor",
        "Check strategy packages",
        "Look for what is wrong with the packages, or with one: missing files or modules, dangling links, changes after"
        " the install, pins that are not met. Each finding says why and what to do. Nothing is changed.",
        DoctorParams,
        alc_pkg_doctor,
        read_only=True,
        idempotent=True,
        output=_output(
            "healthy incomplete_pkg installed_missing symlink_dangling path_missing",
            healthy=_ROWS,
            ok={"type": "boolean"},
        ),
    ),
    McpTool(
        "alc_pkg_repair",
        "Repair strategy packages",
        "Install again what is missing or incomplete, from where it came. What cannot be put right is in"
        " `unrepairable` with a suggestion; what was tried in vain in `failed`.",
        RepairParams,
        alc_pkg_repair,
        destructive=True,
        open_world=True,
        output=_output(
            "repaired skipped unrepairable failed", repaired=_ROWS, skipped=_ROWS, unrepairable=_ROWS, failed=_ROWS
        ),
    ),
    McpTool(
        "alc_pkg_scaffold",
        "Make a new strategy package",
        "Write a new package with metadata, a `run` that asks the model once, and a spec: a start to edit. Test it with"
        " alc_pkg_test, use it with alc_pkg_link.",
        ScaffoldParams,
        alc_pkg_scaffold,
        output=_output("status path bytes_written", path={"type": "string"}, bytes_written={"type": "integer"}),
    ),
    package_tests.TOOL,
    McpTool(
        "alc_init",
        "Make a project",
        "Make a project file in a directory, in which packages can be pinned, and keep local files out of git. Fails"
        " where there is one.",
        ProjectParams,
        alc_init,
        output=_output("created gitignore_path gitignore_updated", created={"type": "string"}),
    ),
    McpTool(
        "alc_update",
        "Lock a project's packages",
        "Find every package that the project's file asks for, fetch what comes from git, and write the lock. What could"
        " not be found is in `errors`, and keeps its former place in the lock.",
        ProjectParams,
        alc_update,
        destructive=True,
        open_world=True,
        output=_output("resolved errors alc_lock", resolved={"type": "integer"}, errors=_NAMES),
    ),
]
