-- The samplers of `alc.math`: draws from the usual distributions, each by a published method that is exact up to
-- rounding, each from the rng it is given and nothing else.

local host = ...
local args = host.load("math_args")
local random = host.load("math_random")
local special = host.load("math_special")
local incomplete = host.load("math_incomplete")

local exp, log, sqrt, abs, floor, huge = math.exp, math.log, math.sqrt, math.abs, math.floor, math.huge
local max, tointeger = math.max, math.tointeger
local of, next_long, next_float, next_open = random.of, random.next_long, random.next_float, random.next_open
local log1p, ln_poisson, ln_binomial = special.log1p, incomplete.ln_poisson, incomplete.ln_binomial

local MOST = 1e18 -- of a mean or a count: results are integers, and a few deviations above it they end

-- --- normal and exponential: the ziggurat (Marsaglia and Tsang 2000), 256 layers ------------------------------------

-- Where the lowest layer ends, and the area of each (Doornik 2005 for the normal one).
local NORMAL_END, NORMAL_AREA = 3.654152885361008796, 0.00492867323399
local EXP_END, EXP_AREA = 7.69711747013104972, 0.0039496598225815571993

-- The right ends of the layers, from the lowest one (as wide as its area with the tail needs) to 0 at the top, and the
-- density at each.
local function layers(last, area, density, inverse)
	local ends, heights = { [0] = area / density(last), last }, {}
	for i = 2, 255 do ends[i] = inverse(area / ends[i - 1] + density(ends[i - 1])) end
	ends[256] = 0.0
	for i = 0, 256 do heights[i] = density(ends[i]) end
	return ends, heights
end

local function normal_density(x) return exp(-0.5 * x * x) end
local function exp_density(x) return exp(-x) end

local NORMAL_ENDS, NORMAL_HEIGHTS =
	layers(NORMAL_END, NORMAL_AREA, normal_density, function(y) return sqrt(-2 * log(y)) end)
local EXP_ENDS, EXP_HEIGHTS = layers(EXP_END, EXP_AREA, exp_density, function(y) return -log(y) end)

-- Beyond the end of the lowest layer (Marsaglia 1964).
local function normal_tail(stream)
	while true do
		local x = log(next_open(stream)) / NORMAL_END
		local y = log(next_open(stream))
		if -2 * y >= x * x then return NORMAL_END - x end
	end
end

local function normal(stream)
	while true do
		local bits = next_long(stream)
		local layer = bits & 0xff
		local u = (bits >> 12) * 2.0 ^ -51 - 1
		local x = u * NORMAL_ENDS[layer]
		if abs(x) < NORMAL_ENDS[layer + 1] then return x end
		if layer == 0 then
			local tail = normal_tail(stream)
			return u < 0 and -tail or tail
		end
		local low = NORMAL_HEIGHTS[layer + 1]
		if low + (NORMAL_HEIGHTS[layer] - low) * next_float(stream) < normal_density(x) then return x end
	end
end

local function exponential(stream)
	while true do
		local bits = next_long(stream)
		local layer = bits & 0xff
		local x = ((bits >> 12) + 0.5) * 2.0 ^ -52 * EXP_ENDS[layer]
		if x < EXP_ENDS[layer + 1] then return x end
		if layer == 0 then return EXP_END - log(max(next_float(stream), 2.0 ^ -54)) end
		local low = EXP_HEIGHTS[layer + 1]
		if low + (EXP_HEIGHTS[layer] - low) * next_float(stream) < exp_density(x) then return x end
	end
end

-- --- gamma and what is made of it -----------------------------------------------------------------------------------

-- Shape >= 1 (Marsaglia and Tsang 2000).
local function gamma_large(stream, shape)
	local d = shape - 1 / 3
	local c = 1 / sqrt(9 * d)
	while true do
		local x = normal(stream)
		local root = 1 + c * x
		if root > 0 then
			local v = root * root * root
			local u = next_open(stream)
			local square = x * x
			if u < 1 - 0.0331 * square * square then return d * v end
			if log(u) < 0.5 * square + d * (1 - v + log(v)) then return d * v end
		end
	end
end

local function gamma(stream, shape)
	if shape == 1 then return exponential(stream) end
	if shape > 1 then return gamma_large(stream, shape) end
	local u = next_open(stream)
	return gamma_large(stream, shape + 1) * u ^ (1 / shape)
end

