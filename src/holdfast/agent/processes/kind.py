"""What the kinds `process` and `trigger` share: any OS process runs their programs, and their terms are their `ctx`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from holdfast.core.ids import query_id
from holdfast.core.queries import Query
from holdfast.core.records import Program
from holdfast.core.state import Session
from holdfast.core.values import Json
from holdfast.programs.contract import Fold
from holdfast.programs.errors import ProgramNotFoundError

Terms = TypeVar("Terms")


class BackgroundKind:
    """A kind whose programs are part of Holdfast, and hold nothing: drivers do the work."""

    def knows(self, program: Program) -> bool:
        return True

    async def admit(self, program: Program) -> None:
        return

    def close(self) -> None:
        return


class BackgroundInstance:
    """One such program."""

    def __init__(self, fold: Fold, terms: object) -> None:
        """Raises `ProgramNotFoundError` if the session has no terms that can be read."""
        self.fold = fold
        if terms is None:
            raise ProgramNotFoundError(fold.session.program_kind, "its session was started without readable terms")

    def close(self) -> None:
        return


def numbered(session: Session, queries: Sequence[Query]) -> list[Query]:
    """The queries under the next ids of the session."""
    first = session.queries_asked
    return [msgspec.structs.replace(query, id=query_id(first + n)) for n, query in enumerate(queries)]


def readable_terms(ctx: Json, of: type[Terms]) -> Terms | None:
    """The terms in the `ctx` of a session; None if they cannot be read."""
    try:
        return msgspec.convert(ctx, of)
    except msgspec.ValidationError:
        return None
