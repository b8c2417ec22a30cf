"""The statistics of evaluations: every formula with a number it must give, and scipy's answers on random data."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from holdfast.strategies.evaluation.statistics.comparisons import (
    Noise,
    cases_needed,
    cohens_kappa,
    detectable_difference,
    holm,
    paired,
    welch,
)
from holdfast.strategies.evaluation.statistics.distributions import binomial_two_sided, t_quantile, t_two_sided
from holdfast.strategies.evaluation.statistics.estimates import (
    bootstrap,
    estimate,
    mean,
    pass_all,
    pass_at,
    percentile,
    spread,
    wilson,
)


def bits(text: str) -> list[float]:
    return [float(each) for each in text]


def near(value: float, digits: int = 7) -> object:
    """The value as it is printed with so many digits."""
    return pytest.approx(value, abs=0.51 * 10**-digits)


def test_the_standard_error_is_that_of_case_means() -> None:
    found = estimate(bits("1011010111"))
    assert (found.mean, found.n, found.df) == (0.7, 10, 9)
    assert found.std == near(0.4830459)
    assert found.se == near(0.1527525)
    assert found.interval is not None
    assert found.interval.low == near(0.7 - 2.2621572 * 0.1527525, 6)
    assert found.interval.high == 1.0, "cut to the scale"


@pytest.mark.parametrize(("df", "expected"), [(4, 2.7764451), (9, 2.2621572), (999, 1.9623415)])
def test_quantiles_of_student(df: int, expected: float) -> None:
    assert t_quantile(0.975, df) == near(expected)
    assert t_quantile(0.025, df) == near(-expected)
    assert t_two_sided(t_quantile(0.975, df), df) == pytest.approx(0.05, abs=1e-12)


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [(8, 10, 0.4901625, 0.9433178), (655, 1000, 0.6249942, 0.6838195), (0, 20, 0.0, 0.1611252)],
)
def test_pass_rates_have_wilsons_interval(passed: int, n: int, low: float, high: float) -> None:
    found = wilson(passed, n)
    assert (found.low, found.high) == (near(low), near(high))


def test_clusters_widen_the_standard_error() -> None:
    values = bits("111001101000111")
    clusters = [number // 3 for number in range(15)]
    found, naive = estimate(values, clusters), estimate(values)
    assert naive.se == near(0.1309307)
    assert found.mean == pytest.approx(0.6)
    assert found.se == near(0.1943651)
    assert found.design_effect == near(2.2037037)
    assert (found.clusters, found.df) == (5, 4)
    means = [mean(values[start : start + 3]) for start in range(0, 15, 3)]
    assert found.se == pytest.approx(estimate(means).se, abs=1e-12), "with clusters of one size"


def test_differences_are_paired_by_case() -> None:
    first, second = bits("1101011011"), bits("1001001010")
    found = paired(first, second)
    assert found.difference.mean == pytest.approx(0.3)
    assert found.difference.se == near(0.1527525)
    assert found.test is not None
    assert (found.test.t, found.test.df, found.test.p) == (near(1.9639610), 9, near(0.0811262))
    unpaired = welch(first, second)
    assert unpaired is not None
    assert unpaired.p == near(0.1964675)
    assert (found.better, found.worse, found.mcnemar) == (3, 0, 0.25)


def test_the_interval_of_a_difference_ends_where_differences_end() -> None:
    found = paired([1.0, 1.0, 0.9], [0.0, 0.1, 0.6])
    interval = found.difference.interval
    assert interval is not None
    assert (interval.low, interval.high) == (near(-0.2071460), 1.0)
    assert found.difference.se == near(0.2185813), "as without the cut"
    turned = paired([0.0, 0.1, 0.6], [1.0, 1.0, 0.9], ["a", "b", "c"]).difference.interval
    assert turned is not None
    assert (turned.low, turned.high) == (-1.0, near(0.2071460))
    inner = paired(bits("1101011011"), bits("1001001010")).difference.interval
    assert inner is not None
    assert (inner.low, inner.high) == (near(0.3 - 2.2621572 * 0.1527525), near(0.3 + 2.2621572 * 0.1527525))


def test_repeats_are_averaged_before_they_are_paired() -> None:
    first = [mean(bits(each)) for each in ("110", "111", "001", "000")]
    second = [mean(bits(each)) for each in ("100", "111", "000", "010")]
    found = paired(first, second)
    assert found.difference.mean == near(0.0833333)
    assert found.difference.se == near(0.1595712)
    assert found.test is not None
    assert (found.test.t, found.test.p) == (near(0.5222330), near(0.6376181))
    assert found.mcnemar is None, "means of several tries do not pass or fail"


@pytest.mark.parametrize(("first", "second", "expected"), [(3, 0, 0.25), (12, 3, 0.0351563), (25, 10, 0.0166738)])
def test_mcnemars_test_is_exact(first: int, second: int, expected: float) -> None:
    assert binomial_two_sided(first, second) == near(expected)
    assert binomial_two_sided(second, first) == near(expected)


def test_many_disagreements_do_not_overflow() -> None:
    assert binomial_two_sided(2000, 1000) == pytest.approx(0.0, abs=1e-50)
    assert binomial_two_sided(1000, 1000) == 1.0


def test_the_bootstrap_draws_cases() -> None:
    differences = [a - b for a, b in zip(bits("1101011011"), bits("1001001010"), strict=True)]
    assert bootstrap(differences, seed=0) == (0.0, near(0.6))


def test_the_bootstrap_draws_whole_clusters() -> None:
    low, high = bootstrap(bits("111000"), seed=1, draws=1000, clusters=[1, 1, 1, 2, 2, 2])
    assert (low, high) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.3), (2, 0.533333), (5, 0.916667)])
def test_pass_at_k(k: int, expected: float) -> None:
    assert pass_at(k, 10, 3) == near(expected, 6)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.7), (2, 0.466667), (5, 0.083333)])
def test_pass_all_k(k: int, expected: float) -> None:
    assert pass_all(k, 10, 7) == near(expected, 6)


def test_more_passes_than_repeats_are_absent() -> None:
    assert pass_at(4, 3, 1) is None
    assert pass_all(4, 3, 1) is None


def test_the_spread_is_within_and_between_cases() -> None:
    repeats = [bits(each) for each in ("110", "111", "001", "000")]
    found = spread(repeats)
    assert found is not None
    assert (found.within, found.between) == (near(0.1666667), near(0.1296296))
    means = estimate([mean(each) for each in repeats])
    assert (means.mean, means.se) == (0.5, near(0.2151657))
    assert spread([[1.0], [0.0]]) is None


def test_holms_correction_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [pytest.approx(each) for each in (0.03, 0.06, 0.06, 0.02)]
    assert holm([]) == []


def test_cases_that_are_needed() -> None:
    assert cases_needed(0.03, 1 / 9) == 969
    assert cases_needed(0.03, 1 / 9, Noise(0.1, 5), Noise(0.1, 5)) == 1318
    assert detectable_difference(1000, 0.45) == near(0.0398673)


def test_kappa_is_agreement_beyond_chance() -> None:
    assert cohens_kappa(20, 5, 10, 15) == pytest.approx(0.4)
    assert cohens_kappa(10, 0, 0, 0) == 1.0


def test_a_single_case_has_no_interval() -> None:
    assert estimate([1.0]).interval is None
    assert paired([1.0], [0.0]).test is None
    assert paired([1.0, 1.0], [0.0, 0.0]).test is None, "nothing varies"


def test_percentiles_lie_between_values() -> None:
    assert percentile([1, 2, 3, 4], 0.5) == 2.5
    assert percentile([7], 0.95) == 7


def _null_sets(runs: int, seed: int) -> Sequence[tuple[list[float], list[float], list[int]]]:
    """Two arms without any true difference, on 40 clusters of 5 cases that resemble each other."""
    generator = random.Random(seed)
    sets = []
    for _ in range(runs):
        first, second, clusters = [], [], []
        for cluster in range(40):
            ease, shift = generator.gauss(0, 0.15), generator.gauss(0, 0.1)
            for _case in range(5):
                p = min(0.95, max(0.05, 0.6 + ease + generator.gauss(0, 0.1)))
                first.append(sum(generator.random() < min(1, max(0, p + shift)) for _ in range(3)) / 3)
                second.append(sum(generator.random() < min(1, max(0, p - shift)) for _ in range(3)) / 3)
                clusters.append(cluster)
        sets.append((first, second, clusters))
    return sets


def test_no_true_difference_is_found_in_five_of_a_hundred_runs() -> None:
    alarms = clustered = 0
    for first, second, clusters in _null_sets(1000, 4):
        found = paired(first, second, clusters).test
        clustered += found is not None and found.p < 0.05
    generator = random.Random(3)
    for _ in range(1000):
        cases = [generator.uniform(0.2, 0.9) for _ in range(100)]
        sides = [[float(generator.random() < p) for p in cases] for _ in range(2)]
        test = paired(*sides).test
        alarms += test is not None and test.p < 0.05
    assert alarms / 1000 == pytest.approx(0.05, abs=0.015)
    assert clustered / 1000 == pytest.approx(0.05, abs=0.015)


def test_intervals_cover_the_truth_in_95_of_100_runs() -> None:
    generator, covered = random.Random(5), 0
    for _ in range(1000):
        passed = sum(generator.random() < 0.7 for _ in range(120))
        found = wilson(passed, 120)
        covered += found.low <= 0.7 <= found.high
    assert covered / 1000 == pytest.approx(0.95, abs=0.015)


def test_random_sets_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed: compare with it where it is")
    generator = random.Random(11)
    for _ in range(200):
        n = generator.randint(3, 400)
        first = [generator.random() for _ in range(n)]
        second = [min(1.0, max(0.0, each + generator.gauss(0.02, 0.2))) for each in first]
        theirs, ours = stats.ttest_rel(first, second), paired(first, second).test
        assert ours is not None
        assert [ours.t, ours.p] == pytest.approx([theirs.statistic, theirs.pvalue], abs=1e-9)
        unequal, own = stats.ttest_ind(first, second, equal_var=False), welch(first, second)
        assert own is not None
        assert own.p == pytest.approx(unequal.pvalue, abs=1e-9)
        df = generator.uniform(1, 2000)
        assert t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df), abs=1e-9)
        b, c = generator.randint(0, 60), generator.randint(0, 60)
        exact = stats.binomtest(b, b + c).pvalue if b + c else 1.0
        assert binomial_two_sided(b, c) == pytest.approx(exact, abs=1e-9)
        passed = generator.randint(0, n)
        interval = stats.binomtest(passed, n).proportion_ci(method="wilson")
        mine = wilson(passed, n)
        assert [mine.low, mine.high] == pytest.approx([interval.low, interval.high], abs=1e-9)
        assert math.isfinite(mine.low)
