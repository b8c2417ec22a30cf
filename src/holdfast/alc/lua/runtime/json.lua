-- JSON and the stable iteration order for Lua values: encode, decode, the array mark and sorted_pairs.
--
-- Every value that crosses between a program and the engine passes through here, so the text is canonical (sorted keys,
-- one spelling per number) and equal values give equal bytes on every run. Program tables are read raw: no
-- metamethod of a program runs inside the encoder.

local host = ...

local null = host.null
local byte, find, format, gsub, match, rep, sub =
	string.byte, string.find, string.format, string.gsub, string.match, string.rep, string.sub
local concat, sort, table_move = table.concat, table.sort, table.move
local math_type, huge = math.type, math.huge
local utf8_len, utf8_char = utf8.len, utf8.char
local next, rawequal, rawget, rawlen, type, error, tostring, tonumber =
	next, rawequal, rawget, rawlen, type, error, tostring, tonumber
-- Of a table whose metatable hides itself, plain getmetatable would not show the mark.
local get_metatable, set_metatable = debug.getmetatable, debug.setmetatable

-- Levels of arrays and objects inside each other, the same both ways so that what was written can be read back.
local MAX_DEPTH = 128

local MOST_KEYS_SHOWN = 5

local ARRAY_MARK = {}

-- How many items an array had whose nulls were read as nil, so that it is written as it was read.
local spans = setmetatable({}, { __mode = "k" })

-- How many items of a table belong to its list: up to its border, holes that were nulls included.
local function list_length(t)
	local length, span = rawlen(t), spans[t]
	return span and span > length and span or length
end

local function array(t)
	return set_metatable(t, ARRAY_MARK)
end

local function is_array(t)
	return type(t) == "table" and rawequal(get_metatable(t), ARRAY_MARK)
end

