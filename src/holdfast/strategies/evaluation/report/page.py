"""The page of a report: one HTML file with drawings, tables and cases. To be read, it needs no network and no scripts.

A small script makes tables sortable and searches all cases, whose rows are kept compressed in the page.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import msgspec

from holdfast import __version__
from holdfast.strategies.evaluation.report.arm_figures import ArmFigures
from holdfast.strategies.evaluation.report.comparison import ArmComparison
from holdfast.strategies.evaluation.report.drawings import case_map, cost_plot, forest_plot, level_colour
from holdfast.strategies.evaluation.report.report import EvaluationReport

_HARDEST = 25
"""Cases that are listed without scripts: the hardest, and those on which arms differ most."""

_INPUT_CHARS = 150

_MOST_INPUTS = 5_000
"""Cases whose inputs are on the page: more would make it too large."""


def report_page(reports: Sequence[EvaluationReport]) -> str:
    """The page of one evaluation, or of several one after the other."""
    here = files("holdfast.strategies.evaluation.report")
    style = (here / "page.css").read_text(encoding="utf-8")
    script = (here / "page.js").read_text(encoding="utf-8")
    title = ", ".join(report.id for report in reports)
    body = "\n".join(_section(report) for report in reports)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Evaluation {escape(title)}</title><style>{style}</style></head>\n"
        f"<body><main>{body}</main><footer>Holdfast {__version__}</footer><script>{script}</script></body></html>\n"
    )


def _section(report: EvaluationReport) -> str:
    plan = report.plan
    clusters = len({case.cluster for case in report.cases})
    facts = [
        f"{len(report.cases):,} cases of {plan.dataset} ({plan.dataset_digest})",
        f"{plan.repeat} × each",
        f"{clusters} clusters" if report.is_clustered else "",
        f"state: {report.state}",
    ]
    parts = [
        f"<h1>{escape(report.id)}</h1>",
        f'<p class="facts">{escape(" · ".join(filter(None, facts)))}</p>',
        _notes(report),
        "<h2>Arms</h2>",
        _arms(report.arms),
        "<h2>Scores</h2>",
        forest_plot(report.arms),
        _methods(report.arms),
    ]
    if (costs := cost_plot(report.arms)) is not None:
        parts += ["<h2>Score against cost</h2>", costs, "<p>The line joins the arms that no other beats.</p>"]
    if report.comparisons:
        parts += ["<h2>Differences</h2>", _matrix(report), _pairs(report.comparisons)]
    parts += [
        "<h2>Cases</h2>",
        _cases(report),
        _tags(report.arms),
        _spread(report.arms),
        _failures(report),
        _plan(report),
    ]
    return f'<section id="{escape(report.id)}">{"".join(parts)}</section>'


def _notes(report: EvaluationReport) -> str:
    return (
        f"<ul class='notes'>{''.join(f'<li>{escape(note)}</li>' for note in report.notes)}</ul>" if report.notes else ""
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "sortable") -> str:
    """A table; cells are HTML."""
    top = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f'<table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide" tabindex="0">{table}</div>'


def _number(value: float | None, digits: int = 3) -> str:
    return "—" if value is None else f"{value:.{digits}f}"


def _money(value: float | None) -> str:
    return "—" if value is None else f"${value:.4g}"


def _arms(arms: Sequence[ArmFigures]) -> str:
    head = ["arm", "score", "95 % interval", "pass rate", "n", "errors", "missing", "ungraded", "not run"]
    head += ["calls", "tokens in", "tokens out", "cost", "cost a pass", "p50 ms", "p95 ms"]
    rows = []
    for each in arms:
        interval = each.interval
        waiting = each.waiting_ms
        rows.append(
            [
                f'{escape(each.arm)} <span class="digest">{each.digest}</span>',
                _number(None if each.score is None else each.score.mean),
                "—" if interval is None else f"{interval.low:.3f} … {interval.high:.3f}",
                _number(each.pass_rate),
                "0" if each.score is None else str(each.score.n),
                *(str(count) for count in (each.errors, each.missing, each.ungraded, each.not_run)),
                *(f"{count:,}" for count in (each.calls, each.prompt_tokens, each.completion_tokens)),
                _money(each.cost),
                _money(each.cost_per_pass),
                _number(None if waiting is None else waiting.p50, 0),
                _number(None if waiting is None else waiting.p95, 0),
            ]
        )
    return _table(head, rows)


def _methods(arms: Sequence[ArmFigures]) -> str:
    found = sorted({each.interval.method for each in arms if each.interval is not None})
    return f"<p>Intervals: {escape(', '.join(found))}; level 95 %. The unit is the case.</p>" if found else ""


def _matrix(report: EvaluationReport) -> str:
    """Differences of each row's arm to each column's, with Holm's p."""
    names = [each.arm for each in report.arms if each.score is not None]
    by_pair: dict[tuple[str, str], tuple[ArmComparison, int]] = {}
    for each in report.comparisons:
        by_pair[each.first, each.second] = (each, 1)
        by_pair[each.second, each.first] = (each, -1)
    rows = []
    for first in names:
        cells = [escape(first)]
        for second in names:
            found = by_pair.get((first, second))
            cells.append("" if found is None else _difference(*found))
        rows.append(cells)
    return _table(["row minus column", *names], rows, "matrix")


