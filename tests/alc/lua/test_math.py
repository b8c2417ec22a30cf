"""The special functions and distributions of `alc.math`, against values computed to many digits, and by their laws."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.alc.lua.lua_math import VALUES, LuaMath, MathError
from tests.alc.lua.scripted import run
from tests.tables import each_row

MATH = LuaMath()
call = MATH.call

NAMES = """
rng_create rng_float rng_int shuffle sample_with_replacement
normal_sample beta_sample gamma_sample exp_sample uniform_sample lognormal_sample student_t_sample chi_squared_sample
poisson_sample binomial_sample dirichlet_sample categorical_sample
mean variance stddev median percentile iqr covariance correlation softmax log_normalize histogram wilson_ci
normal_cdf beta_cdf gamma_cdf poisson_cdf normal_inverse_cdf normal_ppf beta_ppf beta_mean beta_variance
erf erfc lgamma beta ln_beta regularized_incomplete_beta regularized_incomplete_gamma digamma factorial ln_factorial
logsumexp logit expit
welch_t_test mann_whitney_u chi_squared_test ks_test
rank spearman_correlation kendall_tau ndcg mrr
entropy kl_divergence js_divergence cross_entropy
moving_average ewma autocorrelation permutations
"""

SPECIAL = [name for name in VALUES["special"] if name != "wilson_ci"]

unit = st.floats(0, 1)
inside = st.floats(1e-300, 1, exclude_max=True)
shapes = st.floats(0.01, 1e6)
finite = st.floats(-1e300, 1e300)


def near(value: float, relative: float = 1e-12, absolute: float = 0.0) -> Any:
    return pytest.approx(value, rel=relative, abs=absolute)


def test_it_has_exactly_the_documented_functions() -> None:
    assert sorted(key.decode() for key in MATH.table) == sorted(NAMES.split())


def test_a_program_reaches_it_as_alc_math() -> None:
    ended = run(
        "return {alc.math.median({3, 1, 2}), alc.math.rng_float(alc.math.rng_create(42)), alc.math.factorial(5)}"
    )
    assert ended.result == [2.0, 0.5265574090027738, 120.0]


def test_a_program_reads_what_was_wrong() -> None:
    assert run("return alc.math.percentile({1, 2}, 101)").error.startswith(
        "alc.math.percentile: p must be in [0, 100], got 101"
    )


@each_row("name", SPECIAL)
def test_every_value_is_right_to_twelve_digits(name: str) -> None:
    wrong = [
        (arguments, got, wanted)
        for arguments, wanted in VALUES["special"][name]
        if (got := call(name, *arguments)) != near(wanted, absolute=1e-16 if wanted == 0 else 0.0)
    ]
    assert wrong == []


@each_row(
    ("name", "arguments"),
    [("factorial", [5]), ("erf", [1]), ("beta_mean", [2, 5]), ("lgamma", [3]), ("poisson_cdf", [3, 2])],
)
def test_real_functions_give_floats_even_for_integers(name: str, arguments: list[int]) -> None:
    assert isinstance(call(name, *arguments), float)


def test_numbers_may_be_given_as_text_as_in_lua_arithmetic() -> None:
    assert call("erf", "0.5") == call("erf", 0.5)
    assert call("factorial", "5") == 120.0


def test_a_whole_argument_loses_its_fraction() -> None:
    assert call("factorial", 5.9) == 120.0
    assert call("poisson_cdf", 2.9, 1.5) == call("poisson_cdf", 2, 1.5)


def test_ends_of_the_line() -> None:
    inf = math.inf
    assert [call("erf", inf), call("erf", -inf), call("erfc", inf), call("erfc", -inf)] == [1, -1, 0, 2]
    assert [call("normal_cdf", inf, 0, 1), call("normal_cdf", -inf, 0, 1)] == [1, 0]
    assert [call("normal_ppf", 0), call("normal_ppf", 1)] == [-inf, inf]
    assert [call("expit", inf), call("expit", -inf)] == [1, 0]
    assert [call("beta_cdf", -1, 2, 3), call("beta_cdf", 7, 2, 3)] == [0, 1]
    assert [call("gamma_cdf", -1, 2, 3), call("gamma_cdf", inf, 2, 3)] == [0, 1]
    assert [call("beta_ppf", 0, 2, 3), call("beta_ppf", 1, 2, 3)] == [0, 1]
    assert [call("regularized_incomplete_gamma", 2, 0), call("regularized_incomplete_gamma", 2, inf)] == [0, 1]
    assert [call("lgamma", inf), call("digamma", inf)] == [inf, inf]


@each_row("x", [0.0, -1.0, -2.0, -100.0])
def test_poles_are_infinite(x: float) -> None:
    assert call("lgamma", x) == math.inf
    assert call("digamma", x) == -math.inf


@each_row("name", ["erf", "erfc", "lgamma", "digamma", "expit"])
def test_not_a_number_stays_so_where_the_whole_line_is_allowed(name: str) -> None:
    assert math.isnan(call(name, math.nan))


def test_not_a_number_stays_so_through_a_distribution() -> None:
    assert math.isnan(call("normal_cdf", math.nan, 0, 1))
    assert math.isnan(call("beta_cdf", math.nan, 1, 1))
    assert math.isnan(call("gamma_cdf", math.nan, 1, 1))


NAN = math.nan
BAD: list[tuple[str, list[Any], str]] = [
    ("erf", ["x"], "x must be a number, got string"),
    ("erf", [], "x must be a number, got nil"),
    ("lgamma", [[1]], "x must be a number, got table"),
    ("beta", [0, 1], "a must be finite and > 0, got 0"),
    ("beta", [1, -2], "b must be finite and > 0, got -2"),
    ("ln_beta", [NAN, 1], "a must be finite and > 0, got nan"),
    ("regularized_incomplete_beta", [1.5, 1, 1], "x must be in [0, 1], got 1.5"),
    ("regularized_incomplete_beta", [0.5, 0, 1], "a must be finite and > 0, got 0"),
    ("regularized_incomplete_gamma", [0, 1], "a must be finite and > 0, got 0"),
    ("regularized_incomplete_gamma", [1, -1], "x must be in [0, inf], got -1"),
    ("factorial", [171], "n must be in [0, 170], got 171"),
    ("factorial", [-1], "n must be in [0, 170], got -1"),
    ("factorial", [NAN], "n must be a 64-bit integer, got nan"),
    ("ln_factorial", [-1], "n must be >= 0, got -1"),
    ("ln_factorial", [1e300], "n must be a 64-bit integer, got 1e+300"),
    ("logit", [0], "p must be in (0, 1), got 0"),
    ("logit", [1], "p must be in (0, 1), got 1"),
    ("logit", [NAN], "p must be in (0, 1), got nan"),
    ("normal_cdf", [0, 0, 0], "sigma must be finite and > 0, got 0"),
    ("normal_cdf", [0, math.inf, 1], "mu must be finite, got inf"),
    ("normal_ppf", [1.1], "p must be in [0, 1], got 1.1"),
    ("normal_ppf", [NAN], "p must be in [0, 1], got nan"),
    ("normal_inverse_cdf", [-0.1, 0, 1], "p must be in [0, 1], got -0.1"),
    ("normal_inverse_cdf", [0.5, 0, -1], "sigma must be finite and > 0, got -1"),
    ("beta_cdf", [0.5, -1, 1], "alpha must be finite and > 0, got -1"),
    ("beta_cdf", [0.5, 1, 0], "beta must be finite and > 0, got 0"),
    ("beta_ppf", [2, 1, 1], "p must be in [0, 1], got 2"),
    ("beta_ppf", [0.5, 1, math.inf], "beta must be finite and > 0, got inf"),
    ("beta_mean", [0, 1], "alpha must be finite and > 0, got 0"),
    ("beta_variance", [1, 0], "beta must be finite and > 0, got 0"),
    ("gamma_cdf", [1, 1, 0], "scale must be finite and > 0, got 0"),
    ("gamma_cdf", [1, 0, 1], "shape must be finite and > 0, got 0"),
    ("poisson_cdf", [-1, 1], "k must be >= 0, got -1"),
    ("poisson_cdf", [1, 0], "lambda must be finite and > 0, got 0"),
]


@each_row(("name", "arguments", "message"), BAD)
def test_an_error_names_the_function_and_the_argument(name: str, arguments: list[Any], message: str) -> None:
    with pytest.raises(MathError) as raised:
        call(name, *arguments)
    assert str(raised.value) == f"alc.math.{name}: {message}"


# --- laws ------------------------------------------------------------------------------------------------------------


@given(st.floats(-30, 30))
def test_erf_is_odd_and_erfc_completes_it(x: float) -> None:
    assert call("erf", -x) == -call("erf", x)
    assert call("erf", x) + call("erfc", x) == near(1.0, 4e-16)


@given(st.floats(1e-5, 1e5))
@example(1.0)
@example(2.0)
@example(9.5)
def test_lgamma_steps_by_the_logarithm(x: float) -> None:
    assert call("lgamma", x + 1) == near(call("lgamma", x) + math.log(x), 1e-12, 1e-13)


@given(st.floats(-50, 50))
def test_lgamma_and_digamma_reflect(x: float) -> None:
    assume(abs(x - round(x)) > 1e-3)
    sine = abs(math.sin(math.pi * (x - round(x))))
    assert call("lgamma", x) + call("lgamma", 1 - x) == near(math.log(math.pi / sine), 1e-10, 1e-12)
    turn = math.pi / math.tan(math.pi * (x - round(x)))
    assert call("digamma", 1 - x) - call("digamma", x) == near(turn, 1e-10, 1e-11)


@given(st.floats(1e-3, 1e6))
def test_digamma_is_the_slope_of_lgamma(x: float) -> None:
    assert call("digamma", x + 1) == near(call("digamma", x) + 1 / x, 1e-12, 1e-12)


@given(st.floats(1e-3, 50), st.floats(1e-3, 50))
def test_beta_is_symmetric_and_the_exponential_of_ln_beta(a: float, b: float) -> None:
    assert call("beta", a, b) == near(call("beta", b, a))
    assert call("beta", a, b) == near(math.exp(call("ln_beta", a, b)))
    assert call("beta", a, b) == near(call("beta", a + 1, b) + call("beta", a, b + 1))


@given(st.integers(1, 170))
def test_factorial_is_the_nearest_float(n: int) -> None:
    assert call("factorial", n) == float(math.factorial(n))
    assert call("ln_factorial", n) == near(math.log(math.factorial(n)), absolute=1e-15)


@given(st.floats(-600, 600))
def test_expit_undoes_logit(x: float) -> None:
    p = call("expit", x)
    assert p + call("expit", -x) == near(1.0, 4e-16)
    if x < 30:
        assert call("logit", p) == near(x, 1e-11, 1e-15 / (1 - p))


@given(inside)
@example(0.5)
@example(1e-300)
@example(math.nextafter(1, 0))
@example(0.025)
@example(0.975)
def test_normal_ppf_undoes_normal_cdf(p: float) -> None:
    z = call("normal_ppf", p)
    assert call("normal_cdf", z, 0, 1) == near(p, 3e-12)


@given(st.floats(1e-10, 0.5))
def test_normal_ppf_is_odd_about_one_half(p: float) -> None:
    q = 1 - p
    assert call("normal_ppf", q) == near(-call("normal_ppf", 1 - q), 1e-12, 1e-300)


@given(inside, st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_normal_inverse_cdf_scales_and_shifts(p: float, mu: float, sigma: float) -> None:
    assert call("normal_inverse_cdf", p, mu, sigma) == near(mu + sigma * call("normal_ppf", p))


@given(unit, shapes, shapes)
@example(0.5, 40.0, 40.0)
@example(0.5, 39.0, 1e6)
def test_incomplete_beta_mirrors(x: float, a: float, b: float) -> None:
    y = 1 - x
    assume(1 - y == x)
    p = call("regularized_incomplete_beta", x, a, b)
    assert 0 <= p <= 1
    assert p + call("regularized_incomplete_beta", y, b, a) == near(1.0, 1e-12)


@given(unit, st.floats(0.05, 1000), st.floats(0.05, 1000))
def test_incomplete_beta_steps_by_its_weight(x: float, a: float, b: float) -> None:
    assume(0 < x < 1)
    weight = math.exp(a * math.log(x) + b * math.log1p(-x) - call("ln_beta", a, b)) / a
    stepped = call("regularized_incomplete_beta", x, a + 1, b) + weight
    assert call("regularized_incomplete_beta", x, a, b) == near(stepped, 1e-10, 1e-300)


@given(st.floats(0.05, 1000), st.floats(1e-6, 2000))
@example(39.5, 40.0)
@example(40.5, 40.0)
def test_incomplete_gamma_steps_by_its_weight(a: float, x: float) -> None:
    weight = math.exp(a * math.log(x) - x - call("lgamma", a + 1))
    stepped = call("regularized_incomplete_gamma", a + 1, x) + weight
    assert call("regularized_incomplete_gamma", a, x) == near(stepped, 1e-9, 1e-300)


@given(st.integers(0, 400), st.floats(0.01, 500))
def test_poisson_cdf_sums_its_probabilities(k: int, mean: float) -> None:
    terms = [math.exp(i * math.log(mean) - mean - math.lgamma(i + 1)) for i in range(k + 1)]
    assert call("poisson_cdf", k, mean) == near(math.fsum(terms), 1e-10, 1e-290)


@given(st.lists(unit, min_size=2, max_size=2), shapes, shapes)
def test_beta_cdf_never_falls(xs: list[float], a: float, b: float) -> None:
    low, high = sorted(xs)
    assert call("beta_cdf", low, a, b) <= call("beta_cdf", high, a, b) * (1 + 1e-11)


@given(st.lists(st.floats(0, 1e7), min_size=2, max_size=2), shapes, st.floats(0.01, 100))
def test_gamma_cdf_never_falls(xs: list[float], shape: float, scale: float) -> None:
    low, high = sorted(xs)
    assert call("gamma_cdf", low, shape, scale) <= call("gamma_cdf", high, shape, scale) * (1 + 1e-11)


@given(st.floats(1e-200, 0.999), st.floats(0.05, 1e5), st.floats(0.05, 1e5))
@example(0.5, 1.0, 1.0)
@example(1e-200, 0.05, 3.0)
@example(0.999, 0.05, 1e5)
def test_beta_ppf_undoes_beta_cdf(p: float, a: float, b: float) -> None:
    x = call("beta_ppf", p, a, b)
    assert 0 <= x <= 1
    # The next floats on both sides show how well a float can say it.
    low = call("beta_cdf", math.nextafter(x, 0), a, b)
    high = call("beta_cdf", math.nextafter(x, 1), a, b)
    assert low * (1 - 1e-11) <= p <= high * (1 + 1e-11)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_beta_moments_fit_together(a: float, b: float) -> None:
    mean = call("beta_mean", a, b)
    assert call("beta_variance", a, b) == near(mean * call("beta_mean", b, a) / (a + b + 1))


@given(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300), unit)
def test_extreme_parameters_neither_hang_nor_leave_the_interval(a: float, b: float, x: float) -> None:
    assert 0 <= call("beta_cdf", x, a, b) <= 1
    assert 0 <= call("beta_ppf", x, a, b) <= 1
    assert 0 <= call("regularized_incomplete_gamma", a, b) <= 1
    assert 0 <= call("gamma_cdf", x, a, b) <= 1
