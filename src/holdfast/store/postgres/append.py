"""The fenced append: one statement that makes a commit, or a group of commits to different sessions.

The commits are its relation `c`, a row each. Of a single commit the columns of `c` are parameters, of a group they are
arrays; the rest of the statement is the same for both, and names the columns. `w` are the commits that were written,
with the number and the new epoch of their sessions. One that is refused is missing there, and nothing of it is done.

A statement has only the parts that its commits need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from holdfast.core.values import encode
from holdfast.store.checkpoints import StoredRow, seal_checkpoint, seal_segment
from holdfast.store.codec import pack_blob
from holdfast.store.commits import Commit, Snapshot
from holdfast.store.journal_rows import JournalRow, StoredCommit
from holdfast.store.limits import GROUP_BESIDE_BYTES
from holdfast.store.postgres.presence import GONE
from holdfast.store.postgres.statements import ENDED, NOW, escape, write_state


class Parts(NamedTuple):
    """What the statement for a commit, or for a group, has to do beside writing to journals."""

    creation: bool
    change: bool
    takes: bool
    blobs: bool
    snapshot: bool
    end: bool
    checkpoint: bool
    segment: bool


class PackedBlob(NamedTuple):
    id: str
    size: int
    packing: str
    data: bytes


class PostgresAppend:
    """One commit to be written."""

    __slots__ = (
        *("commit", "position", "lock", "row", "more_rows", "takes", "blobs"),
        *("snapshot", "checkpoint", "segment"),
    )

    def __init__(self, commit: Commit, stored: StoredCommit, lock: int | None = None, *, position: int = 0) -> None:
        """`lock` shows that the holder lives, if it is to hold the session and anything does. A fork has a `position`
        beyond its own rows."""
        self.commit, self.lock = commit, lock
        self.row: JournalRow | None = stored.rows[0] if stored.rows else None
        self.more_rows = stored.rows[1:]
        """To be inserted in the same transaction: a commit of very many records has them."""
        self.blobs = [PackedBlob(each, len(data), *pack_blob(data)) for each, data in sorted(stored.blobs.items())]
        """By id: the order in which everybody locks them."""
        self.takes = sorted(set(commit.takes)) if commit.takes else []
        self.position = position or commit.expected + len(commit.entries)
        self.snapshot: Snapshot | None = None if commit.summary.state.is_terminal else commit.snapshot
        self.checkpoint: StoredRow | None = None
        self.segment: StoredRow | None = None
        if commit.checkpoint is not None:
            self.checkpoint = seal_checkpoint(commit.session_id, commit.checkpoint)
        if commit.segment is not None:
            self.segment = seal_segment(commit.session_id, commit.segment)

    @property
    def can_be_grouped(self) -> bool:
        """Whether it is a row of `c`, and nothing else, and not so large that others should not wait for it."""
        commit = self.commit
        if self.takes or self.blobs or self.more_rows or commit.writes:
            return False
        beside = 0 if self.snapshot is None else len(self.snapshot.data)
        for row in (self.checkpoint, self.segment):
            beside += 0 if row is None else len(row[3])
        return beside <= GROUP_BESIDE_BYTES

    @property
    def parts(self) -> Parts:
        return Parts(
            creation=self.commit.expected == 0,
            change=self.commit.expected > 0,
            takes=bool(self.takes),
            blobs=bool(self.blobs),
            snapshot=self.snapshot is not None,
            end=self.commit.summary.state.is_terminal,
            checkpoint=self.checkpoint is not None,
            segment=self.segment is not None,
        )


# --- the columns of `c` ----------------------------------------------------------------------------


class Columns(NamedTuple):
    """Columns that come together."""

    types: Mapping[str, str]
    """Their types, by name."""
    values: Callable[[PostgresAppend], Sequence[Any]]


def _typed(columns: str) -> dict[str, str]:
    return dict(column.split(" ", 1) for column in columns.split(", "))


def _of_commit(append: PostgresAppend) -> Sequence[Any]:
    commit = append.commit
    held = (commit.owner, commit.hold_ms, append.lock)
    return commit.session_id, *held, commit.expected, append.position, commit.epoch


def _of_changing(append: PostgresAppend) -> Sequence[Any]:
    summary = append.commit.summary
    return (
        *(summary.state, summary.pending, escape(summary.waiting_for), summary.due_at, summary.updated_at),
        *(escape(summary.needs), summary.asks, summary.turns, summary.tokens, summary.cost),
        *(escape(summary.title), escape(",".join(summary.labels)), escape(summary.failure)),
    )


def _of_staying(append: PostgresAppend) -> Sequence[Any]:
    summary = append.commit.summary
    program = (escape(summary.program_kind), escape(summary.program))
    parent = summary.parent and escape(summary.parent)
    return *program, parent, escape(summary.service), summary.created_at, summary.forked_from


def _of_row(append: PostgresAppend) -> Sequence[Any]:
    row = append.row
    if row is None:
        return (None,) * len(_ROW.types)
    return row.first, row.last, row.at, row.later, row.checksum, row.body.decode()


def _of_snapshot(append: PostgresAppend) -> Sequence[Any]:
    snapshot = append.snapshot
    return (None, None) if snapshot is None else (snapshot.position, snapshot.data)


def _of_checkpoint(append: PostgresAppend) -> Sequence[Any]:
    return (None, None, None) if append.checkpoint is None else append.checkpoint[1:]


def _of_segment(append: PostgresAppend) -> Sequence[Any]:
    return (None, None, None, None) if append.segment is None else append.segment


_COMMIT = Columns(
    _typed("id text, owner text, hold bigint, lock bigint, expected bigint, position bigint, epoch bigint"), _of_commit
)
_CHANGING = Columns(
    _typed(
        "state text, pending bigint, waiting_for text, due_at bigint, updated_at bigint, needs text, asks bigint, "
        "turns bigint, tokens bigint, cost double precision, title text, labels text, failure text"
    ),
    _of_changing,
)
_STAYING = Columns(
    _typed("program_kind text, program text, parent text, service text, created_at bigint, forked_from text"),
    _of_staying,
)
"""What of a summary is known with the first commit, and does not change."""
_ROW = Columns(
    _typed("first bigint, last bigint, at bigint, later text, checksum bigint, body text"),
    _of_row,
)
_SNAPSHOT = Columns(_typed("snapshot_position bigint, snapshot bytea"), _of_snapshot)
_CHECKPOINT = Columns(
    _typed("checkpoint_position bigint, checkpoint_checksum bigint, checkpoint bytea"), _of_checkpoint
)
_SEGMENT = Columns(
    _typed("segment_after bigint, segment_position bigint, segment_checksum bigint, segment bytea"), _of_segment
)


def _names(columns: Iterable[str], prefix: str = "") -> str:
    return ", ".join(prefix + name for name in columns)


_DRIVEN = frozenset(("body", "snapshot", "checkpoint", "segment"))
"""Columns of long values, whose arrays are left to the driver. It asks each value whether that is an array, too."""


def _array_text(values: Sequence[Any]) -> str:
    """The text of an array, which the server reads: JSON is nearly that."""
    array = encode(values).decode()
    if "\\" in array:  # JSON escapes what is not written like this in an array
        array = f"[{','.join(map(_quoted, values))}]"
    return f"{{{array[1:-1]}}}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- the statement ---------------------------------------------------------------------------------

_HOLDER = "case when c.hold > 0 then c.owner end"
_UNTIL = f"case when c.hold > 0 then {NOW} + c.hold end"
_FENCE = f"""t.id = c.id and t.position = c.expected and case when c.epoch is not null then t.epoch = c.epoch
             else t.owner is null or t.owner = c.owner or t.lease_until <= {NOW} or {GONE.format(lock="t.lease_lock")}
             end"""
"""The writer's epoch is that of the session; or the session is claimed, and nobody else holds it."""


