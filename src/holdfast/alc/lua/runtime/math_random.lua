-- The random generator of `alc.math`: ChaCha with 12 rounds, seeded from 64 bits as Rust's `rand` 0.9 does for its
-- standard generator, so that a seed gives the same floats, integers and shuffles as there. Also the handle a program
-- holds, and what draws straight from the stream: rng_create, rng_float, rng_int, shuffle, sample_with_replacement.

local host = ...
local args = host.load("math_args")

local setmetatable, rawget, ult, error = setmetatable, rawget, math.ult, error
local gsub, load = string.gsub, load

local ROUNDS = 12
local MASK = 0xffffffff

local random = {}

-- --- the stream -----------------------------------------------------------------------------------------------------

-- One block of ChaCha (RFC 8439's block function with the rounds as a parameter) into `out[1..16]`: eight words of key,
-- and the last row of the state (counter and nonce) as four words. A word is an integer below 2^32. Sixteen locals are
-- several times as fast as a table, and eight quarter rounds written out twice as fast as calls of a function: so the
-- code is put together here.
local QUARTER = [[
	A = A + B & M D = D ~ A D = (D << 16 | D >> 16) & M
	C = C + D & M B = B ~ C B = (B << 12 | B >> 20) & M
	A = A + B & M D = D ~ A D = (D << 8 | D >> 24) & M
	C = C + D & M B = B ~ C B = (B << 7 | B >> 25) & M
]]

local function quarter(a, b, c, d)
	local names = { A = "x" .. a, B = "x" .. b, C = "x" .. c, D = "x" .. d, M = "0xffffffff" }
	return (gsub(QUARTER, "%u", names))
end

local DOUBLE_ROUND = quarter(0, 4, 8, 12) .. quarter(1, 5, 9, 13) .. quarter(2, 6, 10, 14) .. quarter(3, 7, 11, 15)
	.. quarter(0, 5, 10, 15) .. quarter(1, 6, 11, 12) .. quarter(2, 7, 8, 13) .. quarter(3, 4, 9, 14)

random.block = load([[
return function(key, c0, c1, c2, c3, rounds, out)
	local MASK <const> = 0xffffffff
	local k0, k1, k2, k3, k4, k5, k6, k7 = key[1], key[2], key[3], key[4], key[5], key[6], key[7], key[8]
	local x0, x1, x2, x3 = 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574
	local x4, x5, x6, x7, x8, x9, x10, x11 = k0, k1, k2, k3, k4, k5, k6, k7
	local x12, x13, x14, x15 = c0, c1, c2, c3
	for _ = 1, rounds // 2 do
]] .. DOUBLE_ROUND .. [[
	end
	out[1], out[2] = x0 + 0x61707865 & MASK, x1 + 0x3320646e & MASK
	out[3], out[4] = x2 + 0x79622d32 & MASK, x3 + 0x6b206574 & MASK
	out[5], out[6], out[7], out[8] = x4 + k0 & MASK, x5 + k1 & MASK, x6 + k2 & MASK, x7 + k3 & MASK
	out[9], out[10], out[11], out[12] = x8 + k4 & MASK, x9 + k5 & MASK, x10 + k6 & MASK, x11 + k7 & MASK
	out[13], out[14], out[15], out[16] = x12 + c0 & MASK, x13 + c1 & MASK, x14 + c2 & MASK, x15 + c3 & MASK
	return out
end
]], "=holdfast/math_random_block")()

local block = random.block

-- Eight words of key from a seed: a PCG-32 stream.
local function expand(seed)
	local key, state = {}, seed
	for i = 1, 8 do
		state = state * 0x5851f42d4c957f2d + 0xa17654e46fbe17f3
		local word = ((state >> 18 ~ state) >> 27) & MASK
		local turn = state >> 59
		key[i] = (word >> turn | word << (32 - turn)) & MASK
	end
	return key
end

-- A stream over eight words of key: a counter of blocks, the present block, and how many of its words are used.
function random.stream(key) return { key = key, counter = 0, words = {}, used = 16 } end

local function next_word(stream)
	local used = stream.used
	if used == 16 then
		local counter = stream.counter
		block(stream.key, counter & MASK, counter >> 32, 0, 0, ROUNDS, stream.words)
		stream.counter = counter + 1
		used = 0
	end
	stream.used = used + 1
	return stream.words[used + 1]
end

-- 64 bits: the first word is the lower half.
local function next_long(stream)
	local low = next_word(stream)
	return next_word(stream) << 32 | low
end

-- In [0, 1): 53 bits.
local function next_float(stream) return (next_long(stream) >> 11) * 2.0 ^ -53 end

-- In (0, 1): 52 bits and a half, so that a logarithm may be taken.
local function next_open(stream) return ((next_long(stream) >> 12) + 0.5) * 2.0 ^ -52 end

-- The 128 bits of a product of two numbers without sign.
local function wide_product(x, y)
	local x_high, x_low, y_high, y_low = x >> 32, x & MASK, y >> 32, y & MASK
	local low = x_low * y_low
	local middle = x_high * y_low + (low >> 32)
	local other = x_low * y_high + (middle & MASK)
	return x_high * y_high + (middle >> 32) + (other >> 32), other << 32 | low & MASK
end

-- An integer in 0 .. range - 1 from 64-bit draws, 1 <= range < 2^64 (range 0 stands for 2^64). The fraction of
-- draw * range is extended by further draws until it is certain that they do not carry (Canon's method), so that every
-- value is equally likely.
local function below(stream, range)
	local draw = next_long(stream)
	if range == 0 then return draw end
	local result, fraction = wide_product(draw, range)
	while ult(-range, fraction) do
		local carry, rest = wide_product(next_long(stream), range)
		local sum = fraction + carry
		if ult(sum, fraction) then return result + 1 end
		if sum ~= -1 then return result end
		fraction = rest
	end
	return result
end

-- The same from 32-bit draws, for the index of an array: range < 2^32.
local function index_below(stream, range)
	local product = next_word(stream) * range
	local result, fraction = product >> 32, product & MASK
	while fraction > 0x100000000 - range do
		local further = next_word(stream) * range
		local sum = fraction + (further >> 32)
		if sum > MASK then return result + 1 end
		if sum < MASK then return result end
		fraction = further & MASK
	end
	return result
end

random.next_long, random.next_float, random.next_open = next_long, next_float, next_open
random.below, random.index_below, random.expand = below, index_below, expand

-- --- the handle -----------------------------------------------------------------------------------------------------

-- What a program holds is an empty table. Its stream is kept here, out of reach, so that a handle cannot be made up.
local streams = setmetatable({}, { __mode = "k" })

local handle = {
	__name = "rng",
	__metatable = "rng",
	__tostring = function() return "rng(ChaCha12)" end,
	__newindex = function() error("an rng has no fields of its own; draw from it with alc.math.rng_float", 2) end,
}

-- The stream behind an argument.
function random.of(name, value)
	local stream = value ~= nil and rawget(streams, value)
	if not stream then
		args.fail(name, "rng must come from alc.math.rng_create, got %s", args.shown(value))
	end
	return stream
end

local of = random.of

-- --- the functions --------------------------------------------------------------------------------------------------

local api = {}

function api.rng_create(seed)
	local key = expand(args.seed("rng_create", "seed", seed))
	local rng = setmetatable({}, handle)
	streams[rng] = random.stream(key)
	return rng
end

function api.rng_float(rng)
	local stream = rng ~= nil and streams[rng] or of("rng_float", rng)
	local used = stream.used
	if used > 14 then return next_float(stream) end
	-- As `next_float`, without its calls: simulations do little else.
	local words = stream.words
	stream.used = used + 2
	return ((words[used + 2] << 32 | words[used + 1]) >> 11) * 2.0 ^ -53
end

-- Both ends inclusive.
function api.rng_int(rng, low, high)
	local stream = of("rng_int", rng)
	low = args.integer("rng_int", "min", low, math.mininteger)
	high = args.integer("rng_int", "max", high, math.mininteger)
	if low > high then args.fail("rng_int", "min (%d) must be <= max (%d)", low, high) end
	return low + below(stream, high - low + 1)
end

-- A new table with the same values in another order (Fisher and Yates).
function api.shuffle(rng, values)
	local stream = of("shuffle", rng)
	local source, n = args.table("shuffle", "tbl", values)
	local out = {}
	for i = 1, n do out[i] = rawget(source, i) end
	for i = n, 2, -1 do
		local j = index_below(stream, i) + 1
		out[i], out[j] = out[j], out[i]
	end
	return out
end

function api.sample_with_replacement(rng, values, count)
	local stream = of("sample_with_replacement", rng)
	local source, n = args.table("sample_with_replacement", "tbl", values)
	if n == 0 then args.fail("sample_with_replacement", "tbl must be a non-empty array") end
	count = args.integer("sample_with_replacement", "n", count, 0)
	local out = {}
	for i = 1, count do out[i] = rawget(source, index_below(stream, n) + 1) end
	return out
end

random.api = api

return random
