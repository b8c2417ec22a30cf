-- The incomplete gamma and beta functions of `alc.math`, without checks: both tails of both, the beta distribution's
-- inverse, and the logarithms of the Poisson and binomial probabilities. Each tail is computed where it is the small
-- one, so that it keeps its digits; about 1e-13, a little less where an argument is beyond 1e6.

local host = ...
local special = host.load("math_special")

local exp, log, sqrt, abs, cos = math.exp, math.log, math.sqrt, math.abs, math.cos
local max, min, huge, pi = math.max, math.min, math.huge, math.pi
local log1p, log1pmx, expm1 = special.log1p, special.log1pmx, special.expm1
local lgamma, stirling, ln_beta, two_product = special.lgamma, special.stirling, special.ln_beta, special.two_product

local TINY = 1e-300 -- in place of a zero denominator in a continued fraction (Lentz)
local CLOSE = 1e-16
local MANY = 40 -- from here on a fixed rule is cheaper than a series
local DROP = 40 -- how far the logarithm of an integrand falls before the rest does not count: e^-40 is 4e-18

local incomplete = {}

-- --- integration ----------------------------------------------------------------------------------------------------

local POINTS, PANELS = 16, 4

-- Gauss's rule on [0, 1]: the zeros of the Legendre polynomial, found by Newton's steps.
local nodes, weights = {}, {}
for i = 1, POINTS do
	local x = cos(pi * (i - 0.25) / (POINTS + 0.5))
	local slope
	for _ = 1, 10 do
		local before, value = 1.0, x
		for k = 2, POINTS do before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k end
		slope = POINTS * (x * value - before) / (x * x - 1)
		x = x - value / slope
	end
	nodes[i] = 0.5 * (1 - x)
	weights[i] = 1 / ((1 - x * x) * slope * slope)
end

-- The integral of e^g(s) from 0 to `length` (which may be negative).
local function integrate(g, length)
	local panel = length / PANELS
	local sum = 0.0
	for k = 0, PANELS - 1 do
		for i = 1, POINTS do sum = sum + weights[i] * exp(g((k + nodes[i]) * panel)) end
	end
	return abs(panel) * sum
end

-- How far the integrand e^g reaches, where g falls like slope s + curve s^2 / 2 at first.
local function reach(slope, curve)
	slope = abs(slope)
	-- Not zero, even where a square overflows: the callers make it longer by factors.
	return max(2 * DROP / (slope + sqrt(slope * slope + 2 * DROP * curve)), 1e-290)
end

-- --- gamma ----------------------------------------------------------------------------------------------------------

-- ln(x^a e^-x / Gamma(a + 1)), which is the Poisson probability of a at mean x. The deviance form (Loader) has no large
-- terms that cancel.
local function ln_gamma_weight(a, x)
	if a < 1 then return a * log(x) - x - lgamma(a + 1) end
	local off = (x - a) / a
	local deviance = off < -0.5 and log(x / a) - off or log1pmx(off)
	return a * deviance - stirling(a) - 0.5 * log(2 * pi * a)
end

function incomplete.ln_poisson(k, mean) return k == 0 and -mean or ln_gamma_weight(k, mean) end

local function gamma_series(a, x)
	local sum, term, n = 1.0, 1.0, a
	repeat
		n = n + 1
		term = term * x / n
		sum = sum + term
	until term < CLOSE * sum
	return sum
end

local function gamma_fraction(a, x)
	local b = x + 1 - a
	local c, d = 1 / TINY, 1 / b
	local value = d
	for i = 1, 5000 do
		local term = -i * (i - a)
		b = b + 2
		d = term * d + b
		if abs(d) < TINY then d = TINY end
		c = b + term / c
		if abs(c) < TINY then c = TINY end
		d = 1 / d
		local factor = d * c
		value = value * factor
		if abs(factor - 1) < CLOSE * 2 then break end
	end
	return value
end

-- The tail of a large a on the side of x, over the weight: t = x (1 + s).
local function gamma_quadrature(a, x)
	local curve, slope = a - 1, a - 1 - x
	local function g(s) return curve * log1pmx(s) + slope * s end
	local length = reach(slope, curve)
	if x < a then return a * integrate(g, -min(length, 1)) end
	while g(length) > -DROP do length = length * 1.25 end
	return a * integrate(g, length)
