"""The table of `alc.card`: immutable records of runs, with samples, aliases and lineage."""

from __future__ import annotations

from holdfast.programs.api.model import Example, FunctionSpec, GroupSpec, ResultSpec, ShapeSpec, may, need

_ID = need("card_id", "string", "The card.")
_PKG = may("pkg", "string", "Only those of this package.")
_WHERE = may(
    "where",
    "table",
    "What must hold: nested fields, values or operators (`eq ne lt lte gt gte in nin exists contains starts_with`),"
    " `_and`, `_or`, `_not`.",
)
_OFFSET = may("offset", "integer", "How many to skip; 0 if absent.")
_LIMIT = may("limit", "integer", "How many to return at most.")

CARDS = GroupSpec(
    "Cards",
    "Immutable records of runs, in the session store, and as files that algocline can read too:"
    " `cards/PACKAGE/ID.toml`, samples beside them. The engine writes them once, even if the process dies in the"
    " middle; every process on the store finds them.",
    functions=(
        FunctionSpec(
            "card.create",
            "Keep a card. It needs `pkg.name`; `schema_version`, `created_at`, `created_by`, `card_id` and the"
            " fingerprint of `params` are added. An id that exists is an error.",
            (need("fields", "table", "The card."),),
            (ResultSpec("CardRef", "Its id and its file."),),
            Example(
                'alc.card.create({pkg = {name = "panel"}, stats = {pass_rate = 0.9}})',
                python='card.create({"pkg": {"name": "panel"}, "stats": {"pass_rate": 0.9}})',
            ),
            waits="engine",
            python="card.create(fields: dict[str, Any]) -> dict[str, Any]",
        ),
        FunctionSpec(
            "card.get",
            "A card.",
            (_ID,),
            (ResultSpec("table|nil", "{nil|None} if there is none."),),
            Example(
                'alc.card.get("panel_model_20260101T000000_abcdef")',
                python='card.get("panel_model_20260101T000000_abcdef")',
            ),
            waits="engine",
            python="card.get(card_id: str) -> dict[str, Any] | None",
        ),
        FunctionSpec(
            "card.list",
            "Summaries of cards, the newest first.",
            (may("opts", "CardListOptions", "Which."),),
            (ResultSpec("CardSummary[]"),),
            Example('alc.card.list({pkg = "panel"})', python='card.list(pkg="panel")'),
            waits="engine",
            python="card.list(*, pkg: str | None = None) -> list[dict[str, Any]]",
        ),
        FunctionSpec(
            "card.find",
            "Summaries of the cards that match a query.",
            (may("query", "CardQuery", "Which, and in what order."),),
            (ResultSpec("CardSummary[]"),),
            Example(
                'alc.card.find({where = {stats = {pass_rate = {gte = 0.8}}}, order_by = "-stats.pass_rate",'
                " limit = 3})",
                python='card.find(where={"stats": {"pass_rate": {"gte": 0.8}}}, order_by="-stats.pass_rate", limit=3)',
            ),
            waits="engine",
            python="card.find(*, pkg: str | None = None, where: dict[str, Any] | None = None,"
            " order_by: str | Sequence[str] | None = None, limit: int | None = None, offset: int = 0)"
            " -> list[dict[str, Any]]",
        ),
        FunctionSpec(
            "card.append",
            "Add top-level fields to a card. A field that it already has is an error.",
            (_ID, need("fields", "table", "The fields to add.")),
            (ResultSpec("table", "The whole card."),),
            Example(
                'alc.card.append("panel_model_20260101T000000_abcdef", {note = "a good one"})',
                python='card.append("panel_model_20260101T000000_abcdef", {"note": "a good one"})',
            ),
            waits="engine",
            python="card.append(card_id: str, fields: dict[str, Any]) -> dict[str, Any]",
        ),
        FunctionSpec(
            "card.write_samples",
            "Store the single results behind a card. This can be done once.",
            (_ID, need("rows", "table[]", "The results.")),
            (ResultSpec("SamplesRef"),),
            Example(
                'alc.card.write_samples("panel_model_20260101T000000_abcdef", {{score = 1}})',
                python='card.write_samples("panel_model_20260101T000000_abcdef", [{"score": 1}])',
            ),
            waits="engine",
            python="card.write_samples(card_id: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]",
        ),
        FunctionSpec(
            "card.read_samples",
            "The single results behind a card; empty if none were stored.",
            (_ID, may("opts", "SampleOptions", "Which.")),
            (ResultSpec("table[]"),),
            Example(
                'alc.card.read_samples("panel_model_20260101T000000_abcdef", {limit = 10})',
                python='card.read_samples("panel_model_20260101T000000_abcdef", limit=10)',
            ),
            waits="engine",
            python="card.read_samples(card_id: str, *, where: dict[str, Any] | None = None, limit: int | None = None,"
            " offset: int = 0) -> list[dict[str, Any]]",
        ),
        FunctionSpec(
            "card.alias_set",
            "Give a card a name; if another card has it, the name moves.",
            (need("name", "string", "The name."), _ID, may("opts", "AliasOptions", "More about it.")),
            (ResultSpec("Alias"),),
            Example(
                'alc.card.alias_set("best", "panel_model_20260101T000000_abcdef", {note = "of May"})',
                python='card.alias_set("best", "panel_model_20260101T000000_abcdef", note="of May")',
            ),
            waits="engine",
            python="card.alias_set(name: str, card_id: str, *, pkg: str | None = None, note: str | None = None)"
            " -> dict[str, Any]",
        ),
        FunctionSpec(
            "card.alias_list",
            "The names that cards have.",
            (may("opts", "CardListOptions", "Which."),),
            (ResultSpec("Alias[]"),),
            Example("alc.card.alias_list()", python="card.alias_list()"),
            waits="engine",
            python="card.alias_list(*, pkg: str | None = None) -> list[dict[str, Any]]",
        ),
        FunctionSpec(
            "card.get_by_alias",
            "The card with this name. A name whose card no longer exists is an error.",
            (need("name", "string", "The name."),),
            (ResultSpec("table|nil", "{nil|None} if no card has it."),),
            Example('alc.card.get_by_alias("best")', python='card.get_by_alias("best")'),
            waits="engine",
            python="card.get_by_alias(name: str) -> dict[str, Any] | None",
        ),
        FunctionSpec(
            "card.lineage",
            "Which cards a card comes from, and which come from it, by `metadata.prior_card_id`.",
            (need("query", "LineageQuery", "Of which card, how far, which way."),),
            (ResultSpec("Lineage|nil", "{nil|None} if there is no such card."),),
            Example(
                'alc.card.lineage({card_id = "panel_model_20260101T000000_abcdef", direction = "both"})',
                python='card.lineage("panel_model_20260101T000000_abcdef", direction="both")',
            ),
            waits="engine",
            python='card.lineage(card_id: str, *, direction: Literal["up", "down", "both"] = "up", depth: int = 10,'
            " include_stats: bool = True, relation_filter: Sequence[str] | None = None) -> dict[str, Any] | None",
        ),
        FunctionSpec(
            "card.sink_backfill",
            "Copy to a mirror the cards that it does not have yet.",
            (need("params", "BackfillOptions", "Which mirror."),),
            (ResultSpec("Backfill"),),
            Example(
                'alc.card.sink_backfill({sink = "file:///srv/cards", dry_run = true})',
                python='card.sink_backfill("file:///srv/cards", dry_run=True)',
            ),
            waits="engine",
            python="card.sink_backfill(sink: str, *, dry_run: bool = False) -> dict[str, Any]",
        ),
    ),
    shapes=(
        ShapeSpec("CardRef", "Where a card is.", (_ID, need("path", "string", "Its file."))),
        ShapeSpec(
            "CardSummary",
            "A card in short.",
            (
                _ID,
                need("pkg", "string", "Its package."),
                may("created_at", "string", "When."),
                may("model", "string", "Of which model."),
                may("scenario", "string", "On which scenario."),
                may("pass_rate", "number", "How well."),
            ),
        ),
        ShapeSpec("CardListOptions", "Which cards, or names of cards.", (_PKG,)),
        ShapeSpec(
            "CardQuery",
            "Which cards, and in what order.",
            (
                _PKG,
                _WHERE,
                may(
                    "order_by",
                    "string|string[]",
                    "Dotted paths, `-` before one to reverse it; the newest first if absent.",
                ),
                _LIMIT,
                _OFFSET,
            ),
        ),
        ShapeSpec("SampleOptions", "Which results.", (_WHERE, _LIMIT, _OFFSET)),
        ShapeSpec(
            "SamplesRef",
            "Where results are.",
            (need("path", "string", "Their file."), need("count", "integer", "How many.")),
        ),
        ShapeSpec(
            "AliasOptions", "More about a name.", (may("pkg", "string", "Its package."), may("note", "string", "Why."))
        ),
        ShapeSpec(
            "Alias",
            "A name of a card.",
            (
                need("name", "string", "The name."),
                _ID,
                may("pkg", "string", "Its package."),
                need("set_at", "string", "When it was given."),
                may("note", "string", "Why."),
            ),
        ),
        ShapeSpec(
            "LineageQuery",
            "Of which card, how far, which way.",
            (
                _ID,
                may("direction", '"up"|"down"|"both"', "`up` (if absent) to what it comes from."),
                may("depth", "integer", "How many steps; 10 if absent."),
                may("include_stats", "boolean", "Whether nodes have their `stats`; yes if absent."),
                may("relation_filter", "string[]", "Only these relations."),
            ),
        ),
        ShapeSpec(
            "Lineage",
            "Where a card stands among others.",
            (
                need("root", "string", "The card asked for."),
                need("nodes", "LineageNode[]", "The cards."),
                need("edges", "LineageEdge[]", "What links them."),
                need("truncated", "boolean", "Whether there are more cards beyond `depth`."),
            ),
        ),
        ShapeSpec(
            "LineageNode",
            "A card among others.",
            (
                _ID,
                need("pkg", "string", "Its package."),
                need("depth", "integer", "Steps from the root; below 0 for what it comes from."),
                may("prior_card_id", "string", "What it comes from."),
                may("prior_relation", "string", "How."),
                may("stats", "table", "Its figures."),
            ),
        ),
        ShapeSpec(
            "LineageEdge",
            "What links two cards.",
            (need("from", "string", "One."), need("to", "string", "The other."), may("relation", "string", "How.")),
        ),
        ShapeSpec(
            "BackfillOptions",
            "Which mirror to fill.",
            (
                need("sink", "string", "The mirror, as in the setting."),
                may("dry_run", "boolean", "Only say what would be done."),
            ),
        ),
        ShapeSpec(
            "Backfill",
            "What was copied.",
            (
                need("sink", "string", "The mirror."),
                need("pushed", "string[]", "Cards that were copied."),
                need("skipped", "string[]", "Cards that it already had."),
                need("failed", "string[][]", "Cards that could not be copied, each with the reason."),
                need("pushed_samples", "string[]", "Cards whose results were copied."),
            ),
        ),
    ),
)