class AppendStatement:
    """The statement for commits with these parts. Parameters come in the order in which they are named."""

    def __init__(self, parts: Parts, grouped: bool) -> None:
        self._grouped = grouped
        beside = ((_SNAPSHOT, parts.snapshot), (_CHECKPOINT, parts.checkpoint), (_SEGMENT, parts.segment))
        kept = [_ROW, *(columns for columns, is_needed in beside if is_needed)]
        self._parts = [_COMMIT, _CHANGING, *([_STAYING] if parts.creation else []), *kept]
        self._types = {name: type_ for columns in self._parts for name, type_ in columns.types.items()}
        kept_names = [name for columns in kept for name in columns.types]
        self._arrays: list[Callable[[PostgresAppend], Sequence[Any]]] = []
        relations = {"c": self._commits()}
        written = []
        if parts.creation:
            relations["created"] = self._created_sessions()
            written.append(f"select created.*, {_names(kept_names, 'c.')} from created join c on c.id = created.id")
        if parts.takes:
            numbers = self._array("bigint", lambda append: append.takes)
            relations["k"] = f"select t.num from holdfast.sessions t, c where {_FENCE} for no key update of t"
            relations["m"] = (
                "select number from holdfast.mailbox where session = (select num from k)"
                f" and number = any({numbers}) and body is not null order by number for update"
            )
            all_wait = f"t.num = (select num from k) and (select count(*) from m) = cardinality({numbers})"
            relations["changed"] = self._changed_sessions(all_wait, kept_names)
        elif parts.change:
            relations["changed"] = self._changed_sessions(_FENCE, kept_names)
        if parts.change:
            written.append("select * from changed")
        relations["w"] = " union all ".join(written)
        if parts.takes or parts.end:
            taken = ["b.number in (select number from m)"] if parts.takes else []
            taken += [f"b.session = w.num and w.state in ({ENDED})"] if parts.end else []
            relations["taken"] = (
                "update holdfast.mailbox b set body = null, taken_at = w.position from w"
                f" where b.body is not null and ({' or '.join(taken)})"
            )
        relations["j"] = (
            f"insert into holdfast.journal (session, {_names(_ROW.types)})"
            f" select num, {_names(_ROW.types)} from w where body is not null"
        )
        if parts.blobs:
            relations |= self._blobs()
        if parts.snapshot:
            relations["put"] = _SNAPSHOTS
        if parts.end:
            relations["dropped"] = (
                f"delete from holdfast.snapshots p using w where p.session = w.num and w.state in ({ENDED})"
            )
        if parts.checkpoint:
            relations["checked"] = _CHECKPOINTS
        if parts.segment:
            relations["rewritten"] = _REWRITTEN_SEGMENTS
            relations["added"] = _SEGMENTS
        named = ",\n".join(f"{name} as ({text})" for name, text in relations.items())
        self.text = f"with {named}\nselect id, epoch from w"

    def arguments(self, group: Sequence[PostgresAppend]) -> Sequence[Any]:
        """The values of the parameters for a group, or for a single commit."""
        if self._grouped:
            columns = zip(self._types, zip(*map(self._values, group), strict=True), strict=True)
            return [values if name in _DRIVEN else _array_text(values) for name, values in columns]
        (append,) = group
        return self._values(append) + [array(append) for array in self._arrays]

    def _values(self, append: PostgresAppend) -> list[Any]:
        return [value for columns in self._parts for value in columns.values(append)]

    def _commits(self) -> str:
        if self._grouped:
            arrays = ", ".join(
                f"${n}::{'' if name in _DRIVEN else 'text::'}{type_}[]"
                for n, (name, type_) in enumerate(self._types.items(), 1)
            )
            return f"select * from unnest({arrays}) as c ({_names(self._types)})"
        return "select " + ", ".join(
            f"${n}::{type_} as {name}" for n, (name, type_) in enumerate(self._types.items(), 1)
        )

    def _array(self, item_type: str, values: Callable[[PostgresAppend], Sequence[Any]]) -> str:
        """A further parameter: what a single commit has several of."""
        self._arrays.append(values)
        return f"${len(self._types) + len(self._arrays)}::{item_type}[]"

    @staticmethod
    def _created_sessions() -> str:
        summary = [*_CHANGING.types, *_STAYING.types]
        return f"""
    insert into holdfast.sessions (id, owner, lease_until, lease_lock, position, epoch, {_names(summary)})
    select c.id, {_HOLDER}, {_UNTIL}, c.lock, c.position, coalesce(c.epoch, 1), {_names(summary, "c.")} from c
     where c.expected = 0
        on conflict (id) do nothing returning id, num, epoch, position, state"""

    @staticmethod
    def _changed_sessions(condition: str, kept: Sequence[str]) -> str:
        return f"""
    update holdfast.sessions t
       set owner = {_HOLDER}, lease_until = {_UNTIL}, lease_lock = c.lock,
           position = c.position, epoch = coalesce(c.epoch, t.epoch + 1),
           ({_names(_CHANGING.types)}) = row({_names(_CHANGING.types, "c.")})
      from c
     where {condition}
 returning t.id, t.num, t.epoch, t.position, t.state, {_names(kept, "c.")}"""

    def _blobs(self) -> dict[str, str]:
        """Store blobs, and note that the session keeps them.

        Each is locked until the commit: what exists is shared with others who keep it, the rest is inserted, or
        locked if somebody else did so meanwhile. So a blob that is about to lose its last keeper is either still there
        at our commit, or stored by us anew.
        """
        ids = self._array("text", lambda append: [blob.id for blob in append.blobs])
        packings = self._array("text", lambda append: [blob.packing for blob in append.blobs])
        sizes = self._array("bigint", lambda append: [blob.size for blob in append.blobs])
        contents = self._array("bytea", lambda append: [blob.data for blob in append.blobs])
        return {
            "there": f"""
    select id from holdfast.blobs where id = any({ids}) and exists (select from w) order by id for key share""",
            "stored": f"""
    insert into holdfast.blobs (id, packing, size, data)
    select u.* from unnest({ids}, {packings}, {sizes}, {contents}) as u (id)
     where exists (select from w) and u.id not in (select id from there)
        on conflict (id) do update set size = excluded.size where false""",
            "kept": f"""
    insert into holdfast.blob_refs (blob, session)
    select u.id, w.num from w, unnest({ids}) as u (id) on conflict do nothing""",
        }


