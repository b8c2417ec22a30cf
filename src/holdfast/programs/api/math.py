"""The table of `alc.math`: seeded randomness, statistics, distributions, special functions, tests and rankings."""

from __future__ import annotations

from holdfast.programs.api.model import (
    Example,
    FieldSpec,
    FunctionSpec,
    GroupSpec,
    NoSpelling,
    ResultSpec,
    ShapeSpec,
    may,
    need,
)

_RNG = need("rng", "Rng", "The generator.")
_VALUES = need("values", "number[]", "At least one number.")
_XS = need("xs", "number[]", "The first sample.")
_YS = need("ys", "number[]", "The second sample.")
_X = need("x", "number", "The argument.")
_P = need("p", "number", "A probability.")
_ALPHA = need("alpha", "number", "The first parameter, above 0.")
_BETA = need("beta", "number", "The second parameter, above 0.")
_SHAPE = need("shape", "number", "The shape, above 0.")
_SCALE = need("scale", "number", "The scale, above 0.")
_LAMBDA = need("lambda", "number", "The rate, above 0.")
_DF = need("df", "number", "Degrees of freedom, above 0.")
_MU = need("mu", "number", "The mean.")
_SIGMA = need("sigma", "number", "The standard deviation, above 0.")
_PS = need("p", "number[]", "The probabilities.")
_QS = need("q", "number[]", "The other probabilities.")

_R = "alc.math.rng_create(42)"

_PYTHON = NoSpelling("the modules `math` and `random`")


def _f(
    name: str,
    doc: str,
    *parameters: FieldSpec,
    returns: str = "number",
    shows: tuple[str, str | None] | None = None,
) -> FunctionSpec:
    example = Example(f"alc.math.{name}({shows[0]})", shows[1]) if shows else None
    return FunctionSpec(f"math.{name}", doc, parameters, (ResultSpec(returns),), example, python=_PYTHON)


_RANDOM = (
    _f(
        "rng_create",
        "A random generator. The same seed gives the same numbers, in every run.",
        need("seed", "integer", "0 or more."),
        returns="Rng",
    ),
    _f("rng_float", "A number from 0 up to, but not including, 1.", _RNG),
    _f(
        "rng_int",
        "A whole number from `min` to `max`, both included.",
        _RNG,
        need("min", "integer", "The least."),
        need("max", "integer", "The greatest."),
        returns="integer",
        shows=(f"{_R}, 5, 5", "5"),
    ),
    _f(
        "shuffle",
        "A new list with the items in random order.",
        _RNG,
        need("tbl", "any[]", "The items."),
        returns="any[]",
        shows=(f"{_R}, {{7}}", "[7]"),
    ),
    _f(
        "sample_with_replacement",
        "Items drawn at random; each may be drawn again.",
        _RNG,
        need("tbl", "any[]", "The items to draw from."),
        need("n", "integer", "How many to draw."),
        returns="any[]",
        shows=(f"{_R}, {{7}}, 3", "[7, 7, 7]"),
    ),
    _f(
        "normal_sample",
        "A draw from a normal distribution.",
        _RNG,
        need("mean", "number", "The mean."),
        need("stddev", "number", "The standard deviation."),
    ),
    _f("beta_sample", "A draw from a beta distribution.", _RNG, _ALPHA, _BETA),
    _f("gamma_sample", "A draw from a gamma distribution.", _RNG, _SHAPE, _SCALE),
    _f(
        "exp_sample", "A draw from an exponential distribution.", _RNG, need("lambda", "number", "The rate, 0 or more.")
    ),
    _f(
        "uniform_sample",
        "A draw from a uniform distribution.",
        _RNG,
        need("low", "number", "The least."),
        need("high", "number", "The greatest, above `low`."),
    ),
    _f(
        "lognormal_sample",
        "A draw whose logarithm is normal.",
        _RNG,
        need("mu", "number", "The logarithm's mean."),
        need("sigma", "number", "Its standard deviation."),
    ),
    _f("student_t_sample", "A draw from Student's t distribution.", _RNG, _DF),
    _f("chi_squared_sample", "A draw from a chi-squared distribution.", _RNG, _DF),
    _f("poisson_sample", "A draw from a Poisson distribution.", _RNG, _LAMBDA, returns="integer"),
    _f(
        "binomial_sample",
        "How many of `n` tries succeed, each with the probability `p`.",
        _RNG,
        need("n", "integer", "Tries."),
        _P,
        returns="integer",
        shows=(f"{_R}, 5, 1", "5"),
    ),
    _f(
        "dirichlet_sample",
        "A draw from a Dirichlet distribution: shares that add up to 1.",
        _RNG,
        need("alphas", "number[]", "The parameters, above 0; two or more."),
        returns="number[]",
    ),
    _f(
        "categorical_sample",
        "The position of an item, drawn with these weights; the first is 1.",
        _RNG,
        need("weights", "number[]", "The weights, 0 or more, not all 0."),
        returns="integer",
        shows=(f"{_R}, {{0, 1, 0}}", "2"),
    ),
)

