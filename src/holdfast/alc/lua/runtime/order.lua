-- What would differ from run to run in plain Lua, made repeatable: the order of `pairs` and `next`, what `table.sort`
-- does with equals, and the addresses that `tostring` and `string.format` print. Numbers come first, ascending; then
-- texts by their bytes; then false, true. Tables, functions and the like have no order of their own: as keys they come
-- last, in an order that is not repeatable.

local shown_metatable, weak = getmetatable, setmetatable
local getmetatable, setmetatable = debug.getmetatable, debug.setmetatable
local next, type, rawget, rawset, error, select = next, type, rawget, rawset, error, select
local sort, pack, unpack, min = table.sort, table.pack, table.unpack, math.min
local tostring, pcall = tostring, pcall
local format, gsub, gmatch, find = string.format, string.gsub, string.gmatch, string.find

-- Keys of a table in the stable order, and how many there are; nil if they are 1 to that number.
local function ordered_keys(t)
	local numbers, texts, others = {}, {}, nil
	local n, s, plain = 0, 0, true
	local yes, no
	for key in next, t do
		local kind = type(key)
		if kind == "number" then
			n = n + 1
			numbers[n] = key
			plain = plain and key == n
		elseif kind == "string" then
			s = s + 1
			texts[s] = key
		elseif kind == "boolean" then
			if key then yes = true else no = true end
		else
			others = others or {}
			others[#others + 1] = key
		end
	end
	if s == 0 and plain and not others and not yes and not no then return nil, n end
	if not plain then sort(numbers) end
	if s > 1 then sort(texts) end
	for i = 1, s do numbers[n + i] = texts[i] end
	n = n + s
	if no then n = n + 1; numbers[n] = false end
	if yes then n = n + 1; numbers[n] = true end
	if others then
		for i = 1, #others do numbers[n + i] = others[i] end
		n = n + #others
	end
	return numbers, n
end

local function comes_before(a, b)
	local kind_a, kind_b = type(a), type(b)
	if kind_a == kind_b and (kind_a == "number" or kind_a == "string") then return a < b end
	if kind_a == "boolean" and kind_b == "boolean" then return b and not a end
	local rank = { number = 1, string = 2, boolean = 3 }
	return (rank[kind_a] or 4) < (rank[kind_b] or 4)
end

-- Small tables with names only, by the order in which `next` gives the names: a tree whose branches are names. Programs
-- have many tables of few kinds, so that the names of each kind are sorted once. A branch at which tables end has the
-- function that walks them, and the one that watches them.
local MOST_NAMES, MOST_BRANCHES = 32, 2000
local WALK, WATCH, DEPTH = {}, {}, {}
local kinds, branches = { [DEPTH] = 0 }, 0

-- A table has the keys that it had until it gets another one. To look at all of them before each walk takes longer than
-- the walk itself; so a table that is walked again and again is watched: it gets a metatable that programs do not see,
-- and that takes itself away when a key is added. By metatable: the function that walks the tables that have it.
local walk_of = weak({}, { __mode = "k" })

-- The metatable of watched tables; `lost` is called with one that got another key.
local function new_mark(walk, lost)
	local mark = {}
	function mark.__newindex(t, key, value)
		setmetatable(t, nil)
		lost(t)
		if key == nil or key ~= key then error(key == nil and "table index is nil" or "table index is NaN", 2) end
		t[key] = value
	end
	walk_of[mark] = walk
	return mark
end

-- Watches tables of one kind, unless they seldom stay as they are.
local function watcher(walk)
	local watched, lost = 0, 0
	local mark = new_mark(walk, function() lost = lost + 1 end)
	return function(t)
		if watched < 2 * lost then return end
		watched = watched + 1
		setmetatable(t, mark)
	end
end

local function walker(names)
	local first, following = names[1], {}
	for i = 2, #names do following[names[i - 1]] = names[i] end
	return function(t, name)
		if name == nil then name = first else name = following[name] end
		while name ~= nil do
			local value = t[name]
			if value ~= nil then return name, value end
			name = following[name] -- it was taken out meanwhile
		end
		return nil
	end
end

-- The function that walks a table, for a kind that was not seen before; nil if it has too many names, or other keys.
local function learn(t)
	local kind = kinds
	for key in next, t do
		local inner = kind[key]
		if not inner then
			local depth = kind[DEPTH] + 1
			if type(key) ~= "string" or depth > MOST_NAMES or branches == MOST_BRANCHES then return nil end
			branches = branches + 1
			inner = { [DEPTH] = depth }
			kind[key] = inner
		end
		kind = inner
	end
	if kind == kinds then return nil end
	local walk = walker((ordered_keys(t)))
	kind[WALK], kind[WATCH] = walk, watcher(walk)
	return walk
end

local function is_list(t)
	local n = 0
	for key in next, t do
		n = n + 1
		if key ~= n then return false end
	end
	return true, n
end

-- Other tables, by themselves: how many keys each had when it was last walked. One that has as many again is watched.
-- What is kept for a small one takes more memory than the table itself, so that only some of them are.
local MOST_REMEMBERED, small_left = 20000, 4000
local counts = weak({}, { __mode = "k" })

local function forget(t) counts[t] = nil end

local function is_to_be_watched(t, keys, count)
	if counts[t] ~= count then
		counts[t] = count
		return false
	end
	if count <= MOST_NAMES then
		small_left = small_left - 1
		return small_left >= 0
	end
	return not keys or count <= MOST_REMEMBERED
end

local function list_walker(count)
	return function(t, at)
		at = (at or 0) + 1
		while at <= count do
			local value = t[at]
			if value ~= nil then return at, value end
			at = at + 1 -- it was taken out meanwhile
		end
	end
end

-- Walks one table. Keys that are gone are passed over once: should they come back, the table is not watched any more.
local function key_walker(keys, count)
	local first, following = keys[1], {}
	for i = 2, count do following[keys[i - 1]] = keys[i] end
	return function(t, before)
		local key = first
		if before ~= nil then key = following[before] end
		while key ~= nil do
			local value = t[key]
			if value ~= nil then return key, value end
			key = following[key]
			if before == nil then first = key else following[before] = key end
		end
		return nil
	end
end

local function nothing() end

local function pairs_of_others(t)
	local mt = getmetatable(t)
	local own = mt and rawget(mt, "__pairs")
	if own then
		local iterate, state, first = own(t)
		return iterate, state, first
	end
	if type(t) ~= "table" then
		error(format("bad argument #1 to 'for iterator' (table expected, got %s)", t == nil and "nil" or type(t)), 3)
	end
	local first, i, list, keys, count = next(t), 0, nil, nil, nil
	if first == nil then return nothing, t, nil end
	if not mt and type(first) == "string" then
		local walk = learn(t)
		if walk then return walk, t, nil end
	end
	if first == 1 then list, count = is_list(t) end
	if not list then keys, count = ordered_keys(t) end
	if not mt then
		if is_to_be_watched(t, keys, count) then
			local walk = keys and key_walker(keys, count) or list_walker(count)
			setmetatable(t, new_mark(walk, forget))
			return walk, t, nil
		end
		-- Not `next` itself: a program must not get hold of it.
		if not keys then return list_walker(count), t, nil end
		return function()
			while i < count do
				i = i + 1
				local key = keys[i]
				local value = t[key]
				if value ~= nil then return key, value end
			end
		end, t, nil
	end
	if not keys then
		return function()
			while i < count do
				i = i + 1
				local value = rawget(t, i)
				if value ~= nil then return i, value end
			end
		end, t, nil
	end
	return function()
		while i < count do
			i = i + 1
			local key = keys[i]
			local value = rawget(t, key)
			if value ~= nil then return key, value end
		end
	end, t, nil
end

local function ordered_pairs(t)
	local mt = getmetatable(t)
	local known = walk_of[mt]
	if known then return known, t, nil end
	if mt == nil and type(t) == "table" then
		local kind = kinds
		for name in next, t do
			kind = kind[name]
			if kind == nil then break end
		end
		local walk = kind and kind[WALK]
		if walk then
			kind[WATCH](t)
			return walk, t, nil
		end
	end
	-- Not a tail call: errors are blamed on the caller, three levels up.
	local iterate, state, first = pairs_of_others(t)
	return iterate, state, first
end

-- What would show the metatable of a watched table, or pass it by. Tail calls: errors are blamed on the caller.

local function own_metatable(...)
	local value = ...
	if value == nil then return shown_metatable(...) end
	local mt = shown_metatable(value)
	if walk_of[mt] then return nil end
	return mt
end

-- As `debug.getmetatable`, which sees metatables that hide themselves.
local function debug_metatable(...)
	if walk_of[getmetatable((...))] then return nil end
	return getmetatable(...)
end

local function own_rawset(...)
	local t = ...
	if walk_of[getmetatable(t)] then setmetatable(t, nil) end
	return rawset(...)
end

-- Where `next` was last time, by table: a traversal goes on there without sorting again.
local traversals = weak({}, { __mode = "k" })

local function ordered_next(t, key)
	if type(t) ~= "table" then
		error(format("bad argument #1 to 'next' (table expected, got %s)", t == nil and "no value" or type(t)), 2)
	end
	if key == nil then
		local first = next(t)
		if first == nil then return nil end
		for other in next, t do
			if comes_before(other, first) then first = other end
		end
		traversals[t] = nil
		return first, rawget(t, first)
	end
	local traversal = traversals[t]
	if not traversal or traversal.keys[traversal.at] ~= key then
		local keys, count = ordered_keys(t)
		if not keys then return next(t, key) end
		traversal = { keys = keys, count = count, at = 0 }
		for i = 1, count do
			if keys[i] == key then traversal.at = i; break end
		end
		if traversal.at == 0 then
			-- The key was taken out during the traversal: go on after where it would be.
			for i = 1, count do
				if comes_before(keys[i], key) then traversal.at = i end
			end
		end
		traversals[t] = traversal
	end
	for i = traversal.at + 1, traversal.count do
		local value = rawget(t, traversal.keys[i])
		if value ~= nil then
			traversal.at = i
			return traversal.keys[i], value
		end
	end
	traversals[t] = nil
	return nil
end

-- Numbers instead of addresses, in the order in which they are first asked for.
local numbers, given = weak({}, { __mode = "k" }), 0

local function address(value)
	local number = numbers[value]
	if not number then
		given = given + 1
		number = given
		numbers[value] = number
	end
	return format("0x%014x", number)
end

local ADDRESSED = { table = true, ["function"] = true, thread = true, userdata = true }

local function stable_tostring(...)
	local value = ...
	if ADDRESSED[type(value)] then
		local mt = getmetatable(value)
		if not mt or rawget(mt, "__tostring") == nil then
			local name = mt and rawget(mt, "__name")
			return (type(name) == "string" and name or type(value)) .. ": " .. address(value)
		end
	elseif value == nil and select("#", ...) == 0 then
		error("bad argument #1 to 'tostring' (value expected)", 2)
	end
	return tostring(value)
end

-- The arguments with texts instead of what has an address, where `%s` or `%p` shows it. Elsewhere it is an error, which
-- is for `string.format` to raise.
local function without_addresses(pattern, ...)
	local values, i = pack(...), 0
	for kind in gmatch((gsub(pattern, "%%%%", "")), "%%[%-+ #0]*%d*%.?%d*(.)") do
		i = i + 1
		if (kind == "s" or kind == "p") and ADDRESSED[type(values[i])] then values[i] = stable_tostring(values[i]) end
	end
	return unpack(values, 1, values.n)
end

-- What `string.format` itself says is wrong, blamed on the place that called it: this file has no names and no lines, so
-- that "bad argument to '?'" would be all there is to see. What a `__tostring` raised is passed on as it is.
local function formatted(ok, text)
	if ok then return text end
	if type(text) == "string" then
		if find(text, "^bad argument #") then error((gsub(text, "'[%w_.?]+'", "'format'", 1)), 3) end
		if find(text, "^invalid ") or find(text, "^'__tostring' must") then error(text, 3) end
	end
	error(text, 0)
end

local function stable_format(pattern, ...)
	local shown = pattern
	if type(pattern) == "string" then
		-- `%p` of a text would print where it lies in memory.
		if find(pattern, "%%%-?%d*p") then shown = gsub(pattern, "%%(%-?%d*)p", "%%%1s") end
		for i = 1, select("#", ...) do
			if ADDRESSED[type((select(i, ...)))] then
				local text = formatted(pcall(format, shown, without_addresses(pattern, ...)))
				return text
			end
		end
	end
	-- Not a tail call: the caller must be two levels above `formatted`.
	local text = formatted(pcall(format, shown, ...))
	return text
end

local function is_less(a, b) return a < b end

-- Up to so many elements, what Lua's own sort does depends on nothing else; in larger tables it may look at the clock.
local SORTED_PLAINLY = 256

local function repeatable_sort(t, comes_first)
	if type(t) ~= "table" then
		error(format("bad argument #1 to 'sort' (table expected, got %s)", t == nil and "nil" or type(t)), 2)
	end
	local count = #t
	if count <= SORTED_PLAINLY or (comes_first ~= nil and type(comes_first) ~= "function") then return sort(t, comes_first) end
	local less = comes_first or is_less
	local from, to, width = {}, {}, 1
	for i = 1, count do from[i] = t[i] end
	while width < count do
		for left = 1, count, 2 * width do
			local middle, stop = min(left + width, count + 1), min(left + 2 * width, count + 1)
			local i, j = left, middle
			for k = left, stop - 1 do
				if i < middle and (j >= stop or not less(from[j], from[i])) then
					to[k] = from[i]
					i = i + 1
				else
					to[k] = from[j]
					j = j + 1
				end
			end
		end
		from, to, width = to, from, 2 * width
	end
	for i = 1, count do t[i] = from[i] end
end

return {
	pairs = ordered_pairs, next = ordered_next, sort = repeatable_sort, tostring = stable_tostring, format = stable_format,
	getmetatable = own_metatable, debug_getmetatable = debug_metatable, rawset = own_rawset,
}