_SNAPSHOTS = """
    insert into holdfast.snapshots (session, position, data)
    select num, snapshot_position, snapshot from w where snapshot is not null
        on conflict (session) do update set position = excluded.position, data = excluded.data"""
_CHECKPOINTS = """
    insert into holdfast.checkpoints (session, position, checksum, state)
    select num, checkpoint_position, checkpoint_checksum, checkpoint from w where checkpoint is not null
        on conflict (session) do update
       set position = excluded.position, checksum = excluded.checksum, state = excluded.state"""
_REWRITTEN_SEGMENTS = """
    delete from holdfast.segments g using w
     where g.session = w.num and g.position > w.segment_after and g.position <> w.segment_position"""
_SEGMENTS = """
    insert into holdfast.segments (session, after, position, checksum, data)
    select num, segment_after, segment_position, segment_checksum, segment from w where segment is not null
        on conflict (session, position) do update
       set after = excluded.after, checksum = excluded.checksum, data = excluded.data"""


@cache
def append_statement(parts: Parts, grouped: bool) -> AppendStatement:
    return AppendStatement(parts, grouped)


def append_call(group: Sequence[PostgresAppend]) -> tuple[str, Sequence[Any]]:
    """The statement that makes a single commit, or those of a group, and its arguments."""
    if len(group) == 1:
        statement = append_statement(group[0].parts, False)
    else:
        statement = append_statement(Parts(*map(any, zip(*(append.parts for append in group), strict=True))), True)
    return statement.text, statement.arguments(group)


async def write_rest(connection: Any, append: PostgresAppend) -> None:
    """Write what of a commit is not in the statement, in the transaction that it was made in."""
    await connection.executemany(
        f"insert into holdfast.journal (session, {_names(_ROW.types)})"
        " select num, $2, $3, $4, $5, $6, $7 from holdfast.sessions where id = $1",
        [
            (append.commit.session_id, row.first, row.last, row.at, row.later, row.checksum, row.body.decode())
            for row in append.more_rows
        ],
    )
    for write in sorted(append.commit.writes, key=lambda write: (write.namespace, write.key)):
        await write_state(connection, write)