_DESCRIPTIVE = (
    _f("mean", "The mean.", _VALUES, shows=("{1, 2, 6}", "3.0")),
    _f("variance", "The variance of a sample (over n − 1); 0 for one number.", _VALUES, shows=("{1, 2, 6}", "7.0")),
    _f(
        "stddev",
        "The standard deviation of a sample; 0 for one number.",
        _VALUES,
        shows=("{2, 4, 4, 4, 6}", "1.4142135623730951"),
    ),
    _f("median", "The middle number, or the mean of the middle two.", _VALUES, shows=("{3, 1, 2, 9}", "2.5")),
    _f(
        "percentile",
        "The number below which `p` percent lie, interpolated between two numbers.",
        _VALUES,
        need("p", "number", "0 to 100."),
        shows=("{1, 2, 3, 4}, 50", "2.5"),
    ),
    _f("iqr", "The distance from the 25th percentile to the 75th.", _VALUES, shows=("{1, 2, 3, 4, 5}", "2.0")),
    _f("covariance", "The covariance of two samples (over n − 1).", _XS, _YS, shows=("{1, 2, 3}, {2, 4, 6}", "2.0")),
    _f("correlation", "Pearson's correlation.", _XS, _YS, shows=("{1, 2, 3}, {2, 4, 6}", "1.0")),
    _f(
        "softmax",
        "Shares in proportion to the exponentials.",
        _VALUES,
        returns="number[]",
        shows=("{1, 1}", "[0.5, 0.5]"),
    ),
    _f(
        "log_normalize",
        "Logarithms from 0 to 100: `ln(1 + x) / ln(1 + max) · 100`.",
        _VALUES,
        returns="number[]",
        shows=("{1, 3}", "[50.0, 100.0]"),
    ),
    _f(
        "histogram",
        "How many numbers are in each bin; all bins are equally wide.",
        _VALUES,
        need("bins", "integer", "How many bins."),
        returns="Histogram",
        shows=("{0, 1, 2, 4}, 2", '{"counts": [2, 2], "edges": [0.0, 2.0, 4.0]}'),
    ),
    _f(
        "wilson_ci",
        "Wilson's confidence interval for a share.",
        need("successes", "integer", "The number of successes."),
        need("total", "integer", "The number of tries."),
        need("confidence", "number", "The confidence, such as 0.95."),
        returns="WilsonInterval",
    ),
)

_DISTRIBUTIONS = (
    _f("normal_cdf", "The share of a normal distribution up to `x`.", _X, _MU, _SIGMA, shows=("0, 0, 1", "0.5")),
    _f(
        "normal_inverse_cdf",
        "The `x` up to which the share `p` of a normal distribution lies.",
        _P,
        _MU,
        _SIGMA,
        shows=("0.975, 0, 1", "1.959963984540054"),
    ),
    _f("normal_ppf", "The same for mean 0 and deviation 1.", _P, shows=("0.975", "1.959963984540054")),
    _f("beta_cdf", "The share of a beta distribution up to `x`.", _X, _ALPHA, _BETA, shows=("0.5, 2, 2", "0.5")),
    _f(
        "beta_ppf",
        "The `x` up to which the share `p` of a beta distribution lies.",
        _P,
        _ALPHA,
        _BETA,
        shows=("0.5, 2, 2", "0.5"),
    ),
    _f("beta_mean", "The mean of a beta distribution.", _ALPHA, _BETA, shows=("1, 3", "0.25")),
    _f("beta_variance", "The variance of a beta distribution.", _ALPHA, _BETA, shows=("1, 1", "0.08333333333333333")),
    _f(
        "gamma_cdf",
        "The share of a gamma distribution up to `x`.",
        _X,
        _SHAPE,
        _SCALE,
        shows=("1, 1, 1", "0.6321205588285577"),
    ),
    _f(
        "poisson_cdf",
        "The share of a Poisson distribution up to `k`.",
        need("k", "integer", "The argument."),
        _LAMBDA,
        shows=("0, 1", "0.36787944117144233"),
    ),
)

