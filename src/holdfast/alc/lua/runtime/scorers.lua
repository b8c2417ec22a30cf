-- Scorers: how what a grader found (a yes or no, a rating, a length) becomes a score from 0 to 1.

local max, min, sort, format = math.max, math.min, table.sort, string.format
local type, error, rawget, rawlen = type, error, rawget, rawlen

local function clamp(value) return max(0.0, min(1.0, value)) end

local function bool(value)
	if type(value) == "boolean" then return value and 1.0 or 0.0 end
	return type(value) == "number" and clamp(value) or 0.0
end

local function linear(low, high)
	return function(value) return type(value) == "number" and clamp((value - low) / (high - low)) or 0.0 end
end

local function threshold(least)
	return function(value)
		if type(value) == "boolean" then value = value and 1.0 or 0.0 end
		return type(value) == "number" and value >= least and 1.0 or 0.0
	end
end

-- The score of the highest step that the value reaches.
local function staircase(steps)
	return function(value)
		local score = 0.0
		if type(value) ~= "number" then return score end
		for i = 1, #steps do
			if value >= steps[i].from then score = steps[i].score end
		end
		return clamp(score)
	end
end

local function inverse(value)
	if type(value) ~= "number" or value <= 0 then return 1.0 end
	return 1.0 / (1.0 + value / 1000.0)
end

local presets = {
	bool = bool,
	linear_1_5 = linear(1, 5),
	linear_1_10 = linear(1, 10),
	linear_0_100 = linear(0, 100),
	pass_50 = threshold(0.5),
	pass_80 = threshold(0.8),
	inverse_linear = inverse,
	band_1_5 = staircase({ { from = 1, score = 0.0 }, { from = 3, score = 0.5 }, { from = 4, score = 1.0 } }),
}

local function read_steps(steps, where)
	if type(steps) ~= "table" or rawlen(steps) < 2 then
		error(where .. ": steps must be an array of at least two {threshold, score} pairs", 0)
	end
	local by_threshold, order = {}, {}
	for i = 1, rawlen(steps) do
		local step = rawget(steps, i)
		local from, score = nil, nil
		if type(step) == "table" then from, score = rawget(step, 1), rawget(step, 2) end
		if type(from) ~= "number" or from ~= from or type(score) ~= "number" then
			error(format("%s: steps[%d] must be {threshold, score}, both numbers", where, i), 0)
		end
		if by_threshold[from] == nil then order[#order + 1] = from end
		by_threshold[from] = score
	end
	sort(order)
	local sorted = {}
	for i = 1, #order do sorted[i] = { from = order[i], score = by_threshold[order[i]] } end
	return sorted
end

-- A scorer from what a scenario says: a preset's name, a function, {score=f}, {min=,max=}, {pass=} or {steps=}.
local function make(value, where)
	local kind = type(value)
	if kind == "function" then return value end
	if kind == "string" then
		local preset = presets[value]
		if not preset then
			error(format("%s: unknown scorer '%s' (there are band_1_5, bool, inverse_linear, linear_0_100, linear_1_10, "
				.. "linear_1_5, pass_50, pass_80)", where, value), 0)
		end
		return preset
	end
	if kind == "table" then
		if type(value.score) == "function" then return value.score end
		local low, high, least = value.min, value.max, value.pass
		if low ~= nil and high ~= nil then
			if type(low) ~= "number" or type(high) ~= "number" or not (low < high or low > high) then
				error(where .. ": a scorer's min and max must be two different numbers", 0)
			end
			return linear(low, high)
		end
		if least ~= nil then
			if type(least) ~= "number" then error(where .. ": a scorer's pass must be a number, got " .. type(least), 0) end
			return threshold(least)
		end
		if value.steps ~= nil then return staircase(read_steps(value.steps, where)) end
	end
	error(format("%s: a scorer must be a name, a function, or a table with score, min and max, pass or steps; got %s",
		where, kind), 0)
end

return { make = make, linear = linear, bool = bool }
