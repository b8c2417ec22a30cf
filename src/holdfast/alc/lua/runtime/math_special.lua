-- The special functions of `alc.math`, without checks: error function, gamma function and its derivative, beta
-- function, and the small ones (log1p, expm1, log1pmx) that keep their digits. Accurate to about 1e-15 unless a line
-- says less.

local exp, log, sqrt, sin, tan, abs = math.exp, math.log, math.sqrt, math.sin, math.tan, math.abs
local floor, max, min, huge, pi = math.floor, math.max, math.min, math.huge, math.pi

local SQRT_PI = sqrt(pi)
local SQRT_2 = sqrt(2)
local HALF_LN_2PI = 0.9189385332046727417803297
local LN_PI = 1.144729885849400174143427

local special = {}

-- --- small ones -----------------------------------------------------------------------------------------------------

-- ln(1 + x). The quotient undoes the rounding of 1 + x (Kahan).
local function log1p(x)
	if x < -0.5 or x > 1 then return log(1 + x) end
	local u = 1 + x
	if u == 1 then return x end
	return log(u) * (x / (u - 1))
end

-- e^x - 1, by the same trick.
local function expm1(x)
	if x < -1 or x > 1 then return exp(x) - 1 end
	local u = exp(x)
	if u == 1 then return x end
	return (u - 1) * x / log(u)
end

-- ln(1 + x) - x, which is where deviances come from. With r = x / (2 + x), ln(1 + x) = 2 atanh(r), and the first term
-- of that series and x leave -x r.
local function log1pmx(x)
	if x < -0.5 or x > 0.5 then return log1p(x) - x end
	local r = x / (2 + x)
	local square = r * r
	local sum, power, k = 0.0, 1.0, 3
	repeat
		local term = power / k
		sum = sum + term
		power = power * square
		k = k + 2
	until term < 1e-17
	return r * (2 * square * sum - x)
end

special.log1p, special.expm1, special.log1pmx = log1p, expm1, log1pmx

-- --- error function -------------------------------------------------------------------------------------------------

-- e^(-x^2 / divisor), with the square made exact: rounding it would cost digits in the tail.
local function exp_minus_square(x, divisor)
	local high = floor(x * 65536) / 65536
	return exp(-high * high / divisor) * exp(-(x - high) * (x + high) / divisor)
end

-- e^(x^2) erfc(x) for x >= 1.5, by the continued fraction of Laplace from its far end.
local function erfcx(x)
	local y = x
	for k = 16 + floor(260 / (x * x)), 1, -1 do y = x + 0.5 * k / y end
	return 1 / (y * SQRT_PI)
end

-- For |x| < 1.5: all terms have one sign.
local function erf_series(x)
	local square = 2 * x * x
	local sum, term, k = 1.0, 1.0, 1
	repeat
		k = k + 2
		term = term * square / k
		sum = sum + term
	until term < 1e-17 * sum
	return 2 * x / SQRT_PI * exp(-x * x) * sum
end

function special.erf(x)
	if x ~= x then return x end
	local size = abs(x)
	if size < 1.5 then return erf_series(x) end
	local value = size > 6 and 1.0 or 1 - exp_minus_square(size, 1) * erfcx(size)
	return x < 0 and -value or value
end

function special.erfc(x)
	if x ~= x then return x end
	if x > 28 then return 0.0 end
	if x >= 1.5 then return exp_minus_square(x, 1) * erfcx(x) end
	if x > -1.5 then return 1 - erf_series(x) end
	return 1 - special.erf(x)
end

-- The logarithm of the normal distribution's tail beyond z > 2.2, and the tail over its density (Mills' ratio).
local function log_normal_tail(z)
	local scaled = 0.5 * erfcx(z / SQRT_2)
	return log(scaled) - 0.5 * z * z, scaled * sqrt(2 * pi)
end

-- P(Z <= z). Not erfc(z / sqrt 2) in the tail: the rounded quotient would be squared.
function special.normal_cdf(z)
	if z ~= z then return z end
	if z < -39 then return 0.0 end
	if z < -2.2 then return exp_minus_square(-z, 2) * 0.5 * erfcx(-z / SQRT_2) end
	return 0.5 * special.erfc(-z / SQRT_2)
end