def _difference(found: ArmComparison, sign: int) -> str:
    estimate = found.paired.difference
    text = f"<b>{sign * estimate.mean:+.3f}</b>"
    if estimate.interval is not None:
        ends = sorted((sign * estimate.interval.low, sign * estimate.interval.high))
        text += f"<br>{ends[0]:+.3f} … {ends[1]:+.3f}"
    p = found.p_holm if found.p_holm is not None else found.paired.test.p if found.paired.test is not None else None
    text += "" if p is None else f"<br>p {p:.3g}"
    return text if found.is_comparable else f"{text}<br>not comparable"


def _pairs(comparisons: Sequence[ArmComparison]) -> str:
    items = "".join(f"<li>{escape(each.sentence)} ({each.common} cases)</li>" for each in comparisons)
    return f"<details><summary>All pairs in words</summary><ul>{items}</ul></details>"


# --- cases -----------------------------------------------------------------------------------------------


def _cases(report: EvaluationReport) -> str:
    names = [each.arm for each in report.arms]
    means = [report.case_means(name) for name in names]
    scored = [
        (number, [value for arm in means if (value := arm[number]) is not None]) for number in range(len(report.cases))
    ]
    kept = [(number, values) for number, values in scored if values]
    hardest = sorted(kept, key=lambda each: (sum(each[1]) / len(each[1]), each[0]))
    differing = sorted(
        (each for each in kept if max(each[1]) > min(each[1])), key=lambda each: min(each[1]) - max(each[1])
    )
    order = [number for number, _ in hardest]
    parts = [case_map(means, names, order), "<p>A column for each case, the hardest first; red is 0, blue is 1.</p>"]
    if differing:
        title = f"Cases on which arms differ ({len(differing)})"
        parts.append(_case_table(report, names, means, [number for number, _ in differing[:_HARDEST]], title))
    parts.append(_case_table(report, names, means, order[:_HARDEST], "Hardest cases"))
    parts.append(_all_rows(report, names, means))
    return "".join(parts)


def _case_table(
    report: EvaluationReport,
    names: Sequence[str],
    means: Sequence[Sequence[float | None]],
    chosen: Sequence[int],
    title: str,
) -> str:
    rows = []
    for number in chosen:
        case = report.cases[number]
        cells = [escape(case.id), f'<span class="input">{escape(_excerpt(case.task))}</span>']
        for arm in means:
            value = arm[number]
            colour = level_colour(value)
            mark = f'<i style="background:{colour}"></i>' if colour is not None else ""
            cells.append(f"{mark}{_number(value, 2)}")
        rows.append(cells)
    return f"<h3>{escape(title)}</h3>" + _table(["case", "input", *names], rows)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _INPUT_CHARS else f"{line[: _INPUT_CHARS - 1]}…"