_SPECIAL = (
    _f("erf", "The error function.", _X, shows=("1", "0.8427007929497149")),
    _f("erfc", "1 minus the error function, accurate where that is small.", _X, shows=("1", "0.15729920705028513")),
    _f("lgamma", "The logarithm of the gamma function's absolute value.", _X, shows=("5", "3.1780538303479458")),
    _f("digamma", "The derivative of `lgamma`.", _X, shows=("1", "-0.5772156649015329")),
    _f(
        "beta",
        "The beta function.",
        need("a", "number", "Above 0."),
        need("b", "number", "Above 0."),
        shows=("2, 3", "0.08333333333333333"),
    ),
    _f(
        "ln_beta",
        "Its logarithm.",
        need("a", "number", "Above 0."),
        need("b", "number", "Above 0."),
        shows=("2, 3", "-2.4849066497880004"),
    ),
    _f(
        "regularized_incomplete_beta",
        "The share of the beta function's integral up to `x`.",
        _X,
        need("a", "number", "Above 0."),
        need("b", "number", "Above 0."),
        shows=("0.5, 2, 2", "0.5"),
    ),
    _f(
        "regularized_incomplete_gamma",
        "The share of the gamma function's integral up to `x`.",
        need("a", "number", "Above 0."),
        _X,
        shows=("1, 1", "0.6321205588285577"),
    ),
    _f("factorial", "n!", need("n", "integer", "0 to 170."), shows=("5", "120.0")),
    _f("ln_factorial", "The logarithm of n!", need("n", "integer", "0 or more."), shows=("5", "4.787491742782046")),
    _f(
        "logsumexp",
        "The logarithm of the sum of exponentials, even if those would be too large.",
        _VALUES,
        shows=("{1000, 1000}", "1000.6931471805599"),
    ),
    _f("logit", "`ln(p / (1 − p))`.", _P, shows=("0.5", "0.0")),
    _f("expit", "Its inverse, `1 / (1 + e^−x)`.", _X, shows=("0", "0.5")),
)

_TESTS = (
    _f("welch_t_test", "Whether two samples have the same mean (Welch).", _XS, _YS, returns="WelchTest"),
    _f(
        "mann_whitney_u",
        "Whether one sample tends to be greater (Mann and Whitney).",
        _XS,
        _YS,
        may("options", "MannWhitneyOptions", "Whether to allow for ties."),
        returns="MannWhitneyTest",
    ),
    _f(
        "chi_squared_test",
        "Whether counts are as expected (Pearson).",
        need("observed", "number[]", "The counts."),
        need("expected", "number[]", "The expected counts, above 0."),
        returns="ChiSquaredTest",
    ),
    _f("ks_test", "Whether two samples have one distribution (Kolmogorov and Smirnov).", _XS, _YS, returns="KsTest"),
)

_RANKING = (
    _f(
        "rank",
        "The rank of each number, the least first; equal numbers share the mean of their ranks.",
        _VALUES,
        returns="number[]",
        shows=("{10, 30, 20, 20}", "[1.0, 4.0, 2.5, 2.5]"),
    ),
    _f("spearman_correlation", "The correlation of ranks (Spearman).", _XS, _YS, shows=("{1, 2, 3}, {1, 4, 9}", "1.0")),
    _f("kendall_tau", "The agreement of orders (Kendall).", _XS, _YS, shows=("{1, 2, 3}, {3, 2, 1}", "-1.0")),
    _f(
        "ndcg",
        "How good the first `k` places of a ranking are, compared with the best order.",
        need("relevance", "number[]", "How relevant each place is, the first place first."),
        need("k", "integer", "How many places."),
        shows=("{3, 2, 1}, 3", "1.0"),
    ),
    _f(
        "mrr",
        "The mean of one over the place of the first hit.",
        need("rankings", "number[]", "The places of the first hits, from 1."),
        shows=("{1, 2}", "0.75"),
    ),
)

