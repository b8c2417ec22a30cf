"""Statistics, tests, rankings, information and series of `alc.math`: against scipy's values, and by their laws."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.alc.lua.lua_math import VALUES, LuaMath, MathError
from tests.tables import each_row

MATH = LuaMath()
call = MATH.call
TABLE = VALUES["statistics"]

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 6))
arrays = st.lists(numbers, min_size=1, max_size=40)
pairs = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=40)
weights = st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda ws: sum(ws) > 1e-3)


def near(value: Any, relative: float = 1e-12, absolute: float = 1e-14) -> Any:
    return pytest.approx(value, rel=relative, abs=absolute)


def normalised(values: list[float]) -> list[float]:
    return [value / math.fsum(values) for value in values]


@each_row(
    "name",
    [name for name in TABLE if not name.endswith("_test") and not name.startswith("mann")],
)
def test_values_are_those_of_scipy(name: str) -> None:
    for *arguments, wanted in TABLE[name]:
        assert call(name, *arguments) == near(wanted, 1e-12, 1e-15)


# --- one array -------------------------------------------------------------------------------------------------------


@given(arrays)
def test_mean_median_and_spread_are_those_of_python(values: list[float]) -> None:
    assert call("mean", values) == near(statistics.fmean(values), 1e-12, 1e-9)
    assert call("median", values) == near(statistics.median(values), 1e-12, 1e-9)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    assert call("stddev", values) == near(spread, 1e-9, 1e-9)
    assert call("variance", values) == near(spread**2, 1e-9, 1e-9)


@given(st.lists(numbers, min_size=2, max_size=40))
def test_quartiles_are_those_of_python(values: list[float]) -> None:
    first, second, third = statistics.quantiles(values, n=4, method="inclusive")
    assert call("percentile", values, 25) == near(first, 1e-12, 1e-9)
    assert call("percentile", values, 50) == near(second, 1e-12, 1e-9)
    assert call("iqr", values) == near(third - first, 1e-12, 1e-9)


def test_one_value_has_no_spread_and_is_every_percentile() -> None:
    assert [call("variance", [42]), call("stddev", [42]), call("iqr", [42])] == [0, 0, 0]
    assert [call("percentile", [42], p) for p in (0, 33, 100)] == [42, 42, 42]
    assert isinstance(call("mean", [1, 2, 3]), float)


def test_a_large_offset_does_not_spoil_the_variance() -> None:
    assert call("variance", [1e9 + x for x in (4, 7, 13, 16)]) == 30.0
    assert call("covariance", [1e9 + x for x in (4, 7, 13, 16)], [1e9 + x for x in (4, 7, 13, 16)]) == 30.0


def test_sums_past_the_largest_number_do_not_overflow() -> None:
    assert call("mean", [1.5e308, 1.5e308]) == 1.5e308
    assert call("percentile", [-1.5e308, 1.5e308], 50) == 0
    assert call("softmax", [1e308, -1e308]) == [1, 0]


def test_the_array_itself_is_left_alone() -> None:
    assert MATH.eval(
        """
        local t = {3, 1, 2}
        m.median(t) m.percentile(t, 10) m.iqr(t) m.rank(t) m.softmax(t) m.ewma(t, 0.5) m.ndcg(t, 3) m.log_normalize(t)
        m.ks_test(t, t) m.mann_whitney_u(t, {5})
        return #t == 3 and t[1] == 3 and t[2] == 1 and t[3] == 2
        """
    )


def test_metamethods_of_an_array_are_not_called() -> None:
    assert (
        MATH.eval(
            """
        local trap = function() error("called") end
        return m.mean(setmetatable({1, 2, 6}, {__index = trap, __len = trap}))
        """
        )
        == 3.0
    )


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=150))
def test_softmax_is_a_distribution_and_logsumexp_its_scale(values: list[float]) -> None:
    shares = call("softmax", values)
    assert math.fsum(shares) == near(1.0)
    top = max(values)
    whole = top + math.log(math.fsum(math.exp(x - top) for x in values))
    assert call("logsumexp", values) == near(whole, 1e-12, 1e-12)
    assert shares == near([math.exp(x - whole) for x in values], 1e-10)


def test_log_normalize_puts_the_largest_at_a_hundred() -> None:
    wanted = [math.log1p(x) / math.log1p(99) * 100 for x in (1, 9, 99)]
    assert call("log_normalize", [1, 9, 99]) == near(wanted)


# --- histogram, interval ---------------------------------------------------------------------------------------------


def test_a_histogram_has_counts_and_one_more_edge() -> None:
    assert call("histogram", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 3) == {
        "counts": [3, 3, 4],
        "edges": [1.0, 4.0, 7.0, 10.0],
    }
    assert all(isinstance(count, int) for count in call("histogram", [1, 2.5], 2)["counts"])


def test_equal_values_are_all_in_the_first_bin() -> None:
    assert call("histogram", [5, 5, 5], 4) == {"counts": [3, 0, 0, 0], "edges": [5.0, 5.25, 5.5, 5.75, 6.0]}


@given(st.lists(st.floats(-1.7e308, 1.7e308), min_size=1, max_size=30), st.integers(1, 20))
def test_every_value_is_in_one_bin(values: list[float], bins: int) -> None:
    histogram = call("histogram", values, bins)
    assert sum(histogram["counts"]) == len(values)
    assert len(histogram["counts"]) == bins
    assert histogram["edges"] == sorted(histogram["edges"])
    assert len(histogram["edges"]) == bins + 1


def test_the_wilson_interval_is_right() -> None:
    for arguments, (lower, upper, center) in VALUES["special"]["wilson_ci"]:
        assert call("wilson_ci", *arguments) == near({"lower": lower, "upper": upper, "center": center})


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0, 1))
def test_the_wilson_interval_holds_the_share(total: int, part: float, confidence: float) -> None:
    successes = round(part * total)
    interval = call("wilson_ci", successes, total, confidence)
    assert 0 <= interval["lower"] <= successes / total <= interval["upper"] <= 1


def test_full_confidence_is_everything() -> None:
    assert call("wilson_ci", 3, 10, 1) == {"lower": 0, "upper": 1, "center": 0.5}


# --- two arrays ------------------------------------------------------------------------------------------------------


@given(pairs)
def test_correlations_are_symmetric_and_bounded(points: list[tuple[float, float]]) -> None:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    assume(max(xs) - min(xs) > 1e-3 and max(ys) - min(ys) > 1e-3)
    assert call("covariance", xs, ys) == near(statistics.covariance(xs, ys), 1e-9, 1e-3)
    for name in ("correlation", "spearman_correlation", "kendall_tau"):
        value = call(name, xs, ys)
        assert -1 <= value <= 1
        assert call(name, ys, xs) == near(value)
        assert call(name, xs, [-y for y in ys]) == near(-value, 1e-12, 1e-12)


@given(pairs)
def test_tau_counts_pairs(points: list[tuple[float, float]]) -> None:
    xs, ys = [round(x / 3e5) for x, _ in points], [round(y / 3e5) for _, y in points]
    assume(len(set(xs)) > 1 and len(set(ys)) > 1)
    signs = [
        ((a > b) - (a < b), (c > d) - (c < d)) for (a, c), (b, d) in itertools.combinations(zip(xs, ys, strict=True), 2)
    ]
    wanted = sum(s * t for s, t in signs) / math.sqrt(sum(s * s for s, _ in signs) * sum(t * t for _, t in signs))
    assert call("kendall_tau", xs, ys) == near(wanted)


@given(arrays)
def test_ranks_sum_as_if_there_were_no_ties(values: list[float]) -> None:
    ranks = call("rank", values)
    assert math.fsum(ranks) == len(values) * (len(values) + 1) / 2
    for i, j in itertools.combinations(range(len(values)), 2):
        assert (values[i] < values[j]) == (ranks[i] < ranks[j])


# --- tests of hypotheses ---------------------------------------------------------------------------------------------


def test_welchs_t_is_that_of_scipy() -> None:
    for xs, ys, (t, p, df) in TABLE["welch_t_test"]:
        assert call("welch_t_test", xs, ys) == near({"t_stat": t, "df": df, "p_value": p}, 1e-10, 0)


def test_a_tiny_p_value_of_welch_is_not_zero() -> None:
    result = call("welch_t_test", [0.001 * i for i in range(30)], [1 + 0.001 * i for i in range(30)])
    assert 0 < result["p_value"] < 1e-60


def test_equal_groups_have_a_p_value_of_one() -> None:
    assert call("welch_t_test", [1, 2, 3], [1, 2, 3])["p_value"] == 1.0
    assert call("mann_whitney_u", [1, 2, 3], [1, 2, 3])["p_value"] == 1.0
    assert call("ks_test", [5, 5, 5], [5, 5]) == {"d_stat": 0.0, "p_value": 1.0}


def test_mann_whitney_with_corrected_ties_is_that_of_scipy() -> None:
    for xs, ys, (u, p) in TABLE["mann_whitney_u_ties_corrected"]:
        options = MATH.vm.table_from({b"tie_correction": True})
        result = call("mann_whitney_u", xs, ys, options)
        assert result["u_stat"] == u
        assert result["p_value"] == near(p, 1e-10, 0)
        assert call("normal_cdf", result["z_score"], 0, 1) * 2 == near(p, 1e-10, 0)


def test_mann_whitney_ignores_ties_unless_told() -> None:
    plain = call("mann_whitney_u", [1, 2, 2, 3, 3], [4, 5, 5, 6, 6])
    assert plain["u_stat"] == 0
    assert plain["z_score"] == near(-12.5 / math.sqrt(25 * 11 / 12))
    corrected = call("mann_whitney_u", [1, 2, 2, 3, 3], [4, 5, 5, 6, 6], MATH.vm.table_from({b"tie_correction": True}))
    assert corrected["p_value"] < plain["p_value"]


def test_chi_squared_and_kolmogorov_are_right() -> None:
    for observed, expected, (chi2, p) in TABLE["chi_squared_test"]:
        wanted = {"chi2_stat": chi2, "df": len(observed) - 1, "p_value": p}
        assert call("chi_squared_test", observed, expected) == near(wanted)
    for xs, ys, (d, p) in TABLE["ks_test"]:
        assert call("ks_test", xs, ys) == near({"d_stat": d, "p_value": p}, 1e-11)


@given(arrays, arrays)
def test_kolmogorov_takes_the_largest_gap_between_the_steps(xs: list[float], ys: list[float]) -> None:
    gap = max(abs(sum(x <= at for x in xs) / len(xs) - sum(y <= at for y in ys) / len(ys)) for at in xs + ys)
    result = call("ks_test", xs, ys)
    assert result["d_stat"] == near(gap)
    assert 0 <= result["p_value"] <= 1


@each_row("shift", [6, 12, 13, 20, 40, 60])
def test_the_p_value_of_kolmogorov_is_its_series_on_both_sides_of_the_switch(shift: int) -> None:
    size = 60
    root = math.sqrt(size / 2)
    x = (root + 0.12 + 0.11 / root) * shift / size
    series = 2 * math.fsum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 60))
    result = call("ks_test", list(range(size)), [value + shift for value in range(size)])
    assert result == near({"d_stat": shift / size, "p_value": series}, 1e-10, 0)


# --- rankings --------------------------------------------------------------------------------------------------------


def test_ndcg_has_linear_gains() -> None:
    found = 1 + 2 / math.log2(3) + 3 / math.log2(4)
    ideal = 3 + 2 / math.log2(3) + 1 / math.log2(4)
    assert call("ndcg", [1, 2, 3], 3) == near(found / ideal)
    assert call("ndcg", [3, 2, 1], 99) == 1.0
    assert call("ndcg", [1, 2, 3], 1) == near(1 / 3)
    assert [call("ndcg", [1, 2], 0), call("ndcg", [0, 0], 2)] == [0.0, 0.0]


def test_mrr_is_the_mean_of_reciprocal_ranks() -> None:
    assert call("mrr", [1, 2, 5]) == near((1 + 0.5 + 0.2) / 3)


# --- information -----------------------------------------------------------------------------------------------------


@given(weights, st.data())
def test_divergences_fit_together(ws: list[float], data: st.DataObject) -> None:
    p = normalised(ws)
    q = normalised([data.draw(st.floats(0.01, 1)) for _ in p])
    entropy, cross, kl = call("entropy", p), call("cross_entropy", p, q), call("kl_divergence", p, q)
    assert cross == near(entropy + kl, 1e-10, 1e-12)
    assert 0 <= entropy <= math.log(len(p)) + 1e-12
    assert kl >= 0
    js = call("js_divergence", p, q)
    assert js == near(call("js_divergence", q, p), 1e-10)
    assert 0 <= js <= math.log(2) + 1e-12


def test_certainty_has_no_entropy() -> None:
    assert call("entropy", [1, 0, 0]) == 0
    assert call("entropy", [0.25] * 4) == near(math.log(4))
    assert call("js_divergence", [1, 0], [0, 1]) == near(math.log(2))


# --- series ----------------------------------------------------------------------------------------------------------


@given(arrays, st.data())
def test_a_moving_average_is_the_mean_of_each_window(values: list[float], data: st.DataObject) -> None:
    window = data.draw(st.integers(1, len(values)))
    wanted = [math.fsum(values[i : i + window]) / window for i in range(len(values) - window + 1)]
    assert call("moving_average", values, window) == near(wanted, 1e-12, 1e-12)


def test_what_has_left_the_window_leaves_nothing_behind() -> None:
    assert call("moving_average", [1e17, 1, 1, 1, 1], 2)[1:] == [1, 1, 1]


def test_ewma_starts_at_the_first_value() -> None:
    assert call("ewma", [10, 20, 30], 0.5) == [10, 15, 22.5]
    assert call("ewma", [10, 20, 30], 0) == [10, 10, 10]
    assert call("ewma", [10, 20, 30], 1) == [10, 20, 30]


def test_autocorrelation_at_lags() -> None:
    assert call("autocorrelation", [1, 2, 3, 4], 0) == 1.0
    assert call("autocorrelation", [7, 7], 0) == 1.0
    assert call("autocorrelation", [1, 2, 3, 4], 1) == near(0.25)
    assert call("autocorrelation", [1, -1] * 50, 1) == near(-0.99)


def test_permutations_come_in_the_order_of_heap() -> None:
    assert call("permutations", 3) == [[1, 2, 3], [2, 1, 3], [3, 1, 2], [1, 3, 2], [2, 3, 1], [3, 2, 1]]
    assert call("permutations", 1) == [[1]]


@each_row("n", [2, 4, 5, 8])
def test_permutations_are_all_of_them_each_a_swap_from_the_last(n: int) -> None:
    rows = call("permutations", n)
    assert sorted(rows) == [list(row) for row in itertools.permutations(range(1, n + 1))]
    assert all(sum(a != b for a, b in zip(x, y, strict=True)) == 2 for x, y in itertools.pairwise(rows))


# --- errors ----------------------------------------------------------------------------------------------------------

ARRAYS: list[tuple[str, str, list[Any]]] = [
    *(
        (name, "values", [])
        for name in ["mean", "variance", "stddev", "median", "iqr", "softmax", "logsumexp", "log_normalize", "rank"]
    ),
    *((name, "values", [1]) for name in ["percentile", "histogram", "moving_average", "ewma", "autocorrelation"]),
    *((name, "xs", [[1, 2]]) for name in ["covariance", "correlation", "spearman_correlation", "kendall_tau"]),
    *((name, "xs", [[1, 2]]) for name in ["welch_t_test", "mann_whitney_u", "ks_test"]),
    ("chi_squared_test", "observed", [[1, 2]]),
    ("ndcg", "relevance", [1]),
    ("mrr", "rankings", []),
    ("entropy", "probs", []),
    *((name, "p", [[0.5, 0.5]]) for name in ["kl_divergence", "js_divergence", "cross_entropy"]),
]


@each_row(("name", "argument", "rest"), ARRAYS)
def test_every_array_must_be_non_empty_and_finite(name: str, argument: str, rest: list[Any]) -> None:
    for value, message in (
        ([], " must be a non-empty array"),
        ([0.5, math.nan], "[2] must be finite, got nan"),
        ([math.inf, 0.5], "[1] must be finite, got inf"),
        ([0.5, "x"], "[2] must be a number, got string"),
        (7, " must be an array (a table), got number"),
        (None, " must be an array (a table), got nil"),
    ):
        with pytest.raises(MathError) as raised:
            call(name, value, *rest)
        assert str(raised.value) == f"alc.math.{name}: {argument}{message}"


BAD: list[tuple[str, list[Any], str]] = [
    ("percentile", [[1], 101], "p must be in [0, 100], got 101"),
    ("percentile", [[1], -1], "p must be in [0, 100], got -1"),
    ("covariance", [[1], [1]], "xs needs at least 2 values, got 1"),
    ("covariance", [[1, 2], [1, 2, 3]], "xs and ys must have the same length, got 2 and 3"),
    ("correlation", [[1, 1], [1, 2]], "xs and ys must both vary: one has zero variance"),
    ("spearman_correlation", [[1, 1], [1, 2]], "xs and ys must both vary: the values of one are all tied"),
    ("kendall_tau", [[1, 2], [1, 1]], "xs and ys must both vary: the values of one are all tied"),
    ("log_normalize", [[1, 0]], "values[2] must be > 0, got 0"),
    ("histogram", [[1], 0], "bins must be >= 1, got 0"),
    ("wilson_ci", [1, 0, 0.95], "total must be finite and > 0, got 0"),
    ("wilson_ci", [11, 10, 0.95], "successes must be in [0, 10], got 11"),
    ("wilson_ci", [1, 10, 95], "confidence must be in [0, 1], got 95"),
    ("welch_t_test", [[1], [1, 2]], "xs needs at least 2 values, got 1"),
    ("welch_t_test", [[1, 1], [2, 2]], "xs and ys both have zero variance: there is nothing to compare with"),
    ("mann_whitney_u", [[1], [2], 3], "options must be a table such as {tie_correction = true}, got number"),
    ("chi_squared_test", [[1, 2], [1, 0]], "expected[2] must be > 0, got 0"),
    ("chi_squared_test", [[1], [1]], "observed needs at least 2 values, got 1"),
    ("ndcg", [[1], -1], "k must be >= 0, got -1"),
    ("mrr", [[0]], "rankings[1] must be an integer >= 1, got 0"),
    ("mrr", [[1, 1.5]], "rankings[2] must be an integer >= 1, got 1.5"),
    ("entropy", [[0.5, 0.6]], "probs must sum to 1, got 1.1"),
    ("entropy", [[1.5, -0.5]], "probs[2] must be >= 0, got -0.5"),
    ("kl_divergence", [[0.5, 0.5], [1]], "p and q must have the same length, got 2 and 1"),
    ("kl_divergence", [[0.5, 0.5], [1, 0]], "q[2] must be > 0 where p[2] is: the divergence is infinite"),
    ("cross_entropy", [[0.5, 0.5], [1, 0]], "q[2] must be > 0 where p[2] is: the divergence is infinite"),
    ("js_divergence", [[0.5, 0.5], [0.5, 0.4]], "q must sum to 1, got 0.9"),
    ("moving_average", [[1, 2], 3], "window must be in [1, 2], got 3"),
    ("moving_average", [[1, 2], 0], "window must be in [1, 2], got 0"),
    ("ewma", [[1], 1.5], "alpha must be in [0, 1], got 1.5"),
    ("autocorrelation", [[1, 2], 2], "lag must be in [0, 1], got 2"),
    ("autocorrelation", [[1, 1], 1], "values must vary: they have zero variance"),
    ("permutations", [0], "n must be in [1, 8], got 0"),
    ("permutations", [9], "n must be in [1, 8], got 9"),
]


@each_row(("name", "arguments", "message"), BAD)
def test_an_error_names_the_function_and_the_argument(name: str, arguments: list[Any], message: str) -> None:
    with pytest.raises(MathError) as raised:
        call(name, *arguments)
    assert str(raised.value) == f"alc.math.{name}: {message}"


def test_all_values_the_same_cannot_be_ranked_with_ties_corrected() -> None:
    with pytest.raises(MathError, match="all values of xs and ys are the same"):
        call("mann_whitney_u", [1, 1], [1], MATH.vm.table_from({b"tie_correction": True}))
