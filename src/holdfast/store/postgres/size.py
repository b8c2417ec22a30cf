"""How much what is kept takes in PostgreSQL: tables keep the space of deleted rows, so their own size does not tell."""

from __future__ import annotations

from typing import Any

SAMPLED_PAGES = 4_000
"""Pages of a table that are read at most to estimate how full it is (32 MB): up to that, the figure is exact."""

ROW_BYTES = 28
"""What a row takes beside its columns: its header, and where it is on its page."""

FIXED_BYTES = 64
"""About what the other columns take of a row whose size is told by one of them."""

TABLES = """
select c.relname, pg_total_relation_size(c.oid), pg_table_size(c.oid), pg_relation_size(c.oid)
  from pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r'
"""
ROW_SIZES = {
    "journal": f"pg_column_size(t.body) + {FIXED_BYTES}",
    "blobs": f"pg_column_size(t.data) + {FIXED_BYTES}",
    "snapshots": f"pg_column_size(t.data) + {FIXED_BYTES}",
    "checkpoints": f"pg_column_size(t.state) + {FIXED_BYTES}",
    "segments": f"pg_column_size(t.data) + {FIXED_BYTES}",
    "state": f"pg_column_size(t.value) + {FIXED_BYTES}",
}
"""How large a row is, where one column may lie outside of it: the size of the whole row would read that column."""

SAMPLED = "select coalesce(sum({row} + $2::int), 0)::bigint from holdfast.{table} t tablesample system ($1)"


async def used_bytes(pool: Any, enough: int) -> int:
    """Bytes that rows take, with their share of the indexes; not exact if all tables together take `enough` or less."""
    tables = await pool.fetch(TABLES)
    on_disk = sum(total for _, total, _, _ in tables)
    if on_disk <= enough:
        return int(on_disk)
    used = 0
    page_bytes = int(await pool.fetchval("select current_setting('block_size')"))
    for table, total, own, rows in tables:
        if not rows:
            continue
        percent = min(100.0, 100 * SAMPLED_PAGES * page_bytes / rows)
        statement = SAMPLED.format(table=table, row=ROW_SIZES.get(table, "pg_column_size(t.*)"))
        full = await pool.fetchval(statement, percent, ROW_BYTES) * 100 / percent / own
        used += int(total * min(1.0, full))
    return used