-- The logarithm of a gamma draw: a shape of 0.001 gives values that no float can hold.
local function ln_gamma(stream, shape)
	if shape >= 1 then return log(gamma(stream, shape)) end
	local u = next_open(stream)
	return log(gamma_large(stream, shape + 1)) + log(u) / shape
end

local function chi_squared(stream, degrees)
	if degrees == 1 then
		local x = normal(stream)
		return x * x
	end
	return 2 * gamma(stream, degrees / 2)
end

-- --- counts ---------------------------------------------------------------------------------------------------------

-- A small mean: how many uniforms can be multiplied before the product is below e^-mean (Knuth).
local function poisson_small(stream, mean)
	local limit, product, count = exp(-mean), next_float(stream), 0
	while product > limit do
		product = product * next_float(stream)
		count = count + 1
	end
	return count
end

-- Transformed rejection with squeeze (Hörmann 1993, PTRS).
local function poisson_large(stream, mean)
	local b = 0.931 + 2.53 * sqrt(mean)
	local a = -0.059 + 0.02483 * b
	local scale = 1.1239 + 1.1328 / (b - 3.4)
	local sure = 0.9277 - 3.6224 / (b - 2)
	while true do
		local u, v = next_float(stream) - 0.5, next_open(stream)
		local us = 0.5 - abs(u)
		local k = floor((2 * a / us + b) * u + mean + 0.43)
		if us >= 0.07 and v <= sure then return k end
		if k >= 0 and not (us < 0.013 and v > us) then
			if log(v * scale / (a / (us * us) + b)) <= ln_poisson(k + 0.0, mean) then return k end
		end
	end
end

-- Few successes: from 0 upward through the probabilities (Kachitvichyanukul and Schmeiser 1988, BINV).
local function binomial_small(stream, n, p, q)
	local odds = p / q
	local none = exp(n * log1p(-p))
	while true do
		local u, k, mass = next_float(stream), 0, none
		while u > mass and k < n do
			u = u - mass
			k = k + 1
			mass = mass * odds * ((n - k + 1) / k)
			if mass == 0 then break end
		end
		-- The sum of the masses is not exactly 1: a draw in the gap at its end is drawn again.
		if u <= mass then return k end
	end
end

-- Transformed rejection (Hörmann 1993, BTRS), for n p >= 10.
local function binomial_large(stream, n, p, q)
	local spread = sqrt(n * p * q)
	local b = 1.15 + 2.53 * spread
	local a = -0.0873 + 0.0248 * b + 0.01 * p
	local centre = n * p + 0.5
	local sure = 0.92 - 4.2 / b
	local scale = (2.83 + 5.1 / b) * spread
	local mode = ln_binomial(floor((n + 1) * p) + 0.0, n, p, q)
	while true do
		local u, v = next_float(stream) - 0.5, next_open(stream)
		local us = 0.5 - abs(u)
		local k = floor((2 * a / us + b) * u + centre)
		if k >= 0 and k <= n then
			if us >= 0.07 and v <= sure then return k end
			if log(v * scale / (a / (us * us) + b)) <= ln_binomial(k + 0.0, n, p, q) - mode then return k end
		end
	end
end

local function binomial(stream, n, p)
	if p == 0 or n == 0 then return 0 end
	if p == 1 then return n end
	local is_flipped = p > 0.5
	local q = 1 - p
	if is_flipped then p, q = q, p end
	local trials = n + 0.0
	local k = tointeger((trials * p < 10 and binomial_small or binomial_large)(stream, trials, p, q))
	return is_flipped and n - k or k
end

-- --- the functions --------------------------------------------------------------------------------------------------

local api = {}

-- A negative deviation mirrors the draw, as in the original.
function api.normal_sample(rng, mean, stddev)
	local stream = of("normal_sample", rng)
	mean = args.finite("normal_sample", "mean", mean)
	stddev = args.finite("normal_sample", "stddev", stddev)
	return mean + stddev * normal(stream)
end

function api.lognormal_sample(rng, mu, sigma)
	local stream = of("lognormal_sample", rng)
	mu = args.finite("lognormal_sample", "mu", mu)
	sigma = args.finite("lognormal_sample", "sigma", sigma)
	return exp(mu + sigma * normal(stream))
end

-- A rate of 0 never happens: infinity.
function api.exp_sample(rng, lambda)
	local stream = of("exp_sample", rng)
	lambda = args.within("exp_sample", "lambda", lambda, 0, huge)
	return exponential(stream) * (1 / lambda)
