-- `alc.math`: puts the parts together, and has the checked front of the special functions and of the distributions.

local host = ...
local args = host.load("math_args")
local special = host.load("math_special")
local incomplete = host.load("math_incomplete")

local exp, log, huge = math.exp, math.log, math.huge
local number, positive, within, fail = args.number, args.positive, args.within, args.fail

local api = {}

for _, part in ipairs({
	host.load("math_random").api,
	host.load("math_samplers"),
	host.load("math_stats").api,
	host.load("math_infer"),
}) do
	for name, f in pairs(part) do api[name] = f end
end

-- --- special functions ----------------------------------------------------------------------------------------------

function api.erf(x) return special.erf(number("erf", "x", x)) end

function api.erfc(x) return special.erfc(number("erfc", "x", x)) end

-- ln |Gamma(x)|.
function api.lgamma(x) return special.lgamma(number("lgamma", "x", x)) end

function api.digamma(x) return special.digamma(number("digamma", "x", x)) end

function api.ln_beta(a, b) return special.ln_beta(positive("ln_beta", "a", a), positive("ln_beta", "b", b)) end

function api.beta(a, b) return exp(special.ln_beta(positive("beta", "a", a), positive("beta", "b", b))) end

function api.regularized_incomplete_beta(x, a, b)
	local name = "regularized_incomplete_beta"
	x = within(name, "x", x, 0, 1)
	return (incomplete.beta(x, positive(name, "a", a), positive(name, "b", b)))
end

-- The lower one, P(a, x).
function api.regularized_incomplete_gamma(a, x)
	local name = "regularized_incomplete_gamma"
	return (incomplete.gamma(positive(name, "a", a), within(name, "x", x, 0, huge)))
end

function api.factorial(n) return special.factorial(args.integer("factorial", "n", n, 0, 170)) end

function api.ln_factorial(n) return special.lgamma(args.integer("ln_factorial", "n", n, 0) + 1.0) end

-- ln(p / (1 - p)); near 1/2 the quotient is near 1 and its logarithm would lose digits.
function api.logit(p)
	p = number("logit", "p", p)
	if not (p > 0 and p < 1) then fail("logit", "p must be in (0, 1), got %s", args.shown(p)) end
	if p > 0.25 and p < 0.75 then return special.log1p((2 * p - 1) / (1 - p)) end
	return log(p) - special.log1p(-p)
end

function api.expit(x)
	x = number("expit", "x", x)
	if x >= 0 then return 1 / (1 + exp(-x)) end
	local e = exp(x)
	return e / (1 + e)
end

-- --- distributions --------------------------------------------------------------------------------------------------

function api.normal_cdf(x, mu, sigma)
	x = number("normal_cdf", "x", x)
	mu = args.finite("normal_cdf", "mu", mu)
	return special.normal_cdf((x - mu) / positive("normal_cdf", "sigma", sigma))
end

function api.normal_ppf(p) return special.normal_ppf(within("normal_ppf", "p", p, 0, 1)) end

function api.normal_inverse_cdf(p, mu, sigma)
	p = within("normal_inverse_cdf", "p", p, 0, 1)
	mu = args.finite("normal_inverse_cdf", "mu", mu)
	return mu + positive("normal_inverse_cdf", "sigma", sigma) * special.normal_ppf(p)
end

-- Below 0 and above 1 there is nothing.
function api.beta_cdf(x, alpha, beta)
	x = number("beta_cdf", "x", x)
	alpha, beta = positive("beta_cdf", "alpha", alpha), positive("beta_cdf", "beta", beta)
	if x ~= x then return x end
	return (incomplete.beta(x, alpha, beta))
end

function api.beta_ppf(p, alpha, beta)
	p = within("beta_ppf", "p", p, 0, 1)
	return incomplete.beta_ppf(p, positive("beta_ppf", "alpha", alpha), positive("beta_ppf", "beta", beta))
end

function api.beta_mean(alpha, beta)
	alpha, beta = positive("beta_mean", "alpha", alpha), positive("beta_mean", "beta", beta)
	return 1 / (1 + beta / alpha)
end

function api.beta_variance(alpha, beta)
	alpha, beta = positive("beta_variance", "alpha", alpha), positive("beta_variance", "beta", beta)
	local sum = alpha + beta
	return alpha / sum * (beta / sum) / (sum + 1)
end

function api.gamma_cdf(x, shape, scale)
	x = number("gamma_cdf", "x", x)
	shape, scale = positive("gamma_cdf", "shape", shape), positive("gamma_cdf", "scale", scale)
	if x ~= x then return x end
	return (incomplete.gamma(shape, x / scale))
end

function api.poisson_cdf(k, lambda)
	k = args.integer("poisson_cdf", "k", k, 0)
	local _, upper = incomplete.gamma(k + 1.0, positive("poisson_cdf", "lambda", lambda))
	return upper
end

return api
