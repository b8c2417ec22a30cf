"""Drawings of a report, as SVG: intervals of arms, score against cost, and the map of cases. Pure functions to text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from holdfast.strategies.evaluation.report.arm_figures import ArmFigures

_ROW = 26
"""Pixels of a line of the plot of intervals."""

_LEFT, _WIDTH = 210, 420
"""Pixels for names, and for the scale."""

LEVELS = ("#b2182b", "#ef8a62", "#fddbc7", "#d1e5f0", "#67a9cf", "#2166ac")
"""Colours from a score of 0 to 1, which also people who see no red or green can tell apart."""


def forest_plot(arms: Sequence[ArmFigures]) -> str:
    """The score of each arm as a dot, with its interval as a line."""
    drawn = [figures for figures in arms if figures.score is not None]
    height = _ROW * len(drawn) + 36
    parts = [_scale(0.0, 1.0, height - 24)]
    for number, figures in enumerate(drawn):
        assert figures.score is not None
        y = 16 + number * _ROW
        x = _place(figures.score.mean)
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(_short(figures.arm))}</text>')
        if (interval := figures.interval) is not None:
            low, high = _place(interval.low), _place(interval.high)
            parts.append(f'<path class="ci" d="M{low:.1f} {y}H{high:.1f}M{low:.1f} {y - 4}v8M{high:.1f} {y - 4}v8"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="4"><title>{figures.score.mean:.3f}</title></circle>')
        parts.append(f'<text x="{_LEFT + _WIDTH + 14}" y="{y + 4}">{figures.score.mean:.3f}</text>')
    width = _LEFT + _WIDTH + 70
    return _svg(width, height, "".join(parts), "Scores with their 95 % intervals")


def _place(score: float) -> float:
    return _LEFT + max(0.0, min(1.0, score)) * _WIDTH


def _scale(low: float, high: float, y: float) -> str:
    parts = []
    for step in range(6):
        value = low + (high - low) * step / 5
        x = _LEFT + _WIDTH * step / 5
        parts.append(f'<path class="grid" d="M{x:.1f} 4V{y:.1f}"/>')
        parts.append(f'<text class="axis" x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{value:.1f}</text>')
    return "".join(parts)


def pareto(points: Sequence[tuple[float, float]]) -> list[int]:
    """The numbers of the points that no other beats: none costs at most as much and scores higher, or the reverse."""
    order = sorted(range(len(points)), key=lambda number: (points[number][0], -points[number][1]))
    best, kept = float("-inf"), []
    for number in order:
        if points[number][1] > best:
            best = points[number][1]
            kept.append(number)
    return kept


def cost_plot(arms: Sequence[ArmFigures]) -> str | None:
    """Score against the cost of a trial, with the line of the arms that no other beats; None without any cost."""
    drawn = [figures for figures in arms if figures.score is not None and figures.cost_per_trial is not None]
    if not drawn:
        return None
    points = [(figures.cost_per_trial or 0.0, figures.score.mean if figures.score else 0.0) for figures in drawn]
    most = max(cost for cost, _ in points) or 1.0
    height, left, width = 320, 60, 560

    def at(cost: float, score: float) -> tuple[float, float]:
        return left + cost / (most * 1.08) * width, 16 + (1 - score) * (height - 60)

    parts = []
    for step in range(6):
        x, y = left + width * step / 5, 16 + (height - 60) * step / 5
        parts.append(f'<path class="grid" d="M{left} {y:.1f}h{width}"/>')
        parts.append(f'<text class="axis" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{1 - step / 5:.1f}</text>')
        label = f"${most * 1.08 * step / 5:.3g}"
        parts.append(f'<text class="axis" x="{x:.1f}" y="{height - 26}" text-anchor="middle">{label}</text>')
    line = [at(*points[number]) for number in pareto(points)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in line)
    parts.append(f'<path class="pareto" d="M{path}"/>')
    labels: list[tuple[float, float]] = []
    for figures, point in zip(drawn, points, strict=True):
        x, y = at(*point)
        is_right = x > left + 0.72 * width
        text_y = y - 8
        while any(abs(text_y - other) < 13 and abs(x - place) < 150 for place, other in labels):
            text_y += 13
        labels.append((x, text_y))
        anchor = 'text-anchor="end"' if is_right else ""
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(figures.arm)}</title></circle>')
        shift = -9 if is_right else 9
        parts.append(f'<text x="{x + shift:.1f}" y="{text_y:.1f}" {anchor}>{escape(_short(figures.arm))}</text>')
    parts.append(
        f'<text class="axis" x="{left + width / 2}" y="{height - 6}" text-anchor="middle">cost of a trial</text>'
    )
    return _svg(left + width + 40, height, "".join(parts), "Score against the cost of a trial")


def case_map(means: Sequence[Sequence[float | None]], names: Sequence[str], order: Sequence[int]) -> str:
    """A column for each case, the hardest first, and a row for each arm; the colour is the score."""
    cell = max(1, min(12, 900 // max(1, len(order))))
    row = 18
    paths: dict[str, list[str]] = {}
    for y, arm in enumerate(means):
        x = 0
        while x < len(order):
            colour = level_colour(arm[order[x]])
            end = x
            while end < len(order) and level_colour(arm[order[end]]) == colour:
                end += 1
            if colour is not None:
                paths.setdefault(colour, []).append(f"M{_LEFT + x * cell} {y * row + 9}h{(end - x) * cell}")
            x = end
    parts = [
        f'<path d="{"".join(lines)}" stroke="{colour}" stroke-width="{row - 2}" fill="none"/>'
        for colour, lines in paths.items()
    ]
    parts += [
        f'<text x="{_LEFT - 12}" y="{number * row + 13}" text-anchor="end">{escape(_short(name))}</text>'
        for number, name in enumerate(names)
    ]
    return _svg(_LEFT + len(order) * cell + 4, row * len(names) + 4, "".join(parts), "Score of each case by each arm")


def level_colour(score: float | None) -> str | None:
    """The colour of a score, or None for none."""
    return None if score is None else LEVELS[min(len(LEVELS) - 1, int(score * len(LEVELS)))]


def _short(name: str) -> str:
    return name if len(name) <= 32 else f"{name[:31]}…"


def _svg(width: float, height: float, body: str, label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img"'
        f' aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )
