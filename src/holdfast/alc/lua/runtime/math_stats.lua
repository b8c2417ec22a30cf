-- What `alc.math` says of one or two arrays: mean and spread, quantiles, correlation, histogram, the Wilson interval,
-- softmax and the like, moving averages and autocorrelation, permutations.

local host = ...
local args = host.load("math_args")
local special = host.load("math_special")

local exp, log, sqrt, abs, floor, huge = math.exp, math.log, math.sqrt, math.abs, math.floor, math.huge
local max, min, sort, unpack, tointeger = math.max, math.min, table.sort, table.unpack, math.tointeger
local array, fail = args.array, args.fail

local EPSILON = 2.0 ^ -52
local MAX_PERMUTED = 8 -- 8! = 40320 rows

local stats = {}

-- --- of one array ---------------------------------------------------------------------------------------------------

local function mean_of(values, n)
	local sum = 0.0
	for i = 1, n do sum = sum + values[i] end
	if abs(sum) < huge then return sum / n end
	sum = 0.0
	for i = 1, n do sum = sum + values[i] / n end
	return sum
end

-- n - 1 in the denominator; 0 for fewer than two (Welford).
local function variance_of(values, n)
	if n < 2 then return 0.0 end
	local mean, squares = 0.0, 0.0
	for i = 1, n do
		local off = values[i] - mean
		mean = mean + off / i
		squares = squares + off * (values[i] - mean)
	end
	return squares / (n - 1)
end

stats.mean_of, stats.variance_of = mean_of, variance_of

-- Of sorted values, linear between two neighbours.
local function quantile(sorted, n, share)
	local rank = share * (n - 1)
	local low = min(floor(rank), n - 1)
	local left = sorted[low + 1]
	local right = sorted[low + 2]
	if not right then return left end
	local part = rank - low
	local gap = right - left
	if gap < huge then return left + part * gap end
	return left * (1 - part) + right * part
end

local api = {}

function api.mean(values) return mean_of(array("mean", "values", values)) end

function api.variance(values) return variance_of(array("variance", "values", values)) end

function api.stddev(values) return sqrt(variance_of(array("stddev", "values", values))) end

function api.median(values)
	local sorted, n = array("median", "values", values)
	sort(sorted)
	return quantile(sorted, n, 0.5)
end

function api.percentile(values, p)
	local sorted, n = array("percentile", "values", values)
	p = args.within("percentile", "p", p, 0, 100)
	sort(sorted)
	return quantile(sorted, n, p / 100)
end

function api.iqr(values)
	local sorted, n = array("iqr", "values", values)
	sort(sorted)
	return quantile(sorted, n, 0.75) - quantile(sorted, n, 0.25)
end

local function log_sum(values, n)
	local top, sum = max(unpack(values, 1, min(n, 100))), 0.0
	for i = 101, n do top = max(top, values[i]) end
	for i = 1, n do sum = sum + exp(values[i] - top) end
	return top, sum
end

function api.softmax(values)
	local shares, n = array("softmax", "values", values)
	local top, sum = log_sum(shares, n)
	for i = 1, n do shares[i] = exp(shares[i] - top) / sum end
	return shares
end

function api.logsumexp(values)
	local top, sum = log_sum(array("logsumexp", "values", values))
	return top + log(sum)
end

-- ln(1 + x) / ln(1 + max) * 100.
function api.log_normalize(values)
	local out, n = array("log_normalize", "values", values)
	local top = 0.0
	for i = 1, n do
		if out[i] <= 0 then fail("log_normalize", "values[%d] must be > 0, got %s", i, args.shown(out[i])) end
		top = max(top, out[i])
	end
	local whole = special.log1p(top)
	for i = 1, n do out[i] = special.log1p(out[i]) / whole * 100 end
	return out
end

-- Bins of one width from the smallest value to the largest, which belongs to the last one. Values that are all the same
-- go to the first bin, and the edges then span 1.
function api.histogram(values, bins)
	local data, n = array("histogram", "values", values)
	bins = args.integer("histogram", "bins", bins, 1)
	local low, high = huge, -huge
	for i = 1, n do
		low = min(low, data[i])
		high = max(high, data[i])
	end
	local counts, edges = {}, {}
	for i = 1, bins do counts[i] = 0 end
	-- Halves, where the range is more than a number can hold.
	local unit = high - low < huge and 1.0 or 0.5
	local range = high * unit - low * unit
	local width = range / bins
	if range <= abs(high) * unit * EPSILON then
		counts[1] = n
		width = 1 / bins
	else
		for i = 1, n do
			local bin = min(floor((data[i] * unit - low * unit) / width), bins - 1)
			counts[tointeger(bin) + 1] = counts[tointeger(bin) + 1] + 1
		end
	end
	for i = 0, bins do edges[i + 1] = (low * unit + i * width) / unit end
	return { counts = counts, edges = edges }
