"""Which sessions a request speaks of: the filters that listings, counts, costs and bulk operations share."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import InvalidValueError
from holdfast.core.state import State
from holdfast.serve.http.endpoint import Parameters
from holdfast.serve.http.limits import MAX_PAGE_ROWS
from holdfast.serve.http.tokens import Principal
from holdfast.store.session_rows import SessionFilter


class FilterParameters(Parameters, frozen=True, kw_only=True):
    """Which sessions; a condition that is left out does not restrict."""

    state: list[State] = msgspec.field(default_factory=list)
    program: str | None = None
    parent: str | None = None
    children: bool = False
    """Only sessions that have a parent."""
    forked_from: str | None = None
    service: list[str] = msgspec.field(default_factory=list)
    id_prefix: str | None = None
    label: list[str] = msgspec.field(default_factory=list)
    """Sessions that have all of these labels."""
    without_label: list[str] = msgspec.field(default_factory=list)
    """Sessions that have none of these labels."""
    q: str | None = None
    """A text that the id, the title, the program or the labels contain."""
    waiting_for: str | None = None
    asking: bool = False
    """Sessions with a question for a person or a host."""
    updated_before: int | None = None
    updated_after: int | None = None

    def session_filter(self, principal: Principal) -> SessionFilter | None:
        """The filter, narrowed to what a principal may see; None if that is nothing."""
        prefix = principal.narrowed(self.id_prefix or "")
        if prefix is None:
            return None
        return SessionFilter(
            states=self.state,
            program=self.program,
            parent=self.parent,
            children=self.children or None,
            forked_from=self.forked_from,
            services=self.service,
            id_prefix=prefix or None,
            labels=self.label,
            without_labels=self.without_label,
            text=self.q,
            waiting_for=self.waiting_for,
            asking=self.asking,
            updated_before=self.updated_before,
            updated_after=self.updated_after,
        )


def checked_limit(limit: int) -> int:
    """How many rows a page has. Raises `InvalidValueError`."""
    if not 1 <= limit <= MAX_PAGE_ROWS:
        raise InvalidValueError("limit", f"a page has 1 to {MAX_PAGE_ROWS:,} rows, got {limit}")
    return limit
