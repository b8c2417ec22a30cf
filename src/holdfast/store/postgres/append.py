"""The fenced append: one statement that makes a commit, or a group of commits to different sessions.

The commits are its relation `c`, a row each. Of a single commit the columns of `c` are parameters, of a group they are
arrays; the rest of the statement is the same for both, and names the columns. `w` are the commits that were written,
with the number and the new epoch of their sessions. One that is refused is missing there, and nothing of it is done.

A statement has only the parts that its commits need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

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


class Column(NamedTuple):
    name: str
    type: str
    value: Callable[[PostgresAppend], Any]


_COMMIT = (
    Column("id", "text", lambda append: append.commit.session_id),
    Column("owner", "text", lambda append: append.commit.owner),
    Column("hold", "bigint", lambda append: append.commit.hold_ms),
    Column("lock", "bigint", lambda append: append.lock),
    Column("expected", "bigint", lambda append: append.commit.expected),
    Column("position", "bigint", lambda append: append.position),
    Column("epoch", "bigint", lambda append: append.commit.epoch),
)
_CHANGING = (
    Column("state", "text", lambda append: append.commit.summary.state),
    Column("pending", "bigint", lambda append: append.commit.summary.pending),
    Column("waiting_for", "text", lambda append: escape(append.commit.summary.waiting_for)),
    Column("due_at", "bigint", lambda append: append.commit.summary.due_at),
    Column("updated_at", "bigint", lambda append: append.commit.summary.updated_at),
    Column("needs", "text", lambda append: escape(append.commit.summary.needs)),
    Column("asks", "bigint", lambda append: append.commit.summary.asks),
    Column("turns", "bigint", lambda append: append.commit.summary.turns),
    Column("tokens", "bigint", lambda append: append.commit.summary.tokens),
    Column("cost", "double precision", lambda append: append.commit.summary.cost),
    Column("title", "text", lambda append: escape(append.commit.summary.title)),
    Column("labels", "text", lambda append: escape(",".join(append.commit.summary.labels))),
    Column("failure", "text", lambda append: escape(append.commit.summary.failure)),
)
_STAYING = (
    Column("program_kind", "text", lambda append: escape(append.commit.summary.program_kind)),
    Column("program", "text", lambda append: escape(append.commit.summary.program)),
    Column("parent", "text", lambda append: append.commit.summary.parent and escape(append.commit.summary.parent)),
    Column("service", "text", lambda append: escape(append.commit.summary.service)),
    Column("created_at", "bigint", lambda append: append.commit.summary.created_at),
    Column("forked_from", "text", lambda append: append.commit.summary.forked_from),
)
"""What of a summary is known with the first commit, and does not change."""
_ROW = (
    Column("first", "bigint", lambda append: append.row and append.row.first),
    Column("last", "bigint", lambda append: append.row and append.row.last),
    Column("at", "bigint", lambda append: append.row and append.row.at),
    Column("later", "text", lambda append: append.row and append.row.later),
    Column("checksum", "bigint", lambda append: append.row and append.row.checksum),
    Column("body", "text", lambda append: append.row and append.row.body.decode()),
)
_SNAPSHOT = (
    Column("snapshot_position", "bigint", lambda append: append.snapshot and append.snapshot.position),
    Column("snapshot", "bytea", lambda append: append.snapshot and append.snapshot.data),
)
_CHECKPOINT = (
    Column("checkpoint_position", "bigint", lambda append: append.checkpoint and append.checkpoint[1]),
    Column("checkpoint_checksum", "bigint", lambda append: append.checkpoint and append.checkpoint[2]),
    Column("checkpoint", "bytea", lambda append: append.checkpoint and append.checkpoint[3]),
)
_SEGMENT = (
    Column("segment_after", "bigint", lambda append: append.segment and append.segment[0]),
    Column("segment_position", "bigint", lambda append: append.segment and append.segment[1]),
    Column("segment_checksum", "bigint", lambda append: append.segment and append.segment[2]),
    Column("segment", "bytea", lambda append: append.segment and append.segment[3]),
)


def _names(columns: Sequence[Column], prefix: str = "") -> str:
    return ", ".join(prefix + column.name for column in columns)


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
        kept = [
            *_ROW,
            *(_SNAPSHOT if parts.snapshot else ()),
            *(_CHECKPOINT if parts.checkpoint else ()),
            *(_SEGMENT if parts.segment else ()),
        ]
        self._columns = [*_COMMIT, *_CHANGING, *(_STAYING if parts.creation else ()), *kept]
        self._arrays: list[Callable[[PostgresAppend], Sequence[Any]]] = []
        relations = {"c": self._commits()}
        written = []
        if parts.creation:
            relations["created"] = self._created_sessions()
            written.append(f"select created.*, {_names(kept, 'c.')} from created join c on c.id = created.id")
        if parts.takes:
            numbers = self._array("bigint", lambda append: append.takes)
            relations["k"] = f"select t.num from holdfast.sessions t, c where {_FENCE} for no key update of t"
            relations["m"] = (
                "select number from holdfast.mailbox where session = (select num from k)"
                f" and number = any({numbers}) and body is not null order by number for update"
            )
            all_wait = f"t.num = (select num from k) and (select count(*) from m) = cardinality({numbers})"
            relations["changed"] = self._changed_sessions(all_wait, kept)
        elif parts.change:
            relations["changed"] = self._changed_sessions(_FENCE, kept)
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
            f"insert into holdfast.journal (session, {_names(_ROW)})"
            f" select num, {_names(_ROW)} from w where body is not null"
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
            return list(zip(*([column.value(append) for column in self._columns] for append in group), strict=True))
        (append,) = group
        return [column.value(append) for column in self._columns] + [array(append) for array in self._arrays]

    def _commits(self) -> str:
        if self._grouped:
            arrays = ", ".join(f"${n}::{column.type}[]" for n, column in enumerate(self._columns, 1))
            return f"select * from unnest({arrays}) as c ({_names(self._columns)})"
        return "select " + ", ".join(
            f"${n}::{column.type} as {column.name}" for n, column in enumerate(self._columns, 1)
        )

    def _array(self, item_type: str, values: Callable[[PostgresAppend], Sequence[Any]]) -> str:
        """A further parameter: what a single commit has several of."""
        self._arrays.append(values)
        return f"${len(self._columns) + len(self._arrays)}::{item_type}[]"

    @staticmethod
    def _created_sessions() -> str:
        summary = [*_CHANGING, *_STAYING]
        return f"""
    insert into holdfast.sessions (id, owner, lease_until, lease_lock, position, epoch, {_names(summary)})
    select c.id, {_HOLDER}, {_UNTIL}, c.lock, c.position, coalesce(c.epoch, 1), {_names(summary, "c.")} from c
     where c.expected = 0
        on conflict (id) do nothing returning id, num, epoch, position, state"""

    @staticmethod
    def _changed_sessions(condition: str, kept: Sequence[Column]) -> str:
        return f"""
    update holdfast.sessions t
       set owner = {_HOLDER}, lease_until = {_UNTIL}, lease_lock = c.lock,
           position = c.position, epoch = coalesce(c.epoch, t.epoch + 1),
           ({_names(_CHANGING)}) = row({_names(_CHANGING, "c.")})
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
        f"insert into holdfast.journal (session, {_names(_ROW)})"
        " select num, $2, $3, $4, $5, $6, $7 from holdfast.sessions where id = $1",
        [
            (append.commit.session_id, row.first, row.last, row.at, row.later, row.checksum, row.body.decode())
            for row in append.more_rows
        ],
    )
    for write in sorted(append.commit.writes, key=lambda write: (write.namespace, write.key)):
        await write_state(connection, write)
