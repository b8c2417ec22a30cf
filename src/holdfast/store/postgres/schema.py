"""The PostgreSQL schema: its tables, and how an older one is brought up to date.

Everything lies in a schema of its own, `holdfast`, so that a database can be shared with other applications. Bodies are
TEXT that holds JSON: `jsonb` would lose the order of keys and refuses the character NUL. Keys sort by code point.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.errors import SchemaVersionError, StoreUnavailableError

MIGRATION_LOCK = 0x486F6C64
"""Advisory lock (`Hold` in ASCII) that lets one process at a time create or migrate the schema."""

UNRELEASED = (
    "its schema 'holdfast' was written by a Holdfast from before the first release (0.2.0), and its layout is not read"
    " any more; drop that schema, or use another database"
)

SCHEMA = """
create schema if not exists holdfast;

create table holdfast.meta (
    key   text primary key,
    value text not null
);

create table holdfast.sessions (
    num          bigint generated always as identity primary key,
    id           text collate "C" not null unique,
    state        text not null,
    position     bigint not null,
    epoch        bigint not null,
    owner        text,
    lease_until  bigint,
    pending      bigint not null,
    waiting_for  text not null,
    due_at       bigint,
    program_kind text not null,
    program      text not null,
    parent       text,
    service      text collate "C" not null,
    created_at   bigint not null,
    updated_at   bigint not null,
    lease_lock   bigint,      -- held while the holder lives; null where none is
    needs        text collate "C" not null,
    asks         bigint not null,
    turns        bigint not null,
    tokens       bigint not null,
    cost         double precision not null,
    title        text not null,
    labels       text not null,  -- joined by commas
    forked_from  text,
    failure      text not null,
    ended_at     bigint generated always as  -- null while it lives
                 (case when state in ('completed', 'failed', 'cancelled', 'expired') then updated_at end) stored
) with (fillfactor = 70);  -- room for the next version of a row on its own page: every commit changes one
create index sessions_by_parent on holdfast.sessions (parent) where parent is not null;
create index sessions_by_source on holdfast.sessions (forked_from) where forked_from is not null;
create index sessions_asking on holdfast.sessions (num) where asks > 0;
create index sessions_by_service on holdfast.sessions (service, state, num);
create index sessions_by_state on holdfast.sessions (state, num);
-- What upkeep looks for (see `postgres.upkeep`). None of these columns changes with every commit: a row whose indexed
-- columns stay the same is changed on its page, without a new entry in any index.
create index sessions_due on holdfast.sessions (service, due_at) where due_at is not null;
create index sessions_held on holdfast.sessions (lease_lock) where lease_lock is not null;
create index sessions_leased on holdfast.sessions (lease_until) where lease_until is not null;
create index sessions_open on holdfast.sessions (service, needs, num) where owner is null and needs <> '';
create index sessions_children on holdfast.sessions (service, num)
    where parent is not null and state in ('running', 'paused');
create index sessions_programs on holdfast.sessions (service, program, num)
    where parent is not null and state in ('running', 'paused');
create index sessions_ended on holdfast.sessions (service, ended_at) where ended_at is not null;

create table holdfast.journal (  -- a row for each commit
    session  bigint not null,
    first    bigint not null,
    last     bigint not null,
    at       bigint not null,  -- of its first record
    later    text,             -- milliseconds from each to the next; null where all have the same time
    checksum bigint not null,
    body     text not null,    -- a JSON array of records
    primary key (session, first)
) with (toast_tuple_target = 8160);  -- a row that fits on a page is not packed: that takes longer than to insert it

create table holdfast.mailbox (
    number   bigint generated always as identity primary key,
    session  bigint not null,
    key      text collate "C" not null,
    at       bigint not null,
    digest   text not null,
    body     text,    -- null once the message was taken
    taken_at bigint,  -- the journal's position after the commit that took it
    unique (session, key)
);
create index mailbox_waiting on holdfast.mailbox (session, number) where body is not null;

create table holdfast.tombstones (
    id         text collate "C" primary key,
    deleted_at bigint not null
);

create table holdfast.blobs (
    id      text collate "C" primary key,
    packing text not null,
    size    bigint not null,
    data    bytea not null
);
alter table holdfast.blobs alter column data set storage external;  -- packed already

create table holdfast.blob_refs (
    blob    text collate "C" not null,
    session bigint not null,
    primary key (blob, session)
);
create index blob_refs_by_session on holdfast.blob_refs (session);

create table holdfast.state (
    namespace text collate "C" not null,
    key       text collate "C" not null,
    version   bigint not null,
    value     text not null,
    primary key (namespace, key)
);

-- An insert that waited for a deletion of the same id does not see the tombstone in its own snapshot; a query inside a
-- volatile function has a snapshot of its own, and does.
create function holdfast.refuse_deleted_id() returns trigger language plpgsql as $$
begin
    if exists (select from holdfast.tombstones where id = new.id) then
        raise unique_violation using message = 'session ' || new.id || ' was deleted';
    end if;
    return null;
