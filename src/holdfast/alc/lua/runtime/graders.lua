-- Graders that need no model: each looks at the answer's text and says yes, no or a number.
--
-- A grader is `{name, check}`, and check(response, case) returns the grade, or nil and an error. Texts of programs are
-- only touched through functions captured here: a program may have replaced the ones that `text:find()` would reach.

local host = ...

local find, match, sub, byte = string.find, string.match, string.sub, string.byte
local pcall, tonumber, type, error, abs, max, huge = pcall, tonumber, type, error, math.abs, math.max, math.huge
local sort, next = table.sort, next

-- Relative to the expected value; a float that went through text and back is well inside the first.
local NUMERIC_TOLERANCE = 1e-9
local APPROX_TOLERANCE = 0.01

local graders = {}

-- Step by step from both ends: one pattern for both would take quadratic time on a text full of blanks.
local function trim(text)
	local from = find(text, "%S")
	if not from then return "" end
	local stop = #text
	while find(text, "^%s", stop) do stop = stop - 1 end
	return sub(text, from, stop)
end

-- One number with its sign, decimals and exponent from a place where digits (or a dot before them) begin, and the place
-- after it. Groups of three after a comma belong to it: `1,234.5`.
local function read_number(text, at)
	local whole = match(text, "^%d+", at) or ""
	local place = at + #whole
	while #whole > 0 and find(text, "^,%d%d%d", place) and not find(text, "^,%d%d%d%d", place) do
		whole = whole .. sub(text, place + 1, place + 3)
		place = place + 4
	end
	local fraction = match(text, "^%.%d+", place) or ""
	place = place + #fraction
	local exponent = match(text, "^[eE][+-]?%d+", place) or ""
	place = place + #exponent
	local negative = false
	local before = sub(text, max(1, at - 3), at - 1)
	if find(before, "\226\136\146$") then
		negative = true
	elseif find(before, "%-$") then
		-- In `3-4` and `gpt-4` the dash is not a sign.
		negative = not find(before, "[%w%.%)]%-$")
	end
	local value = tonumber((whole == "" and "0" or whole) .. fraction .. exponent)
	return negative and -value or value, place
end

-- Every number in a text, in order, each with where it begins and where the text goes on after it.
function graders.numbers(text)
	local found, at = {}, 1
	while true do
		local from = find(text, "%.?%d", at)
		if not from then return found end
		if byte(text, from) == 46 and from > 1 and find(text, "^%w", from - 1) then from = from + 1 end
		local value, after = read_number(text, from)
		found[#found + 1] = { value = value, from = from, after = after }
		at = after
	end
end

-- The number that an answer gives: the whole text if it is one, else the last one in it, where answers end up.
local function answer_number(text)
	local whole = tonumber(trim(text))
	if whole then return whole end
	local found = graders.numbers(text)
	return #found > 0 and found[#found].value or nil
end

local function any_expected(holds)
	return function(response, case)
		local expected = case.expected or {}
		for i = 1, #expected do
			if holds(response.text, expected[i]) then return true end
		end
		return false
	end
end

local function near(default_tolerance)
	return function(options, where)
		local given = options.tolerance
		if given ~= nil and (type(given) ~= "number" or not (given >= 0 and given < huge)) then
			error(where .. ": tolerance must be a number from 0 up", 0)
		end
		return function(response, case)
			local own = case.context and case.context.tolerance
			local tolerance = type(own) == "number" and own or given or default_tolerance
			local value = answer_number(response.text)
			local expected, comparable = case.expected or {}, false
			for i = 1, #expected do
				local wanted = tonumber(trim(expected[i]))
				comparable = comparable or wanted ~= nil
				if value and wanted and abs(value - wanted) <= tolerance * max(1e-300, abs(wanted)) then return true end
			end
			if not comparable then return nil, "the case has no expected value that is a number" end
			return false
		end
	end
end

local function exact(text, expected) return text == expected end
local function contains(text, expected) return find(text, expected, 1, true) ~= nil end
local function not_empty(response) return response.text ~= "" end
local function json_valid(response) return (pcall(host.decode, response.text)) end

local function regex(response, case)
	local own = case.context and case.context.pattern
	local pattern = type(own) == "string" and own or case.expected and case.expected[1]
	if not pattern then return false end
	return find(response.text, pattern) ~= nil
end

local CHECKS = {
	exact_match = any_expected(exact),
	contains = any_expected(contains),
	starts_with = any_expected(function(text, expected) return sub(text, 1, #expected) == expected end),
	ends_with = any_expected(function(text, expected) return expected == "" or sub(text, -#expected) == expected end),
	flexible_match = any_expected(function(text, expected) return exact(text, expected) or contains(text, expected) end),
	regex = regex,
	not_empty = not_empty,
	json_valid = json_valid,
	valid_json_response = function(response) return not_empty(response) and json_valid(response) end,
	length = function(response) return #response.text end,
	latency = function(response) return response.latency_ms end,
}

local WITH_OPTIONS = { numeric = near(NUMERIC_TOLERANCE), approx = near(APPROX_TOLERANCE) }

function graders.names()
	local names = {}
	for name in next, CHECKS do names[#names + 1] = name end
	for name in next, WITH_OPTIONS do names[#names + 1] = name end
	sort(names)
	return names
end

-- The grader of that name, or nil if there is none.
function graders.make(name, options, where)
	local check = CHECKS[name]
	if not check and WITH_OPTIONS[name] then check = WITH_OPTIONS[name](options, where) end
	return check and { name = name, check = check } or nil
end

-- The beginning of a text for an error message, not cut inside a character.
function graders.excerpt(text, length)
	if #text <= length then return text end
	local stop = length
	while stop > 0 and (byte(text, stop + 1) or 0) & 0xC0 == 0x80 do stop = stop - 1 end
	return sub(text, 1, stop) .. "..."
end

graders.trim = trim

return graders
