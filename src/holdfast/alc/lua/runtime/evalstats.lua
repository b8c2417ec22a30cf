-- The numbers of an evaluation: mean and spread, the 95 % interval, pass@k, the share by tag, and the summary in words.

local host = ...

local ceil, max, min, sqrt = math.ceil, math.max, math.min, math.sqrt
local sort, concat, format = table.sort, table.concat, string.format

-- Student's t, two-sided 95 %, at the degrees of freedom that tables print; between two of them a straight line.
local T_DEGREES = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 60, 80, 100, 120 }
local T_VALUES = {
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.131, 2.086, 2.060, 2.042, 2.021, 2.000, 1.990, 1.984, 1.980,
}
local T_NORMAL = 1.96

local stats = {}

local function t_critical(degrees)
	local at = 1
	while T_DEGREES[at] and T_DEGREES[at] < degrees do at = at + 1 end
	local right = T_DEGREES[at]
	if not right then return T_NORMAL end
	if right == degrees then return T_VALUES[at] end
	local left = T_DEGREES[at - 1]
	local share = (degrees - left) / (right - left)
	return T_VALUES[at - 1] + share * (T_VALUES[at] - T_VALUES[at - 1])
end

-- Of one value or more. Sums run over the sorted values, so that the order of the cases cannot change the last digit.
function stats.describe(values)
	local n = #values
	local sorted = {}
	for i = 1, n do sorted[i] = values[i] + 0.0 end
	sort(sorted)
	local sum = 0.0
	for i = 1, n do sum = sum + sorted[i] end
	local mean = sum / n
	local squares = 0.0
	for i = 1, n do squares = squares + (sorted[i] - mean) ^ 2 end
	local upper = sorted[n // 2 + 1]
	return {
		n = n,
		mean = mean,
		std_dev = n > 1 and sqrt(squares / (n - 1)) or 0.0,
		min = sorted[1],
		max = sorted[n],
		median = n % 2 == 1 and sorted[ceil(n / 2)] or (sorted[n // 2] + upper) / 2,
	}
end

-- The interval of the mean score, cut to [0, 1] because scores live there.
function stats.interval(described)
	if described.n < 2 then return { lower = described.mean, upper = described.mean } end
	local margin = t_critical(described.n - 1) * described.std_dev / sqrt(described.n)
	return { lower = max(0.0, described.mean - margin), upper = min(1.0, described.mean + margin) }
end

-- The chance that k results drawn from the n without putting back hold at least one of the c passes.
function stats.pass_at(n, c, k)
	if k == 1 then return c / n end
	local none = 1.0
	for i = 0, k - 1 do none = none * max(0, n - c - i) / (n - i) end
	return 1.0 - none
end

local function by_tag(results)
	local tags = {}
	for i = 1, #results do
		local result = results[i]
		for j = 1, #result.case.tags do
			local tag = result.case.tags[j]
			local entry = tags[tag]
			if not entry then
				entry = { pass = 0, fail = 0, scores = {} }
				tags[tag] = entry
			end
			entry.scores[#entry.scores + 1] = result.score
			local side = result.passed and "pass" or "fail"
			entry[side] = entry[side] + 1
		end
	end
	for _, entry in host.sorted_pairs(tags) do
		entry.rate = entry.pass / (entry.pass + entry.fail)
		entry.stats = stats.describe(entry.scores)
		entry.scores = nil
	end
	return tags
end

-- Of one result or more: a scenario has at least one case.
function stats.aggregate(results)
	local n, passed, scores = #results, 0, {}
	for i = 1, n do
		scores[i] = results[i].score
		if results[i].passed then passed = passed + 1 end
	end
	local described = stats.describe(scores)
	return {
		total = n,
		passed = passed,
		pass_rate = passed / n,
		pass_at_1 = stats.pass_at(n, passed, 1),
		pass_at_5 = n >= 5 and stats.pass_at(n, passed, 5) or nil,
		pass_at_10 = n >= 10 and stats.pass_at(n, passed, 10) or nil,
		scores = described,
		ci_95 = stats.interval(described),
		by_tag = by_tag(results),
	}
end

local function share(passed, total)
	return format("%d of %d passed (%.1f %%)", passed, total, 100 * passed / total)
end

-- `stopped` is why the evaluation ended early, `waiting` how many cases were then not run.
function stats.summary(name, aggregated, stopped, waiting)
	local lines = { name .. ": " .. share(aggregated.passed, aggregated.total) }
	lines[2] = format(
		"mean score %.3f, standard deviation %.3f, 95 %% interval %.3f to %.3f",
		aggregated.scores.mean, aggregated.scores.std_dev, aggregated.ci_95.lower, aggregated.ci_95.upper
	)
	local chances = { format("pass@1 %.3f", aggregated.pass_at_1) }
	if aggregated.pass_at_5 then chances[#chances + 1] = format("pass@5 %.3f", aggregated.pass_at_5) end
	if aggregated.pass_at_10 then chances[#chances + 1] = format("pass@10 %.3f", aggregated.pass_at_10) end
	lines[3] = concat(chances, ", ")
	for tag, entry in host.sorted_pairs(aggregated.by_tag) do
		lines[#lines + 1] = format("  %s: %s", tag, share(entry.pass, entry.pass + entry.fail))
	end
	if stopped then
		lines[#lines + 1] = format("stopped early, %d not run: %s", waiting, stopped)
	end
	return concat(lines, "\n")
end

return stats