end

-- In [low, high). The width is made smaller until rounding cannot reach `high`: bit by bit where a few bits are enough,
-- by halves where `low` and `high` are neighbours.
local function uniform(stream, low, high)
	local width, tries = high - low, 0
	while width * (1 - 2.0 ^ -52) + low >= high do
		tries = tries + 1
		width = width * (tries <= 16 and 1 - 2.0 ^ -53 or 0.5)
	end
	return (next_long(stream) >> 12) * 2.0 ^ -52 * width + low
end

function api.uniform_sample(rng, low, high)
	local stream = of("uniform_sample", rng)
	low = args.finite("uniform_sample", "low", low)
	high = args.finite("uniform_sample", "high", high)
	if not (low < high) then
		args.fail("uniform_sample", "low (%s) must be < high (%s)", args.shown(low), args.shown(high))
	end
	if high - low == huge then args.fail("uniform_sample", "high - low is too large for a number") end
	return uniform(stream, low, high)
end

function api.gamma_sample(rng, shape, scale)
	local stream = of("gamma_sample", rng)
	shape = args.positive("gamma_sample", "shape", shape)
	scale = args.positive("gamma_sample", "scale", scale)
	return gamma(stream, shape) * scale
end

-- X / (X + Y) of two gamma draws, by their logarithms.
function api.beta_sample(rng, alpha, beta)
	local stream = of("beta_sample", rng)
	alpha = args.positive("beta_sample", "alpha", alpha)
	beta = args.positive("beta_sample", "beta", beta)
	local x = ln_gamma(stream, alpha)
	local y = ln_gamma(stream, beta)
	return 1 / (1 + exp(y - x))
end

function api.chi_squared_sample(rng, df)
	local stream = of("chi_squared_sample", rng)
	return chi_squared(stream, args.positive("chi_squared_sample", "df", df))
end

function api.student_t_sample(rng, df)
	local stream = of("student_t_sample", rng)
	df = args.positive("student_t_sample", "df", df)
	local x = normal(stream)
	return x * sqrt(df / chi_squared(stream, df))
end

function api.poisson_sample(rng, lambda)
	local stream = of("poisson_sample", rng)
	lambda = args.positive("poisson_sample", "lambda", lambda)
	if lambda > MOST then args.fail("poisson_sample", "lambda must be at most %g, got %g", MOST, lambda) end
	if lambda < 12 then return poisson_small(stream, lambda) end
	return tointeger(poisson_large(stream, lambda))
end

function api.binomial_sample(rng, n, p)
	local stream = of("binomial_sample", rng)
	n = args.integer("binomial_sample", "n", n, 0, tointeger(MOST))
	return binomial(stream, n, args.within("binomial_sample", "p", p, 0, 1))
end

-- Gamma draws over their sum, by their logarithms, so that small alphas cannot make it 0 / 0.
function api.dirichlet_sample(rng, alphas)
	local stream = of("dirichlet_sample", rng)
	local shapes, n = args.array("dirichlet_sample", "alphas", alphas, 2)
	for i = 1, n do args.positive("dirichlet_sample", "alphas[" .. i .. "]", shapes[i]) end
	local draws, largest = {}, -huge
	for i = 1, n do
		draws[i] = ln_gamma(stream, shapes[i])
		largest = max(largest, draws[i])
	end
	local sum = 0.0
	for i = 1, n do
		draws[i] = exp(draws[i] - largest)
		sum = sum + draws[i]
	end
	for i = 1, n do draws[i] = draws[i] / sum end
	return draws
end

-- The 1-based index of a weight, as likely as the weight is large.
function api.categorical_sample(rng, weights)
	local stream = of("categorical_sample", rng)
	local shares, n = args.array("categorical_sample", "weights", weights)
	local total = 0.0
	for i = 1, n do
		if shares[i] < 0 then
			args.fail("categorical_sample", "weights[%d] must be >= 0, got %s", i, args.shown(shares[i]))
		end
		total = total + shares[i]
	end
	if not (total > 0 and total < huge) then
		args.fail("categorical_sample", "weights must have a finite sum > 0, got %s", args.shown(total))
	end
	local chosen = uniform(stream, 0.0, total)
	local sum, last = 0.0, n
	for i = 1, n do
		sum = sum + shares[i]
		if shares[i] > 0 then last = i end
		if chosen < sum then return i end
	end
	return last
end

return api