end

-- P(a, x) and Q(a, x) = 1 - P(a, x).
function incomplete.gamma(a, x)
	if x <= 0 then return 0.0, 1.0 end
	if x == huge then return 1.0, 0.0 end
	local is_lower = x < (a < MANY and a + 1 or a)
	local weight = exp(ln_gamma_weight(a, x))
	local tail = 0.0
	if weight > 0 then
		if a >= MANY then
			tail = weight * gamma_quadrature(a, x)
		elseif is_lower then
			tail = weight * gamma_series(a, x)
		else
			tail = weight * a * gamma_fraction(a, x)
		end
	end
	tail = min(tail, 1.0)
	if is_lower then return tail, 1 - tail end
	return 1 - tail, tail
end

-- --- beta -----------------------------------------------------------------------------------------------------------

-- x (a + b) - a with one rounding: how far x is from the mean, which decides everything when a and b are large.
local function distance(x, a, b)
	local sum = a + b
	if sum > 1e140 then return x * sum - a end
	local rest = max(a, b) - sum + min(a, b)
	local high, low = two_product(x, sum)
	return (high - a) + (low + x * rest)
end

-- ln(x^a y^b / B(a, b)) where y = 1 - x and `off` is the distance.
local function ln_beta_weight(x, y, a, b, off)
	if min(a, b) < 1 then
		local ln_x = x > 0.5 and log1p(-y) or log(x)
		local ln_y = y > 0.5 and log1p(-x) or log(y)
		return a * ln_x + b * ln_y - ln_beta(a, b)
	end
	local u, v = off / a, -off / b
	local deviance_x = u < -0.5 and log(x * (1 + b / a)) - u or log1pmx(u)
	local deviance_y = v < -0.5 and log(y * (1 + a / b)) - v or log1pmx(v)
	return a * deviance_x + b * deviance_y + (stirling(a + b) - stirling(a) - stirling(b))
		+ 0.5 * (log(min(a, b)) - log1p(min(a, b) / max(a, b)) - log(2 * pi))
end

-- ln of the probability of k successes in n trials of probability p (q = 1 - p).
function incomplete.ln_binomial(k, n, p, q)
	if k == 0 then return n * log1p(-p) end
	if k == n then return n * log(p) end
	local rest = n - k
	return ln_beta_weight(p, q, k, rest, distance(p, k, rest)) - log(k) - log(rest / n)
end

-- The sum of (1 - b)_n x^n / (n! (a + n)) for n >= 1.
local function beta_series(x, a, b)
	local sum, factor, n = 0.0, 1.0, 0
	repeat
		n = n + 1
		factor = factor * (n - b) / n * x
		local term = factor / (a + n)
		sum = sum + term
	until abs(term) <= CLOSE * abs(sum) or n > 5000
	return sum
end

-- The lower tail over the weight, by the continued fraction of DiDonato and Morris, which takes the distance from the
-- mean as it is.
local function beta_fraction(x, y, a, b, off)
	local value = a * (1 - off) / (a + 1)
	if value == 0 then value = TINY end
	local c, d = value, 0.0
	for m = 1, 20000 do
		local twice = a + 2 * m
		local top = m * (a + m - 1) * ((a + b + m - 1) * x / (twice - 1)) * ((b - m) * x / (twice - 1))
		local bottom = m + m * (b - m) * x / (twice - 1) + (a + m) * (1 - off + m * (1 + y)) / (twice + 1)
		d = bottom + top * d
		if abs(d) < TINY then d = TINY end
		c = bottom + top / c
		if abs(c) < TINY then c = TINY end
		d = 1 / d
		local factor = d * c
		value = value * factor
		if abs(factor - 1) < CLOSE * 2 then break end
	end
	return 1 / value
end

-- The lower tail of large a and b over the weight: t = x (1 + s), s from 0 down to -1.
local function beta_quadrature(x, y, a, b, off)
	local ratio = x / y
	local slope = (2 * x - 1 - off) / y
	local function g(s) return (a - 1) * log1pmx(s) + (b - 1) * log1pmx(-ratio * s) + slope * s end
	local curve = (a - 1) + (b - 1) * ratio * ratio
	local length = reach(slope, curve)
	while length < 1 and g(-length) > -DROP do length = length * 1.25 end
	return integrate(g, -min(length, 1)) / y