-- The middle: solves erf(z / sqrt 2) = 2 (p - 1/2) by Halley's steps.
local function normal_ppf_middle(p)
	local target = p - 0.5
	local z = target * sqrt(2 * pi) * (1 + target * target * pi / 3)
	for _ = 1, 8 do
		local off = (0.5 * erf_series(z / SQRT_2) - target) * sqrt(2 * pi) * exp(0.5 * z * z)
		local step = off / (1 + 0.5 * z * off)
		z = z - step
		if abs(step) <= 1e-16 * abs(z) then break end
	end
	return z
end

-- The point below which a standard normal lies with probability p.
function special.normal_ppf(p)
	if p <= 0 then return -huge end
	if p >= 1 then return huge end
	if p > 0.025 and p < 0.975 then return normal_ppf_middle(p) end
	local tail = min(p, 1 - p)
	-- Newton's steps on the logarithm, which is nearly a parabola, so that p = 1e-300 is as easy as p = 0.01.
	local wanted = log(tail)
	local z = sqrt(max(-2 * wanted - log(2 * pi * max(1, -2 * wanted - 1)), 5))
	for _ = 1, 30 do
		local value, mills = log_normal_tail(z)
		local step = (value - wanted) * mills
		z = z + step
		if abs(step) <= 2e-16 * z then break end
	end
	return p < 0.5 and -z or z
end

-- --- gamma function -------------------------------------------------------------------------------------------------

-- zeta(k) - 1 for k = 2, 3, …
local ZETA = {
	0.64493406684822643647, 0.20205690315959428540, 0.082323233711138191516, 0.036927755143369926331,
	0.017343061984449139715, 0.0083492773819228268398, 0.0040773561979443393787, 0.0020083928260822144179,
	0.00099457512781808533715, 0.00049418860411946455870, 0.00024608655330804829864, 0.00012271334757848914675,
	0.000061248135058704829259, 0.000030588236307020493552, 0.000015282259408651871733, 7.6371976378997622736e-6,
	3.8172932649998398565e-6, 1.9082127165539389257e-6, 9.5396203387279611315e-7, 4.7693298678780646312e-7,
	2.3845050272773299000e-7, 1.1921992596531107307e-7, 5.9608189051259479612e-8, 2.9803503514652280186e-8,
	1.4901554828365041235e-8, 7.4507117898354294920e-9, 3.7253340247884570548e-9, 1.8626597235130490064e-9,
}
local ONE_MINUS_GAMMA = 0.4227843350984671393934879

-- ln Gamma(2 + z) for |z| <= 1/2: its Taylor series, exact at the zero.
local function lgamma_at_2(z)
	local sum = 0.0
	for k = #ZETA, 1, -1 do sum = ZETA[k] / (k + 1) - z * sum end
	return z * (ONE_MINUS_GAMMA + z * sum)
end

-- What Stirling's formula leaves out: ln Gamma(x) - (x - 1/2) ln x + x - ln(2 pi) / 2, from x = 10 on.
local function stirling_series(x)
	local t = 1 / (x * x)
	return (1 / 12 - t * (1 / 360 - t * (1 / 1260 - t * (1 / 1680 - t * (1 / 1188 - t * (691 / 360360
		- t * (1 / 156 - t * 3617 / 122400))))))) / x
end

local function lgamma_positive(x)
	if x < 0.5 then return lgamma_at_2(x) - log1p(x) - log(x) end
	if x < 1.5 then return lgamma_at_2(x - 1) - log1p(x - 1) end
	if x <= 2.5 then return lgamma_at_2(x - 2) end
	if x < 10 then
		local product = 1.0
		while x > 2.5 do
			x = x - 1
			product = product * x
		end
		return log(product) + lgamma_at_2(x - 2)
	end
	if x > 1e17 then return x * (log(x) - 1) end
	return (x - 0.5) * log(x) - x + HALF_LN_2PI + stirling_series(x)
end

-- How far x is from the nearest integer, exactly.
local function from_integer(x) return x - floor(x + 0.5) end

-- ln |Gamma(x)|; infinite at 0, -1, -2, …
function special.lgamma(x)
	if x > 0 then return lgamma_positive(x) end
	if x ~= x then return x end
	if x == floor(x) then return huge end
	return LN_PI - log(abs(sin(pi * from_integer(x)))) - lgamma_positive(1 - x)
end

-- ln Gamma(1 + x) for x >= 0, where 1 + x would lose a small x.
function special.lgamma1p(x)
	if x > 0.5 then return lgamma_positive(1 + x) end
	return lgamma_at_2(x) - log1p(x)
end

