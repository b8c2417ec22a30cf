-- What `alc.math` concludes: tests of hypotheses, ranks and ranking metrics, information theory.

local host = ...
local args = host.load("math_args")
local special = host.load("math_special")
local incomplete = host.load("math_incomplete")
local stats = host.load("math_stats")

local exp, log, sqrt, abs, pi = math.exp, math.log, math.sqrt, math.abs, math.pi
local max, min, sort, type, rawget = math.max, math.min, table.sort, type, rawget
local array, fail, pair = args.array, args.fail, args.pair

local SUM_TOLERANCE = 1e-6 -- how far from 1 probabilities may sum

local api = {}

-- --- tests ----------------------------------------------------------------------------------------------------------

-- Welch's t, two-sided.
function api.welch_t_test(xs, ys)
	local n, m
	xs, n = array("welch_t_test", "xs", xs, 2)
	ys, m = array("welch_t_test", "ys", ys, 2)
	local error_x, error_y = stats.variance_of(xs, n) / n, stats.variance_of(ys, m) / m
	local sum = error_x + error_y
	if sum == 0 then fail("welch_t_test", "xs and ys both have zero variance: there is nothing to compare with") end
	local t = (stats.mean_of(xs, n) - stats.mean_of(ys, m)) / sqrt(sum)
	local share_x, share_y = error_x / sum, error_y / sum
	local df = 1 / (share_x * share_x / (n - 1) + share_y * share_y / (m - 1))
	-- Student's tails as an incomplete beta function, from the side on which its argument is small and exact.
	local square = t * t
	local p
	if square > df then
		p = incomplete.beta(1 / (1 + square / df), df / 2, 0.5)
	else
		local _, upper = incomplete.beta(square / df / (1 + square / df), 0.5, df / 2)
		p = upper
	end
	return { t_stat = t, df = df, p_value = p }
end

-- The order that sorts values: indices, by value.
local function sorting(values, n)
	local order = {}
	for i = 1, n do order[i] = i end
	sort(order, function(i, j)
		local x, y = values[i], values[j]
		return x < y or (x == y and i < j)
	end)
	return order
end

-- Ranks from 1, equal values sharing the mean of theirs; and the sum of t^3 - t over the groups of t equal values.
local function ranks_of(values, n)
	local order, ranks, ties = sorting(values, n), {}, 0.0
	local first = 1
	while first <= n do
		local last = first
		while last < n and values[order[last + 1]] == values[order[first]] do last = last + 1 end
		for i = first, last do ranks[order[i]] = (first + last) / 2 end
		local size = last - first + 1.0
		ties = ties + (size * size * size - size)
		first = last + 1
	end
	return ranks, ties
end

-- The smaller U, with the normal approximation, two-sided. With {tie_correction = true} the variance allows for ties.
function api.mann_whitney_u(xs, ys, options)
	local n, m
	xs, n = array("mann_whitney_u", "xs", xs)
	ys, m = array("mann_whitney_u", "ys", ys)
	if options ~= nil and type(options) ~= "table" then
		fail("mann_whitney_u", "options must be a table such as {tie_correction = true}, got %s", type(options))
	end
	for i = 1, m do xs[n + i] = ys[i] end
	local ranks, ties = ranks_of(xs, n + m)
	local sum = 0.0
	for i = 1, n do sum = sum + ranks[i] end
	local u = sum - n * (n + 1) / 2
	u = min(u, n * m - u)
	local all = n + m
	local spread = all + 1.0
	if options and rawget(options, "tie_correction") then spread = spread - ties / (all * (all - 1.0)) end
	local sigma = sqrt(n * m / 12 * spread)
	if sigma == 0 then fail("mann_whitney_u", "all values of xs and ys are the same: there is nothing to rank") end
	local z = (u - n * m / 2) / sigma
	return { u_stat = u, z_score = z, p_value = min(2 * special.normal_cdf(z), 1.0) }
end

-- Goodness of fit of counts.
function api.chi_squared_test(observed, expected)
	local n
	observed, expected, n = pair("chi_squared_test", "observed", observed, "expected", expected, 2)
	local sum = 0.0
	for i = 1, n do
		local wanted = expected[i]
		if wanted <= 0 then fail("chi_squared_test", "expected[%d] must be > 0, got %s", i, args.shown(wanted)) end
		local off = observed[i] - wanted
		sum = sum + off * off / wanted
	end
	local df = n - 1.0
	local _, p = incomplete.gamma(df / 2, sum / 2)
	return { chi2_stat = sum, df = df, p_value = p }
end

-- 1 - K(x) of Kolmogorov's distribution; the two series are the same function, each quick on its side.
local function kolmogorov_tail(x)
	if x < 0.04 then return 1.0 end
	local sum, k = 0.0, 1
	if x < 1.18 then
		repeat
			local term = exp(-(2 * k - 1) ^ 2 * pi * pi / (8 * x * x))
			sum = sum + term
			k = k + 1
		until term <= 1e-17 * sum
		return max(1 - sqrt(2 * pi) / x * sum, 0.0)
	end
	local sign = 2.0
	repeat
		local term = exp(-2 * k * k * x * x)
		sum = sum + sign * term
		sign = -sign
		k = k + 1
	until term <= 1e-17 * abs(sum)
	return min(max(sum, 0.0), 1.0)
end

