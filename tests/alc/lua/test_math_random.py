"""The random part of `alc.math`: the generator bit by bit, the handle, and whether the samplers follow their laws."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.alc.lua.lua_math import LuaMath, MathError
from tests.tables import each_row

MATH = LuaMath()
call = MATH.call
RANDOM: Any = MATH.load("math_random")

DRAWS = 20_000
# Beyond these a true sampler goes once in a thousand seeds; the seeds here are fixed, so a test passes always or never.
KS_LIMIT = 1.95
SIGMAS = 3.3

WORDS = 1 << 32
LONGS = 1 << 64


def words(data: str) -> list[int]:
    raw = bytes.fromhex(data)
    return [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]


def block(key: list[int], row: list[int], rounds: int) -> list[int]:
    out: list[int] = MATH.to_python(RANDOM[b"block"](MATH.to_lua(key), *row, rounds, MATH.vm.table()))
    return out


def drawn(code: str, seed: int = 1, count: int = DRAWS) -> list[Any]:
    """That many values of an expression over `m` and `rng`."""
    values: list[Any] = MATH.eval(
        f"local rng, out = m.rng_create({seed}), {{}} for i = 1, {count} do out[i] = {code} end return out"
    )
    return values


# --- the generator, by published vectors -----------------------------------------------------------------------------


def test_the_block_function_is_that_of_rfc_8439() -> None:
    key = words(bytes(range(32)).hex())
    wanted = (
        "10f1e7e4 d13b5915 500fdd1f a32071c4 c7d1f4c7 33c06803 0422aa9a c3d46c4e"
        "d2826446 079faa09 14c2d705 d98b02a2 b5129cd1 de164eb9 cbd083e8 a2503c4e"
    )
    assert block(key, [1, *words("000000090000004a00000000")], 20) == words(wanted)


def test_twelve_rounds_are_the_published_stream_of_the_zero_key() -> None:
    # draft-strombergson-chacha-test-vectors, TC1, 256 bits, 12 rounds.
    wanted = (
        "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f"
        "0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be"
    )
    assert block([0] * 8, [0] * 4, 12) == words(wanted)


def test_a_stream_is_that_of_rusts_standard_generator() -> None:
    # The two values that rand's own tests hold for StdRng: from a key, and from a key drawn of that stream.
    stream = RANDOM[b"stream"](MATH.to_lua([1, 23, 456, 7890, 0, 0, 0, 0]))
    draw: Callable[[Any], int] = RANDOM[b"next_long"]
    assert draw(stream) % LONGS == 10719222850664546238
    key = [part for _ in range(4) for value in [draw(stream) % LONGS] for part in (value % WORDS, value // WORDS)]
    assert draw(RANDOM[b"stream"](MATH.to_lua(key))) % LONGS == 14064965282130556830


def test_a_seed_gives_the_floats_of_rusts_seed_from_u64() -> None:
    # Recorded by users of rand for StdRng::seed_from_u64(42): a float, and draws of 64 bits as decimals.
    first, second, third = drawn("m.rng_float(rng)", 42, 3)
    assert first == 0.5265574090027738
    assert 0 <= 0.542725209903143899 - second < 2**-53
    assert 0 <= 0.636465099143894996 - third < 2**-52


class Oracle:
    """The same generator in Python, from its description."""

    def __init__(self, seed: int) -> None:
        self.key = []
        for _ in range(8):
            seed = (seed * 6364136223846793005 + 11634580027462260723) % LONGS
            word, turn = ((seed >> 18) ^ seed) >> 27 & 0xFFFFFFFF, seed >> 59
            self.key.append((word >> turn | word << (32 - turn)) % WORDS)
        self.stream = self._words()

    def _words(self) -> Iterator[int]:
        counter = 0
        while True:
            start = [*words(b"expand 32-byte k".hex()), *self.key, counter % WORDS, counter // WORDS, 0, 0]
            x = list(start)
            for _ in range(6):
                for a in range(4):
                    self._quarter(x, a, a + 4, a + 8, a + 12)
                for a in range(4):
                    self._quarter(x, a, (a + 1) % 4 + 4, (a + 2) % 4 + 8, (a + 3) % 4 + 12)
            yield from ((a + b) % WORDS for a, b in zip(x, start, strict=True))
            counter += 1

    @staticmethod
    def _quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
        for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[one] = (x[one] + x[two]) % WORDS
            mixed = x[three] ^ x[one]
            x[three] = (mixed << turn | mixed >> (32 - turn)) % WORDS

    def long(self) -> int:
        low = next(self.stream)
        return next(self.stream) << 32 | low

    def below(self, bits: int, limit: int) -> int:
        """floor(limit * U) for a U of as many bits as it takes to be sure."""
        numerator, size = 0, 0
        while True:
            numerator = numerator << bits | (self.long() if bits == 64 else next(self.stream))
            size += bits
            low, high = numerator * limit >> size, (numerator + 1) * limit - 1 >> size
            if low == high:
                return low


seeds = st.integers(0, (1 << 63) - 1)


@given(seeds)
def test_floats_are_the_upper_53_bits(seed: int) -> None:
    oracle = Oracle(seed)
    assert drawn("m.rng_float(rng)", seed, 20) == [(oracle.long() >> 11) / (1 << 53) for _ in range(20)]


@given(seeds, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_integers_are_the_floor_of_a_uniform_with_all_the_bits_it_takes(seed: int, one: int, two: int) -> None:
    low, high = sorted((one, two))
    rng, oracle = call("rng_create", seed), Oracle(seed)
    got = [call("rng_int", rng, low, high) for _ in range(8)]
    assert got == [low + oracle.below(64, high - low + 1) for _ in range(8)]


@given(seeds, st.integers(0, 40))
def test_a_shuffle_swaps_from_the_end_with_32_bit_draws(seed: int, size: int) -> None:
    oracle, wanted = Oracle(seed), list(range(size))
    for i in range(size - 1, 0, -1):
        j = oracle.below(32, i + 1)
        wanted[i], wanted[j] = wanted[j], wanted[i]
    assert call("shuffle", call("rng_create", seed), list(range(size))) == wanted


def test_the_counter_of_blocks_has_64_bits() -> None:
    stream = RANDOM[b"stream"](MATH.to_lua([0] * 8))
    stream[b"counter"] = WORDS - 1
    got = [RANDOM[b"next_long"](stream) % LONGS for _ in range(9)]
    assert got[8] % WORDS == block([0] * 8, [0, 1, 0, 0], 12)[0]
    assert got[0] % WORDS == block([0] * 8, [WORDS - 1, 0, 0, 0], 12)[0]


def test_seeds_past_the_signed_integers_come_as_floats() -> None:
    assert call("rng_float", call("rng_create", 2.0**63)) == (Oracle(1 << 63).long() >> 11) / (1 << 53)
    assert call("rng_float", call("rng_create", 42.9)) == 0.5265574090027738


@each_row(("seed", "shown"), [(-1, ">= 0, got -1"), (2.0**64, "a 64-bit integer, got 1.84"), (None, "a number")])
def test_other_seeds_are_refused(seed: Any, shown: str) -> None:
    with pytest.raises(MathError, match=rf"alc\.math\.rng_create: seed must be {shown}"):
        call("rng_create", seed)


# --- the handle ------------------------------------------------------------------------------------------------------


def test_generators_are_independent_and_repeatable() -> None:
    assert MATH.eval(
        """
        local a, b, c = m.rng_create(7), m.rng_create(7), m.rng_create(8)
        local first = m.rng_float(a)
        m.rng_float(c)
        return m.rng_float(b) == first and m.rng_float(a) == m.rng_float(b) and m.rng_float(a) ~= m.rng_float(c)
        """
    )


@each_row("forged", ["{}", "42", "nil", "'rng'", "0/0", "setmetatable({}, {__index = {}})", "print"])
def test_only_rng_create_makes_an_rng(forged: str) -> None:
    ok, why = MATH.eval(f"return {{pcall(m.rng_float, {forged})}}")
    assert not ok
    assert why.startswith("alc.math.rng_float: rng must come from alc.math.rng_create, got ")


def test_an_rng_is_opaque_and_stays_what_it_is() -> None:
    assert MATH.eval(
        """
        local rng = m.rng_create(42)
        assert(tostring(rng) == "rng(ChaCha12)" and getmetatable(rng) == "rng" and next(rng) == nil)
        assert(not pcall(setmetatable, rng, {}))
        assert(not pcall(function() rng.counter = 0 end))
        rawset(rng, "counter", 0)
        rawset(rng, "key", "x")
        return m.rng_float(rng) == 0.5265574090027738
        """
    )


SAMPLERS = sorted(key.decode() for part in (RANDOM[b"api"], MATH.load("math_samplers")) for key in part)
SAMPLERS.remove("rng_create")


@each_row("name", SAMPLERS)
def test_every_sampler_wants_an_rng_first(name: str) -> None:
    with pytest.raises(MathError, match=rf"alc\.math\.{name}: rng must come from alc\.math\.rng_create, got nil"):
        call(name)


# --- integers, shuffles ----------------------------------------------------------------------------------------------


def chi_squared_p(counts: Counter[Any], shares: dict[Any, float]) -> float:
    """How likely counts at least as far from their shares are; shares below five expected draws are put together."""
    total = sum(counts.values())
    observed: list[float] = []
    expected: list[float] = []
    rest_seen, rest_due = float(total), float(total)
    for value, share in shares.items():
        if share * total >= 5:
            observed.append(counts[value])
            expected.append(share * total)
            rest_seen -= counts[value]
            rest_due -= share * total
    if rest_due > 1e-6 * total:
        observed.append(rest_seen)
        expected.append(rest_due)
    else:
        assert rest_seen == 0
    p: float = call("chi_squared_test", observed, expected)["p_value"]
    return p


def test_both_ends_of_rng_int_are_drawn_and_all_are_equally_likely() -> None:
    counts = Counter(drawn("m.rng_int(rng, -2, 4)"))
    assert set(counts) == set(range(-2, 5))
    assert chi_squared_p(counts, dict.fromkeys(range(-2, 5), 1 / 7)) > 0.001
    assert all(isinstance(value, int) for value in counts)


def test_a_range_that_does_not_divide_the_draws_has_no_bias() -> None:
    # Three quarters of 2^64: with a remainder of the draw, half of all values would fall in the first third.
    third = 1 << 62
    low = -(1 << 63)
    values = drawn(f"m.rng_int(rng, math.mininteger, {low + 3 * third - 1})")
    assert chi_squared_p(Counter((value - low) // third for value in values), dict.fromkeys(range(3), 1 / 3)) > 0.001


def test_the_smallest_and_the_largest_range_work() -> None:
    assert drawn("m.rng_int(rng, 5, 5)", count=3) == [5, 5, 5]
    full = drawn("m.rng_int(rng, math.mininteger, math.maxinteger)", count=200)
    assert min(full) < -(1 << 61)
    assert max(full) > 1 << 61


def test_rng_int_wants_its_ends_in_order() -> None:
    with pytest.raises(MathError, match=r"alc\.math\.rng_int: min \(10\) must be <= max \(5\)"):
        call("rng_int", call("rng_create", 1), 10, 5)


def test_a_shuffle_is_a_new_table_and_every_order_is_equally_likely() -> None:
    assert MATH.eval(
        """
        local t = {1, 2, 3, 4, 5, 6, 7, 8}
        local s = m.shuffle(m.rng_create(3), t)
        table.sort(s)
        return s ~= t and table.concat(t) == "12345678" and table.concat(s) == "12345678"
        """
    )
    orders = Counter(drawn("table.concat(m.shuffle(rng, {'a', 'b', 'c', 'd'}))"))
    assert len(orders) == 24
    assert chi_squared_p(orders, dict.fromkeys(orders, 1 / 24)) > 0.001


def test_an_empty_table_shuffles_to_an_empty_one() -> None:
    assert call("shuffle", call("rng_create", 1), []) == []


def test_a_sample_with_replacement_draws_all_equally() -> None:
    values = MATH.eval(f"return m.sample_with_replacement(m.rng_create(5), {{'a', 'b', 'c'}}, {DRAWS})")
    assert chi_squared_p(Counter(values), dict.fromkeys("abc", 1 / 3)) > 0.001
    assert call("sample_with_replacement", call("rng_create", 1), [1], 0) == []


# --- the samplers' laws ----------------------------------------------------------------------------------------------


def student_cdf(x: float, df: float) -> float:
    tail: float = call("regularized_incomplete_beta", df / (df + x * x), df / 2, 0.5) / 2
    return 1 - tail if x > 0 else tail


def lognormal_cdf(x: float) -> float:
    p: float = call("normal_cdf", math.log(x), 0.5, 0.8)
    return p


Cdf = Callable[[float], float]
CONTINUOUS: list[tuple[str, Cdf]] = [
    ("m.rng_float(rng)", lambda x: x),
    ("m.uniform_sample(rng, -3, 7.5)", lambda x: (x + 3) / 10.5),
    ("m.normal_sample(rng, 2, 3)", lambda x: call("normal_cdf", x, 2, 3)),
    ("m.normal_sample(rng, 2, -3)", lambda x: call("normal_cdf", x, 2, 3)),
    ("m.lognormal_sample(rng, 0.5, 0.8)", lognormal_cdf),
    ("m.exp_sample(rng, 1.5)", lambda x: -math.expm1(-1.5 * x)),
    ("m.gamma_sample(rng, 0.3, 2)", lambda x: call("gamma_cdf", x, 0.3, 2)),
    ("m.gamma_sample(rng, 1, 3)", lambda x: call("gamma_cdf", x, 1, 3)),
    ("m.gamma_sample(rng, 4.5, 0.5)", lambda x: call("gamma_cdf", x, 4.5, 0.5)),
    ("m.gamma_sample(rng, 500, 1)", lambda x: call("gamma_cdf", x, 500, 1)),
    ("m.beta_sample(rng, 2, 5)", lambda x: call("beta_cdf", x, 2, 5)),
    ("m.beta_sample(rng, 0.5, 0.5)", lambda x: call("beta_cdf", x, 0.5, 0.5)),
    ("m.beta_sample(rng, 0.2, 30)", lambda x: call("beta_cdf", x, 0.2, 30)),
    ("m.chi_squared_sample(rng, 1)", lambda x: call("gamma_cdf", x, 0.5, 2)),
    ("m.chi_squared_sample(rng, 5)", lambda x: call("gamma_cdf", x, 2.5, 2)),
    ("m.student_t_sample(rng, 1)", lambda x: student_cdf(x, 1)),
    ("m.student_t_sample(rng, 7.5)", lambda x: student_cdf(x, 7.5)),
    ("m.dirichlet_sample(rng, {1, 2, 3.5})[2]", lambda x: call("beta_cdf", x, 2, 4.5)),
]


@each_row(("code", "cdf"), CONTINUOUS, ids=[code for code, _ in CONTINUOUS])
def test_draws_follow_the_distribution_function(code: str, cdf: Cdf) -> None:
    values = sorted(drawn(code, count=DRAWS // 2))
    n = len(values)
    places = [cdf(value) for value in values]
    distance = max(max((i + 1) / n - p, p - i / n) for i, p in enumerate(places))
    assert distance * math.sqrt(n) < KS_LIMIT


def poisson_shares(mean: float) -> dict[int, float]:
    top = int(mean + 12 * math.sqrt(mean) + 20)
    return {k: math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(top)}


def binomial_shares(n: int, p: float) -> dict[int, float]:
    middle, spread = n * p, 12 * math.sqrt(n * p * (1 - p)) + 20
    span = range(max(0, int(middle - spread)), min(n, int(middle + spread)) + 1)
    whole = math.lgamma(n + 1)
    return {
        k: math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p))
        for k in span
    }


@each_row("mean", [0.3, 4.0, 11.99, 12.0, 40.0, 3000.0])
def test_poisson_draws_follow_their_probabilities(mean: float) -> None:
    counts = Counter(drawn(f"m.poisson_sample(rng, {mean})"))
    assert all(isinstance(value, int) for value in counts)
    assert chi_squared_p(counts, poisson_shares(mean)) > 0.001


@each_row(
    ("n", "p"), [(1, 0.5), (10, 0.3), (20, 0.9), (40, 0.25), (40, 0.75), (1000, 0.5), (100_000, 2e-5), (1_000_000, 0.3)]
)
def test_binomial_draws_follow_their_probabilities(n: int, p: float) -> None:
    counts = Counter(drawn(f"m.binomial_sample(rng, {n}, {p})"))
    assert all(isinstance(value, int) for value in counts)
    assert chi_squared_p(counts, binomial_shares(n, p)) > 0.001


MOMENTS: list[tuple[str, float, float]] = [
    ("m.normal_sample(rng, -1, 0.5)", -1, 0.25),
    ("m.gamma_sample(rng, 2.5, 2)", 5, 10),
    ("m.exp_sample(rng, 0.25)", 4, 16),
    ("m.beta_sample(rng, 3, 1)", 0.75, 3 / 80),
    ("m.student_t_sample(rng, 30)", 0, 30 / 28),
    ("m.poisson_sample(rng, 1e12)", 1e12, 1e12),
    ("m.poisson_sample(rng, 1e18)", 1e18, 1e18),
    ("m.binomial_sample(rng, 1000000000000, 0.4)", 4e11, 2.4e11),
    ("m.uniform_sample(rng, 0, 12)", 6, 12),
]


@each_row(("code", "mean", "variance"), MOMENTS)
def test_mean_and_variance_are_right(code: str, mean: float, variance: float) -> None:
    values = [value - mean for value in drawn(code)]
    n = len(values)
    assert abs(math.fsum(values) / n) < SIGMAS * math.sqrt(variance / n)
    squares = [value * value for value in values]
    second = math.fsum(squares) / n
    spread = math.sqrt(math.fsum((square - second) ** 2 for square in squares)) / n
    assert abs(second - variance) < SIGMAS * spread


def test_certain_binomials_need_no_draw() -> None:
    assert drawn("m.binomial_sample(rng, 5, 0)", count=3) == [0, 0, 0]
    assert drawn("m.binomial_sample(rng, 5, 1)", count=3) == [5, 5, 5]
    assert drawn("m.binomial_sample(rng, 0, 0.5)", count=3) == [0, 0, 0]


def test_a_category_is_drawn_by_its_weight_and_never_without_one() -> None:
    counts = Counter(drawn("m.categorical_sample(rng, {0.5, 0, 1.5, 3, 0})"))
    assert set(counts) == {1, 3, 4}
    assert chi_squared_p(counts, {1: 0.1, 3: 0.3, 4: 0.6}) > 0.001


def test_a_dirichlet_draw_sums_to_one_even_for_tiny_alphas() -> None:
    for draw in drawn("m.dirichlet_sample(rng, {1e-5, 1e-5, 1e-5})", count=200):
        assert math.fsum(draw) == pytest.approx(1.0, abs=1e-12)
        assert min(draw) >= 0


def test_tiny_shapes_stay_inside_the_interval() -> None:
    values = drawn("m.beta_sample(rng, 1e-4, 1e-4)", count=2000)
    assert all(0 <= value <= 1 for value in values)
    assert abs(sum(value > 0.5 for value in values) - 1000) < SIGMAS * math.sqrt(500)


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), seeds)
def test_a_uniform_draw_never_reaches_the_upper_end(one: float, two: float, seed: int) -> None:
    low, high = sorted((one, two))
    if low == high:
        high = math.nextafter(low, math.inf)
    rng = call("rng_create", seed)
    assert all(low <= call("uniform_sample", rng, low, high) < high for _ in range(20))


def test_a_rate_of_zero_never_happens() -> None:
    assert call("exp_sample", call("rng_create", 1), 0) == math.inf


def test_the_same_seed_gives_the_same_draws_of_everything() -> None:
    code = """
        local rng = m.rng_create(...)
        local out = {}
        local function put(x) out[#out + 1] = type(x) == "table" and table.concat(x, " ") or x end
        for _ = 1, 50 do
            put(m.rng_float(rng)) put(m.rng_int(rng, 1, 6)) put(m.shuffle(rng, {1, 2, 3, 4}))
            put(m.sample_with_replacement(rng, {1, 2, 3}, 2)) put(m.normal_sample(rng, 0, 1))
            put(m.beta_sample(rng, 0.5, 2)) put(m.gamma_sample(rng, 0.5, 2)) put(m.exp_sample(rng, 2))
            put(m.uniform_sample(rng, 0, 2)) put(m.lognormal_sample(rng, 0, 1)) put(m.student_t_sample(rng, 3))
            put(m.chi_squared_sample(rng, 3)) put(m.poisson_sample(rng, 3)) put(m.poisson_sample(rng, 300))
            put(m.binomial_sample(rng, 9, 0.4)) put(m.binomial_sample(rng, 900, 0.4))
            put(m.dirichlet_sample(rng, {1, 2})) put(m.categorical_sample(rng, {1, 2}))
        end
        return out
    """
    again = LuaMath()
    first, second, other = (
        vm.eval(code.replace("...", seed)) for vm, seed in ((MATH, "99"), (again, "99"), (again, "98"))
    )
    assert first == second
    assert first != other


BAD: list[tuple[str, list[Any], str]] = [
    ("rng_int", [1.5, "x"], "max must be a number, got string"),
    ("rng_int", [1e300, 2], "min must be a 64-bit integer, got 1e+300"),
    ("shuffle", [3], "tbl must be an array (a table), got number"),
    ("sample_with_replacement", [[], 1], "tbl must be a non-empty array"),
    ("sample_with_replacement", [[1], -1], "n must be >= 0, got -1"),
    ("normal_sample", [0, math.nan], "stddev must be finite, got nan"),
    ("normal_sample", [None, 1], "mean must be a number, got nil"),
    ("lognormal_sample", [0, math.inf], "sigma must be finite, got inf"),
    ("beta_sample", [0, 1], "alpha must be finite and > 0, got 0"),
    ("beta_sample", [1, -1], "beta must be finite and > 0, got -1"),
    ("gamma_sample", [0, 1], "shape must be finite and > 0, got 0"),
    ("gamma_sample", [1, 0], "scale must be finite and > 0, got 0"),
    ("exp_sample", [-1], "lambda must be in [0, inf], got -1"),
    ("uniform_sample", [1, 1], "low (1) must be < high (1)"),
    ("uniform_sample", [0, math.inf], "high must be finite, got inf"),
    ("uniform_sample", [-1e308, 1e308], "high - low is too large for a number"),
    ("student_t_sample", [0], "df must be finite and > 0, got 0"),
    ("chi_squared_sample", [-1], "df must be finite and > 0, got -1"),
    ("poisson_sample", [0], "lambda must be finite and > 0, got 0"),
    ("poisson_sample", [1e19], "lambda must be at most 1e+18, got 1e+19"),
    ("binomial_sample", [-1, 0.5], "n must be in [0, 1000000000000000000], got -1"),
    ("binomial_sample", [5, 1.5], "p must be in [0, 1], got 1.5"),
    ("dirichlet_sample", [[1]], "alphas needs at least 2 values, got 1"),
    ("dirichlet_sample", [[1, 0]], "alphas[2] must be finite and > 0, got 0"),
    ("categorical_sample", [[]], "weights must be a non-empty array"),
    ("categorical_sample", [[1, -1]], "weights[2] must be >= 0, got -1"),
    ("categorical_sample", [[0, 0]], "weights must have a finite sum > 0, got 0"),
]


@each_row(("name", "arguments", "message"), BAD)
def test_an_error_names_the_sampler_and_the_argument(name: str, arguments: list[Any], message: str) -> None:
    with pytest.raises(MathError) as raised:
        call(name, call("rng_create", 1), *arguments)
    assert str(raised.value) == f"alc.math.{name}: {message}"
