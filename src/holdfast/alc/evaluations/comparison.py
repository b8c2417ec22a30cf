"""Two results compared: Welch's test, as algocline's clients know it, and the difference on the same cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from holdfast.alc.evaluations.results import EvalResultNotFoundError
from holdfast.strategies.evaluation.digests import digest
from holdfast.strategies.evaluation.statistics.comparisons import paired
from holdfast.strategies.evaluation.statistics.distributions import t_two_sided

LEVEL = 0.05
"""The p below which a difference is called significant."""

_EQUAL = 0.001
"""The t below which two means are called equal."""


def compare_results(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """How two results differ, the first minus the second. Raises `EvalResultNotFoundError` if one has no figures."""
    sides = {"a": _side(first), "b": _side(second)}
    scores = [sides[name]["scores"] for name in ("a", "b")]
    test = welch_test(*scores)
    delta = scores[0]["mean"] - scores[1]["mean"]
    winner = ("a" if delta > 0 else "b") if test["significant"] else "none"
    return {
        **sides,
        "comparison": {
            "delta_mean": delta,
            "welch_t": {name: test[name] for name in ("t_stat", "df", "significant", "direction")},
            "winner": winner,
            "summary": _summary(sides, test, delta, winner),
            "paired": paired_difference(first, second),
        },
    }


def _side(result: Mapping[str, Any]) -> dict[str, Any]:
    report = result.get("result")
    aggregated = report.get("aggregated") if isinstance(report, Mapping) else None
    if not isinstance(aggregated, Mapping) or not isinstance(aggregated.get("scores"), Mapping):
        raise EvalResultNotFoundError(f"No aggregated scores in {result['eval_id']}")
    assert isinstance(report, Mapping)
    return {
        "eval_id": result["eval_id"],
        "strategy": report.get("name") or result.get("strategy") or result["eval_id"],
        "scores": dict(aggregated["scores"]),
        "pass_rate": aggregated.get("pass_rate"),
        "pass_at_1": aggregated.get("pass_at_1"),
        "ci_95": aggregated.get("ci_95"),
    }


def welch_test(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Welch's unpaired test of two lists of scores in short."""
    counts = [int(each["n"]) for each in (first, second)]
    if min(counts) < 2:
        return {"t_stat": 0.0, "df": 0.0, "significant": False, "direction": "insufficient_data", "p_value": None}
    parts = [float(each["std_dev"]) ** 2 / n for each, n in zip((first, second), counts, strict=True)]
    error = sum(parts)
    if error == 0.0:
        return {"t_stat": 0.0, "df": sum(counts) - 2, "significant": False, "direction": "equal", "p_value": None}
    t = (float(first["mean"]) - float(second["mean"])) / math.sqrt(error)
    df = error**2 / sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True))
    p = t_two_sided(t, df)
    direction = "equal" if abs(t) < _EQUAL else "a>b" if t > 0 else "a<b"
    return {"t_stat": t, "df": df, "significant": p < LEVEL, "direction": direction, "p_value": p}


def paired_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any] | None:
    """The difference on the cases that both have, by their inputs; None if there are none."""
    means = [_case_means(result) for result in (first, second)]
    common = [case for case in means[0] if case in means[1]]
    if not common:
        return None
    found = paired([means[0][case] for case in common], [means[1][case] for case in common])
    interval = found.difference.interval
    return {
        "cases": len(common),
        "delta_mean": found.difference.mean,
        "ci_95": None if interval is None else {"lower": interval.low, "upper": interval.high},
        "t_stat": None if found.test is None else found.test.t,
        "df": None if found.test is None else found.test.df,
        "p_value": None if found.test is None else found.test.p,
        "mcnemar_p": found.mcnemar,
        "only_a_better": found.better,
        "only_b_better": found.worse,
    }


def _case_means(result: Mapping[str, Any]) -> dict[str, float]:
    scores: dict[str, list[float]] = {}
    for each in result["result"].get("results") or ():
        case = each.get("case") or {}
        scores.setdefault(digest([case.get("input"), case.get("expected")], 16), []).append(float(each["score"]))
    return {case: math.fsum(values) / len(values) for case, values in scores.items()}


def _summary(sides: Mapping[str, Any], test: Mapping[str, Any], delta: float, winner: str) -> str:
    a, b = sides["a"], sides["b"]
    figures = f"t={abs(test['t_stat']):.3f}, df={test['df']:.1f}"
    if winner == "none":
        parts = [f"No significant difference between {a['strategy']} and {b['strategy']} was found ({figures})."]
    else:
        better, worse = (a, b) if winner == "a" else (b, a)
        names = f"{better['strategy']} outperforms {worse['strategy']}"
        parts = [f"{names} by {abs(delta):.4f} in the mean score ({figures})."]
    if a["pass_rate"] is not None and b["pass_rate"] is not None:
        rates = f"{100 * a['pass_rate']:.1f} % against {100 * b['pass_rate']:.1f} %"
        parts.append(f"Pass rates: {rates}.")
    return " ".join(parts)