def _all_rows(report: EvaluationReport, names: Sequence[str], means: Sequence[Sequence[float | None]]) -> str:
    """All cases with all scores, compressed; the script shows and searches them."""
    with_inputs = len(report.cases) <= _MOST_INPUTS
    rows = []
    for number, case in enumerate(report.cases):
        scores = [
            [None if each.score is None else round(each.score, 4) for each in report.trials[name][number]]
            for name in names
        ]
        rows.append([case.id, _excerpt(case.task) if with_inputs else "", scores])
    packed = zlib.compress(msgspec.json.encode({"id": report.id, "arms": list(names), "rows": rows}), 9)
    data = base64.b64encode(packed).decode()
    return (
        f'<h3>All cases</h3><div class="all" hidden data-rows="{data}">'
        '<input type="search" placeholder="Search cases" aria-label="Search cases">'
        '<label><input type="checkbox"> only cases on which arms differ</label>'
        '<div class="wide" tabindex="0"></div></div>'
        "<noscript><p>With scripts, all cases can be searched here.</p></noscript>"
    )


# --- the rest --------------------------------------------------------------------------------------------


def _tags(arms: Sequence[ArmFigures]) -> str:
    tags = sorted({each.tag for figures in arms for each in figures.tags})
    if not tags:
        return ""
    rows = []
    for tag in tags:
        by_arm = [next((each for each in figures.tags if each.tag == tag), None) for figures in arms]
        count = max(each.n for each in by_arm if each is not None)
        rows.append([escape(tag), str(count), *(_number(None if each is None else each.score) for each in by_arm)])
    return "<h2>Tags</h2>" + _table(["tag", "n", *(figures.arm for figures in arms)], rows)


def _spread(arms: Sequence[ArmFigures]) -> str:
    rows = [
        [
            escape(each.arm),
            _number(each.spread.within, 4),
            _number(each.spread.between, 4),
            ", ".join(f"@{k} {value:.3f}" for k, value in each.pass_at.items()),
            ", ".join(f"^{k} {value:.3f}" for k, value in each.pass_all.items()),
        ]
        for each in arms
        if each.spread is not None
    ]
    head = ["arm", "variance within cases", "between cases", "pass@k", "pass^k"]
    return "<h2>Repeats</h2>" + _table(head, rows) if rows else ""


def _failures(report: EvaluationReport) -> str:
    rows = [
        [escape(figures.arm), str(group.count), escape(group.why), escape(report.cases[group.example].id)]
        for figures in report.arms
        for group in figures.failures
    ]
    return "<h2>Failures</h2>" + _table(["arm", "trials", "why", "such as case"], rows) if rows else ""


def _plan(report: EvaluationReport) -> str:
    plan = report.plan
    arms = [
        [
            escape(arm.name),
            arm.digest,
            escape(arm.subject),
            escape(arm.model or "—"),
            escape(_json({**arm.options, **arm.model_options})),
        ]
        for arm in plan.arms
    ]
    graders = [
        [escape(spec.name), spec.digest, escape(spec.grader), f"{spec.weight:g}", escape(", ".join(spec.judges) or "—")]
        for spec in report.grading
    ]
    prices = "".join(
        f"<li>{escape(name)}: {price.prompt:g} / {price.completion:g}</li>" for name, price in plan.prices.items()
    )
    return (
        "<h2>Plan</h2>"
        + _table(["arm", "digest", "strategy", "model", "options"], arms)
        + _table(["grader", "digest", "kind", "weight", "judges"], graders)
        + (f"<p>Prices that were given, for a million tokens:</p><ul>{prices}</ul>" if prices else "")
        + f"<p>Seed {plan.seed}; frozen by Holdfast {escape(plan.holdfast)}.</p>"
    )


def _json(value: object) -> str:
    return "" if not value else msgspec.json.encode(value).decode()