end

-- The lower tail for x at or below the mean, and the upper one where the lower is nearly all.
local function beta_lower(x, y, a, b, off)
	local ln_weight = ln_beta_weight(x, y, a, b, off)
	if min(a, b) >= MANY then
		local weight = exp(ln_weight)
		local tail = weight > 0 and min(weight * beta_quadrature(x, y, a, b, off), 1.0) or 0.0
		return tail, 1 - tail
	end
	local is_series = x <= 0.7 and b * x <= 1
	if not is_series then
		local weight = exp(ln_weight)
		local tail = weight > 0 and min(weight * beta_fraction(x, y, a, b, off), 1.0) or 0.0
		return tail, 1 - tail
	end
	local sum = beta_series(x, a, b)
	local tail = min(exp(a * (x > 0.5 and log1p(-y) or log(x)) - ln_beta(a, b)) * (1 / a + sum), 1.0)
	if tail < 0.9 or a > b then return tail, 1 - tail end
	-- Everything is of the size of a: no 1 - (1 - a).
	local ln_lower = a * log(x) + special.lgamma_step(b, a, nodes, weights) - special.lgamma1p(a) + log1p(a * sum)
	return exp(ln_lower), -expm1(ln_lower)
end

-- I_x(a, b) and 1 - I_x(a, b).
local function beta(x, a, b)
	if x <= 0 then return 0.0, 1.0 end
	if x >= 1 then return 1.0, 0.0 end
	local off = distance(x, a, b)
	local is_lower
	if min(a, b) >= MANY then
		is_lower = off <= 0
	else
		is_lower = x <= (a + 1) / (a + b + 2)
	end
	if is_lower then return beta_lower(x, 1 - x, a, b, off) end
	local upper, lower = beta_lower(1 - x, x, b, a, -off)
	return lower, upper
end

incomplete.beta = beta

-- The x <= 1/2 with lower tail `lower` and upper tail `upper` (the smaller of them counts), by Newton's steps on the
-- logarithms of both x and the tail, kept inside a bracket.
local function solve_beta(lower, upper, a, b)
	local low, high = 0.0, 0.5
	local is_lower = lower <= upper
	local x = exp(min((log(lower) + log(a) + ln_beta(a, b)) / a, log(0.5)))
	local mean = a / (a + b)
	if a > 1 and b > 1 and x < mean / 2 then x = min(mean, 0.5) end
	for _ = 1, 200 do
		if not (x > low and x < high) then
			x = low > 0 and sqrt(low) * sqrt(high) or max(high * 1e-8, 5e-324)
			if not (x > low and x < high) then return high end
		end
		local p, q = beta(x, a, b)
		local miss, tail
		if is_lower then
			miss, tail = log(p) - log(lower), p
		else
			miss, tail = log(upper) - log(q), q
		end
		if miss == 0 then return x end
		if miss > 0 then high = x else low = x end
		if high == 5e-324 then return 0.0 end
		local slope = exp(ln_beta_weight(x, 1 - x, a, b, distance(x, a, b)) - log1p(-x)) / tail
		local step = -miss / slope
		-- A tail of 0 has no slope to follow; outside of the bracket the next round halves it.
		local nearer = tail > 0 and slope > 0 and x * exp(max(min(step, 50), -50)) or -1.0
		if nearer > 0 and (abs(step) < 3e-16 or nearer == x) then return min(nearer, 0.5) end
		if high - low <= 2.3e-16 * high then return x end
		x = nearer
	end
	return x
end

-- The point below which a beta(a, b) lies with probability p.
function incomplete.beta_ppf(p, a, b)
	if p <= 0 then return 0.0 end
	if p >= 1 then return 1.0 end
	local below, above = beta(0.5, a, b)
	local is_left
	if p <= 0.5 then is_left = p <= below else is_left = 1 - p >= above end
	if is_left then return solve_beta(p, 1 - p, a, b) end
	return 1 - solve_beta(1 - p, p, b, a)
end

return incomplete
