-- The checks that every function of `alc.math` makes on its arguments: each gives the value as the type the function
-- works with, or raises an error that names the function and the argument.

local error, type, tonumber, rawlen, rawget = error, type, tonumber, rawlen, rawget
local format, mathtype, tointeger = string.format, math.type, math.tointeger
local ceil, floor, huge = math.ceil, math.floor, math.huge

local TWO_63 = 2.0 ^ 63

local args = {}

function args.fail(name, message, ...)
	error(format("alc.math.%s: " .. message, name, ...), 0)
end

local fail = args.fail

local function shown(value)
	if value ~= value then return "nan" end
	if type(value) == "number" then return format("%.14g", value) end
	return type(value)
end

args.shown = shown

-- A number or, as Lua's own arithmetic has it, a string that reads as one. Not a number is a number here: the functions
-- that are defined on the whole line pass it on.
local function number(name, what, value)
	if type(value) == "number" then return value + 0.0 end
	local read = type(value) == "string" and tonumber(value)
	if not read then fail(name, "%s must be a number, got %s", what, type(value)) end
	return read + 0.0
end

args.number = number

function args.finite(name, what, value)
	local x = number(name, what, value)
	if x ~= x or x == huge or x == -huge then fail(name, "%s must be finite, got %s", what, shown(x)) end
	return x
end

-- Greater than zero and finite: the shape of most distributions' parameters.
function args.positive(name, what, value)
	local x = number(name, what, value)
	if not (x > 0 and x < huge) then fail(name, "%s must be finite and > 0, got %s", what, shown(x)) end
	return x
end

function args.within(name, what, value, low, high)
	local x = number(name, what, value)
	if not (x >= low and x <= high) then
		fail(name, "%s must be in [%g, %g], got %s", what, low, high, shown(x))
	end
	return x
end

-- An integer. A float loses its fraction, as in the original, where `n = total / 2` is a usual thing to pass.
function args.integer(name, what, value, low, high)
	if mathtype(value) ~= "integer" then
		local x = number(name, what, value)
		local whole = x < 0 and ceil(x) or floor(x)
		value = tointeger(whole)
		if not value then fail(name, "%s must be a 64-bit integer, got %s", what, shown(x)) end
	end
	if value < low or (high and value > high) then
		if high then fail(name, "%s must be in [%d, %d], got %d", what, low, high, value) end
		fail(name, "%s must be >= %d, got %d", what, low, value)
	end
	return value
end

-- A seed: 64 bits without a sign. Lua has no such integer, so what is past 2^63 comes as a float.
function args.seed(name, what, value)
	if mathtype(value) ~= "integer" then
		local x = number(name, what, value)
		if x >= TWO_63 and x < 2 * TWO_63 then return tointeger(floor(x) - 2 * TWO_63) end
	end
	return args.integer(name, what, value, 0)
end

function args.table(name, what, value)
	if type(value) ~= "table" then fail(name, "%s must be an array (a table), got %s", what, type(value)) end
	return value, rawlen(value)
end

-- A copy of an array of finite numbers as floats, and its length, at least `least` (1 if not said).
function args.array(name, what, value, least)
	local source, n = args.table(name, what, value)
	if n == 0 then fail(name, "%s must be a non-empty array", what) end
	if least and n < least then fail(name, "%s needs at least %d values, got %d", what, least, n) end
	local copy = {}
	for i = 1, n do
		local x = rawget(source, i)
		if type(x) ~= "number" then
			x = type(x) == "string" and tonumber(x)
			if not x then
				fail(name, "%s[%d] must be a number, got %s", what, i, type(rawget(source, i)))
			end
		end
		x = x + 0.0
		if x ~= x or x == huge or x == -huge then fail(name, "%s[%d] must be finite, got %s", what, i, shown(x)) end
		copy[i] = x
	end
	return copy, n
end

-- Two arrays of one length.
function args.pair(name, what_x, x, what_y, y, least)
	local xs, n = args.array(name, what_x, x, least)
	local ys, m = args.array(name, what_y, y)
	if n ~= m then fail(name, "%s and %s must have the same length, got %d and %d", what_x, what_y, n, m) end
	return xs, ys, n
end

return args