-- Two samples; the asymptotic p-value with the correction of Stephens.
function api.ks_test(xs, ys)
	local n, m
	xs, n = array("ks_test", "xs", xs)
	ys, m = array("ks_test", "ys", ys)
	sort(xs)
	sort(ys)
	local i, j, most = 0, 0, 0.0
	while i < n and j < m do
		local value = min(xs[i + 1], ys[j + 1])
		while i < n and xs[i + 1] == value do i = i + 1 end
		while j < m and ys[j + 1] == value do j = j + 1 end
		most = max(most, abs(i / n - j / m))
	end
	local root = sqrt(n * m / (n + m))
	return { d_stat = most, p_value = kolmogorov_tail((root + 0.12 + 0.11 / root) * most) }
end

-- --- ranking --------------------------------------------------------------------------------------------------------

function api.rank(values) return (ranks_of(array("rank", "values", values))) end

function api.spearman_correlation(xs, ys)
	local n
	xs, ys, n = pair("spearman_correlation", "xs", xs, "ys", ys, 2)
	return stats.correlation_of((ranks_of(xs, n)), (ranks_of(ys, n)), n)
		or fail("spearman_correlation", "xs and ys must both vary: the values of one are all tied")
end

-- Kendall's tau-b, pair by pair.
function api.kendall_tau(xs, ys)
	local n
	xs, ys, n = pair("kendall_tau", "xs", xs, "ys", ys, 2)
	local score, varies_x, varies_y = 0, 0, 0
	for i = 1, n - 1 do
		local x, y = xs[i], ys[i]
		for j = i + 1, n do
			local other_x, other_y = xs[j], ys[j]
			if x ~= other_x then varies_x = varies_x + 1 end
			if y ~= other_y then
				varies_y = varies_y + 1
				if x ~= other_x then score = score + ((x < other_x) == (y < other_y) and 1 or -1) end
			end
		end
	end
	if varies_x == 0 or varies_y == 0 then
		fail("kendall_tau", "xs and ys must both vary: the values of one are all tied")
	end
	return max(min(score / (sqrt(varies_x) * sqrt(varies_y)), 1.0), -1.0)
end

local function discounted(gains, k)
	local sum = 0.0
	for i = 1, k do sum = sum + gains[i] / log(i + 1.0, 2) end
	return sum
end

-- NDCG at k with linear gains; 0 where nothing is relevant.
function api.ndcg(relevance, k)
	local gains, n = array("ndcg", "relevance", relevance)
	k = min(args.integer("ndcg", "k", k, 0), n)
	local found = discounted(gains, k)
	sort(gains, function(x, y) return x > y end)
	local ideal = discounted(gains, k)
	if ideal == 0 then return 0.0 end
	return found / ideal
end

-- The mean of 1 / rank.
function api.mrr(rankings)
	local ranks, n = array("mrr", "rankings", rankings)
	local sum = 0.0
	for i = 1, n do
		local rank = ranks[i]
		if rank < 1 or rank % 1 ~= 0 then
			fail("mrr", "rankings[%d] must be an integer >= 1, got %s", i, args.shown(rank))
		end
		sum = sum + 1 / rank
	end
	return sum / n
end

-- --- information, in nats -------------------------------------------------------------------------------------------

local function distribution(name, what, values)
	local probabilities, n = array(name, what, values)
	local sum = 0.0
	for i = 1, n do
		if probabilities[i] < 0 then
			fail(name, "%s[%d] must be >= 0, got %s", what, i, args.shown(probabilities[i]))
		end
		sum = sum + probabilities[i]
	end
	if abs(sum - 1) > SUM_TOLERANCE then fail(name, "%s must sum to 1, got %s", what, args.shown(sum)) end
	return probabilities, n
end

-- Two distributions over the same things. Where `is_covered`, q must be positive wherever p is.
local function distributions(name, p, q, is_covered)
	pair(name, "p", p, "q", q)
	local ps, n = distribution(name, "p", p)
	local qs = distribution(name, "q", q)
	for i = 1, is_covered and n or 0 do
		if ps[i] > 0 and qs[i] == 0 then
			fail(name, "q[%d] must be > 0 where p[%d] is: the divergence is infinite", i, i)
		end
	end
	return ps, qs, n
end

function api.entropy(probs)
	local ps, n = distribution("entropy", "probs", probs)
	local sum = 0.0
	for i = 1, n do
		if ps[i] > 0 then sum = sum - ps[i] * log(ps[i]) end
	end
	return max(sum, 0.0)
end

local function divergence(ps, qs, n)
	local sum = 0.0
	for i = 1, n do
		if ps[i] > 0 then sum = sum + ps[i] * (log(ps[i]) - log(qs[i])) end
	end
	return max(sum, 0.0)
end

function api.kl_divergence(p, q) return divergence(distributions("kl_divergence", p, q, true)) end

function api.js_divergence(p, q)
	local ps, qs, n = distributions("js_divergence", p, q, false)
	local middle = {}
	for i = 1, n do middle[i] = 0.5 * ps[i] + 0.5 * qs[i] end
	return 0.5 * divergence(ps, middle, n) + 0.5 * divergence(qs, middle, n)
end

function api.cross_entropy(p, q)
	local ps, qs, n = distributions("cross_entropy", p, q, true)
	local sum = 0.0
	for i = 1, n do
		if ps[i] > 0 then sum = sum - ps[i] * log(qs[i]) end
	end
	return sum
end

return api
