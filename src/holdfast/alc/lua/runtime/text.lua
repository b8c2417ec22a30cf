-- The pure functions of `alc`: JSON, reading what models write, cutting texts, voting, lists and settings. Nothing here
-- asks the host for an answer.

local host = ...

local order = host.load("order")
local null = host.null
local tostring, stable_format = order.tostring, order.format
local byte, find, format, gmatch, gsub, lower, match, reverse, sub = string.byte, string.find, string.format,
	string.gmatch, string.gsub, string.lower, string.match, string.reverse, string.sub
local concat, pack, unpack = table.concat, table.pack, table.unpack
local ceil, floor, huge, max, math_type, tointeger =
	math.ceil, math.floor, math.huge, math.max, math.type, math.tointeger
local error, ipairs, pcall, rawget, tonumber, type = error, ipairs, pcall, rawget, tonumber, type
local get_metatable = debug.getmetatable

-- Arguments ---------------------------------------------------------------------------------------------------------

local function name_of(value)
	return value == null and "null" or type(value)
end

-- A string parameter also takes a number.
local function text_of(value, what)
	local kind = type(value)
	if kind == "string" then return value end
	if kind == "number" then return tostring(value) end
	error(format("%s must be a string, got %s", what, name_of(value)), 3)
end

local function options_of(value, what)
	if value == nil or value == null then return {} end
	if type(value) ~= "table" then error(format("%s: opts must be a table, got %s", what, name_of(value)), 3) end
	return value
end

local function check_list(value, what)
	if type(value) ~= "table" then error(format("%s must be an array, got %s", what, name_of(value)), 3) end
end

local function check_callable(value, what)
	if type(value) == "function" then return end
	local metatable = get_metatable(value)
	if not metatable or rawget(metatable, "__call") == nil then
		error(format("%s must be a function, got %s", what, name_of(value)), 3)
	end
end

-- An option that counts: whole floats and numeric strings will do, anything else means the default.
local function count_of(value, default)
	local count = tointeger(tonumber(value))
	if count and count >= 0 then return count end
	return default
end

-- Searching ---------------------------------------------------------------------------------------------------------

-- Linear, unlike the pattern with a lazy middle.
local function trim(text)
	local from = find(text, "%S")
	return from and match(text, ".*%S", from) or ""
end

local function last_position(text_reversed, part)
	local at = find(text_reversed, reverse(part), 1, true)
	return at and #text_reversed - at - #part + 2
end

local VERDICTS = {}
for word in gmatch("approved yes ok accept pass confirm agree true lgtm", "%a+") do VERDICTS[word] = true end
for word in gmatch("rejected no deny block fail refuse disagree false", "%a+") do VERDICTS[word] = false end

-- Cutting -----------------------------------------------------------------------------------------------------------

