"""`alc_migrate`: an older project, and an algocline directory, taken over; the work is in `holdfast.alc.migration`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from holdfast.alc.mcp.directories import directories_of
from holdfast.alc.mcp.package_list import cleaned
from holdfast.alc.migration.algocline_home import adopt_home
from holdfast.alc.migration.project_lock import migrate_lock
from holdfast.serve.mcp.directories import on_files
from holdfast.serve.mcp.tools import McpCall, McpTool, McpToolError, Object, Params, ProjectRoot


class MigrateParams(Params):
    project_root: ProjectRoot = None


async def alc_migrate(call: McpCall, params: MigrateParams) -> Object:
    where = directories_of(params.project_root)
    named = os.environ.get("HOLDFAST_PROJECT_ROOT") or os.environ.get("ALC_PROJECT_ROOT")
    # Not the nearest project around: an old one has no file by which it could be found.
    root = where.project or Path(named or os.getcwd())
    result: Object = await on_files(migrate_lock, root)
    try:
        report = await adopt_home(call.holdfast.store, where)
    except OSError as error:
        raise McpToolError(f"{error.filename or 'algocline'}: {error.strerror or error}") from None
    if report.count and "migrated" not in result:
        note = f"adopted {report.source}, which is unchanged"
        result = {"migrated": True, "alc_toml": None, "backup": None, "note": note}
    clean: Object = cleaned({**result, "adopted": msgspec.to_builtins(report)})
    return clean


TOOLS: list[McpTool[Any]] = [
    McpTool(
        "alc_migrate",
        "Take over an algocline directory",
        "Adopt what algocline has kept for this user (packages, cards, scenarios, evaluations, state and logs), and"
        " turn an old alc.lock of the project into alc.toml, keeping a backup. What is read is never changed, what is"
        " there already stays, and the same again adopts nothing; `adopted` says what became of everything.",
        MigrateParams,
        alc_migrate,
        idempotent=True,
        output={
            "type": "object",
            "properties": {
                "status": {"type": "string"},
                "migrated": {"type": "boolean"},
                "adopted": {"type": "object"},
            },
            "required": ["adopted"],
        },
    ),
]
