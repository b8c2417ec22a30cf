"""What listings ask of PostgreSQL beside single pages: the statements, and how their rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store.limits import TOTALLED_SESSIONS
from holdfast.store.overview import DAY_MS, SessionTotals, Trait, total_of
from holdfast.store.postgres.presence import GONE
from holdfast.store.postgres.statements import conditions, unescape
from holdfast.store.session_rows import SessionFilter

POSITIONS = "select id, position from holdfast.sessions where id = any($1::text[])"

_TRAITS: dict[Trait, str] = {
    "session": "id",
    "state": "state",
    "waiting_for": "waiting_for",
    "program": "program",
    "service": "service",
    "labels": "labels",
    "day": f"(created_at / {DAY_MS})::text",
    "owner": f"case when lease_until is not null and not {GONE.format(lock='lease_lock')} then owner end",
}


def totals_call(where: SessionFilter, by: Sequence[Trait], limit: int) -> tuple[str, list[Any]]:
    """The statement that sums sessions up, and its arguments."""
    texts, values = conditions(where, None)
    keys = [f"k{number}" for number in range(len(by))]
    traits = "".join(f", {_TRAITS[trait]} as {key}" for trait, key in zip(by, keys, strict=True))
    order = ", ".join(["cost desc", "tokens desc", "sessions desc", *(f'{key} collate "C"' for key in keys)])
    first = len(values) + 1
    statement = (
        f"with found as (select asks, tokens, cost{traits} from holdfast.sessions where {texts}"
        f" order by num desc limit ${first})"
        f" select {''.join(f'{key}, ' for key in keys)}count(*) as sessions, sum(asks) as asks, sum(tokens) as tokens,"
        " sum(cost) as cost, sum(count(*)) over () as all_sessions from found"
        f"{' group by ' + ', '.join(keys) if keys else ''} order by {order} limit ${first + 1}"
    )
    return statement, [*values, TOTALLED_SESSIONS + 1, limit]


def totals_of(by: Sequence[Trait], rows: Sequence[Any]) -> SessionTotals:
    """The sums from their rows."""
    found = [[unescape(each) if isinstance(each, str) else each for each in row] for row in rows if row["sessions"]]
    return SessionTotals([total_of(by, row) for row in found], bool(rows) and rows[0][-1] > TOTALLED_SESSIONS)