end $$;
create trigger refuse_deleted_id after insert on holdfast.sessions
    for each row execute function holdfast.refuse_deleted_id();

create table holdfast.snapshots (
    session  bigint primary key,
    position bigint not null,
    data     bytea not null
);
alter table holdfast.snapshots alter column data set storage external;  -- packed already

create table holdfast.checkpoints (
    session  bigint primary key,
    position bigint not null,
    checksum bigint not null,
    state    bytea not null
);
create table holdfast.segments (
    session  bigint not null,
    after    bigint not null,
    position bigint not null,
    checksum bigint not null,
    data     bytea not null,
    primary key (session, position)
);
alter table holdfast.checkpoints alter column state set storage external;  -- packed already
alter table holdfast.segments alter column data set storage external;

create table holdfast.holders (
    lock bigint primary key
);

create table holdfast.shares (
    session   bigint not null,
    first     bigint not null,
    last      bigint not null,
    source    bigint not null,                -- the number of the session that wrote the records, which may be gone
    source_id text collate "C" not null,
    primary key (session, first)
);
create index shares_by_source on holdfast.shares (source);

create table holdfast.permits (
    number  bigint generated always as identity primary key,
    counter text collate "C" not null,
    ticket  text collate "C" not null,
    owner   text not null,
    until   bigint not null,
    held    boolean not null  -- whether it is given back; one of a rate stays until its time is over
);
create index permits_by_counter on holdfast.permits (counter, until);
create index permits_by_end on holdfast.permits (until);
create index permits_by_ticket on holdfast.permits (ticket) where held;
create index permits_by_owner on holdfast.permits (owner) where held;

create table holdfast.permit_waits (
    ticket     text collate "C" primary key,
    session_id text collate "C" not null,
    owner      text not null,
    counter    text collate "C" not null,  -- the one in whose line it stands
    rank       bigint not null,
    since      bigint not null,
    until      bigint not null
);
create index permit_waits_by_counter on holdfast.permit_waits (counter, rank, ticket);
create index permit_waits_by_owner on holdfast.permit_waits (owner);
create index permit_waits_by_session on holdfast.permit_waits (session_id);

create view holdfast.journal_lines as
select s.id as session_id,
       j.first + l.number - 1 as position,
       to_timestamp((j.at + (select coalesce(sum(d.delay::bigint), 0)
                               from json_array_elements_text(j.later::json) with ordinality as d (delay, number)
                              where d.number <= l.number)) / 1000.0) as time,
       substring(l.record::text from '^\\{"type":"([^"]*)"') as type,
       regexp_replace(l.record::text, '^\\{"type":"[^"]*",?', '{') as body
  from holdfast.sessions s
  cross join lateral (select s.num as source, 0::bigint as first, 9223372036854775807 as last
                      union all select source, first, last from holdfast.shares where session = s.num) p
  join holdfast.journal j on j.session = p.source and j.first <= p.last and j.last >= p.first
  cross join lateral json_array_elements(j.body::json) with ordinality as l (record, number)
 where j.first + l.number - 1 between p.first and p.last
 order by s.num, position;
"""

MIGRATIONS: tuple[str, ...] = ()
"""`SCHEMA` is version 1; the script at index n brings a schema from version n + 1 to n + 2. Once released, neither the
schema nor a script is changed: a new version is a new script."""


def current_version() -> int:
    """The version of the schemas that this Holdfast writes."""
    return 1 + len(MIGRATIONS)


async def create_or_migrate(connection: Any, where: str) -> None:
    """Create or migrate the schema, all of it or nothing; concurrent openers wait for each other."""
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", MIGRATION_LOCK)
        found = await _find_version(connection, where)
        for script in (SCHEMA, *MIGRATIONS)[found:]:
            await connection.execute(script)
        if found < current_version():
            await connection.execute(
                "insert into holdfast.meta (key, value) values ('version', $1)"
                " on conflict (key) do update set value = excluded.value",
                str(current_version()),
            )


async def _find_version(connection: Any, where: str) -> int:
    """The version of the schema that is there, 0 for none; raises for one that this Holdfast must not touch."""
    if await connection.fetchval("select to_regclass('holdfast.meta')") is None:
        return 0
    meta = {row["key"]: row["value"] for row in await connection.fetch("select key, value from holdfast.meta")}
    found = meta.get("version", "")
    if not found and "schema_version" in meta:
        raise StoreUnavailableError(where, UNRELEASED)
    if not found.isdecimal():
        raise StoreUnavailableError(where, f"its schema 'holdfast' has no version that can be read: {found!r}")
    if not 1 <= int(found) <= current_version():
        raise SchemaVersionError(where, int(found), current_version())
    return int(found)
