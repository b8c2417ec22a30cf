"""What an imported session would run, for whoever decides whether to adopt it."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.needs import Offers, missing_needs, step_needs
from holdfast.core.records import Program
from holdfast.core.state import Session
from holdfast.core.status import parse_pending_filter, pending_json
from holdfast.core.values import Json
from holdfast.programs.kinds import find_language
from holdfast.programs.language import ProgramText


class AdoptionReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an imported session is made of, and what its next step needs."""

    session_id: str
    state: str
    """`imported`; or what it is, if there is nothing to adopt."""
    adopted_state: str = ""
    """The state that it would be in: `running` if its program goes on at once, `paused` if it waits for answers."""
    imported_at: int = 0
    key: str | None = None
    """The public key that its file was signed with, if it was. Whose that is, only its name here says."""
    program_kind: str
    program: str
    source: str = ""
    """The code that the session brings along, if it does."""
    is_unconfined: bool = False
    """Whether it asks to run outside of the sandbox. Adopting it does not let it: that is up to each process."""
    service: str
    llm: str
    """Who answers its `llm` queries: `host`, `any`, or a model."""
    parent: str | None = None
    ctx: Json = None
    """What it was started with. The provider, the model and the tools of an agent are in its policy there."""
    needs: list[str] = []
    """What a process needs for its next step: service, program, provider, model, tools."""
    missing: list[str] = []
    """What of that this process does not have."""
    pending: list[dict[str, Any]] = []
    """The queries that it waits for, in full."""


def adoption_report(session: Session, offers: Offers) -> AdoptionReport:
    """What a session would run if it were adopted in a process with these offers."""
    started = session.started
    if started is None:
        raise ValueError(f"session '{session.id}' has not started")
    text, imported = _text_of(started.program), started.imported
    shown = parse_pending_filter("full")
    assert shown is not None
    return AdoptionReport(
        session_id=session.id,
        state=session.state,
        adopted_state=session.adopted_state or "",
        imported_at=imported.at if imported is not None else 0,
        key=imported.key if imported is not None else None,
        program_kind=started.program.kind,
        program=started.program.name,
        source=text.text,
        is_unconfined=text.is_unconfined,
        service=started.service,
        llm=session.llm,
        parent=started.parent.session_id if started.parent is not None else session.kind_fold.parent,
        ctx=started.ctx,
        needs=[str(need) for need in step_needs(session)],
        missing=[str(need) for need in missing_needs(session, offers)],
        pending=[pending_json(each, shown) for each in session.pending.values()],
    )


def _text_of(program: Program) -> ProgramText:
    """The code of a program for a person: in its language, or as it is recorded."""
    language = find_language(program.kind)
    try:
        return ProgramText(program.source or "") if language is None else language.text_of(program)
    except HoldfastError:  # it says that it is Lua, and is not
        return ProgramText(program.source or "")