local function lines_of(text)
	local lines = {}
	for line, newline in gmatch(text, "([^\n]*)(\n?)") do
		if newline == "\n" then
			lines[#lines + 1] = gsub(line, "\r$", "")
		elseif line ~= "" then
			lines[#lines + 1] = line
		end
	end
	return lines
end

-- The balanced parts of a text, from left to right and not inside each other: what `%b` finds, in one pass.
local function balanced(text, pattern, opening)
	local opened, closing = {}, {}
	local at = find(text, pattern)
	while at do
		if byte(text, at) == opening then
			opened[#opened + 1] = at
		elseif #opened > 0 then
			closing[opened[#opened]] = at
			opened[#opened] = nil
		end
		at = find(text, pattern, at + 1)
	end
	local from = 1
	return function()
		while true do
			local open = find(text, pattern, from)
			if not open then return nil end
			local close = closing[open]
			from = (close or open) + 1
			if close then return sub(text, open, close) end
		end
	end
end

-- What stands in the first fence that opens with `mark`. Plain searches, because on a long run of blanks in a fence
-- that never closes a pattern with several repetitions takes hours.
local function fenced(text, mark)
	local _, opened = find(text, mark, 1, true)
	local closed = opened and find(text, "```", opened + 1, true)
	return closed and sub(text, opened + 1, closed - 1)
end

local function decoded_table(text)
	if not text then return nil end
	local ok, value = pcall(host.decode, text)
	return ok and type(value) == "table" and value or nil
end

-- Formatting --------------------------------------------------------------------------------------------------------

local function whole_number(value)
	local below = floor(value)
	if value >= 0 then return value - below >= 0.5 and below + 1 or below end
	local above = ceil(value)
	return above - value >= 0.5 and above - 1 or above
end

-- An integer conversion and its value, changed where string.format would raise.
local function integer_conversion(flags, width, kind, value)
	if type(value) == "string" then value = tonumber(value) or value end
	local left = find(flags, "-", 1, true) and "-" or ""
	if math_type(value) == "float" then
		if value ~= value then return "%" .. left .. width .. "s", "NaN" end
		if value == huge or value == -huge then return "%" .. left .. width .. "s", value > 0 and "Inf" or "-Inf" end
		value = whole_number(value)
		-- Beyond 64 bits it stays a float.
		if math_type(value) == "float" and find(kind, "[diu]") then return "%" .. flags .. width .. ".0f", value end
	end
	return nil, value
end

-- Settings ----------------------------------------------------------------------------------------------------------

local function merged(defaults, source)
	local result = {}
	for key, value in order.pairs(defaults) do
		if key ~= "_schema" then
			local given = source[key]
			if given == nil then
				result[key] = value
			elseif type(value) == "table" and type(given) == "table" and value[1] == nil then
				result[key] = merged(value, given)
			else
				result[key] = given
			end
		end
	end
	return result
end

return function(alc)
	-- JSON ----------------------------------------------------------------------------------------------------------

	function alc.json_encode(value)
		return host.encode(value, host.warn_of("alc.json_encode: value"))
	end

	function alc.json_decode(text)
		return host.decode(text_of(text, "alc.json_decode: text"))
	end

	-- The first table in what a model wrote, or nil.
	function alc.json_extract(raw)
		if type(raw) ~= "string" then return nil end
		local value = decoded_table(raw) or decoded_table(fenced(raw, "```json")) or decoded_table(fenced(raw, "```"))
		if value then return value end
		for part in balanced(raw, "[{}]", 123) do
			value = decoded_table(part)
			if value then return value end
		end
		for part in balanced(raw, "[%[%]]", 91) do
			value = decoded_table(part)
			if value then return value end
		end
		return nil
	end

	-- The entries of a list that a model wrote: numbered lines or those with a dash, a star or a bullet, else the texts
	-- of the first JSON array; each once, at most `most`.
	function alc.list_items(text, most)
		text = text_of(text, "alc.list_items: text")
		most = count_of(most, huge)
		local entries, seen = host.array({}), {}
		local function add(entry)
			entry = trim(entry)
			if entry == "" or seen[entry] or #entries >= most then return end
			seen[entry] = true
			entries[#entries + 1] = entry
		end
		for line in gmatch(text, "[^\n]+") do
			local mark = match(line, "^[ \t]*[0-9]+[.)][ \t]()") or match(line, "^[ \t]*[-*][ \t]()")
				or match(line, "^[ \t]*•[ \t]()")
			if mark then add(sub(line, mark)) end
		end
		local listed = #entries == 0 and alc.json_extract(text) or {}
		for i = 1, #listed do
			if type(listed[i]) == "string" then add(listed[i]) end
		end
		return entries
	end

	-- Reading what models write ---------------------------------------------------------------------------------------

	function alc.match_enum(text, candidates, opts)
		local fuzzy = host.load("fuzzy")
		text = fuzzy.lower_case(text_of(text, "alc.match_enum: text"))
		check_list(candidates, "alc.match_enum: candidates")
		local threshold = tonumber(options_of(opts, "alc.match_enum").threshold) or 0.7
		local names, lowered = {}, {}
		for i = 1, #candidates do
			names[i] = text_of(candidates[i], "alc.match_enum: candidate " .. i)
			lowered[i] = fuzzy.lower_case(names[i])
		end
		local best, best_at
		local backwards = reverse(text)
		for i = 1, #names do
			local at = last_position(backwards, lowered[i])
			if at and (not best or at > best_at) then best, best_at = names[i], at end
		end
		if best then return best end
		local best_score
		for i = 1, #lowered do lowered[i] = fuzzy.characters(lowered[i]) end
		for _, word in ipairs(fuzzy.words(text)) do
			for i = 1, #names do
				local score = fuzzy.jaro_winkler(word, lowered[i])
				if score >= threshold and (not best or score > best_score) then best, best_score = names[i], score end
			end
		end
		return best
	end

	function alc.match_bool(text)
		local verdict
		for word in gmatch(lower(text_of(text, "alc.match_bool: text")), "[0-9a-z]+") do
			local found = VERDICTS[word]
			if found ~= nil then verdict = found end
		end
		return verdict
	end

	function alc.parse_score(text, default)
		local score = tonumber((match(tostring(text), "%d+")))
		if not score then return default or 5 end
		return score < 1 and 1 or score > 10 and 10 or score
	end

	function alc.parse_number(text, pattern)
		if type(text) ~= "string" then return nil end
		if not pattern or pattern == null then pattern = "%-?%d+%.?%d*" end
		return tonumber((match(text, pattern)))
	end

	-- Texts -----------------------------------------------------------------------------------------------------------

	function alc.chunk(text, opts)
		text = text_of(text, "alc.chunk: text")
		opts = options_of(opts, "alc.chunk")
		local size, overlap = count_of(opts.size, 50), count_of(opts.overlap, 0)
		local units, joint
		if opts.mode == "chars" then
			units, joint = host.load("fuzzy").characters(text), ""
		else
			units, joint = lines_of(text), "\n"
		end
		local chunks, total = host.array({}), #units
		if size == 0 or total == 0 then return chunks end
		local step, from = max(size - overlap, 1), 1
		while true do
			-- Subtracted, because a size near the largest integer must not wrap around.
			local last = size > total - from and total or from + size - 1
			chunks[#chunks + 1] = concat(units, joint, from, last)
			if last == total then return chunks end
			from = from + step
		end
	end

	-- The same for texts that differ only in case and blanks. For finding repeats; not for security.
	function alc.fingerprint(text)
		local folded = trim(gsub(lower(tostring(text)), "%s+", " "))
		local hash = 5381
		for i = 1, #folded do hash = (hash * 33 + byte(folded, i)) & 0xFFFFFFFF end
		return format("%08x", hash)
	end

	-- 16 hex digits for exactly this text (FNV-1a, 64 bits). For names and look-ups; not for security.
	function alc.hash(text)
		text = text_of(text, "alc.hash: text")
		local hash = 0xcbf29ce484222325
		for i = 1, #text do hash = (hash ~ byte(text, i)) * 0x100000001b3 end
		return format("%016x", hash)
	end

	-- string.format that does not fail on what models and arithmetic bring: fractions, NaN and numerals where an
	-- integer is wanted, nil where a text is.
	function alc.fmt(pattern, ...)
		local values, i = pack(...), 0
		pattern = text_of(pattern == nil and "" or pattern, "alc.fmt: pattern")
		pattern = gsub(pattern, "%%([-+ #0]*)([0-9]*)(%.?[0-9]*)(.)", function(flags, width, precision, kind)
			if kind == "%" then return nil end
			i = i + 1
			if i > values.n then return nil end
			local changed
			if find(kind, "[diouxXc]") then
				changed, values[i] = integer_conversion(flags, width, kind, values[i])
				-- Lua has no unsigned conversion.
				if kind == "u" and not changed then changed = "%" .. flags .. width .. precision .. "d" end
			elseif kind == "s" and values[i] == nil then
				values[i] = "<nil>"
			end
			return changed
		end)
		return stable_format(pattern, unpack(values, 1, values.n))
	end

	function alc.log_fmt(level, pattern, ...)
		return alc.log(level, alc.fmt(pattern, ...))
	end

	-- Lists -----------------------------------------------------------------------------------------------------------

	-- One after the other: alc.parallel asks for all at once.
	function alc.map(items, fn)
		check_list(items, "alc.map: items")
		check_callable(fn, "alc.map: fn")
		local results = {}
		for i, item in ipairs(items) do results[i] = fn(item, i) end
		return results
	end

	function alc.reduce(items, fn, init)
		check_list(items, "alc.reduce: items")
		check_callable(fn, "alc.reduce: fn")
		local result, first = init, 1
		if result == nil then result, first = items[1], 2 end
		for i = first, #items do result = fn(result, items[i], i) end
		return result
	end

	function alc.filter(items, fn)
		check_list(items, "alc.filter: items")
		check_callable(fn, "alc.filter: fn")
		local kept = {}
		for i, item in ipairs(items) do
			if fn(item, i) then kept[#kept + 1] = item end
		end
		return kept
	end

	function alc.vote(answers)
		check_list(answers, "alc.vote: answers")
		local counts, winner, best, seen = {}, nil, 0, {}
		for _, answer in ipairs(answers) do
			local text = trim(tostring(answer))
			if not counts[text] then
				counts[text] = 0
				seen[#seen + 1] = text
			end
			counts[text] = counts[text] + 1
		end
		for _, text in ipairs(seen) do
			if counts[text] > best then winner, best = text, counts[text] end
		end
		return { winner = winner, count = best, total = #answers }
	end

	-- Defaults with what ctx (or ctx[opts.prefix], if it is there) says about the same keys.
	function alc.tuning(defaults, ctx, opts)
		if type(defaults) ~= "table" then return defaults end
		local prefix = options_of(opts, "alc.tuning").prefix
		local source = ctx
		if source == nil or source == null then source = {} end
		if type(source) ~= "table" then error(format("alc.tuning: ctx must be a table, got %s", type(source)), 2) end
		if prefix ~= nil and prefix ~= null and source[prefix] ~= nil then
			source = source[prefix]
			if type(source) ~= "table" then
				alc.log("warn", format("alc.tuning: ctx['%s'] is not a table and is ignored", tostring(prefix)))
				source = {}
			end
		end
		return merged(defaults, source)
	end
end