end

-- The Wilson score interval of a share. At confidence 1 it is everything.
function api.wilson_ci(successes, total, confidence)
	total = args.positive("wilson_ci", "total", total)
	successes = args.within("wilson_ci", "successes", successes, 0, total)
	confidence = args.within("wilson_ci", "confidence", confidence, 0, 1)
	if confidence == 1 then return { lower = 0.0, upper = 1.0, center = 0.5 } end
	local z = -special.normal_ppf((1 - confidence) / 2)
	local share = successes / total
	local square = z * z
	local whole = 1 + square / total
	local center = (share + square / (2 * total)) / whole
	local margin = z * sqrt((share * (1 - share) + square / (4 * total)) / total) / whole
	-- The share itself is always inside; rounding must not put it a digit outside.
	return {
		lower = max(min(center - margin, share), 0.0),
		upper = min(max(center + margin, share), 1.0),
		center = center,
	}
end

-- --- of two arrays --------------------------------------------------------------------------------------------------

function api.covariance(xs, ys)
	local n
	xs, ys, n = args.pair("covariance", "xs", xs, "ys", ys, 2)
	local mean_x, mean_y, sum = 0.0, 0.0, 0.0
	for i = 1, n do
		local off = xs[i] - mean_x
		mean_x = mean_x + off / i
		mean_y = mean_y + (ys[i] - mean_y) / i
		sum = sum + off * (ys[i] - mean_y)
	end
	return sum / (n - 1)
end

-- Pearson's correlation of two arrays of floats; nil where one of them does not vary.
function stats.correlation_of(xs, ys, n)
	local mean_x, mean_y = mean_of(xs, n), mean_of(ys, n)
	local both, x_only, y_only = 0.0, 0.0, 0.0
	for i = 1, n do
		local dx, dy = xs[i] - mean_x, ys[i] - mean_y
		both = both + dx * dy
		x_only = x_only + dx * dx
		y_only = y_only + dy * dy
	end
	local scale = sqrt(x_only) * sqrt(y_only)
	if scale == 0 then return nil end
	return max(min(both / scale, 1.0), -1.0)
end

function api.correlation(xs, ys)
	local n
	xs, ys, n = args.pair("correlation", "xs", xs, "ys", ys, 2)
	return stats.correlation_of(xs, ys, n) or fail("correlation", "xs and ys must both vary: one has zero variance")
end

-- --- series ---------------------------------------------------------------------------------------------------------

-- One value for each full window. The sum slides in two floats, so that what has left it leaves nothing behind.
function api.moving_average(values, window)
	local data, n = array("moving_average", "values", values)
	window = args.integer("moving_average", "window", window, 1, n)
	local out, high, low = {}, 0.0, 0.0
	local function add(x)
		local sum = high + x
		local part = sum - high
		low = low + ((high - (sum - part)) + (x - part))
		high = sum
	end
	for i = 1, n do
		add(data[i])
		if i > window then add(-data[i - window]) end
		if i >= window then out[i - window + 1] = (high + low) / window end
	end
	return out
end

function api.ewma(values, alpha)
	local out, n = array("ewma", "values", values)
	alpha = args.within("ewma", "alpha", alpha, 0, 1)
	for i = 2, n do out[i] = alpha * out[i] + (1 - alpha) * out[i - 1] end
	return out
end

function api.autocorrelation(values, lag)
	local data, n = array("autocorrelation", "values", values)
	lag = args.integer("autocorrelation", "lag", lag, 0, n - 1)
	if lag == 0 then return 1.0 end
	local mean = mean_of(data, n)
	local whole, shifted = 0.0, 0.0
	for i = 1, n do
		local off = data[i] - mean
		whole = whole + off * off
		if i + lag <= n then shifted = shifted + off * (data[i + lag] - mean) end
	end
	if whole == 0 then fail("autocorrelation", "values must vary: they have zero variance") end
	return shifted / whole
end

-- All orders of 1 .. n, in the order of Heap's algorithm.
function api.permutations(n)
	n = args.integer("permutations", "n", n, 1, MAX_PERMUTED)
	local row, rows = {}, {}
	for i = 1, n do row[i] = i end
	local function permute(k)
		if k == 1 then
			rows[#rows + 1] = { unpack(row) }
			return
		end
		permute(k - 1)
		for i = 1, k - 1 do
			local other = k % 2 == 0 and i or 1
			row[other], row[k] = row[k], row[other]
			permute(k - 1)
		end
	end
	permute(n)
	return rows
end

stats.api = api

return stats