local function stirling(x)
	if x >= 10 then return stirling_series(x) end
	return lgamma_positive(x) - (x - 0.5) * log(x) + x - HALF_LN_2PI
end

special.stirling = stirling

-- The zero of digamma, in two parts, and its Taylor coefficients there: near it nothing else keeps the digits.
local ROOT, ROOT_REST = 1.4616321449683622, 9.5499954299656977152e-17
local AT_ROOT = {
	0.96767224544762117043, -0.44276316898359210609, 0.25849976095565101062, -0.1639427054424065275,
	0.10782405069126236576, -0.072199561256454710926, 0.048804288164143107225, -0.033161126474847359292,
	0.02259764823221810466, -0.015424765904948959139, 0.010538791616612175388, -0.007204534386356868241,
	0.0049267813957298534464, -0.0033698016554393280828, 0.0023051263267349278369, -0.0015769367714301972593,
	0.0010788252019162965807, -0.00073807093899600512957, 0.00050495326583460203518, -0.00034546802510630769956,
	0.00023635601564027052792, -0.00016170622091974803449, 0.00011063372768747410904, -0.000075691795821950659192,
	0.00005178575795222080869, -0.000035430070947659606316, 0.000024240066118601317653, -0.000016584242271854133375,
}

local function digamma_positive(x)
	if abs(x - ROOT) < 0.4 then
		local d = (x - ROOT) - ROOT_REST
		local sum = 0.0
		for k = #AT_ROOT, 1, -1 do sum = AT_ROOT[k] + d * sum end
		return d * sum
	end
	local below = 0.0
	while x < 10 do
		below = below + 1 / x
		x = x + 1
	end
	local t = 1 / (x * x)
	return log(x) - 0.5 / x - below - t * (1 / 12 - t * (1 / 120 - t * (1 / 252 - t * (1 / 240 - t * (1 / 132
		- t * (691 / 32760 - t * (1 / 12 - t * 3617 / 8160)))))))
end

-- The derivative of ln Gamma; minus infinity at 0, -1, -2, …, where it has no value.
function special.digamma(x)
	if x > 0 then return x == huge and huge or digamma_positive(x) end
	if x ~= x or x == -huge then return 0 / 0 end
	if x == floor(x) then return -huge end
	return digamma_positive(1 - x) - pi / tan(pi * from_integer(x))
end

-- ln Gamma(x + d) - ln Gamma(x) for 0 < d <= x, without the digits that the difference would lose: the integral of
-- digamma from x to x + d, by Gauss's rule (`nodes` and `weights` on [0, 1]).
function special.lgamma_step(x, d, nodes, weights)
	local sum = 0.0
	for i = 1, #nodes do sum = sum + weights[i] * digamma_positive(x + d * nodes[i]) end
	return d * sum
end

-- --- beta function --------------------------------------------------------------------------------------------------

function special.ln_beta(a, b)
	local small, large = min(a, b), max(a, b)
	local sum = small + large
	if large < 10 then return lgamma_positive(small) + (lgamma_positive(large) - lgamma_positive(sum)) end
	local share = small / sum
	if small >= 10 then
		return HALF_LN_2PI - 0.5 * log(large) + (small - 0.5) * log(share) + large * log1p(-share)
			+ (stirling_series(small) + stirling_series(large) - stirling_series(sum))
	end
	return lgamma_positive(small) + (large - 0.5) * log1p(-share) + small * (1 - log(sum))
		+ (stirling_series(large) - stirling_series(sum))
end

-- --- factorials -----------------------------------------------------------------------------------------------------

-- high + low = x * y exactly (Dekker); for |x|, |y| < 1e150.
local function two_product(x, y)
	local high = x * y
	local t = 134217729 * x
	local x_high = t - (t - x)
	local x_low = x - x_high
	t = 134217729 * y
	local y_high = t - (t - y)
	local y_low = y - y_high
	return high, ((x_high * y_high - high) + x_high * y_low + x_low * y_high) + x_low * y_low
end

special.two_product = two_product

-- Two floats a number, since 170 roundings in a row would show; scaled by 2^-600 to stay inside two_product's range.
local FACTORIALS = { [0] = 1.0 }
do
	local high, low = 2.0 ^ -600, 0.0
	for n = 1, 170 do
		local product, rest = two_product(high, n + 0.0)
		rest = rest + low * n
		high = product + rest
		low = rest - (high - product)
		FACTORIALS[n] = high * 2.0 ^ 600
	end
end

function special.factorial(n) return FACTORIALS[n] end

return special