-- Keys in the stable order: numbers ascending, strings bytewise, false, true, then the rest as they come.
local function sorted_keys(t)
	local keys, strings, rest = {}, {}, {}
	local ascending, last = true, -huge
	for key in next, t do
		local kind = type(key)
		if kind == "number" then
			ascending, last = ascending and last <= key, key
			keys[#keys + 1] = key
		elseif kind == "string" then
			strings[#strings + 1] = key
		elseif kind ~= "boolean" then
			rest[#rest + 1] = key
		end
	end
	if not ascending then sort(keys) end
	sort(strings)
	local count = #keys
	table_move(strings, 1, #strings, count + 1, keys)
	count = count + #strings
	for _, key in next, { false, true } do
		if rawget(t, key) ~= nil then
			count = count + 1
			keys[count] = key
		end
	end
	table_move(rest, 1, #rest, count + 1, keys)
	return keys, count + #rest
end

-- Walks a snapshot of the keys; a key that was cleared meanwhile is left out, as `next` would do.
local function sorted_pairs(t)
	local keys, count = sorted_keys(t)
	local i = 0
	return function()
		while i < count do
			i = i + 1
			local key = keys[i]
			local value = rawget(t, key)
			if value ~= nil then return key, value end
		end
		return nil
	end
end

-- UTF-8 repair ------------------------------------------------------------------------------------------------------

-- Allowed second bytes where they are narrower than 80..BF (Unicode, table 3-7).
local SECOND_LOW = { [0xE0] = 0xA0, [0xF0] = 0x90 }
local SECOND_HIGH = { [0xED] = 0x9F, [0xF4] = 0x8F }

-- Length of the maximal subpart of an ill-formed sequence that starts at i: what one U+FFFD stands for.
local function bad_length(s, i)
	local b1, b2, b3 = byte(s, i, i + 2)
	if b1 < 0xE0 or b1 > 0xF4 or not b2 or b2 < (SECOND_LOW[b1] or 0x80) or b2 > (SECOND_HIGH[b1] or 0xBF) then
		return 1
	end
	return b1 >= 0xF0 and b3 and b3 >= 0x80 and b3 <= 0xBF and 3 or 2
end

local function repair(s)
	local out, n, from = {}, 0, 1
	while true do
		local ok, bad = utf8_len(s, from)
		if ok then
			out[n + 1] = sub(s, from)
			return concat(out)
		end
		out[n + 1] = sub(s, from, bad - 1)
		out[n + 2] = "\u{FFFD}"
		n = n + 2
		from = bad + bad_length(s, bad)
	end
end

-- Encode ------------------------------------------------------------------------------------------------------------

local ESCAPES = {
	['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
}
for code = 0, 31 do
	local char = string.char(code)
	ESCAPES[char] = ESCAPES[char] or format("\\u%04x", code)
end

-- The path of the value being written, for messages: `.items[3].name`, positions counted from 1, "" for the whole.
local function path_text(state, depth)
	local parts = {}
	for level = 1, depth do
		local key = state.path[level]
		if type(key) == "number" then
			parts[#parts + 1] = "[" .. key .. "]"
		elseif find(key, "^[%w_]+$") then
			parts[#parts + 1] = "." .. key
		else
			parts[#parts + 1] = format("[%q]", gsub(key, "[\0-\31\127-\255]", "?"))
		end
	end
	return concat(parts)
end

local function place(state, depth)
	return depth == 0 and "" or " at " .. path_text(state, depth)
end

-- Each kind of issue is reported once per call: a value with a thousand of them is still one thing to tell the author.
local function report(state, kind, depth, detail)
	if state.on_issue and not state[kind] then
		state[kind] = true
		state.on_issue(kind, path_text(state, depth), detail)
	end
end

local function quote(s, state, depth)
	if not find(s, '[\0-\31"\\\128-\255]') then return '"' .. s .. '"' end
	if not utf8_len(s) then
		report(state, "utf8", depth)
		s = repair(s)
	end
	return '"' .. gsub(s, '[\0-\31"\\]', ESCAPES) .. '"'
end

-- The text of 16 digits above the nearest one. Just below a power of two floats lie twice as dense as above it, so the
-- nearest can miss where this one hits.
local function next_above(text)
	local first, fraction, exponent = match(text, "^(%d)%.(%d*)(e.*)$")
	local digits = tostring(tonumber(first .. fraction) + 1)
	return sub(digits, 1, 1) .. "." .. sub(digits, 2) .. exponent
end

-- The digits and decimal exponent of the shortest text that reads back as the same positive float.
local function shortest(x)
	-- 15 digits or fewer come from rounding to 15, but for subnormals, which carry fewer.
	local precision = x < 2.2250738585072014e-308 and 0 or 14
	local text = format("%." .. precision .. "e", x)
	while tonumber(text) ~= x do
		local above = precision == 15 and next_above(text)
		precision = precision + 1
		text = above and tonumber(above) == x and above or format("%." .. precision .. "e", x)
	end
	local first, fraction, exponent = match(text, "^(%d)%.?(%d*)e(.*)$")
	return first .. gsub(fraction, "0+$", ""), tonumber(exponent)
end

local function float_text(x)
	if x ~= x or x == huge or x == -huge then return "null" end
	if x == 0.0 then return 1 / x < 0 and "-0.0" or "0.0" end
	local sign = ""
	if x < 0 then sign, x = "-", -x end
	local digits, exponent = shortest(x)
	local count, point = #digits, exponent + 1
	if count <= point and point <= 16 then
		return sign .. digits .. rep("0", point - count) .. ".0"
	elseif 0 < point and point <= 16 then
		return sign .. sub(digits, 1, point) .. "." .. sub(digits, point + 1)
	elseif -5 < point and point <= 0 then
		return sign .. "0." .. rep("0", -point) .. digits
	elseif count == 1 then
		return sign .. digits .. "e" .. exponent
	end
	return sign .. sub(digits, 1, 1) .. "." .. sub(digits, 2) .. "e" .. exponent
end

local function refuse_key(t, state, depth)
	-- The stable order picks the key, so that a replay shows the same message.
	for key in sorted_pairs(t) do
		local kind = type(key)
		if kind ~= "string" then
			local shown = (kind == "number" or kind == "boolean") and tostring(key) or "<" .. kind .. ">"
			error(format(
				"cannot serialize a table whose key %s is a %s%s: JSON object keys must be strings, use tostring(key)",
				shown, kind, place(state, depth)
			), 0)
		end
	end
end

local function is_other_key(key, length) return math_type(key) ~= "integer" or key < 1 or key > length end

local function has_other_keys(t, length)
	for key in next, t do
		if is_other_key(key, length) then return true end
	end
	return false
end

-- The keys that a table has beside those of its list, for a message.
local function other_keys(t, length)
	local shown, others = {}, 0
	for key in sorted_pairs(t) do
		if is_other_key(key, length) then
			others = others + 1
			if others <= MOST_KEYS_SHOWN then
				local kind = type(key)
				shown[others] = kind == "string" and format("%q", gsub(repair(sub(key, 1, 80)), "%c", "?"))
					or (kind == "number" or kind == "boolean") and tostring(key) or "<" .. kind .. ">"
			end
		end
	end
	local rest = others > MOST_KEYS_SHOWN and format(" and %d more", others - MOST_KEYS_SHOWN) or ""
	return concat(shown, ", ") .. rest
end

local write

local function write_table(out, n, t, depth, state)
	local open = state.open
	if open[t] then error("cannot serialize a recursive table" .. place(state, depth), 0) end
	if depth >= MAX_DEPTH then
		error("cannot serialize a value nested deeper than " .. MAX_DEPTH .. " tables", 0)
	end
	open[t] = true
	local path, inner, length = state.path, depth + 1, list_length(t)
	if length > 0 or rawequal(get_metatable(t), ARRAY_MARK) then
		if state.on_issue and not state.mixed and has_other_keys(t, length) then
			report(state, "mixed", depth, other_keys(t, length))
		end
		local separator = "["
		for i = 1, length do
			out[n + 1] = separator
			separator = ","
			path[inner] = i
			n = write(out, n + 1, rawget(t, i), inner, state)
		end
		n = n + 1
		out[n] = length > 0 and "]" or "[]"
	else
		local keys, count = {}, 0
		for key in next, t do
			if type(key) ~= "string" then refuse_key(t, state, depth) end
			count = count + 1
			keys[count] = key
		end
		if count > 1 then sort(keys) end
		local separator = "{"
		for i = 1, count do
			local key = keys[i]
			path[inner] = key
			out[n + 1] = separator
			out[n + 2] = quote(key, state, inner)
			out[n + 3] = ":"
			separator = ","
			n = write(out, n + 3, rawget(t, key), inner, state)
		end
		n = n + 1
		out[n] = count > 0 and "}" or "{}"
	end
	open[t] = nil
	return n
end

function write(out, n, value, depth, state)
	local kind = type(value)
	if kind == "string" then
		out[n + 1] = quote(value, state, depth)
	elseif kind == "table" then
		return write_table(out, n, value, depth, state)
	elseif kind == "number" then
		out[n + 1] = math_type(value) == "integer" and tostring(value) or float_text(value)
	elseif kind == "boolean" then
		out[n + 1] = value and "true" or "false"
	elseif kind == "nil" or rawequal(value, null) then
		out[n + 1] = "null"
	else
		error("cannot serialize <" .. kind .. ">" .. place(state, depth), 0)
	end
	return n + 1
end

-- encode(value, on_issue?) -> text. on_issue(kind, path, keys?) hears of what is lost, at most once per kind:
-- "mixed" (an array with other keys, which are dropped) and "utf8" (bytes that were repaired with U+FFFD).
local function encode(value, on_issue)
	local out = {}
	write(out, 0, value, 0, { path = {}, open = {}, on_issue = on_issue })
	return concat(out)
end

-- Decode ------------------------------------------------------------------------------------------------------------

local UNESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }

local function fail(s, at, what)
	local line, line_start = 1, 1
	while true do
		local newline = find(s, "\n", line_start, true)
		if not newline or newline >= at then break end
		line, line_start = line + 1, newline + 1
	end
	error(format("invalid JSON: %s at line %d column %d", what, line, at - line_start + 1), 0)
end

local function skip_blanks(s, i)
	return find(s, "[^ \t\r\n]", i) or #s + 1
end

local function read_unicode_escape(s, i)
	local hex = match(s, "^%x%x%x%x", i)
	if not hex then fail(s, i, "expected four hex digits after \\u") end
	return tonumber(hex, 16)
end

-- The rest of a string that holds escapes; `from` is its first unread byte, `i` the first special byte after it.
local function read_escaped(s, from, i)
	local out, n = {}, 0
	while true do
		local char = i and byte(s, i)
		if char == 34 then
			out[n + 1] = sub(s, from, i - 1)
			return concat(out), i + 1
		elseif char == 92 then
			local escape = sub(s, i + 1, i + 1)
			local plain, after = UNESCAPES[escape], i + 2
			if escape == "u" then
				local code = read_unicode_escape(s, after)
				after = after + 4
				if code >= 0xD800 and code <= 0xDFFF then
					local low = code < 0xDC00 and sub(s, after, after + 1) == "\\u" and read_unicode_escape(s, after + 2)
					if not low or low < 0xDC00 or low > 0xDFFF then
						fail(s, i, "lone surrogate in a \\u escape")
					end
					code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00)
					after = after + 6
				end
				plain = utf8_char(code)
			elseif not plain then
				fail(s, i, escape == "" and "unterminated string" or "unknown escape in a string")
			end
			out[n + 1] = sub(s, from, i - 1)
			out[n + 2] = plain
			n = n + 2
			from = after
			i = find(s, '["\\\0-\31]', from)
		elseif char then
			fail(s, i, format("control character 0x%02x in a string (write it as an escape)", char))
		else
			fail(s, #s + 1, "unterminated string")
		end
	end
end

-- i is the position after the opening quote.
local function read_string(s, i)
	local stop = find(s, '["\\\0-\31]', i)
	if stop and byte(s, stop) == 34 then return sub(s, i, stop - 1), stop + 1 end
	return read_escaped(s, i, stop)
end

local function read_number(s, i)
	local _, stop = find(s, "^-?[0-9]+", i)
	if not stop then fail(s, i + 1, "expected a digit after '-'") end
	if find(s, "^-?0[0-9]", i) then fail(s, i, "number with a leading zero") end
	local follow = byte(s, stop + 1)
	if follow == 46 then -- .
		local _, fraction = find(s, "^[0-9]+", stop + 2)
		if not fraction then fail(s, stop + 2, "expected a digit after the decimal point") end
		stop = fraction
		follow = byte(s, stop + 1)
	end
	if follow == 101 or follow == 69 then -- e E
		local _, exponent = find(s, "^[+-]?[0-9]+", stop + 2)
		if not exponent then fail(s, stop + 2, "expected a digit in the exponent") end
		stop = exponent
	end
	local text = sub(s, i, stop)
	if text == "-0" then return -0.0, stop + 1 end -- an integer cannot carry the sign
	local value = tonumber(text)
	if value == huge or value == -huge then fail(s, i, "number out of range") end
	return value, stop + 1
end

local read_value

-- What stands for null in the text that is being read.
local as_null = null

local function read_array(s, i, depth)
	local items, n, has_holes = set_metatable({}, ARRAY_MARK), 0, false
	i = skip_blanks(s, i)
	if byte(s, i) == 93 then return items, i + 1 end
	while true do
		n = n + 1
		local item
		item, i = read_value(s, i, depth)
		items[n] = item
		has_holes = has_holes or item == nil
		i = skip_blanks(s, i)
		local char = byte(s, i)
		if char == 93 then
			if has_holes then spans[items] = n end
			return items, i + 1
		elseif char ~= 44 then
			fail(s, i, char and "expected ',' or ']'" or "end of text inside an array")
		end
		i = skip_blanks(s, i + 1)
	end
end

local function read_object(s, i, depth)
	local object = {}
	i = skip_blanks(s, i)
	if byte(s, i) == 125 then return object, i + 1 end
	while true do
		if byte(s, i) ~= 34 then
			fail(s, i, i > #s and "end of text inside an object" or "expected a string as key")
		end
		local key
		key, i = read_string(s, i + 1)
		i = skip_blanks(s, i)
		if byte(s, i) ~= 58 then fail(s, i, i > #s and "end of text inside an object" or "expected ':'") end
		object[key], i = read_value(s, skip_blanks(s, i + 1), depth)
		i = skip_blanks(s, i)
		local char = byte(s, i)
		if char == 125 then
			return object, i + 1
		elseif char ~= 44 then
			fail(s, i, char and "expected ',' or '}'" or "end of text inside an object")
		end
		i = skip_blanks(s, i + 1)
	end
end

-- `depth` counts the arrays and objects around the value; i stands on its first byte.
function read_value(s, i, depth)
	local char = byte(s, i)
	if char == 34 then
		return read_string(s, i + 1)
	elseif char == 123 or char == 91 then
		if depth >= MAX_DEPTH then fail(s, i, "nesting deeper than " .. MAX_DEPTH .. " levels") end
		return (char == 123 and read_object or read_array)(s, i + 1, depth + 1)
	elseif char == 45 or char and char >= 48 and char <= 57 then
		return read_number(s, i)
	elseif char == 116 and sub(s, i, i + 3) == "true" then
		return true, i + 4
	elseif char == 102 and sub(s, i, i + 4) == "false" then
		return false, i + 5
	elseif char == 110 and sub(s, i, i + 3) == "null" then
		return as_null, i + 4
	end
	fail(s, i, char and "expected a value" or "end of text where a value was expected")
end

local function read_text(text)
	local value, i = read_value(text, skip_blanks(text, 1), 0)
	i = skip_blanks(text, i)
	if i <= #text then fail(text, i, "text after the end of the value") end
	return value
end

-- decode(text) -> value, with null as programs see it: nil, or the value `null` where they were started that way. Bytes
-- that are not UTF-8 pass through inside strings; they are repaired where text leaves Lua.
local function decode(text)
	if host.null_is_nil then as_null = nil else as_null = null end
	return read_text(text)
end

-- The same with null as the value, for what is not shown to a program but written again.
local function decode_whole(text)
	as_null = null
	return read_text(text)
end

return {
	encode = encode, decode = decode, decode_whole = decode_whole, array = array, is_array = is_array,
	list_length = list_length, sorted_pairs = sorted_pairs,
}