_INFORMATION = (
    _f(
        "entropy",
        "The entropy, in nats.",
        need("probs", "number[]", "The probabilities."),
        shows=("{0.5, 0.5}", "0.6931471805599453"),
    ),
    _f(
        "kl_divergence",
        "The Kullback-Leibler divergence, in nats.",
        _PS,
        _QS,
        shows=("{0.5, 0.5}, {0.5, 0.5}", "0.0"),
    ),
    _f(
        "js_divergence",
        "The Jensen-Shannon divergence, in nats.",
        _PS,
        _QS,
        shows=("{1, 0}, {0, 1}", "0.6931471805599453"),
    ),
    _f("cross_entropy", "The cross-entropy, in nats.", _PS, _QS, shows=("{1, 0}, {0.5, 0.5}", "0.6931471805599453")),
)

_SERIES = (
    _f(
        "moving_average",
        "The means of `window` consecutive numbers.",
        _VALUES,
        need("window", "integer", "How many."),
        returns="number[]",
        shows=("{1, 2, 3, 4}, 2", "[1.5, 2.5, 3.5]"),
    ),
    _f(
        "ewma",
        "The exponentially weighted moving average: older numbers count less and less.",
        _VALUES,
        need("alpha", "number", "How much the newest counts, 0 to 1."),
        returns="number[]",
        shows=("{2, 4}, 0.5", "[2.0, 3.0]"),
    ),
    _f(
        "autocorrelation",
        "The correlation of a series with itself, `lag` places later.",
        _VALUES,
        need("lag", "integer", "How many places."),
        shows=("{1, 2, 3, 4}, 0", "1.0"),
    ),
    _f(
        "permutations",
        "All orders of 1 to `n`.",
        need("n", "integer", "1 to 8."),
        returns="integer[][]",
        shows=("2", "[[1, 2], [2, 1]]"),
    ),
)

_STATISTICS = need("p_value", "number", "How likely so large a difference is by chance.")

MATH = GroupSpec(
    "Mathematics",
    "Numbers in lists must be finite, and lists must not be empty; otherwise an error names the function and the"
    " argument. Generators are part of the program: the same seed gives the same draws in every run and replay. Lua"
    " only; Python has the modules `math` and `random`, whose numbers are also the same in every replay.",
    functions=(
        *_RANDOM,
        *_DESCRIPTIVE,
        *_DISTRIBUTIONS,
        *_SPECIAL,
        *_TESTS,
        *_RANKING,
        *_INFORMATION,
        *_SERIES,
    ),
    shapes=(
        ShapeSpec("Rng", "A random generator, for the functions of `alc.math` only."),
        ShapeSpec(
            "Histogram",
            "Bins.",
            (
                need("counts", "integer[]", "How many numbers are in each."),
                need("edges", "number[]", "Where each begins, and where the last one ends."),
            ),
        ),
        ShapeSpec(
            "WilsonInterval",
            "A confidence interval.",
            (
                need("lower", "number", "Its lower end."),
                need("upper", "number", "Its upper end."),
                need("center", "number", "Its middle."),
            ),
        ),
        ShapeSpec(
            "WelchTest",
            "The result of the test.",
            (need("t_stat", "number", "t."), need("df", "number", "Degrees of freedom."), _STATISTICS),
        ),
        ShapeSpec(
            "MannWhitneyOptions",
            "How to count ties.",
            (may("tie_correction", "boolean", "Let the variance allow for ties; no if absent."),),
        ),
        ShapeSpec(
            "MannWhitneyTest",
            "The result of the test.",
            (need("u_stat", "number", "U."), need("z_score", "number", "z."), _STATISTICS),
        ),
        ShapeSpec(
            "ChiSquaredTest",
            "The result of the test.",
            (need("chi2_stat", "number", "Chi-squared."), need("df", "number", "Degrees of freedom."), _STATISTICS),
        ),
        ShapeSpec(
            "KsTest", "The result of the test.", (need("d_stat", "number", "The greatest distance."), _STATISTICS)
        ),
    ),
    is_brief=True,
)
