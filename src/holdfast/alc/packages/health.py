"""`doctor` and `repair`: what is wrong with the packages, and what can be repaired from their sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.alc.lua.meta import read_source, requires_of
from holdfast.alc.lua.packages import BUILT_IN, Package, Roots, find_module, list_packages
from holdfast.alc.lua.project import read_project
from holdfast.alc.packages.directories import PackageDirectories
from holdfast.alc.packages.errors import PackageNameError, PackageNotFoundError
from holdfast.alc.packages.install import Options, place, stage_source
from holdfast.alc.packages.records import InstallEntry, Records
from holdfast.alc.packages.sources import SourceAddress
from holdfast.alc.packages.tree import checksum, clear_stale, staging
from holdfast.core.errors import HoldfastError
from holdfast.programs.names import invalid_name_reason

KINDS = (
    "incomplete_pkg",
    "installed_missing",
    "symlink_dangling",
    "path_missing",
    "missing_init",
    "checksum_mismatch",
    "lock_mismatch",
    "unmet_pin",
    "shadowed",
)
"""Every kind of finding. Only `shadowed` is no damage."""


class HealthFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something about one package that needs attention."""

    name: str
    kind: str
    reason: str
    suggestion: str
    missing_subs: list[str] = []


class HealthReport(msgspec.Struct):
    """What was found."""

    healthy: list[str] = []
    findings: list[HealthFinding] = []
    warnings: list[str] = []

    @property
    def ok(self) -> bool:
        return all(each.kind == "shadowed" for each in self.findings)

    def of(self, kind: str) -> list[HealthFinding]:
        return [each for each in self.findings if each.kind == kind]

    def to_json(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "healthy": self.healthy,
            **{kind: [msgspec.to_builtins(each) for each in self.of(kind)] for kind in KINDS},
            "warnings": self.warnings,
        }


class Repair(msgspec.Struct, frozen=True):
    """What was done, or why nothing was, about one package."""

    name: str
    why: str


class RepairReport(msgspec.Struct):
    """What was repaired."""

    repaired: list[Repair] = []
    skipped: list[Repair] = []
    """Could be repaired, but only with `force`."""
    unrepairable: list[Repair] = []
    failed: list[Repair] = []

    @property
    def ok(self) -> bool:
        return not self.unrepairable and not self.failed and not self.skipped


def doctor(where: PackageDirectories, name: str | None = None) -> HealthReport:
    """Check every package, or one: its files, what it requires, its checksum, and the project's pins."""
    roots, records = where.roots(), Records(where.home)
    report = HealthReport(warnings=[*roots.warnings, *records.warnings])
    report.findings += _project_findings(where, roots)
    report.findings += _recorded_but_gone(where, records)
    report.findings += _without_init(where, records)
    packages = list_packages(roots)
    for package in packages:
        report.findings += _package_findings(package, roots, where, records)
    if name is not None:
        _check_known(name, packages, report)
        report.findings = [each for each in report.findings if each.name.partition("@")[0] == name]
        packages = [each for each in packages if each.name == name]
    ill = {each.name for each in report.findings if each.kind != "shadowed"}
    report.healthy = sorted({each.name for each in packages} - ill)
    return report


def repair(where: PackageDirectories, name: str | None = None, *, force: bool = False) -> RepairReport:
    """Repair what can be repaired: packages that are missing or incomplete are installed again from their sources.

    A package that was changed after its install is only put back with `force`.
    """
    where.packages.mkdir(parents=True, exist_ok=True)
    clear_stale(where.packages)
    with Records.changing(where.home):
        pass  # settles what a crash left open
    report = RepairReport()
    seen: set[str] = set()
    for finding in doctor(where, name).findings:
        if finding.kind == "shadowed" or finding.name in seen:
            continue
        seen.add(finding.name)
        entry = Records(where.home).get(finding.name)
        again = finding.kind in ("incomplete_pkg", "installed_missing", "missing_init", "checksum_mismatch")
        source = None if entry is None else _source_of(entry)
        if not again or entry is None or source is None:
            report.unrepairable.append(Repair(finding.name, f"{finding.reason}; {finding.suggestion}"))
        elif finding.kind == "checksum_mismatch" and not force:
            report.skipped.append(Repair(finding.name, f"{finding.reason}; --force puts the original back"))
        else:
            _install_again(where, finding, entry, source, report)
    return report


def _install_again(
    where: PackageDirectories, finding: HealthFinding, entry: InstallEntry, source: SourceAddress, report: RepairReport
) -> None:
    package = finding.name.partition("@")[0]
    try:
        with staging(where.packages) as stage:
            found = stage_source(source, stage / "source", where, Options())
            alone = found.mode.endswith("single")
            staged = next((each for each in found.staged if alone or each.name == package), None)
            if staged is None:
                raise PackageNotFoundError(package, f"it is no longer in {source.given}")
            if entry.source.type == "git" and entry.checksum not in (None, staged.checksum):
                raise PackageNotFoundError(package, f"{source.given} no longer has what was installed from it")
            with Records.changing(where.home) as records:
                place(where.packages, [staged], records, as_name=finding.name)
    except (HoldfastError, OSError) as error:
        report.failed.append(Repair(finding.name, str(error)))
    else:
        report.repaired.append(Repair(finding.name, f"{finding.reason}; installed again from {entry.source}"))


