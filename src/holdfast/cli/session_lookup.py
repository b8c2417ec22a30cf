"""Finding sessions by the beginning of their id, and the programs they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.errors import AmbiguousIdError, InputError

if TYPE_CHECKING:
    from holdfast.core.records import Program
    from holdfast.store import Store


async def find_session(store: Store, id_or_prefix: str) -> str:
    """The full id of a session, from its beginning with or without `s-`, also as a listing cuts it off (`s-7k2…`)."""
    from holdfast.core.errors import SessionDeletedError, SessionNotFoundError
    from holdfast.store.session_rows import SessionFilter

    id_or_prefix = id_or_prefix.removesuffix("…")
    if not id_or_prefix:
        raise InputError("the session id is empty; `holdfast sessions` lists sessions")
    try:
        await store.position(id_or_prefix)
    except SessionDeletedError:
        raise
    except SessionNotFoundError:
        pass
    else:
        return id_or_prefix
    found: list[str] = []
    for prefix in (id_or_prefix, f"s-{id_or_prefix}"):
        page = await store.sessions(SessionFilter(id_prefix=prefix))
        found += [row.session_id for row in page.rows] + page.damaged
    # A child's id begins with its parent's id: whoever types that beginning means the parent.
    tops = [each for each in found if not any(each.startswith(f"{other}.") for other in found)]
    match tops:
        case [only]:
            return only
        case []:
            raise SessionNotFoundError(id_or_prefix)
        case several:
            raise AmbiguousIdError(id_or_prefix, sorted(several))


async def find_process(store: Store, id_or_prefix: str) -> str:
    """The full id of a process, from its beginning. Raises `ProcessNotFoundError`."""
    from holdfast.agent.processes.errors import ProcessNotFoundError
    from holdfast.core.errors import SessionDeletedError, SessionNotFoundError

    try:
        return await find_session(store, id_or_prefix)
    except SessionDeletedError:
        raise
    except SessionNotFoundError:
        raise ProcessNotFoundError(id_or_prefix) from None


async def find_program_run_before(store: Store, name: str) -> Program | None:
    """The program of that name that the store ran last, or None if it ran none."""
    from holdfast.store.session_rows import SessionFilter

    for row in (await store.sessions(SessionFilter(program=name), limit=1)).rows:
        return await program_of(store, row.session_id)
    return None


async def program_of(store: Store, session_id: str) -> Program:
    """The program of a session."""
    from holdfast.core.records import StartedRecord

    first = (await store.read(session_id, limit=1))[0].record
    assert isinstance(first, StartedRecord)
    return first.program


async def check_runs_here(store: Store, session_id: str) -> None:
    """Raise `ProgramNotFoundError` if a session is stuck because this process cannot run its program."""
    from holdfast.programs.contract import CheckableKind
    from holdfast.programs.errors import ProgramNotFoundError
    from holdfast.programs.kinds import new_kind

    row = await store.session(session_id)
    program = await program_of(store, session_id)
    if row.summary.state != "running" or row.owner is not None:
        return
    kind = new_kind(program.kind)
    try:
        if isinstance(kind, CheckableKind):
            kind.check(program)
    except ProgramNotFoundError as error:
        why = f"{error.why}; the answers of session '{session_id}' are kept; resume it with `holdfast run --resume`"
        raise ProgramNotFoundError(error.program, why) from None