def _source_of(entry: InstallEntry) -> SourceAddress | None:
    source = entry.source
    if source.type == "git" and source.url:
        return SourceAddress(str(source), url=source.url, rev=source.rev)
    if source.type == "path" and source.path:
        return SourceAddress(source.path, path=source.path)
    return None


def _check_known(name: str, packages: list[Package], report: HealthReport) -> None:
    why = invalid_name_reason(name)
    if why is not None:
        raise PackageNameError(name, why)
    known = {each.name for each in packages} | {each.name.partition("@")[0] for each in report.findings}
    if name not in known:
        raise PackageNotFoundError(name, "it is neither installed nor named by the project")


# --- findings ----------------------------------------------------------------------------------


def _project_findings(where: PackageDirectories, roots: Roots) -> Iterator[HealthFinding]:
    files = read_project(where.root)
    for entry in (*files.local.values(), *files.wanted.values()):
        if entry.path is not None and not os.path.isdir(entry.path):
            reason = f"{entry.file} says it is in {entry.path}, which is not there"
            yield HealthFinding(entry.name, "path_missing", reason, f"correct the path in {entry.file}")
    for locked in files.locked.values():
        named = files.wanted.get(locked.name)
        if locked.path is not None and (named is None or named.path is None) and not os.path.isdir(locked.path):
            reason = f"{locked.file} says it is in {locked.path}, which is not there"
            yield HealthFinding(locked.name, "path_missing", reason, "run `holdfast pkg update`")
        if locked.checksum is not None and locked.name not in roots.variants and locked.name not in roots.unmet:
            file = find_module(roots, locked.name)
            if file is not None and checksum(file.parent.resolve()) != locked.checksum:
                reason = f"{file.parent} is not what {locked.file} has the checksum of"
                advice = (
                    "`holdfast pkg update` locks what is there now; `pkg install` of the former revision brings it back"
                )
                yield HealthFinding(locked.name, "lock_mismatch", reason, advice)
    for name, why in roots.unmet.items():
        yield HealthFinding(name, "unmet_pin", why, "run `holdfast pkg update`, or install that version")


def _recorded_but_gone(where: PackageDirectories, records: Records) -> Iterator[HealthFinding]:
    for name in records.names():
        if not os.path.lexists(where.packages / name):
            reason = f"installed.json says it is installed, but {where.packages / name} is not there"
            yield HealthFinding(name, "installed_missing", reason, "`holdfast pkg repair` installs it again")


def _without_init(where: PackageDirectories, records: Records) -> Iterator[HealthFinding]:
    if not where.packages.is_dir():
        return
    for each in sorted(where.packages.iterdir()):
        whole = each.is_symlink() or (each / "init.lua").is_file()
        if each.name.startswith(".") or not each.is_dir() or whole:
            continue
        known = records.get(each.name) is not None
        advice = "`holdfast pkg repair` installs it again" if known else f"remove {each}"
        yield HealthFinding(each.name, "missing_init", f"there is no init.lua in {each}", advice)


def _package_findings(
    package: Package, roots: Roots, where: PackageDirectories, records: Records
) -> Iterator[HealthFinding]:
    directory = Path(package.directory)
    if package.overridden_by is not None:
        reason = f"{directory} is hidden by {package.overridden_by}"
        if "@" not in directory.name:  # other versions lie there to be hidden
            yield HealthFinding(package.name, "shadowed", reason, "remove one of them, if that is not meant")
    if package.link is not None and not directory.exists():
        advice = f"link it again, or `holdfast pkg unlink {package.name}`"
        yield HealthFinding(
            package.name, "symlink_dangling", f"{directory} leads to {package.link}: nothing there", advice
        )
        return
    missing = missing_modules(package, roots)
    if missing:
        reason = f"in {directory}: what it requires is not there: {', '.join(missing)}"
        subs = [each for each in missing if each.startswith(f"{package.name}.")]
        advice = "`holdfast pkg repair` installs it again" if subs else "install the packages that it requires"
        yield HealthFinding(package.name, "incomplete_pkg", reason, advice, subs)
    entry = records.get(directory.name) if directory.parent == where.packages and package.link is None else None
    if entry is not None and entry.checksum is not None and checksum(directory) != entry.checksum:
        reason = f"{directory} was changed after it was installed"
        advice = f"`holdfast pkg repair --force {package.name}` puts the original back"
        yield HealthFinding(directory.name, "checksum_mismatch", reason, advice)


def missing_modules(package: Package, roots: Roots) -> list[str]:
    """What a package requires when it is loaded, and of its own modules at any time, that cannot be found."""
    # As if this directory were the one of that name: a copy elsewhere must not lend it a module.
    alone = msgspec.structs.replace(
        roots,
        pinned={**roots.pinned, package.name: package.directory},
        variants={name: directory for name, directory in roots.variants.items() if name != package.name},
        unmet={name: why for name, why in roots.unmet.items() if name != package.name},
    )
    missing: dict[str, None] = {}
    files, seen = [Path(package.directory) / "init.lua"], set[Path]()
    while files:
        file = files.pop()
        seen.add(file)
        for required in requires_of(read_source(file) or ""):
            own = required.name.partition(".")[0] == package.name
            if (
                required.name in BUILT_IN
                or required.name.partition(".")[0] in BUILT_IN
                or not (own or required.at_load)
            ):
                continue
            try:
                found = find_module(alone, required.name)
            except HoldfastError:
                continue  # an unmet pin is a finding of its own
            if found is None:
                missing[required.name] = None
            elif own and found not in seen:
                files.append(found)
    return list(missing)
